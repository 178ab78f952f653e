"""Laws of commands: a value arrives as it is, wherever its field stands, and is never run."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from milepost.config.command import CommandTemplate
from milepost.config.template import split_fields
from milepost.config.words import split_words
from milepost.errors import ConfigError

SHOW = f"{shlex.quote(sys.executable)} -SEsc 'import sys; sys.stdout.write(ascii(sys.argv[1:]))'"
"""Prints its arguments as a Python literal; itself quoted, as a template would be."""

HOSTILE = [
    "",
    " ",
    "a b",
    "$(touch pwned)",
    "`touch pwned`",
    "; touch pwned #",
    "&& touch pwned",
    "| touch pwned",
    "> pwned",
    "'; touch pwned; '",
    '"; touch pwned; "',
    "'\"'\"'",
    "${HOME}",
    "$HOME ~ * ? [a-z]",
    "-rf",
    "--",
    "-c",
    "line\nline\n",
    "\ttab\r",
    "\\",
    "\\\\n\\",
    "a[$(touch pwned)]",
    "{a,b}",
    "%s %d %%",
    "{out}",
    "!!",
    "日本語 ümläut 🧪",
    "\x01\x7f",
]
values = st.one_of(
    st.sampled_from(HOSTILE),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40),
)
PLAIN = [
    ("{a}", "%s"),
    ("'{a}'", "%s"),
    ('"{a}"', "%s"),
    ("--x={a}", "--x=%s"),
    ("--x='<{a}>'", "--x=<%s>"),
    ('--x="<{a}>"y', "--x=<%s>y"),
    ("'it'\\''s {a}'", "it's %s"),
    ("{{{a}}}", "{%s}"),
    ("100%{a}", "100%%%s"),
]
"""How a field may stand in a word, and what must arrive."""
IN_SHELL = [
    *PLAIN,
    ('"$X{a}$X"', "-%s-"),
    ("$X{a}", "-%s"),
    ("'$X'{a}", "$X%s"),
    ("'$'{a}", "$%s"),
    ("'{{\"a\": [{a}]}}'", '{"a": [%s]}'),
    ('"[{a}]"', "[%s]"),
    ('"\\"{a}\\" \\$ \\`"', '"%s" $ `'),
    ("$'\\t'{a}", "\t%s"),
    ('"${{X}}"{a}', "-%s"),
    ("\"$(printf %s. '{a}')\"", "%s."),
    ('"$(printf "%s." "{a}")"', "%s."),
    ('"$(printf %s. {a})"', "%s."),
    ('"$(printf \'%s.\' "$(printf x){a}")"', "x%s."),
    ("\\'{a}\\\"", "'%s\""),
]


def run(argv: list[str], folder: Path) -> list[str]:
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert not list(folder.iterdir()), "a value was run"
    shown = eval(done.stdout, {"__builtins__": {}})  # noqa: S307 - a literal that SHOW printed
    assert isinstance(shown, list)
    return shown


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.sampled_from(PLAIN), min_size=1, max_size=4), values)
def test_a_value_arrives_unchanged_without_a_shell(
    tmp_path: Path, places: list[tuple[str, str]], value: str
) -> None:
    command = CommandTemplate.parse(" ".join([SHOW, *(text for text, _ in places)]))
    assert not command.needs_shell
    assert run(command.argv({"a": value}), tmp_path) == [p % value for _, p in places]


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.sampled_from(IN_SHELL), min_size=1, max_size=6), values)
def test_a_value_arrives_unchanged_through_a_shell(
    tmp_path: Path, places: list[tuple[str, str]], value: str
) -> None:
    command = CommandTemplate.parse("X=-; " + " ".join([SHOW, *(text for text, _ in places)]))
    assert command.needs_shell
    assert run(command.argv({"a": value}), tmp_path) == [p % value for _, p in places]


NESTED = [
    ('"$(printf "%s." ', ')"'),
    ('"$( (printf %s. ', ') )"'),
    ('"$(if true; then printf %s. ', '; fi)"'),
    ('"$(cat <(printf %s. ', '))"'),
    ('"$(x=(', '); printf %s. "${{x[@]}}")"'),
    ('"$(X=', '; printf %s. "$X")"'),
    ('"$(f() {{ printf %s. ', '; }}; f)"'),
]
"""Substitutions that hand on one argument with a point behind it."""


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.sampled_from(NESTED), min_size=1, max_size=4),
    st.sampled_from(["{a}", '"{a}"', "'{a}'"]),
    values,
)
def test_a_value_arrives_unchanged_from_any_depth(
    tmp_path: Path, around: list[tuple[str, str]], place: str, value: str
) -> None:
    for before, after in around:
        place = before + place + after
    command = CommandTemplate.parse(f"{SHOW} {place}")
    assert run(command.argv({"a": value}), tmp_path) == [value + "." * len(around)]


@pytest.mark.parametrize("value", HOSTILE)
def test_each_hostile_value_arrives_in_each_place(tmp_path: Path, value: str) -> None:
    for places, before in ((PLAIN, ""), (IN_SHELL, "X=-; ")):
        command = CommandTemplate.parse(before + " ".join([SHOW, *(text for text, _ in places)]))
        assert run(command.argv({"a": value}), tmp_path) == [p % value for _, p in places]


@settings(max_examples=300, deadline=None)
@given(st.text(st.sampled_from(" \tab'\"\\=-%é,:@+"), max_size=20))
def test_words_are_those_of_the_shell(text: str) -> None:
    try:
        words = split_words(split_fields("show " + text))
    except ConfigError:
        with pytest.raises(ValueError, match=r"closing|escaped"):
            shlex.split("show " + text)
        return
    if words is not None:
        assert [str(word[0]) if word else "" for word in words] == shlex.split("show " + text)


@settings(max_examples=40, deadline=None)
@given(st.text(st.sampled_from(" ab'\"\\=-{},.~#!$*?%[]^"), max_size=12))
def test_what_needs_no_shell_means_the_same_in_bash(text: str) -> None:
    """Whatever milepost splits itself, bash splits in the same way."""
    escaped = text.replace("{", "{{").replace("}", "}}")
    try:
        words = split_words(split_fields("show " + escaped))
    except ConfigError:
        return
    if words is None:
        return
    script = "show() { printf '%s\\0' \"$@\"; }; show " + text
    done = subprocess.run(["bash", "-c", script], capture_output=True, timeout=60, check=True)
    printed = done.stdout.decode().split("\0")[:-1]
    assert printed == ([str(word[0]) if word else "" for word in words[1:]] or [""])


@given(st.text(st.sampled_from("{}ab \"'$(`)<[]&|;=\n#\\"), max_size=30))
def test_any_text_is_parsed_or_refused_with_a_reason(text: str) -> None:
    try:
        command = CommandTemplate.parse(text)
    except ConfigError as error:
        assert error.fix
    else:
        assert len(command.argv(dict.fromkeys(command.fields, "v"))) >= 1


REFUSED = [
    "echo `echo {a}`",
    'echo "`echo {a}`"',
    "echo $(( {a} + 1 ))",
    'echo "$(( {a} + 1 ))"',
    "echo $[{a}]",
    "(( {a} > 1 )) && echo",
    "for ((i=0;i<{a};i++)); do echo; done",
    "[[ {a} -eq 1 ]] && echo",
    '[[ x && "{a}" -eq 1 ]] && echo',
    "cat <<END\n{a}\nEND",
    "cat <<-'END'\n{a}\nEND",
    "eval {a}",
    "eval 'echo {a}'",
    'eval "$(echo {a})"',
    "X=1 eval {a}",
    "true; command eval {a}",
    "if eval {a}; then echo; fi",
    "f() {{ eval {a}; }}; f",
    "function f {{ eval {a}; }}; f",
    "$(eval {a})",
    "bash -c {a}",
    "bash -c 'echo {a}'",
    "bash -c 'echo {a}' | cat",
    'timeout 5 /bin/sh -ec "echo {a}"',
    "su -c {a}",
    "ssh node echo {a}",
    "trap {a} EXIT",
    "let n={a}",
    "declare -i n={a}",
    "unset {a}",
    "read {a}",
    "printf -v {a} x",
    "test -v {a}",
    "[ -v {a} ] || true",
    "export {a}=1",
    "readonly -a x={a}",
    "x[{a}]=1",
    'x["{a}"]=1',
    "x=([{a}]=1)",
    "echo ${{x:-{a}}}",
    "echo ${a}",
    "echo $'{a}'",
    "echo | cat \\{a}",
    'echo "$X \\{a}"',
    "true && {a} x",
    "true && x={a} {a} y",
    "n={a}; echo $((n + 1))",
    "n={a}; [[ $n -gt 1 ]] && echo",
    "n=$(echo {a}); echo $((n))",
    "for n in {a}; do echo $((n)); done",
    "n={a}; echo ${{x[n]}}",
    'echo "$(case x in x) echo;; esac)" {a}',
    "echo ${{x:-'}}'}} {a}",
]


@pytest.mark.parametrize("text", REFUSED)
def test_a_place_where_a_value_could_become_code_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="could become code"):
        CommandTemplate.parse(text)


ACCEPTED = [
    ("source env.sh; run {a}", "bash"),
    ("export X={a}; run", "bash"),
    ("X={a} run", "bash"),
    ("cd {a} && run", "bash"),
    ("run < {a} > {a}.log 2>&1", "bash"),
    ("> {a} run {a}", "bash"),
    ("run <<< {a}", "bash"),
    ("run <(sort {a}) {a}", "bash"),
    ('x=({a} b); run "${{x[@]}}"', "bash"),
    ("for f in *; do run $f {a}; done", "bash"),
    ("if [ {a} = x ]; then run; fi", "bash"),
    ("case {a} in x) run;; esac", "bash"),
    ("run a |& tee {a} # about {a}, isn't it", "bash"),
    ("bin/{a} | cat", "bash"),
    ("env {a} | cat", "bash"),
    ("n=3; run $((n * 2)) {a}", "bash"),
    ("run data/*.txt {a}", "bash"),
    ("run ~/x {a}", "bash"),
    ("run\nrun {a}", "bash"),
    ("run {{x,y}} {a}", "bash"),
    ("bash -c 'run \"$1\"' name {a}", "bash"),
    ("run {a} --set x=~ --dir=~", "run"),
    ("{a} --program", "v"),
    ("python -c 'print(1)' {a}", "python"),
    ("run \\\n  {a}", "run"),
    ("run 'a|b;c&d $x `y` *' {a}", "run"),
    ("find {a} -name {{}}", "find"),
]


@pytest.mark.parametrize(("text", "program"), ACCEPTED)
def test_a_shell_is_started_only_where_it_is_needed(text: str, program: str) -> None:
    assert CommandTemplate.parse(text).argv({"a": "v"})[0] == program


def test_the_words_of_a_script_see_no_values_of_others(tmp_path: Path) -> None:
    text = "f() {{ set -- x; " + SHOW + ' "$@" {a} {b}; }}; f y'
    command = CommandTemplate.parse(text)
    assert run(command.argv({"a": "1", "b": "2"}), tmp_path) == ["x", "1", "2"]


def test_a_script_stops_at_the_first_failure_also_in_a_pipe() -> None:
    for text in ("false; echo on", "false | cat; echo on", "echo $NOT_SET_ANYWHERE; echo on"):
        done = subprocess.run(
            CommandTemplate.parse(text).argv({}), capture_output=True, timeout=60, check=False
        )
        assert done.returncode != 0
        assert b"on" not in done.stdout


def test_a_missing_value_is_named() -> None:
    with pytest.raises(ConfigError, match=r"\{beta\}"):
        CommandTemplate.parse("run {alpha} {beta}").argv({"alpha": "1"})
