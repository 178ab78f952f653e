"""TensorStore: Zarr 3 in chunks of 8 MiB, uncompressed; it syncs its files by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tensorstore

from bench.states import State

_CHUNK_BYTES = 8 << 20


class Zarr:
    """`save` returns when the array has been copied, `wait` when it is committed."""

    _writing: Any

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save(self, step: int, state: State) -> None:
        row_bytes = state[:1].nbytes
        chunk = [max(_CHUNK_BYTES // row_bytes, 1), *state.shape[1:]]
        grid = {"name": "regular", "configuration": {"chunk_shape": chunk}}
        metadata = {"shape": state.shape, "data_type": state.dtype.name, "chunk_grid": grid}
        array = tensorstore.open({**self._place(step), "metadata": metadata}, create=True).result()
        self._writing = array.write(state, can_reference_source_data_indefinitely=False)
        self._writing.copy.result()

    def wait(self) -> None:
        self._writing.result()

    def load(self, step: int, like: State) -> State:
        return tensorstore.open(self._place(step)).result().read().result()

    def _place(self, step: int) -> dict[str, Any]:
        store = {"driver": "file", "path": f"{self.folder / str(step)}/"}
        return {"driver": "zarr3", "kvstore": store}
