"""BAM and HDF5 files: whole ones verify; cut, flipped, empty and foreign ones do not."""

from __future__ import annotations

import errno
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from helpers.packages import have
from milepost.artifacts import check_artifact
from milepost.artifacts.bgzf import END_BLOCK
from milepost.errors import ConfigError, DataError, StorageError
from milepost.model import ArtifactCheck, FileProof

SAM = "@HD\tVN:1.6\n@SQ\tSN:chr7\tLN:900\n"


def check(path: Path, kind: str, **options: Any) -> list[FileProof]:
    return check_artifact(path.parent, ArtifactCheck(path.name, kind, options), {})


def refused(path: Path, kind: str, **options: Any) -> str:
    with pytest.raises(DataError) as caught:
        check(path, kind, **options)
    assert caught.value.where
    assert caught.value.fix
    return caught.value.what


def block(data: bytes) -> bytes:
    engine = zlib.compressobj(6, zlib.DEFLATED, -zlib.MAX_WBITS)
    body = engine.compress(data) + engine.flush()
    head = struct.pack("<4BI2BHBBHH", 31, 139, 8, 4, 0, 0, 255, 6, 66, 67, 2, len(body) + 25)
    return head + body + struct.pack("<II", zlib.crc32(data), len(data))


def record(number: int) -> bytes:
    name = f"read{number}\0".encode()
    fixed = struct.pack("<iiBBHHHiiii", 0, number, len(name), 30, 0, 0, 4, 4, -1, -1, 0)
    body = fixed + name + b"\x12\x48" + b"\x1e\x1e\x1f\x20"
    return struct.pack("<i", len(body)) + body


def bam_bytes(records: int = 300, per_block: int = 400, end: bytes = END_BLOCK) -> bytes:
    """A small BAM, cut into blocks wherever it happens: records and numbers cross their seams."""
    text = SAM.encode()
    data = b"BAM\1" + struct.pack("<i", len(text)) + text
    data += struct.pack("<ii5si", 1, 5, b"chr7\0", 900)
    data += b"".join(record(number) for number in range(records))
    pieces = [data[at : at + per_block] for at in range(0, len(data), per_block)]
    return b"".join(block(piece) for piece in pieces) + end


class TestBam:
    @pytest.mark.parametrize("per_block", [3, 400, 60_000])
    def test_a_whole_one(self, tmp_path: Path, per_block: int) -> None:
        path = tmp_path / "a.bam"
        path.write_bytes(bam_bytes(per_block=per_block))
        (proof,) = check(path, "bam", min_records=300)
        assert proof.size_bytes == path.stat().st_size
        assert "has 300 records, at least 301" in refused(path, "bam", min_records=301)

    def test_one_without_records(self, tmp_path: Path) -> None:
        path = tmp_path / "a.bam"
        path.write_bytes(bam_bytes(records=0))
        assert check(path, "bam")

    @pytest.mark.parametrize(
        ("damage", "said"),
        [
            (lambda whole: b"", "is empty"),
            (lambda whole: whole[: -len(END_BLOCK)], "end block"),
            (lambda whole: whole[:-1], "is cut"),
            (lambda whole: whole[: len(whole) // 2], "is cut"),
            (lambda whole: whole[:5], "is cut"),
            (lambda whole: whole[:900] + bytes([whole[900] ^ 16]) + whole[901:], "at byte"),
            (lambda whole: whole[:16] + b"\0\0" + whole[18:], "how long it is"),
            (lambda whole: whole + b"tail", "is cut"),
            (lambda whole: whole + b"a tail that is long enough", "no BGZF block begins"),
            (lambda whole: b"read1\tchr7\t5\n" * 9, "no BGZF block begins"),
            (lambda whole: END_BLOCK, "does not begin as BAM"),
            (lambda whole: block(b"##fileformat=VCFv4.2\n") + END_BLOCK, "not begin as BAM"),
        ],
    )
    def test_a_damaged_one(
        self, tmp_path: Path, damage: Callable[[bytes], bytes], said: str
    ) -> None:
        path = tmp_path / "a.bam"
        path.write_bytes(damage(bam_bytes()))
        assert said in refused(path, "bam")

    def test_every_flipped_byte_of_the_data_is_seen(self, tmp_path: Path) -> None:
        whole, path = bam_bytes(records=3), tmp_path / "a.bam"
        for at in range(18, len(whole) - len(END_BLOCK) - 8):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            assert "is cut or damaged" in refused(path, "bam")

    @pytest.mark.parametrize(
        ("data", "said"),
        [
            (b"BAM\1" + struct.pack("<i", 99) + b"@HD", "within the header"),
            (b"BAM\1" + struct.pack("<i", -1), "negative"),
            (b"BAM\1" + struct.pack("<iii", 0, 2, 4) + b"chr", "within a reference"),
            (b"BAM\1" + struct.pack("<ii", 0, 0) + record(1)[:-1], "within record 1"),
            (b"BAM\1" + struct.pack("<ii", 0, 0) + struct.pack("<i", 5), "record 1 is shorter"),
            (b"BAM\1" + struct.pack("<ii", 0, 0) + record(1) + b"\x09", "within record 2"),
        ],
    )
    def test_good_blocks_around_bad_contents(self, tmp_path: Path, data: bytes, said: str) -> None:
        path = tmp_path / "a.bam"
        path.write_bytes(block(data) + END_BLOCK)
        assert said in refused(path, "bam")

    def test_a_block_that_inflates_without_end_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "a.bam"
        whole = block(bytes(20 << 20))
        path.write_bytes(whole[:-4] + struct.pack("<I", 1000) + END_BLOCK)
        assert "checksum of the block" in refused(path, "bam")

    def test_samtools_agrees(self, tmp_path: Path) -> None:
        have("samtools", "samtools")
        sam, path = tmp_path / "a.sam", tmp_path / "a.bam"
        rows = "".join(f"r{n}\t4\t*\t0\t0\t*\t*\t0\t0\tACGT\tIIII\n" for n in range(5000))
        sam.write_text(SAM + rows)
        subprocess.run(["samtools", "view", "-b", "-o", path, sam], check=True, timeout=60)
        assert check(path, "bam", min_records=5000)
        assert "at least 5001" in refused(path, "bam", min_records=5001)
        path.write_bytes(bam_bytes())
        subprocess.run(["samtools", "quickcheck", path], check=True, timeout=60)


def hdf5_file(path: Path, **options: Any) -> Path:
    with h5py.File(path, "w") as file:
        file["run/steps"] = np.arange(500)
        file.create_dataset("run/field", data=np.random.default_rng(3).random((400, 50)), **options)
        file["note"] = "finished"
        file["names"] = ["a", "bb"]
        file["nothing"] = h5py.Empty("f8")
        file.create_dataset("none", (0, 4), "f4")
    return path


class TestHdf5:
    def test_a_whole_one(self, tmp_path: Path) -> None:
        path = hdf5_file(tmp_path / "a.h5", chunks=(64, 50), compression="gzip", fletcher32=True)
        assert check(path, "hdf5", datasets=["run/field", "/note"])
        assert refused(path, "hdf5", datasets=["run/speed"]) == "holds no dataset 'run/speed'"

    @pytest.mark.parametrize(
        ("damage", "said"),
        [
            (lambda whole: b"", "is empty"),
            (lambda whole: whole[: len(whole) // 2], "truncated file"),
            (lambda whole: whole[:-1], "truncated file"),
            (lambda whole: whole[:4], "is no HDF5 file"),
            (lambda whole: b"time,energy\n0,-1.5\n", "is no HDF5 file"),
            (lambda whole: bytes(len(whole)), "is no HDF5 file"),
        ],
    )
    def test_a_damaged_one(
        self, tmp_path: Path, damage: Callable[[bytes], bytes], said: str
    ) -> None:
        path = hdf5_file(tmp_path / "a.h5")
        path.write_bytes(damage(path.read_bytes()))
        assert said in refused(path, "hdf5")

    @pytest.mark.parametrize("options", [{"fletcher32": True}, {"compression": "gzip"}])
    def test_a_flipped_byte_of_a_chunk(self, tmp_path: Path, options: dict[str, Any]) -> None:
        path = hdf5_file(tmp_path / "a.h5", chunks=(64, 50), **options)
        with h5py.File(path) as file:
            at = file["run/field"].id.get_chunk_info(3).byte_offset + 40
        data = bytearray(path.read_bytes())
        data[at] ^= 255
        path.write_bytes(data)
        assert "is cut or damaged" in refused(path, "hdf5")

    def test_a_virtual_dataset_whose_source_is_gone(self, tmp_path: Path) -> None:
        layout = h5py.VirtualLayout((500,), "i8")
        layout[:] = h5py.VirtualSource("b.h5", "run/steps", (500,))
        with h5py.File(tmp_path / "a.h5", "w") as file:
            file.create_virtual_dataset("steps", layout)
        assert "kept in 'b.h5', which is missing" in refused(tmp_path / "a.h5", "hdf5")
        hdf5_file(tmp_path / "b.h5")
        assert check(tmp_path / "a.h5", "hdf5")

    def test_large_rows_are_read_in_pieces(self, tmp_path: Path) -> None:
        path = tmp_path / "a.h5"
        with h5py.File(path, "w") as file:
            file.create_dataset("x", (40, 1 << 20), "f4", chunks=(1, 1 << 20), compression="gzip")
        assert check(path, "hdf5")

    def test_without_the_library_the_extra_is_named(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = hdf5_file(tmp_path / "a.h5")
        monkeypatch.setitem(sys.modules, "h5py", None)
        with pytest.raises(ConfigError, match="needs h5py") as caught:
            check(path, "hdf5")
        assert "milepost[hdf5]" in str(caught.value)

    def test_an_error_of_the_disk_is_not_blamed_on_the_file(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def read(*_: object) -> None:
            raise OSError("Can't read data (errno = 5, error message = 'Input/output error')")

        path = hdf5_file(tmp_path / "a.h5")
        monkeypatch.setattr(h5py.Dataset, "__getitem__", read)
        with pytest.raises(StorageError) as caught:
            check(path, "hdf5")
        assert isinstance(caught.value.__cause__, OSError)
        assert caught.value.__cause__.errno == errno.EIO
