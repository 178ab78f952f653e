"""torch.distributed.checkpoint, waiting and in the background."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp

from bench.states import State


class Plain:
    """`dcp.save`, which returns when all is written and synced."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save(self, step: int, state: State) -> None:
        dcp.save(_tensors(state), checkpoint_id=self.folder / str(step))

    def wait(self) -> None:
        """Nothing is under way."""

    def load(self, step: int, like: State) -> State:
        target = {"state": torch.zeros_like(torch.from_numpy(like))}
        dcp.load(target, checkpoint_id=self.folder / str(step))
        return target["state"].numpy()


class Async(Plain):
    """`dcp.async_save`: wants a process group, also for one process."""

    _saving: Future[Any]

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        store = torch.distributed.HashStore()
        torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)

    def save(self, step: int, state: State) -> None:
        self._saving = dcp.async_save(_tensors(state), checkpoint_id=self.folder / str(step))

    def wait(self) -> None:
        self._saving.result()


def _tensors(state: State) -> dict[str, Any]:
    return {"state": torch.from_numpy(state)}
