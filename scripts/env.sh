# Sourced by the other scripts: makes the environment inside the checkout and puts it on PATH.
# Nothing is written outside the checkout. A change of requirements.lock makes it anew.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
venv=$root/.venv
# the caches of pip, uv and Snakemake
export XDG_CACHE_HOME=$root/.cache

missing() {
    printf 'milepost: %s\n' "$1" >&2
    exit 2
}

find_python() {
    local candidate
    for candidate in python3 python3.13 python3.12 python3.11; do
        if command -v "$candidate" >/dev/null 2>&1 &&
            "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
}

make_environment() {
    local python lock=$1
    python=$(find_python)
    [ -n "$python" ] || missing "python3 of version 3.11 or newer is missing; on Debian or Ubuntu: apt install python3 python3-venv"
    echo "milepost: making the environment in .venv (once) ..." >&2
    # one that works is brought up to date in place: something may run in it
    "$venv/bin/python" -c '' 2>/dev/null || rm -rf "$venv"
    if command -v uv >/dev/null 2>&1; then
        [ -x "$venv/bin/python" ] || uv venv --quiet --python "$python" "$venv" || failed
        uv pip install --quiet --python "$venv/bin/python" --require-hashes -r requirements.lock || failed
        uv pip install --quiet --python "$venv/bin/python" --no-deps --no-build-isolation -e . || failed
    else
        "$python" -c 'import venv, ensurepip' 2>/dev/null ||
            missing "the module venv of $python is missing; on Debian or Ubuntu: apt install python3-venv (or install uv)"
        [ -x "$venv/bin/pip" ] || "$python" -m venv "$venv" || failed
        set -- "$venv/bin/python" -m pip install --quiet --disable-pip-version-check
        "$@" --require-hashes -r requirements.lock || failed
        "$@" --no-deps --no-build-isolation -e . || failed
    fi
    printf '%s\n' "$lock" >"$venv/.milepost-lock"
}

failed() {
    missing "the environment could not be made; the lines above say why. Run the same command again when that is mended"
}

for tool in git sha256sum bash; do
    command -v "$tool" >/dev/null 2>&1 || missing "the program $tool is missing; on Debian or Ubuntu: apt install git coreutils bash"
done
lock=$(cat requirements.lock pyproject.toml | sha256sum | cut -d' ' -f1)
if [ ! -x "$venv/bin/milepost" ] || [ "$(cat "$venv/.milepost-lock" 2>/dev/null)" != "$lock" ]; then
    # one process makes it, another waits for it
    exec 9>"$root/.venv.lock"
    flock 9
    if [ "$(cat "$venv/.milepost-lock" 2>/dev/null)" != "$lock" ]; then
        make_environment "$lock"
    fi
    exec 9>&-
fi
export PATH=$venv/bin:$PATH
export VIRTUAL_ENV=$venv
