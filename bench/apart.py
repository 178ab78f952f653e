"""Libraries that are measured in a process and an environment of their own.

`python -m bench.apart STORE KIND SIZE FOLDER` prints what it measured as a line of JSON.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Protocol

from bench.saved import Saved, Watch, growth, restore_s
from bench.states import KINDS, Kind, State

VARIABLE = "BENCH_PYTHON"
"""Names the interpreter of an environment that has these libraries, when this one has not."""
_STORES = {
    "torch-save": ("bench.torch_store", "Plain"),
    "torch-async": ("bench.torch_store", "Async"),
    "tensorstore": ("bench.tensor_store", "Zarr"),
    "orbax": ("bench.orbax_store", "Orbax"),
}


class Store(Protocol):
    """Saves a state below the folder it was made with.

    `save` returns when the application may change the state; `wait` when all is durable. `load`
    fills a state of the same shape, and may use `like` for that.
    """

    def save(self, step: int, state: State) -> None: ...

    def wait(self) -> None: ...

    def load(self, step: int, like: State) -> State: ...


def measure(store: Store, kind: Kind, size: int, folder: Path) -> Saved:
    """The second of two saves, and restores with the page cache empty."""
    state = kind.make(size)
    store.save(0, state)
    store.wait()
    kind.change(state)
    with growth(folder) as grown, Watch() as whole:
        with Watch() as blocked:
            store.save(1, state)
        store.wait()
    stored = grown()
    restored_s = restore_s(folder, lambda: store.load(1, state), lambda found: found, state)
    return Saved(blocked.wall_s, whole.wall_s, whole.cpu_s, stored, restored_s)


def run(store: str, kind: Kind, size: int, folder: Path) -> Saved:
    """`measure` in an interpreter of its own, which is started before its clock."""
    root = Path(__file__).resolve().parents[1]
    command = [interpreter(), "-m", "bench.apart", store, kind.name, str(size), str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run(
        command,
        env=environment,
        cwd=root,
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL if store == "orbax" else None,
        text=True,
    )
    return Saved(**json.loads(done.stdout.splitlines()[-1]))


def interpreter() -> str:
    return os.environ.get(VARIABLE) or sys.executable


def has(library: str) -> bool:
    """Whether that interpreter finds the library; it is not imported."""
    ask = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({library!r}) is None)"
    return subprocess.run([interpreter(), "-c", ask], check=False).returncode == 0


def main() -> None:
    warnings.simplefilter("ignore")
    store, kind_name, size, folder = sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4])
    module, name = _STORES[store]
    kind = next(kind for kind in KINDS if kind.name == kind_name)
    made: Store = getattr(importlib.import_module(module), name)(folder)
    print(json.dumps(asdict(measure(made, kind, size, folder))))


if __name__ == "__main__":
    main()
