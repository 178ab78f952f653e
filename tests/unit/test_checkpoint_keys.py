"""Keys: from age, exchanged by rekey, and nowhere to be read."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from helpers.packages import have
from milepost.checkpoint.checkpointer import Checkpointer
from milepost.checkpoint.crypt import Tampered, WrongKey, load_key, new_data_key, open_data_key
from milepost.errors import ConfigError, Refused


@pytest.fixture(scope="session")
def age(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    have("age-keygen", "age")
    path = tmp_path_factory.mktemp("age") / "identity"
    subprocess.run(["age-keygen", "-o", str(path)], check=True, capture_output=True, timeout=20)
    said = subprocess.run(
        ["age-keygen", "-y", str(path)], check=True, capture_output=True, text=True, timeout=20
    )
    return {"age_identity": str(path), "age_recipient": said.stdout.strip()}


def a_key(path: Path, seed: int = 1) -> dict[str, str]:
    path.write_bytes(np.random.default_rng(seed).bytes(32))
    path.chmod(0o600)
    return {"key_file": str(path)}


def save(folder: Path, encrypt: dict[str, str], steps: int = 2) -> None:
    x = np.random.default_rng(3).standard_normal(300_000)
    with Checkpointer(folder, encrypt=encrypt, rotation=9) as ck:
        for step in range(steps):
            x[step] = 1e9
            ck.save(step, {"x": x}, {"secret": "state"})
            ck.wait()


def test_age_saves_with_the_recipient_and_restores_with_the_identity(
    tmp_path: Path, age: dict[str, str]
) -> None:
    recipient = {"age_recipient": age["age_recipient"]}
    save(tmp_path, recipient)
    with pytest.raises(WrongKey, match="only the recipient is given"):
        Checkpointer(tmp_path, encrypt=recipient).restore()
    for encrypt in (age, {"age_identity": age["age_identity"]}):
        saved = Checkpointer(tmp_path, encrypt=encrypt).restore()
        assert saved is not None
        assert saved.step == 1
        assert saved.arrays["x"][1] == 1e9
    with pytest.raises(WrongKey, match="is encrypted under the key age-"):
        Checkpointer(tmp_path, encrypt=a_key(tmp_path / "k")).restore()


def test_another_identity_and_a_changed_wrap_are_told_apart(
    tmp_path: Path, age: dict[str, str]
) -> None:
    key = load_key(age)
    assert key is not None
    _, info = new_data_key(key)
    other = tmp_path / "other"
    subprocess.run(["age-keygen", "-o", str(other)], check=True, capture_output=True, timeout=20)
    mixed = load_key({**age, "age_identity": str(other)})
    with pytest.raises(WrongKey, match="another recipient"):
        open_data_key(info, mixed, Path("f"))
    broken = info["wrapped_key"][:-8] + "AAAAAAA="
    with pytest.raises(Tampered, match="wrapped key was changed"):
        open_data_key({**info, "wrapped_key": broken}, key, Path("f"))
    other.chmod(0o644)
    with pytest.raises(Refused, match="read by others"):
        load_key({"age_identity": str(other)})
    with pytest.raises(ConfigError, match="age_recipient"):
        save(tmp_path / "c", {"age_recipient": "nobody"})


def test_a_machine_without_age_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="command age is not there"):
        save(tmp_path / "c", {"age_recipient": "age1x"})


WATCHED = textwrap.dedent(
    """
    import json, os, subprocess, sys, threading
    import numpy as np
    from milepost import Checkpointer

    folder, encrypt = sys.argv[1], json.loads(sys.argv[2])
    real, seen = subprocess.Popen.__init__, []

    def spy(self, args, *rest, **words):
        real(self, args, *rest, **words)
        for name in ("cmdline", "environ"):
            # Empty for a moment after the start; then the child waits for its input.
            while not (text := open(f"/proc/{self.pid}/{name}", "rb").read()):
                assert self.poll() is None
            seen.append(text)

    subprocess.Popen.__init__ = spy
    for step in range(2):
        with Checkpointer(folder, encrypt=encrypt) as ck:
            ck.restore()
            ck.save(step, {"x": np.arange(1e5) + step}, {"step": step})
    own = [open(f"/proc/self/{name}", "rb").read() for name in ("cmdline", "environ")]
    sys.stdout.buffer.write(b"\\0".join([*seen, *own]))
    sys.stderr.write(f"commands: {len(seen) // 2}\\n")
    """
)


@pytest.mark.parametrize("kind", ["file", "age"])
def test_a_key_stands_nowhere_but_in_its_file(
    tmp_path: Path, age: dict[str, str], kind: str
) -> None:
    folder = tmp_path / "c"
    encrypt = age if kind == "age" else a_key(tmp_path / "key")
    path = Path(encrypt.get("age_identity") or encrypt["key_file"])
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, str(folder), json.dumps(encrypt)],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    said = [done.stdout, done.stderr]
    said += [place.read_bytes() for place in folder.rglob("*") if place.is_file()]
    secret = path.read_bytes()
    forms = [secret, secret.hex().encode()]
    if kind == "age":
        for word in (b"--encrypt", b"--decrypt", b"PATH="):
            assert word in done.stdout, "the children were looked at while they ran"
        forms = [line for line in secret.split() if line.startswith(b"AGE-SECRET")]
    assert forms
    for text in said:
        assert not any(form in text for form in forms)
