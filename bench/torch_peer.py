"""torch.distributed.checkpoint in a process of its own: KIND SIZE FOLDER save|async_save."""

from __future__ import annotations

import json
import sys
import warnings
from dataclasses import asdict
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp

from bench.saved import Saved, Watch, forget, growth, same
from bench.states import KINDS


def main() -> None:
    warnings.simplefilter("ignore")
    kind = next(kind for kind in KINDS if kind.name == sys.argv[1])
    size, folder, how = int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4]
    state = kind.make(size)
    tensors = {"state": torch.from_numpy(state)}
    dcp.save(tensors, checkpoint_id=folder / "0")
    if how == "async_save":
        begin_async()
        dcp.async_save(tensors, checkpoint_id=folder / "warm").result()
    kind.change(state)
    with growth(folder) as grown, Watch() as whole:
        with Watch() as blocked:
            future = getattr(dcp, how)(tensors, checkpoint_id=folder / "1")
        if how == "async_save":
            future.result()
    stored = grown()
    forget(folder)
    target = {"state": torch.zeros_like(tensors["state"])}
    with Watch() as restored:
        dcp.load(target, checkpoint_id=folder / "1")
    same(target["state"].numpy(), state)
    saved = Saved(blocked.wall_s, whole.wall_s, whole.cpu_s, stored, restored.wall_s)
    print(json.dumps(asdict(saved)))


def begin_async() -> None:
    """async_save wants a process group, also for one process."""
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)


if __name__ == "__main__":
    main()
