"""Failure signatures in the configuration: mistakes are named with their line, and they take part."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from helpers.project import PYTHON, Project
from milepost.cli.classify import command
from milepost.config.load import ConfigProblems, load_config, parse_config
from milepost.config.signatures import read_signatures
from milepost.config.tasks import task_key
from milepost.errors import ConfigError
from milepost.journal import read_journal
from milepost.runner.shard import ShardOptions, run_shard

OWN = {
    "name": "no-scratch",
    "class": "storage",
    "subclass": "permission",
    "action": "wait",
    "lines": ["scratch area .{0,40} is not mounted"],
    "why": "the node lost its scratch disk",
}
RUNS = """\
runs:
  x:
    work: {kind: batch, tasks: t.csv, command: "echo {a}"}
"""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text("a\n1\n")


def wrong(*signatures: dict[str, Any]) -> dict[str, str]:
    """Key -> message of each mistake."""
    data = {"signatures": list(signatures), **yaml.safe_load(RUNS)}
    with pytest.raises(ConfigProblems) as caught:
        parse_config(data)
    return {problem.key: problem.says for problem in caught.value.problems}


def test_every_run_gets_them() -> None:
    spec = parse_config({"signatures": [OWN], **yaml.safe_load(RUNS)}).runs["x"]
    assert spec.signatures == (OWN,)
    assert parse_config(yaml.safe_load(RUNS)).runs["x"].signatures == ()


@pytest.mark.parametrize(
    ("change", "key", "says"),
    [
        ({"wrods": ["x"]}, "wrods", "did you mean words?"),
        ({"class": "storrage"}, "class", "did you mean storage?"),
        ({"class": "none"}, "class", "'none' is unknown"),
        ({"action": "retry"}, "action", "did you mean retry_same?"),
        ({"rank": 100}, "rank", "expected a whole number"),
        ({"subclass": "No Scratch"}, "subclass", "expected text"),
        ({"lines": ["ab(c"]}, "lines[0]", "unterminated subpattern"),
        ({"lines": [r"\d+ \w+"]}, "lines[0]", "no plain text of 3 characters"),
        ({"pattern": "*"}, "pattern", "nothing to repeat"),
        ({"lines": None}, "", "says not where to look"),
    ],
)
def test_a_mistake_is_named(change: dict[str, Any], key: str, says: str) -> None:
    row = {name: value for name, value in {**OWN, **change}.items() if value is not None}
    found = wrong({**OWN}, row)
    (where,) = found
    assert where == f"signatures[1].{key}".rstrip(".")
    assert says in found[where]


def test_mistakes_have_their_lines() -> None:
    path = Path("c.yaml")
    path.write_text(
        "signatures:\n"
        "  - {class: data, subclass: odd, action: wait, words: [odd]}\n"
        "  - class: data\n"
        "    subclass: odd\n"
        "    acton: wait\n"
        "    lines: ['(']\n" + RUNS
    )
    with pytest.raises(ConfigProblems) as caught:
        parse_config(load_config([path]), [path])
    said = [str(problem) for problem in caught.value.problems]
    assert said == [
        "signatures[1].acton: unknown key; did you mean action?  [c.yaml:5]",
        "signatures[1].lines[0]: '(' cannot be used as a regular expression: "
        "missing ), unterminated subpattern at position 0  [c.yaml:6]",
    ]


class TestFileOfTheirOwn:
    def test_a_list_and_a_configuration(self) -> None:
        Path("list.yaml").write_text(yaml.safe_dump([OWN]))
        Path("c.yaml").write_text(yaml.safe_dump({"signatures": [OWN]}) + RUNS)
        assert read_signatures(Path("list.yaml")) == [OWN]
        assert read_signatures(Path("c.yaml")) == [OWN]

    def test_mistakes_have_their_lines(self) -> None:
        Path("list.yaml").write_text("- class: data\n  subclass: x\n  action: wait\n  word: [x]\n")
        with pytest.raises(ConfigProblems, match=r"did you mean words\?  \[list.yaml:4\]"):
            read_signatures(Path("list.yaml"))

    @pytest.mark.parametrize("text", ["7", "runs: {}", "signatures: {a: 1}", "{"])
    def test_what_is_no_list(self, text: str) -> None:
        Path("list.yaml").write_text(text)
        with pytest.raises(ConfigError, match=r"no list of signatures|cannot be read as YAML"):
            read_signatures(Path("list.yaml"))

    def test_classify_asks_the_configuration(self) -> None:
        Path("c.yaml").write_text(yaml.safe_dump({"signatures": [OWN]}) + RUNS)
        log = "Scratch area /local/77 is not mounted here\nKeyError: 'x'\n"
        result = CliRunner().invoke(command, ["-", "--signatures", "c.yaml"], input=log)
        assert "storage/permission, next wait" in result.stdout
        assert "| Scratch area /local/77 is not mounted here" in result.stdout


def test_a_shard_asks_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    project = Project(tmp_path)
    project.write("fail.py", "raise SystemExit('scratch area /local/3 is not mounted')\n")
    project.batch("sq", [1], artifacts=[])
    work = {"kind": "batch", "tasks": "config/sq.csv", "command": f"{PYTHON} fail.py {{n}}"}
    project.run("sq", work=work)
    path = tmp_path / "config" / "config.yaml"
    path.write_text(yaml.safe_dump({"signatures": [OWN]}) + path.read_text())
    monkeypatch.setattr(project, "configure", lambda: None)
    paths = project.launch("sq")
    assert run_shard(paths, "0001", ShardOptions(), lambda _: None) == 13
    failed = read_journal(paths.shard("0001").journal).failed[task_key({"n": "1"})]
    assert failed.data["finding"]["subclass"] == "permission"
    assert failed.data["finding"]["action"] == "wait"
