"""Profile files: what they offer, and mistakes by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from milepost.errors import ConfigError
from milepost.planner.profiles import read_profiles

SHIPPED = Path(__file__).parents[2] / "config" / "gpu_profiles.yaml"


def file(**profile: Any) -> dict[str, Any]:
    return {"schema": 1, "currency": "EUR", "profiles": {"small": profile}}


def test_the_shipped_file_has_three_classes_and_no_price() -> None:
    found = read_profiles(yaml.safe_load(SHIPPED.read_text()), 2)
    assert {m.vram_gb for m in found.machines} == {24.0, 48.0, 80.0}
    assert {m.mode for m in found.machines} == {"on-demand", "interruptible", "reserved"}
    assert all(m.price_per_h is None for m in found.machines)
    assert len(found.machines) == 9


def test_slices_are_for_shards_of_one_gpu() -> None:
    modes = {"on-demand": {"price_per_h": 7.0, "gpus_max": 2}}
    mig = [{"name": "1g", "vram_gb": 10, "share": 1 / 7}]
    data = file(vram_gb=80, mig=mig, modes=modes)
    whole, part = read_profiles(data, 1).machines
    assert (whole.profile, whole.places) == ("small", 2)
    assert (part.profile, part.vram_gb, part.places) == ("small/1g", 10.0, 14)
    assert part.price_per_h == pytest.approx(1.0)
    assert part.speed == pytest.approx(1 / 7)
    assert [m.places for m in read_profiles(data, 2).machines] == [1]


def test_machines_without_gpus_are_for_shards_without_gpus() -> None:
    data = file(vram_gb=None, modes={"on-demand": {"price_per_h": 0}})
    assert read_profiles(data, 1).machines == ()
    (found,) = read_profiles(data, 0).machines
    assert found.price_per_h == 0.0


@pytest.mark.parametrize(
    ("profile", "named"),
    [
        ({"vram": 24}, "vram_gb"),
        ({"vram_gb": -1}, "-1"),
        ({"vram_gb": True}, "True"),
        ({"vram_gb": 24, "modes": {"spot": {}}}, "spot"),
        ({"vram_gb": 24, "modes": {"reserved": {"price": 1}}}, "price_per_h"),
        ({"vram_gb": 24, "modes": {"reserved": {"price_per_h": "two"}}}, "two"),
        ({"vram_gb": 24, "mig": [{"share": 2}], "modes": {"reserved": {}}}, "share"),
    ],
)
def test_mistakes_are_named(profile: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_profiles(file(**profile), 1)
    assert named in str(caught.value)


@pytest.mark.parametrize(
    "data", [{"schema": 2}, {"profiles": {}}, [], {"schema": 1, "utilisation": 2}]
)
def test_files_of_another_kind(data: Any) -> None:
    with pytest.raises(ConfigError):
        read_profiles(data, 1)
