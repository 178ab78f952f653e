"""Laws of checkpoints: what goes in comes out, and pruning never takes what is needed."""

from __future__ import annotations

import json
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from milepost.checkpoint.base import Base
from milepost.checkpoint.crypt import UserKey
from milepost.checkpoint.decode import read_data_file
from milepost.checkpoint.encode import EncodeOptions, write_data_file
from milepost.checkpoint.image import Image
from milepost.checkpoint.layout import BLOCK_BYTES, PAGE_BYTES, plan_layout
from milepost.checkpoint.manifest import generation_name, parse_manifest
from milepost.checkpoint.meta import from_json, to_json
from milepost.checkpoint.retention import Kept, Retention, plan_prune
from milepost.checkpoint.stored import needed

DTYPES = st.one_of(
    npst.scalar_dtypes(),
    npst.array_dtypes(max_size=3),
    npst.unicode_string_dtypes(),
    npst.byte_string_dtypes(),
)
ARRAYS = st.dictionaries(
    st.text(min_size=1, max_size=8),
    DTYPES.flatmap(
        lambda dtype: npst.arrays(dtype, npst.array_shapes(min_dims=0, min_side=0, max_side=4))
    ),
    max_size=5,
)
OPTIONS = st.builds(
    EncodeOptions,
    compression=st.sampled_from(["none", "zstd", "lz4", "auto"]),
    key=st.sampled_from([None, UserKey(bytes(32), "id")]),
    tier_bytes_per_s=st.sampled_from([None, 1.0]),
)
QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def same(left: np.ndarray[Any, Any], right: np.ndarray[Any, Any]) -> bool:
    return (
        left.dtype == right.dtype
        and left.shape == right.shape
        and np.ascontiguousarray(left).tobytes() == np.ascontiguousarray(right).tobytes()
    )


def filled(arrays: dict[str, np.ndarray[Any, Any]]) -> tuple[Image, Any]:
    layout = plan_layout(arrays)
    image = Image(layout.image_bytes)
    image.bytes[:] = 0xA5
    image.fill(layout, arrays)
    return image, layout


@QUICK
@given(ARRAYS, OPTIONS)
def test_any_arrays_come_back_the_same(
    arrays: dict[str, np.ndarray[Any, Any]], options: EncodeOptions
) -> None:
    image, layout = filled(arrays)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data"
        written = write_data_file(path, image, layout, {"meta": None}, "000001-a0", options)
        assert path.stat().st_size == written.size_bytes
        back = read_data_file(path, lambda name: Path(folder) / name, options.key)
    assert back.arrays.keys() == arrays.keys()
    assert all(same(back.arrays[name], array) for name, array in arrays.items())


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.integers(0, 3 * BLOCK_BYTES), min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(0, 2), st.floats(0, 1)), max_size=4),
    OPTIONS,
)
def test_a_delta_chain_comes_back_the_same(
    sizes: list[int], changes: list[tuple[int, float]], options: EncodeOptions
) -> None:
    rng = np.random.default_rng(1)
    arrays = {f"a{n}": rng.integers(0, 255, size, np.uint8) for n, size in enumerate(sizes)}
    known = None
    with tempfile.TemporaryDirectory() as folder:
        for number, (which, place) in enumerate([(0, 0.0), *changes]):
            array = arrays[f"a{which % len(sizes)}"]
            if array.size:
                array[int(place * (array.size - 1))] ^= 1
            image, layout = filled(arrays)
            this = EncodeOptions(options.compression, options.key, known, options.tier_bytes_per_s)
            name = f"g{number}"
            known = write_data_file(Path(folder) / name, image, layout, {}, name, this).blocks
            back = read_data_file(Path(folder) / name, lambda n: Path(folder) / n, options.key)
            assert all(same(back.arrays[key], array) for key, array in arrays.items())


OPERATIONS = st.sampled_from(["same", "moved", "touched", "drawn", "swapped"])


def next_state(
    state: dict[str, np.ndarray[Any, Any]], operations: list[str], rng: np.random.Generator
) -> dict[str, np.ndarray[Any, Any]]:
    """Each array stays, moves a little everywhere, changes in one place, or is all new; two may
    change places."""
    new = dict(state)
    for (name, array), how in zip(state.items(), operations, strict=False):
        if how == "moved":
            new[name] = (array + rng.standard_normal(array.shape) * 1e-4).astype(array.dtype)
        elif how == "touched":
            new[name] = array.copy()
            new[name][len(array) // 2] += 1
        elif how == "drawn":
            new[name] = rng.standard_normal(array.shape).astype(array.dtype)
    if "swapped" in operations:
        new["a0"], new["a1"] = new["a1"], new["a0"]
    return new


@settings(max_examples=12, deadline=None)
@given(
    st.lists(st.lists(OPERATIONS, min_size=2, max_size=2), min_size=1, max_size=6),
    st.sampled_from([None, UserKey(bytes(32), "id")]),
    st.sampled_from(["zstd", "auto", "none"]),
    st.sampled_from([BLOCK_BYTES, 64 << 10]),
)
def test_a_chain_with_any_mix_of_blocks_comes_back_the_same(
    history: list[list[str]], key: UserKey | None, compression: str, block_bytes: int
) -> None:
    """Referred to, XORed or stored as they are; only the bases that a file names are needed."""
    rng = np.random.default_rng(1)
    count = 3 * BLOCK_BYTES // 8 + 77
    state = {f"a{n}": np.cumsum(rng.standard_normal(count)).astype("f4") for n in range(2)}
    with tempfile.TemporaryDirectory() as place:
        known, last = None, None
        for number, operations in enumerate([["same"] * 2, *history]):
            state = next_state(state, operations, rng)
            layout = plan_layout(state, block_bytes)
            image = Image(layout.image_bytes)
            image.fill(layout, state)
            name = f"g{number}"
            with ExitStack() as stack:
                base = None
                if last is not None:
                    base = stack.enter_context(Base(last, lambda n: Path(place) / n, key))
                options = EncodeOptions(compression, key, known, 1.0, base=base)
                path = Path(place) / name
                written = write_data_file(path, image, layout, {}, name, options)
            assert set(written.bases) <= needed((known or {}).values())
            known, last = written.blocks, name
            assert needed(known.values()) <= {name, *written.bases}

            def base_path(wanted: str, bases: tuple[str, ...] = written.bases) -> Path:
                assert wanted in bases, "a base that the manifest would not name"
                return Path(place) / wanted

            back = read_data_file(path, base_path, key, written.digest)
            assert all(same(back.arrays[key], array) for key, array in state.items())


@QUICK
@given(ARRAYS)
def test_the_layout_is_sound(arrays: dict[str, np.ndarray[Any, Any]]) -> None:
    layout = plan_layout(arrays)
    assert layout.image_bytes % PAGE_BYTES == 0
    covered = np.zeros(layout.image_bytes, bool)
    for place in layout.arrays:
        part = covered[place.offset : place.offset + place.size_bytes]
        assert not part.any(), "arrays do not overlap"
        part[:] = True
    blocks = np.zeros(layout.image_bytes, int)
    for block in layout.blocks:
        assert 0 < block.size <= BLOCK_BYTES
        assert block.offset % PAGE_BYTES == 0
        blocks[block.offset : block.offset + block.size] += 1
    assert blocks.max(initial=0) <= 1
    assert np.all(blocks[covered] == 1), "every byte of an array is in one block"


PLAIN = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(allow_nan=False),
        st.text(),
        st.binary(),
        st.complex_numbers(allow_nan=False),
    ),
    lambda inner: st.one_of(
        st.lists(inner), st.lists(inner).map(tuple), st.dictionaries(st.text(), inner)
    ),
    max_leaves=12,
)


@given(PLAIN)
def test_meta_data_comes_back_the_same(value: Any) -> None:
    back = from_json(json.loads(json.dumps(to_json(value), allow_nan=False)))
    assert back == value
    assert repr(back) == repr(value), "also the kinds: 1 is not True, (1,) is not [1]"


@given(npst.arrays(npst.scalar_dtypes(), npst.array_shapes(min_dims=0, min_side=0, max_side=3)))
def test_arrays_in_meta_data_come_back_the_same(array: np.ndarray[Any, Any]) -> None:
    back = from_json(json.loads(json.dumps(to_json({"a": array}), allow_nan=False)))
    assert same(back["a"], array)


@given(st.sampled_from(["PCG64", "MT19937", "Philox", "SFC64", "PCG64DXSM"]), st.integers(0, 2**64))
def test_random_generators_go_on_where_they_were(name: str, seed: int) -> None:
    kind = getattr(np.random, name)
    rng = np.random.Generator(kind(seed))
    rng.random(3, np.float32)
    state = from_json(json.loads(json.dumps(to_json(rng.bit_generator.state))))
    other = np.random.Generator(kind())
    other.bit_generator.state = state
    assert np.array_equal(rng.standard_normal(20), other.standard_normal(20))


@given(st.recursive(st.none() | st.integers() | st.text(), st.lists, max_leaves=4), st.data())
def test_a_manifest_of_any_shape_is_refused_politely(value: Any, data: st.DataObject) -> None:
    import pytest

    from milepost.errors import DataError

    keys = ["format", "name", "step", "files", "bases", "environment", "decomposition", "metrics"]
    manifest = {key: data.draw(st.sampled_from([value, 1, "000001-a0", {}, []])) for key in keys}
    with pytest.raises(DataError):
        parse_manifest(json.dumps(manifest).encode(), "here")


@st.composite
def histories(draw: st.DrawFn) -> list[Kept]:
    numbers = draw(st.lists(st.integers(1, 40), unique=True, max_size=12).map(sorted))
    history: list[Kept] = []
    for number in numbers:
        earlier = [kept.name for kept in history]
        bases = draw(st.lists(st.sampled_from(earlier), max_size=2)) if earlier else []
        history.append(
            Kept(
                generation_name(number, draw(st.integers(0, 2))),
                draw(st.floats(0, 1000)),
                tuple(bases),
                draw(st.sampled_from([True, True, False, None])),
                draw(st.integers(0, 9)) == 0,
            )
        )
    return history


RULES = st.builds(
    Retention,
    rotation=st.integers(1, 4),
    gold_every=st.none() | st.integers(1, 5),
    ttl_s=st.none() | st.floats(0, 1000),
)


@given(histories(), RULES, st.floats(0, 2000))
def test_pruning_never_takes_what_is_needed(
    history: list[Kept], rules: Retention, now_s: float
) -> None:
    from milepost.checkpoint.manifest import commit_order

    gone = set(plan_prune(history, rules, now_s))
    left = [kept for kept in history if kept.name not in gone]
    names = {kept.name for kept in left}
    newest = sorted(
        (kept for kept in history if kept.is_verified), key=lambda k: commit_order(k.name)
    )
    assert {kept.name for kept in newest[-rules.rotation :]} <= names
    assert all(base in names for kept in left for base in kept.bases), "bases of what is kept stay"
    assert not any(kept.is_gold for kept in history if kept.name in gone)
    if not newest:
        assert not gone
    again = plan_prune(left, rules, now_s)
    assert again == (), "pruning twice takes nothing more"
    assert plan_prune(list(reversed(history)), rules, now_s) == plan_prune(history, rules, now_s)
