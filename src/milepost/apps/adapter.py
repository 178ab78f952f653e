"""An adapter as a value: how an application is told to stop and who writes its checkpoints."""

from __future__ import annotations

from dataclasses import dataclass

from milepost.resources import load_yaml


@dataclass(frozen=True, slots=True)
class Adapter:
    """`signal` makes the application write a checkpoint and end; `checkpoint` is `library` when
    it uses milepost's Checkpointer."""

    name: str
    signal: str
    checkpoint: str


def load_adapter(name: str) -> Adapter:
    """Read `workflow/adapters/<name>.yaml`; the contract has validated it."""
    data = load_yaml("adapters", f"{name}.yaml")
    return Adapter(data["name"], data["signal"], data["checkpoint"])
