"""Orbax, in the background, as its documentation advises."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import orbax.checkpoint as ocp

from bench.states import State


class Orbax:
    """`StandardCheckpointer` of a tree with one array."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._checkpointer = ocp.StandardCheckpointer()

    def save(self, step: int, state: State) -> None:
        self._checkpointer.save(self.folder / str(step), {"state": state})

    def wait(self) -> None:
        self._checkpointer.wait_until_finished()

    def load(self, step: int, like: State) -> State:
        target = {"state": np.empty_like(like)}
        return np.asarray(self._checkpointer.restore(self.folder / str(step), target)["state"])
