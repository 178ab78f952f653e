"""Which files a run depends on besides its table: what the contract freezes by digest."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from milepost.config.needs import is_given
from milepost.config.spec import RunSpec, WorkSpec
from milepost.durable import digest_file
from milepost.errors import ConfigError
from milepost.model import FileProof

_WORD = re.compile(r"""[^\s'"|&;<>()=,:]+""")


def find_inputs(spec: RunSpec, root: Path, *, only_own: bool = False) -> list[FileProof]:
    """Proof of every input, sorted by path: files below `root` that a command names, the globs
    of `work.inputs`, and the module of `work.function`.

    With `only_own` without those that needed runs give. ConfigError when a glob matches nothing.
    """
    given = spec.needs if only_own else ()
    patterns = [pattern for pattern in spec.work.inputs if not is_given(pattern, given)]
    files = {**_named(spec, root), **_globbed(patterns, root), **_module(spec.work, root)}
    table = os.path.normpath(spec.work.table)
    names = (name for name in sorted(files) if name != table and not is_given(name, given))
    return [_proof(name, files[name]) for name in names]


def _proof(name: str, path: Path) -> FileProof:
    return FileProof(name, path.stat().st_size, digest_file(path))


def _named(spec: RunSpec, root: Path) -> dict[str, Path]:
    texts = [spec.work.command or "", *(stage.command for stage in spec.work.stages)]
    words = {word for text in texts for word in _WORD.findall(text)}
    return {name: root / name for name in filter(None, (_below(w, root, spec) for w in words))}


def _below(word: str, root: Path, spec: RunSpec) -> str | None:
    """The path of `word` relative to `root` when it is a file there and no output of this run."""
    name = os.path.relpath(root / word, root)
    own = (f"results/{spec.name}/", f"work/{spec.name}/", "../")
    is_input = not name.startswith(own) and os.path.isfile(root / name)
    return name if is_input else None


def _globbed(patterns: Sequence[str], root: Path) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for pattern in patterns:
        matches = glob_files(root, pattern)
        if not matches:
            raise ConfigError(
                f"{pattern!r} matches no file",
                where="work.inputs",
                fix="mend the pattern; it is relative to the folder of the workflow",
            )
        found.update({os.path.relpath(path, root): path for path in matches})
    return found


def glob_files(root: Path, pattern: str) -> list[Path]:
    """Files that a path or glob means; relative ones are below `root`."""
    folder = Path("/") if os.path.isabs(pattern) else root
    return [path for path in folder.glob(pattern.lstrip("/")) if path.is_file()]


def _module(work: WorkSpec, root: Path) -> dict[str, Path]:
    """The file of the function's module, found without importing anything."""
    if work.function is None:
        return {}
    module = work.function.partition(":")[0]
    own = work.environment.get("PYTHONPATH", "").split(os.pathsep)
    for folder in [root, *(root / entry for entry in own if entry), *map(Path, sys.path)]:
        for tail in (".py", "/__init__.py"):
            path = folder / (module.replace(".", "/") + tail)
            if path.is_file():
                return {_module_name(module, path, root): path}
    return {}


def _module_name(module: str, path: Path, root: Path) -> str:
    """Relative path below the workflow; elsewhere the module's name, which moves with it."""
    below = path.resolve().is_relative_to(root.resolve())
    return os.path.relpath(path, root) if below else f"python:{module}"
