"""Profile files: what they offer, and mistakes by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from milepost.errors import ConfigError
from milepost.planner.profiles import named_on_slurm, read_profiles

SHIPPED = Path(__file__).parents[2] / "config" / "gpu_profiles.yaml"


def file(**profile: Any) -> dict[str, Any]:
    return {"schema": 1, "currency": "EUR", "profiles": {"small": profile}}


def test_the_shipped_file_has_three_classes_and_no_price() -> None:
    found = read_profiles(yaml.safe_load(SHIPPED.read_text()), 2)
    assert {m.vram_gb for m in found.machines} == {24.0, 48.0, 80.0}
    assert {m.mode for m in found.machines} == {"on-demand", "interruptible", "reserved"}
    assert all(m.price_per_h is None for m in found.machines)
    assert len(found.machines) == 9
    assert {m.ckpt_gb for m in found.machines} == {20.0, 40.0, 70.0}
    assert (found.storage_price, found.storage_gb) == (None, None)
    slices = {m.profile for m in read_profiles(yaml.safe_load(SHIPPED.read_text()), 1).machines}
    assert {"gpu-80gb/1g.10gb", "gpu-80gb/2g.20gb", "gpu-80gb/3g.40gb"} < slices
    assert "PRICES ARE YOURS TO FILL" in SHIPPED.read_text()


def test_slices_are_for_shards_of_one_gpu() -> None:
    modes = {"on-demand": {"price_per_h": 7.0, "gpus_max": 2}}
    mig = [{"name": "1g", "vram_gb": 10, "share": 1 / 7}]
    data = file(vram_gb=80, mig=mig, modes=modes)
    whole, part = read_profiles(data, 1).machines
    assert (whole.profile, whole.places) == ("small", 2)
    assert (part.profile, part.vram_gb, part.places) == ("small/1g", 10.0, 14)
    assert part.pool == whole.pool == "small, on-demand"
    assert part.gpus_a_place == pytest.approx(1 / 7)
    assert part.price_per_h == pytest.approx(1.0)
    assert part.speed == pytest.approx(1 / 7)
    assert [m.places for m in read_profiles(data, 2).machines] == [1]


def test_a_gpu_holds_only_whole_slices() -> None:
    """Three sevenths fit twice, not two and a third times; two GPUs hold four, not four and more."""
    mig = [{"name": "3g", "vram_gb": 40, "share": 0.428571, "gpu_model": "3g.40gb"}]
    slurm = {"partition": "gpu", "gpu_model": "a100", "qos": None}
    modes = {"on-demand": {"price_per_h": 7.0, "gpus_max": 2, "slurm": slurm}}
    whole, part = read_profiles(file(vram_gb=80, mig=mig, modes=modes), 1).machines
    assert (part.places, part.gpus_a_place) == (4, 0.5)
    assert whole.slurm == {"gpu_model": "a100", "partition": "gpu"}
    assert part.slurm == {"gpu_model": "3g.40gb", "partition": "gpu"}
    assert named_on_slurm([file(vram_gb=80, mig=mig, modes=modes)]) == {"gpu_model", "partition"}
    assert named_on_slurm([None, [], {"profiles": {"a": None}}]) == set()


def test_modes_share_the_gpus_of_a_profile_or_have_their_own() -> None:
    modes = {
        "on-demand": {"price_per_h": 2.0, "walltime_max_h": 24, "utilisation": 0.9},
        "interruptible": {"price_per_h": 1.0, "gpus_max": 4},
        "reserved": {"price_per_h": 1.0, "gpus_max": 16},
    }
    shared = read_profiles(file(vram_gb=24, gpus_max=8, modes=modes) | {"utilisation": 0.5}, 2)
    assert {m.pool for m in shared.machines} == {"small"}
    by_mode = {m.mode: m for m in shared.machines}
    assert {mode: m.places for mode, m in by_mode.items()} == {
        "on-demand": 4,
        "interruptible": 2,
        "reserved": 4,
    }
    assert (by_mode["on-demand"].walltime_s, by_mode["on-demand"].utilisation) == (86400.0, 0.9)
    assert by_mode["reserved"].utilisation == 0.5
    own = {m.mode: m for m in read_profiles(file(vram_gb=24, modes=modes), 1).machines}
    assert own["on-demand"].pool is None and own["on-demand"].places is None
    assert own["reserved"].pool == "small, reserved"


def test_nodes_and_gpus_are_not_mixed_up() -> None:
    with pytest.raises(ConfigError, match="gpus_max does not go with a profile without GPUs"):
        read_profiles(file(modes={"on-demand": {"gpus_max": 2}}), 0)
    with pytest.raises(ConfigError, match="nodes_max does not go with a profile with GPUs"):
        read_profiles(file(vram_gb=24, nodes_max=2, modes={"on-demand": {}}), 1)
    (node,) = read_profiles(file(nodes_max=3, modes={"on-demand": {}}), 0).machines
    assert (node.places, node.gpus_a_place) == (3, 1)


def test_storage_of_checkpoints() -> None:
    unknown = read_profiles(file(vram_gb=24, modes={}), 1)
    assert (unknown.storage_price, unknown.storage_gb) == (None, None)
    data = file(vram_gb=24, modes={}) | {"storage": {"price_per_gb_month": 0, "capacity_gb": 500}}
    known = read_profiles(data, 1)
    assert (known.storage_price, known.storage_gb) == (0.0, 500.0)


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
        ({"vram_gb": 24, "modes": {"reserved": {"utilisation": 1.5}}}, "utilisation"),
        ({"vram_gb": 24, "modes": {"reserved": {"slurm": {"partion": "x"}}}}, "partition"),
    ],
)
def test_mistakes_are_named(profile: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_profiles(file(**profile), 1)
    assert named in str(caught.value)


@pytest.mark.parametrize(
    "data",
    [
        {"schema": 2},
        {"profiles": {}},
        [],
        {"schema": 1, "utilisation": 2},
        {"schema": 1, "storage": {"price": 1}},
    ],
)
def test_files_of_another_kind(data: Any) -> None:
    with pytest.raises(ConfigError):
        read_profiles(data, 1)
