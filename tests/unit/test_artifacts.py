"""Every check accepts what is whole and refuses each kind of damage, naming file and remedy."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from milepost.artifacts import CHECKS, check_artifact, verify_proofs
from milepost.errors import ConfigError, DataError
from milepost.model import ArtifactCheck, FileProof

END_BLOCK = bytes.fromhex("1f8b08040000000000ff0600424302001b0003000000000000000000")


def check(folder: Path, path: str, kind: str, **options: Any) -> list[FileProof]:
    return check_artifact(folder, ArtifactCheck(path, kind, options), {"name": "a", "n": "3"})


def refused(folder: Path, path: str, kind: str, **options: Any) -> str:
    with pytest.raises(DataError) as caught:
        check(folder, path, kind, **options)
    assert caught.value.where
    assert caught.value.fix
    return caught.value.what


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def npz_bytes(**arrays: Any) -> bytes:
    stream = io.BytesIO()
    np.savez_compressed(stream, **arrays)
    return stream.getvalue()


def zip_bytes(**members: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return stream.getvalue()


def test_a_proof_holds_size_and_digest(tmp_path: Path) -> None:
    write(tmp_path / "a.txt", "milepost\n")
    (proof,) = check(tmp_path, "a.txt", "exists")
    assert (proof.path, proof.size_bytes) == ("a.txt", 9)
    assert proof.digest.startswith("blake3:")
    assert verify_proofs(tmp_path, [proof], deep=True) == []


def test_json_gives_the_same_proof_as_exists(tmp_path: Path) -> None:
    write(tmp_path / "a.json", '{"x": 1}')
    assert check(tmp_path, "a.json", "json") == check(tmp_path, "a.json", "exists")


def test_a_large_file_is_proved_in_blocks(tmp_path: Path) -> None:
    write(tmp_path / "big.bin", bytes(3 << 20))
    (proof,) = check(tmp_path, "big.bin", "nonempty")
    assert proof.size_bytes == 3 << 20
    assert verify_proofs(tmp_path, [proof], deep=True) == []


@pytest.mark.parametrize("kind", sorted(set(CHECKS) - {"range", "command"}))
def test_a_missing_file_is_named_by_every_check(tmp_path: Path, kind: str) -> None:
    assert refused(tmp_path, "{name}.out", kind) == "is missing"


class TestPaths:
    def test_fields_are_filled(self, tmp_path: Path) -> None:
        write(tmp_path / "a-3.json", "{}")
        assert [p.path for p in check(tmp_path, "{name}-{n}.json", "json")] == ["a-3.json"]

    def test_an_unknown_field_is_a_mistake_of_the_config(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="no field 'seed'"):
            check(tmp_path, "{seed}.json", "json")

    @pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../../x", "../*"])
    def test_a_path_may_not_leave_the_folder(self, tmp_path: Path, path: str) -> None:
        write(tmp_path / "x", "secret")
        folder = tmp_path / "out"
        folder.mkdir()
        assert "leaves its folder" in refused(folder, path, "exists")

    def test_a_field_may_not_leave_the_folder(self, tmp_path: Path) -> None:
        write(tmp_path / "x", "secret")
        (tmp_path / "out").mkdir()
        with pytest.raises(DataError, match="leaves its folder"):
            check_artifact(tmp_path / "out", ArtifactCheck("{f}", "exists"), {"f": "../x"})

    def test_a_link_may_not_leave_the_folder(self, tmp_path: Path) -> None:
        write(tmp_path / "x", "secret")
        folder = tmp_path / "out"
        folder.mkdir()
        (folder / "link").symlink_to("../x")
        (folder / "way").symlink_to("..")
        assert "outside its folder" in refused(folder, "link", "exists")
        assert "outside its folder" in refused(folder, "way/x", "exists")

    def test_a_link_to_nothing_is_told_from_a_missing_file(self, tmp_path: Path) -> None:
        (tmp_path / "link").symlink_to("nowhere")
        assert refused(tmp_path, "link", "exists") == "is a link to nothing"

    def test_a_pattern_means_every_match(self, tmp_path: Path) -> None:
        write(tmp_path / "b.json", "{}")
        write(tmp_path / "sub" / "a.json", "{}")
        assert [p.path for p in check(tmp_path, "**/*.json", "json")] == ["b.json", "sub/a.json"]
        write(tmp_path / "c.json", "{")
        assert "is not JSON" in refused(tmp_path, "*.json", "json")

    def test_a_pattern_without_a_match_is_refused(self, tmp_path: Path) -> None:
        assert "0 files match" in refused(tmp_path, "*.json", "json")

    def test_min_files(self, tmp_path: Path) -> None:
        write(tmp_path / "a.json", "{}")
        assert "1 files match" in refused(tmp_path, "*.json", "json", min_files=2)

    def test_magic_characters_of_a_field_are_plain(self, tmp_path: Path) -> None:
        write(tmp_path / "a[1].json", "{}")
        write(tmp_path / "a1.json", "{")
        fields = {"f": "a[1]"}
        for path in ("{f}.json", "{f}.*"):
            (proof,) = check_artifact(tmp_path, ArtifactCheck(path, "json"), fields)
            assert proof.path == "a[1].json"

    def test_a_folder_stands_for_the_files_below_it(self, tmp_path: Path) -> None:
        write(tmp_path / "d" / "x" / "1", "1")
        write(tmp_path / "d" / "2", "2")
        assert [p.path for p in check(tmp_path, "d", "exists")] == ["d/2", "d/x/1"]
        assert "is a folder" in refused(tmp_path, "d", "json")

    def test_an_empty_folder_is_no_artifact(self, tmp_path: Path) -> None:
        (tmp_path / "d").mkdir()
        assert "is an empty folder" in refused(tmp_path, "d", "exists")

    def test_a_pipe_is_refused_and_not_opened(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        assert "neither a file" in refused(tmp_path, "pipe", "exists")


class TestContents:
    def test_an_empty_file_exists_but_is_not_nonempty(self, tmp_path: Path) -> None:
        write(tmp_path / "a", "")
        assert check(tmp_path, "a", "exists")[0].size_bytes == 0
        assert refused(tmp_path, "a", "nonempty") == "is empty"
        write(tmp_path / "a", "xy")
        assert "has 2 bytes" in refused(tmp_path, "a", "nonempty", min_bytes=3)

    @pytest.mark.parametrize(
        "content", ["", "  \n", "{", '{"a": 1,}', "{'a': 1}", "nan", b"\xff\xfe{}", '{"a": NaN}']
    )
    def test_what_is_not_json(self, tmp_path: Path, content: str | bytes) -> None:
        write(tmp_path / "a.json", content)
        refused(tmp_path, "a.json", "json")

    def test_deep_nesting_is_refused_and_does_not_crash(self, tmp_path: Path) -> None:
        write(tmp_path / "a.json", "[" * 200_000)
        refused(tmp_path, "a.json", "json")

    def test_nan_may_be_allowed(self, tmp_path: Path) -> None:
        write(tmp_path / "a.json", '{"a": NaN}')
        assert "NaN" in refused(tmp_path, "a.json", "json")
        assert check(tmp_path, "a.json", "json", allow_nan=True)

    def test_keys(self, tmp_path: Path) -> None:
        write(tmp_path / "a.json", '{"x": {"y": [1, 2]}, "p.q": 0}')
        assert check(tmp_path, "a.json", "json", keys=["x", "x.y", "x.y.1", "p.q"])
        assert "no key 'x.z'" in refused(tmp_path, "a.json", "json", keys=["x.z"])
        assert "no key 'x.y.2'" in refused(tmp_path, "a.json", "json", keys=["x.y.2"])

    def test_schema(self, tmp_path: Path) -> None:
        write(tmp_path / "a.json", '{"x": "1"}')
        schema = {"properties": {"x": {"type": "number"}}}
        assert refused(tmp_path, "a.json", "json", schema=schema).startswith("x: ")
        with pytest.raises(ConfigError, match="not a JSON Schema"):
            check(tmp_path, "a.json", "json", schema={"type": 3})

    def test_range(self, tmp_path: Path) -> None:
        write(tmp_path / "a.json", json.dumps({"e": -1.5, "t": True, "s": "1"}))
        assert check(tmp_path, "a.json", "range", key="e", min=-2, max=0)
        assert "below -1" in refused(tmp_path, "a.json", "range", key="e", min=-1)
        assert "above -2" in refused(tmp_path, "a.json", "range", key="e", max=-2)
        assert "not a finite" in refused(tmp_path, "a.json", "range", key="t", min=0)
        assert "not a finite" in refused(tmp_path, "a.json", "range", key="s", min=0)
        write(tmp_path / "a.json", '{"e": NaN}')
        assert "not a finite" in refused(tmp_path, "a.json", "range", key="e", min=0)
        with pytest.raises(ConfigError, match="a range needs"):
            check(tmp_path, "a.json", "range", key="e")


class TestTable:
    def test_a_good_table(self, tmp_path: Path) -> None:
        write(tmp_path / "a.csv", 'x,y\n1,"two\nlines"\n3,4\n')
        assert check(tmp_path, "a.csv", "csv-rows", min_rows=2, columns=["y"])
        assert check(tmp_path, "a.csv", "csv-rows", rows=2)
        assert check(tmp_path, "a.csv", "csv-rows", rows=3, header=False)

    @pytest.mark.parametrize(
        ("content", "said"),
        [
            ("", "has 0 rows"),
            ("x,y\n", "has 0 rows"),
            ("x,y\n1,2\n3\n", "line 3 has 1 columns"),
            ("x,y\n1,2\n3,4,5\n", "line 3 has 3 columns"),
            ("x,y\n1,2\n3,4", "no newline"),
            ('x,y\n1,2\n3,"4\n', "not a table"),
            ("x,y\n1,2\n\0\0\0\0", "NUL"),
            (b"x,y\n1,\xff\n", "not UTF-8"),
        ],
    )
    def test_a_bad_table(self, tmp_path: Path, content: str | bytes, said: str) -> None:
        write(tmp_path / "a.csv", content)
        assert said in refused(tmp_path, "a.csv", "csv-rows")

    def test_options(self, tmp_path: Path) -> None:
        write(tmp_path / "a.csv", "x;y\r\n1;2\r\n3;4")
        assert check(tmp_path, "a.csv", "csv-rows", delimiter=";", final_newline=False, rows=2)
        write(tmp_path / "a.csv", "x,y\n1,2\n")
        assert "at least 2" in refused(tmp_path, "a.csv", "csv-rows", min_rows=2)
        assert "no column 'z'" in refused(tmp_path, "a.csv", "csv-rows", columns=["z"])

    def test_tsv_and_gz_by_name(self, tmp_path: Path) -> None:
        whole = gzip.compress(b"x\ty\n1\t2\n" * 999)
        write(tmp_path / "a.tsv.gz", whole)
        assert check(tmp_path, "a.tsv.gz", "csv-rows", columns=["x", "y"])
        write(tmp_path / "a.tsv.gz", whole[:-9])
        assert "cut or damaged" in refused(tmp_path, "a.tsv.gz", "csv-rows")


class TestDigest:
    def test_value_and_list(self, tmp_path: Path) -> None:
        write(tmp_path / "d" / "a.bin", b"abc")
        digest = hashlib.sha256(b"abc").hexdigest()
        assert check(tmp_path, "d/a.bin", "sha256", value=digest.upper())
        assert check(tmp_path, "d/a.bin", "sha256", value=f"sha256:{digest}")
        write(tmp_path / "SUMS", f"{'0' * 64}  other\n{digest} *a.bin\n")
        assert check(tmp_path, "d/a.bin", "sha256", list="SUMS")
        write(tmp_path / "d" / "a.bin.sha256", digest + "\n")
        assert check(tmp_path, "d/a.bin", "sha256")

    def test_damage(self, tmp_path: Path) -> None:
        write(tmp_path / "a.bin", b"abd")
        digest = hashlib.sha256(b"abc").hexdigest()
        assert "expected" in refused(tmp_path, "a.bin", "sha256", value=digest)
        assert "list of digests" in refused(tmp_path, "a.bin", "sha256")
        write(tmp_path / "SUMS", f"{digest}  b.bin\n")
        assert "not in the list" in refused(tmp_path, "a.bin", "sha256", list="SUMS")


class TestArchives:
    def test_gzip(self, tmp_path: Path) -> None:
        whole = gzip.compress(os.urandom(5000)) + gzip.compress(b"second member")
        write(tmp_path / "a.gz", whole)
        assert check(tmp_path, "a.gz", "gzip")

    @pytest.mark.parametrize(
        "damage",
        [
            lambda whole: b"",
            lambda whole: whole[:-1],
            lambda whole: whole[: len(whole) // 2],
            lambda whole: whole[:600] + bytes([whole[600] ^ 1]) + whole[601:],
            lambda whole: whole + b"trailing garbage",
            lambda whole: b"plain text",
        ],
    )
    def test_damaged_gzip(self, tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
        write(tmp_path / "a.gz", damage(gzip.compress(os.urandom(5000))))
        refused(tmp_path, "a.gz", "gzip")

    def test_a_bam_needs_its_end_block(self, tmp_path: Path) -> None:
        block = gzip.compress(b"reads")
        write(tmp_path / "a.bam", block + END_BLOCK)
        assert check(tmp_path, "a.bam", "gzip")
        write(tmp_path / "a.bam", block)
        assert "end block" in refused(tmp_path, "a.bam", "gzip")
        assert check(tmp_path, "a.bam", "gzip", bgzf=False)

    def test_zip(self, tmp_path: Path) -> None:
        whole = zip_bytes(one=os.urandom(300), two=b"2")
        write(tmp_path / "a.zip", whole)
        assert check(tmp_path, "a.zip", "zip", names=["one"])
        assert "holds no 'six'" in refused(tmp_path, "a.zip", "zip", names=["six"])
        write(tmp_path / "a.zip", whole[:-30])
        refused(tmp_path, "a.zip", "zip")
        write(tmp_path / "a.zip", whole[:100] + bytes([whole[100] ^ 1]) + whole[101:])
        assert "'one' is damaged" in refused(tmp_path, "a.zip", "zip")
        write(tmp_path / "a.zip", zip_bytes())
        assert refused(tmp_path, "a.zip", "zip") == "holds nothing"

    def test_npz(self, tmp_path: Path) -> None:
        write(tmp_path / "a.npz", npz_bytes(x=np.arange(9.0), y=np.zeros((2, 3), "f4"), z=0))
        assert check(tmp_path, "a.npz", "npz", keys=["x", "y", "z"])
        assert "holds no 'w.npy'" in refused(tmp_path, "a.npz", "npz", keys=["w"])
        write(tmp_path / "a.npz", zip_bytes(**{"x.npy": b"no array"}))
        assert "is no array" in refused(tmp_path, "a.npz", "npz")

    def test_an_npz_with_objects_is_refused_unread(self, tmp_path: Path) -> None:
        write(tmp_path / "a.npz", npz_bytes(x=np.array([{}, None], dtype=object)))
        assert "run code" in refused(tmp_path, "a.npz", "npz")

    def test_a_short_array_is_refused(self, tmp_path: Path) -> None:
        stream = io.BytesIO()
        np.save(stream, np.arange(9.0))
        write(tmp_path / "a.npz", zip_bytes(**{"x.npy": stream.getvalue()[:-8]}))
        assert "shorter or longer" in refused(tmp_path, "a.npz", "npz")


class TestCommand:
    def test_exit_0_verifies(self, tmp_path: Path) -> None:
        write(tmp_path / "a.txt", "3")
        command = f'{sys.executable} -c "import sys; sys.exit(open(sys.argv[1]).read() != sys.argv[2])" {{path}} {{n}}'
        assert check(tmp_path, "a.txt", "command", command=command)
        write(tmp_path / "a.txt", "4")
        assert "ended with 1" in refused(tmp_path, "a.txt", "command", command=command)

    def test_the_last_line_it_said_is_in_the_message(self, tmp_path: Path) -> None:
        write(tmp_path / "a.txt", "3")
        command = f"{sys.executable} -c \"print('one'); print('energy drifts'); exit(4)\""
        said = refused(tmp_path, "a.txt", "command", command=command)
        assert said.endswith("ended with 4: energy drifts")

    def test_no_shell_sees_a_value(self, tmp_path: Path) -> None:
        write(tmp_path / "a.txt", "3")
        check_artifact(
            tmp_path,
            ArtifactCheck("a.txt", "command", {"command": "echo {f}"}),
            {"f": "x; touch pwned; $(touch pwned)"},
        )
        assert [entry.name for entry in tmp_path.iterdir()] == ["a.txt"]

    def test_a_check_that_cannot_start_is_a_mistake_of_the_config(self, tmp_path: Path) -> None:
        write(tmp_path / "a.txt", "3")
        with pytest.raises(ConfigError, match="cannot be started"):
            check(tmp_path, "a.txt", "command", command="no-such-program-here {path}")
        with pytest.raises(ConfigError, match="has no command"):
            check(tmp_path, "a.txt", "command")

    def test_a_check_that_hangs_is_ended(self, tmp_path: Path) -> None:
        write(tmp_path / "a.txt", "3")
        said = refused(tmp_path, "a.txt", "command", command="sleep 60", timeout_s=0.05)
        assert "took more than 0.05 s" in said


def test_unknown_checks_and_options_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unknown check 'jsn'"):
        check(tmp_path, "a", "jsn")
    with pytest.raises(ConfigError, match="has no option 'key'"):
        check(tmp_path, "a", "json", key="x")


class TestVerifyProofs:
    def test_size_only_and_deep(self, tmp_path: Path) -> None:
        for name in "abc":
            write(tmp_path / name, "123")
        proofs = [check(tmp_path, name, "exists")[0] for name in "abc"]
        (tmp_path / "a").unlink()
        write(tmp_path / "b", "1234")
        write(tmp_path / "c", "124")
        shallow = verify_proofs(tmp_path, proofs, deep=False)
        assert shallow == ["a: is missing", "b: has 4 bytes, 3 were proved"]
        deep = verify_proofs(tmp_path, proofs, deep=True)
        assert deep[:2] == shallow
        assert deep[2].startswith("c: has digest blake3:")

    def test_other_algorithms_and_names_outside(self, tmp_path: Path) -> None:
        write(tmp_path / "a", "123")
        digest = "sha256:" + hashlib.sha256(b"123").hexdigest()
        assert verify_proofs(tmp_path, [FileProof("a", 3, digest)], deep=True) == []
        assert verify_proofs(tmp_path, [FileProof("../a", 3, digest)], deep=True) == [
            "../a: leaves its folder"
        ]
