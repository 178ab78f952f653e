"""Policies, schedule, codecs, keys, direct writing: the small parts of a checkpoint."""

from __future__ import annotations

import base64
import struct
import time
from pathlib import Path

import numpy as np
import pytest

from milepost.checkpoint import codec, direct
from milepost.checkpoint.blocks import block_digest
from milepost.checkpoint.crypt import Tampered, UserKey, load_key, new_data_key, open_data_key
from milepost.checkpoint.decode import blocks_digest, read_data_file
from milepost.checkpoint.direct import DirectReader, DirectWriter
from milepost.checkpoint.encode import write_data_file
from milepost.checkpoint.image import Image
from milepost.checkpoint.layout import PAGE_BYTES, plan_layout
from milepost.checkpoint.options import Options
from milepost.checkpoint.policies import AnyOf, BeforeWalltime, EverySeconds, Moment, OnSignal
from milepost.checkpoint.retention import Kept, Retention, plan_prune
from milepost.checkpoint.schedule import Schedule, default_policy
from milepost.errors import ConfigError, DataError, Refused


def test_every_seconds() -> None:
    assert EverySeconds(10).reason(Moment(9.9, 0)) is None
    assert EverySeconds(10).reason(Moment(10, 0)) == "interval"


def test_before_the_deadline_a_save_and_a_step_must_fit() -> None:
    policy = BeforeWalltime(1000, margin_s=60)
    assert policy.reason(Moment(0, 939)) is None
    assert policy.reason(Moment(0, 940)) == "walltime"
    assert policy.latest_s(Moment(0, 0, save_s=30, step_s=10)) == 900


def test_the_first_reason_counts() -> None:
    policy = AnyOf((OnSignal(), EverySeconds(1)))
    assert policy.reason(Moment(5, 0, stop_reason="signal TERM")) == "signal TERM"
    assert policy.reason(Moment(5, 0)) == "interval"
    assert policy.reason(Moment(0, 0)) is None


def test_the_schedule_looks_again_before_the_deadline() -> None:
    options = Options(interval_s=3600, deadline=time.time() + 260)
    wait_s = default_policy(options).wait_s(Moment(0, time.time()))
    assert 90 < wait_s < 110, "half of the 200 s that are left"
    schedule = Schedule(options)
    assert schedule.reason(None) is None
    for _ in range(20):
        schedule.durable(1.0)
    schedule.durable(250.0)
    assert schedule.reason(None) is None, "the 95th percentile of the saves is 1 s"
    schedule.durable(250.0)
    assert schedule.reason(None) == "walltime"


BLOCK = memoryview(np.zeros(1 << 20, np.uint8))
NOISE = memoryview(np.random.default_rng(1).integers(0, 255, 1 << 20, np.uint8))


@pytest.mark.parametrize("name", ["none", "zstd", "lz4"])
@pytest.mark.parametrize("block", [BLOCK, NOISE, memoryview(b"x")])
def test_codecs_come_back(name: str, block: memoryview) -> None:
    used, packed = codec.compress(codec.CODES[name], block)
    assert codec.decompress(used, packed, len(block)) == block
    assert len(packed) <= len(block)


def test_what_does_not_shrink_is_stored_as_it_is() -> None:
    assert codec.compress(codec.ZSTD, NOISE)[0] == codec.RAW


@pytest.mark.parametrize("code", [codec.ZSTD, codec.LZ4, 9])
def test_broken_blocks_are_data_errors(code: int) -> None:
    with pytest.raises(DataError):
        codec.decompress(code, b"\x00broken", 100)
    with pytest.raises(DataError, match="unpacks to 1 bytes"):
        codec.decompress(codec.RAW, b"x", 100)


def test_a_block_that_unpacks_to_more_than_promised_is_refused() -> None:
    _, packed = codec.compress(codec.ZSTD, BLOCK)
    with pytest.raises(DataError):
        codec.decompress(codec.ZSTD, packed, 10)
    _, packed = codec.compress(codec.LZ4, BLOCK)
    with pytest.raises(DataError):
        codec.decompress(codec.LZ4, packed, 10)


def test_the_probe_compresses_only_what_gains() -> None:
    block, noise = codec.Sample(BLOCK), codec.Sample(NOISE)
    assert codec.choose("auto", [block] * 8, 1.0, 2) == codec.ZSTD
    assert codec.choose("auto", [noise] * 8, 1.0, 2) == codec.RAW, "it does not shrink"
    assert codec.choose("auto", [block] * 8, 1e15, 2) == codec.RAW, "the tier is faster"
    assert codec.choose("auto", [block] * 8, None, 2) == codec.RAW
    assert codec.choose("auto", [], 1.0, 2) == codec.RAW
    assert codec.choose("lz4", [noise], None, 2) == codec.LZ4


@pytest.mark.parametrize("form", ["raw", "hex", "base64"])
def test_a_key_file_in_three_forms(tmp_path: Path, form: str) -> None:
    secret, path = bytes(range(32)), tmp_path / "key"
    forms = {"raw": secret, "hex": secret.hex().encode(), "base64": base64.b64encode(secret)}
    path.write_bytes(forms[form] + (b"" if form == "raw" else b"\n"))
    path.chmod(0o600)
    key = load_key({"key_file": str(path)})
    assert key is not None
    assert key.secret == secret
    assert secret.hex() not in repr(key)


def test_bad_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "key"
    path.write_bytes(bytes(32))
    path.chmod(0o640)
    with pytest.raises(Refused, match="may be read by others"):
        load_key({"key_file": str(path)})
    path.write_bytes(b"short")
    path.chmod(0o600)
    with pytest.raises(ConfigError, match="not 32 bytes"):
        load_key({"key_file": str(path)})
    with pytest.raises(ConfigError, match="cannot be read"):
        load_key({"key_file": str(tmp_path / "none")})
    with pytest.raises(ConfigError, match="holds no key"):
        load_key({"key_env": "NO_SUCH_KEY_HERE"})
    with pytest.raises(ConfigError, match="encrypt needs"):
        load_key({"key_file": "a", "key_env": "b"})
    monkeypatch.setenv("SOME_KEY", "ab" * 32)
    key = load_key({"key_env": "SOME_KEY"})
    assert key is not None
    assert key.secret == b"\xab" * 32
    assert load_key(None) is None


def test_a_swapped_block_is_not_authentic() -> None:
    user = UserKey(bytes(32), "id")
    key, info = new_data_key(user)
    buffer = bytearray(100)
    size = key.encrypt_block(0, b"first", memoryview(buffer))
    sealed = bytes(buffer[:size])
    assert open_data_key(info, user, Path("f")).decrypt_block(0, sealed) == b"first"
    with pytest.raises(Tampered):
        key.decrypt_block(1, sealed)
    with pytest.raises(Tampered):
        open_data_key({**info, "wrapped_key": "00" * 48}, user, Path("f"))


@pytest.mark.parametrize("is_direct", [True, False])
def test_direct_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_direct: bool) -> None:
    """Also where the file system does not offer O_DIRECT."""
    if not is_direct:
        monkeypatch.setattr(direct, "_DIRECT", 0)
    image = Image(3 * PAGE_BYTES)
    image.bytes[:] = np.arange(3 * PAGE_BYTES) % 251
    with DirectWriter(tmp_path / "f", 100 * PAGE_BYTES) as writer:
        writer.write(image.view[PAGE_BYTES:], PAGE_BYTES)
        writer.write(image.view[:PAGE_BYTES], 0)
    assert (tmp_path / "f").read_bytes() == bytes(image.view), "what was reserved too much is gone"
    back = Image(3 * PAGE_BYTES)
    with DirectReader(tmp_path / "f") as reader:
        reader.read_into(back.view, 0)
        assert back.view == image.view
        assert reader.read(10, 5) == bytes(image.view[10:15])
        with pytest.raises(DataError, match="ends at byte"):
            reader.read_into(back.view, PAGE_BYTES)
    with pytest.raises(FileExistsError):
        DirectWriter(tmp_path / "f")


def test_direct_io_that_is_refused_late_goes_on_buffered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import errno
    import os

    image, real = Image(PAGE_BYTES), os.pwrite
    image.bytes[:] = 7
    calls: list[int] = []

    def pwrite(fd: int, data: memoryview, offset: int) -> int:
        calls.append(offset)
        if len(calls) == 1:
            raise OSError(errno.EINVAL, "no direct writing here")
        return real(fd, data, offset)

    monkeypatch.setattr(os, "pwrite", pwrite)
    with DirectWriter(tmp_path / "f") as writer:
        writer.write(image.view, 0)
        assert not writer.is_direct
    assert (tmp_path / "f").read_bytes() == b"\7" * PAGE_BYTES


def in_version_1(data: bytes) -> bytes:
    """A raw data file of today as version 1 wrote it: index rows without the last two fields."""
    start, size, _, _, magic = struct.unpack_from("<QQQ32s16s", data, len(data) - 72)
    (text,) = struct.unpack_from("<Q", data, start)
    rows = data[start + 8 + text : start + size]
    assert len(rows) % 116 == 0
    old = b"".join(rows[n : n + 104] for n in range(0, len(rows), 116))
    tail = data[start : start + 8 + text] + old
    end = struct.pack("<QQQ32s16s", start, len(tail), 1, block_digest(tail), magic).rjust(
        128, b"\0"
    )
    head = data[:16] + struct.pack("<I", 1) + data[20:start]
    return head + tail + bytes(-(start + len(tail) + 128) % PAGE_BYTES) + end


def test_files_of_version_1_are_read(tmp_path: Path) -> None:
    x = np.random.default_rng(1).standard_normal(300_001)
    layout = plan_layout({"x": x})
    image = Image(layout.image_bytes)
    image.fill(layout, {"x": x})
    write_data_file(tmp_path / "new", image, layout, {"step": 3}, "000001-a0")
    (tmp_path / "old").write_bytes(in_version_1((tmp_path / "new").read_bytes()))
    assert (tmp_path / "old").read_bytes() != (tmp_path / "new").read_bytes()
    back = read_data_file(tmp_path / "old", lambda name: tmp_path / name)
    assert np.array_equal(back.arrays["x"], x)
    assert back.info["step"] == 3
    assert blocks_digest(tmp_path / "old").startswith("blake3-blocks:")


def kept(number: int, age_s: float = 0, **changes: object) -> Kept:
    return Kept(f"{number:06d}-a0", 1000 - age_s, **changes)  # type: ignore[arg-type]


def test_prune_keeps_the_newest_the_periodic_and_the_bases() -> None:
    history = [kept(n) for n in range(1, 10)] + [kept(10, bases=("000002-a0",))]
    gone = plan_prune(history, Retention(rotation=2, gold_every=5), 1000)
    assert sorted(set(range(1, 11)) - {int(name[:6]) for name in gone}) == [2, 5, 9, 10]


def test_periodic_ones_age_and_marked_ones_do_not() -> None:
    history = [kept(1, 900, is_gold=True), kept(2, 900), kept(4, 10), kept(5)]
    rules = Retention(rotation=1, gold_every=2, ttl_s=100)
    assert plan_prune(history, rules, 1000) == ("000002-a0",)


def test_damaged_ones_do_not_count() -> None:
    history = [kept(1), kept(2), kept(3, is_verified=False)]
    assert plan_prune(history, Retention(rotation=1), 1000) == ("000001-a0", "000003-a0")
    assert plan_prune([kept(1, is_verified=False)], Retention(rotation=1), 1000) == ()


def test_rules_that_would_delete_everything_are_refused() -> None:
    with pytest.raises(ValueError, match="every checkpoint"):
        Retention(rotation=0)
