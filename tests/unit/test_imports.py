"""The layers of docs/design.md: imports go to lower layers only, and nothing knows Snakemake."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "milepost"
LAYERS = (
    {"errors", "model", "clock", "paths", "literals"},
    {"durable", "resources"},
    {"journal", "lease", "shardtable", "config", "artifacts", "tiers", "slurm"},
    {"checkpoint", "placement"},
    {"apps", "planner"},
    {"evidence"},
    {"runner"},
    {"launch"},
    {"cli"},
)
INSIDE_A_LAYER = {("config", "artifacts")}
"""Neighbours that may know each other, in this direction: the schema's checks are artifacts'."""
RANK = {room: rank for rank, rooms in enumerate(LAYERS) for room in rooms}
FILES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path) -> Iterator[str]:
    """Full names of modules that a file imports, those inside functions included."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module
        elif isinstance(node, ast.ImportFrom):
            pytest.fail(f"{path}: a relative import")


def test_every_room_has_a_layer() -> None:
    assert {room_of(path) for path in FILES} == set(RANK)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_downwards(path: Path) -> None:
    room = room_of(path)
    for name in imports(path):
        top, _, rest = name.partition(".")
        assert top != "snakemake", f"{path.name} imports snakemake"
        target = rest.split(".")[0]
        if top != "milepost" or not target or target == room:
            continue
        fine = RANK[target] < RANK[room] or (room, target) in INSIDE_A_LAYER
        assert fine, f"{room} imports {target}, which is not below it"


def test_no_circle_of_modules() -> None:
    names = {name_of(path): path for path in FILES}
    graph = {
        name: {n for n in top_level(path, names) if n in names} for name, path in names.items()
    }
    tuple(TopologicalSorter(graph).static_order())  # raises CycleError and names the circle


def name_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def top_level(path: Path, names: Collection[str]) -> Iterator[str]:
    """What a file imports when it is imported itself; `from package import module` is the module."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in names else node.module
