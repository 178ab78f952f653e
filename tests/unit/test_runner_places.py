"""Where a shard's checkpoints are in each tier."""

from __future__ import annotations

import pytest

from milepost.runner.places import checkpoint_place


def test_a_place_holds_run_and_shard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHERE", "/fast")
    assert checkpoint_place("$WHERE/", "walk", "0001") == "/fast/walk/0001/ckpt"
    assert checkpoint_place("s3://bucket/a", "walk", "0001") == "s3://bucket/a/walk/0001/ckpt"
