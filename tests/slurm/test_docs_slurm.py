"""docs/slurm.md is true: its files are written and its commands run, in order, on a real Slurm.

In the page a comment `file: NAME` before a block makes the block a file, `add: NAME` appends to one.
In ```console blocks lines with `$ ` are commands; `# exit code N` behind one says how it ends, else
with 0. The other lines must be in its output: a number stands for any number, `…` for anything.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from helpers.project import REPOSITORY, Project
from helpers.slurm_cluster import Cluster

pytestmark = pytest.mark.slurm

PAGE = REPOSITORY / "docs" / "slurm.md"
BLOCK = re.compile(r"(?:<!-- (file|add): (\S+) -->\n)?^```(\w+)\n(.*?)^```$", re.M | re.S)
EXIT_CODE = re.compile(r"# exit code (\d+)$")
LIMIT_S = 240
"""A command that hangs fails the test instead of the whole session."""


@dataclass
class Command:
    words: str
    exit_code: int
    shown: list[str] = field(default_factory=list)


def commands(block: str) -> Iterator[Command]:
    command: Command | None = None
    for line in block.splitlines():
        if line.startswith("$ "):
            if command is not None:
                yield command
            expected = EXIT_CODE.search(line)
            command = Command(line[2:], int(expected[1]) if expected else 0)
        else:
            assert command is not None, f"output without a command: {line}"
            command.shown.append(line)
    assert command is not None, "a block without a command"
    yield command


def pattern(line: str) -> str:
    """What a shown line matches: any number for a number, anything for an ellipsis."""
    words = [re.sub(r"\d+", r"\\d+", re.escape(word)).replace("…", ".*") for word in line.split()]
    return r"\s+".join(words)


def steps() -> Iterator[tuple[str, str, str]]:
    """(what, name, text) of each file and of each console block, in order."""
    for what, name, language, text in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        if what:
            yield what, name, text
        elif language == "console":
            yield "console", "", text


def linked_project(root: Path) -> Project:
    """An empty project that has the workflow of this checkout, as a copy of it would."""
    for name in ("Snakefile", "workflow", "profiles", "slurm", "scripts"):
        (root / name).symlink_to(REPOSITORY / name)
    return Project(root)


def run(project: Project, command: Command) -> None:
    done = subprocess.run(
        ["bash", "-c", command.words],
        cwd=project.root,
        env=project.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    told = f"$ {command.words}\nexit code {done.returncode}\n{done.stdout}"
    assert done.returncode == command.exit_code, told
    for line in command.shown:
        assert re.search(pattern(line), done.stdout), f"not said: {line}\n{told}"


@pytest.mark.parametrize(
    ("line", "output", "is_said"),
    [
        ("2 DONE, 1 FAILED", "x\n12 DONE,  3 FAILED\n", True),
        ("walltime … a shard", "walltime   120 s a shard", True),
        ("env \\", "env \\\n", True),
        ("1 FAILED", "1 DONE", False),
    ],
)
def test_shown_lines_match_what_differs_from_day_to_day(
    line: str, output: str, is_said: bool
) -> None:
    assert bool(re.search(pattern(line), output)) is is_said


def test_every_command_of_the_page_runs(cluster: Cluster, tmp_path: Path) -> None:
    project = linked_project(tmp_path)
    ran = 0
    for what, name, text in steps():
        if what == "file":
            project.write(name, text)
        elif what == "add":
            with (tmp_path / name).open("a", encoding="utf-8") as stream:
                stream.write(text)
        else:
            for command in commands(text):
                run(project, command)
                ran += 1
    assert ran > 20
