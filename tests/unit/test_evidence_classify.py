"""Failures are named by their cause, whatever the language, the order, and the last line."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml
from click.testing import CliRunner

from milepost.cli.classify import command
from milepost.errors import ConfigError, DataError
from milepost.evidence.classify import classify, diagnose
from milepost.evidence.logtext import HEAD_BYTES, TAIL_BYTES, decode, lines_of, read_stream
from milepost.evidence.signatures import load_signatures
from milepost.literals import literals_of
from milepost.model import Action, FailureClass, Finding
from milepost.resources import load_yaml

REPORTS = yaml.safe_load(
    (Path(__file__).parents[1] / "data" / "failure_reports.yaml").read_text(encoding="utf-8")
)

# Reports of others are never copied; where a collection of them stands beside the checkout, it is
# measured.
FOREIGN = Path(__file__).parents[3] / "shared" / "data" / "failures.tsv"

SUBCLASSES = {
    "scheduler": "cancelled controller_unreachable deadline invalid_account_qos launch_failure "
    "node_fail pending_forever preempted resource_mismatch revoked time_limit unknown_state",
    "runtime": "cuda_driver_nccl data_loading dependency_import gpu_oom host_oom mpi_abort "
    "not_converged segfault shape_config unknown",
    "data": "checksum_mismatch corrupted_input inconsistent_label missing_file parse_error "
    "split_leakage",
    "storage": "checkpoint_write_failure no_space_left permission quota_exceeded stale_nfs_slow_io",
    "none": "not_a_failure",
}
KNOWN = {f"{kind}/{name}" for kind, names in SUBCLASSES.items() for name in names.split()}


def named(finding: Finding) -> str:
    return f"{finding.failure_class}/{finding.subclass}"


@pytest.mark.parametrize("report", REPORTS, ids=lambda r: f"{r['is']}-{str(r['log'])[-30:]}")
def test_reports(report: dict[str, Any]) -> None:
    finding = classify(report["log"], state=report.get("state"), exit_code=report.get("exit"))
    assert (named(finding), finding.action) == (report["is"], report["do"]), finding


def test_the_reports_cover_every_subclass() -> None:
    assert {report["is"] for report in REPORTS} == KNOWN


def test_every_signature_names_a_known_subclass_and_explains_itself() -> None:
    known = load_signatures()
    for signature in (*known.logs, *known.ends):
        assert f"{signature.failure_class}/{signature.subclass}" in KNOWN, signature.name
        assert signature.why, signature.name
        assert 0 < signature.rank < 100
    assert all(harmless.why for harmless in known.harmless)


def test_names_of_signatures_are_unique_and_their_words_in_lower_case() -> None:
    rows = load_yaml("policies", "failures.yaml")
    names = [row["name"] for row in rows["signatures"]]
    assert len(names) == len(set(names))
    for row in [*rows["signatures"], *rows["harmless"]]:
        for key in ("words", "needs", "unless", "not_line"):
            assert all(word == word.lower() for word in row.get(key, ())), row


def test_every_pattern_of_a_line_compiles_and_has_plain_text() -> None:
    rows = load_yaml("policies", "failures.yaml")
    for row in [*rows["signatures"], *rows["harmless"]]:
        for pattern in row.get("lines", ()):
            assert all(len(text) >= 3 for text in literals_of(pattern)), pattern


# Every pattern on long lines made for it: one that backtracks without end would never come back.
HOSTILE = """
import re
from milepost.literals import literals_of
from milepost.resources import load_yaml

rows = load_yaml("policies", "failures.yaml")
count = 0
for row in [*rows["signatures"], *rows["harmless"]]:
    words = row.get("words", ())
    tries = [(pattern, literals_of(pattern)) for pattern in row.get("lines", ())]
    tries += [(row["pattern"], words[:3])] if "pattern" in row else []
    for pattern, texts in tries:
        regex = re.compile(pattern, re.IGNORECASE)
        for text in (*texts[:3], "a ", "1", "="):
            for line in (text * (3000 // len(text)), text + " " * 3000, "error " + "a " * 1500 + text):
                regex.search(line[:4000])
        count += 1
print(count)
"""


def test_no_pattern_hangs_on_a_long_line() -> None:
    done = subprocess.run(
        [sys.executable, "-c", HOSTILE], capture_output=True, text=True, timeout=300, check=True
    )
    assert int(done.stdout) > 1000


@pytest.mark.skipif(not FOREIGN.is_file(), reason="no collection of reports beside the checkout")
def test_reports_of_others_that_stand_beside_the_checkout() -> None:
    with FOREIGN.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE))
    found = [
        classify(
            row["log_tail"].replace("\\n", "\n").replace("\\r", "\r").replace("\\t", "\t"),
            state=row["slurm_state"] or None,
            exit_code=row["exit_code"] or None,
        )
        for row in rows
    ]
    pairs = list(zip(rows, found, strict=True))
    assert sum(str(f.failure_class) == row["class"] for row, f in pairs) >= 0.97 * len(rows)
    assert sum(f.subclass == row["subclass"] for row, f in pairs) >= 0.95 * len(rows)
    assert sum(str(f.action) == row["expected_action"] for row, f in pairs) >= 0.95 * len(rows)
    sure = [f.subclass == row["subclass"] for row, f in pairs if f.confidence >= 0.8]
    assert sum(sure) >= 0.95 * len(sure)


class TestCauseBeforeCascade:
    @pytest.mark.parametrize(
        ("lines", "cause"),
        [
            (
                [
                    "OSError: [Errno 28] No space left on device",
                    "RuntimeError: [enforce fail at inline_container.cc:603] . unexpected pos 1 vs 2",
                    "MPI_ABORT was invoked on rank 0",
                    "srun: error: c1: tasks 0-7: Killed",
                    "slurmstepd: error: *** STEP 1.0 ON c1 CANCELLED AT 2025-01-01T00:00:00 ***",
                ],
                "storage/no_space_left",
            ),
            (
                [
                    "RuntimeError: CUDA error: uncorrectable ECC error encountered",
                    "NCCL WARN rank 3 failed",
                    "MPI_ABORT was invoked on rank 0",
                    "Aborted (core dumped)",
                ],
                "runtime/cuda_driver_nccl",
            ),
            (
                [
                    "FileNotFoundError: [Errno 2] No such file or directory: 'in.h5'",
                    "srun: error: c1: task 0: Exited with exit code 1",
                    "srun: Terminating job step 1.0",
                ],
                "data/missing_file",
            ),
            (
                [
                    "ERROR: Lost atoms: original 100 current 98",
                    "application called MPI_Abort(MPI_COMM_WORLD, 1) - process 0",
                    "Segmentation fault (core dumped)",
                ],
                "runtime/not_converged",
            ),
            (
                [
                    "Traceback (most recent call last):",
                    "KeyError: 'x'",
                    "slurmstepd: error: *** JOB 1 ON c1 CANCELLED AT 2025 DUE TO TIME LIMIT ***",
                ],
                "scheduler/time_limit",
            ),
            (
                [
                    "[main_samview] fail to read the header from '-'.",
                    "[sort] fork: Cannot allocate memory",
                ],
                "runtime/host_oom",
            ),
        ],
    )
    @pytest.mark.parametrize("is_reversed", [False, True])
    def test_the_order_of_the_lines_does_not_matter(
        self, lines: list[str], cause: str, is_reversed: bool
    ) -> None:
        log = "\n".join(reversed(lines) if is_reversed else lines)
        assert named(classify(log, state="FAILED", exit_code="1:0")) == cause

    def test_the_line_of_the_cause_is_the_evidence(self) -> None:
        log = "start\nOSError: [Errno 122] Disk quota exceeded\nMPI_ABORT was invoked"
        finding = classify(log, exit_code=1)
        assert finding.evidence == ("OSError: [Errno 122] Disk quota exceeded", "exit code 1")

    def test_a_killed_task_after_an_abort_is_no_lack_of_memory(self) -> None:
        log = "application called MPI_Abort(MPI_COMM_WORLD, 3)\nsrun: error: c1: tasks 1-3: Killed"
        assert named(classify(log, exit_code="9:0")) == "runtime/mpi_abort"

    def test_a_warning_ranks_below_what_is_no_warning(self) -> None:
        said = "cannot open /etc/x.cfg: No such file or directory"
        end = "CUDA error: unspecified launch failure"
        assert classify(f"{said}\n{end}", exit_code=1).subclass == "missing_file"
        for lines in ([f"WARNING: {said}", end], [end, f"WARNING: {said}"]):
            assert classify("\n".join(lines), exit_code=1).subclass == "cuda_driver_nccl"
        assert classify(f"WARNING: {said}", exit_code=1).subclass == "missing_file"

    def test_a_frame_of_a_traceback_proves_nothing(self) -> None:
        log = (
            "Traceback (most recent call last):\n"
            '  File "/lib/torch/cuda/out_of_memory.py", line 7, in raise_cuda_out_of_memory\n'
            "    raise OutOfMemoryError('CUDA out of memory')\n"
            "KeyError: 'depth'"
        )
        finding = classify(log, exit_code=1)
        assert (finding.subclass, finding.evidence[0]) == ("shape_config", "KeyError: 'depth'")

    def test_the_line_below_a_frame_of_hdf5_is_its_message(self) -> None:
        log = (
            '  File "H5FDsec2.c", line 1002, in H5FD__sec2_lock\n'
            "    unable to lock file, errno = 11, error message = 'Resource temporarily unavailable'"
        )
        assert classify(log, exit_code=1).subclass == "stale_nfs_slow_io"

    def test_a_line_below_a_headline_is_read_with_it(self) -> None:
        said = "the beads do not converge here"
        assert classify(f"Error in solve() :\n  {said}", exit_code=1).evidence[0] == said
        gpu = "the memory of cuda:0 was asked for twice"
        assert classify(f"Fatal error:\n{gpu}", exit_code=1).subclass == "cuda_driver_nccl"
        for headline in ("Command error:", "Error in rule sort:", "Fatal error", "Loaded:"):
            assert classify(f"{headline}\n{gpu}", exit_code=1).subclass != "cuda_driver_nccl"

    def test_the_zeroth_of_many_is_no_count_of_none(self) -> None:
        log = "replica 0 failed: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9 bytes"
        assert classify(log, exit_code=1).subclass == "gpu_oom"
        assert classify("tests: 9 passed, 0 failed", exit_code=1).subclass == "unknown"


class TestHarmless:
    @pytest.mark.parametrize(
        "line",
        [
            "[n1:1] PMIX ERROR: ERROR in file gds_ds12_lock_pthread.c at line 168",
            "n1:1:2 [0] NCCL INFO NET/Plugin: libnccl-net.so: cannot open shared object file",
            "srun: Job 1 step creation temporarily disabled, retrying (Requested nodes are busy)",
            "slurmstepd: error: couldn't chdir to `/x': No such file or directory: going to /tmp instead",
        ],
    )
    def test_known_noise_hides_no_real_cause(self, line: str) -> None:
        assert named(classify(line, state="COMPLETED", exit_code="0:0")) == "none/not_a_failure"
        assert classify(line, exit_code=1).subclass == "unknown"
        log = f"{line}\nOSError: [Errno 28] No space left on device"
        assert classify(log, exit_code=1).subclass == "no_space_left"

    def test_noise_of_a_shutdown_counts_only_after_success(self) -> None:
        log = "epoch 9 100%\nRuntimeError: DataLoader worker (pid 3) is killed by signal: Killed."
        assert classify(log, state="COMPLETED", exit_code="0:0").action is Action.NONE
        assert classify(log, state="FAILED", exit_code="1:0").subclass == "data_loading"

    def test_words_of_failure_in_ordinary_output(self) -> None:
        log = "test error 0.02, failed: 0\nerror handler installed\nexceptions: none\n"
        assert classify(log, exit_code=0).subclass == "not_a_failure"


class TestSuccessIsNoProof:
    def test_memory_kill_below_a_completed_job(self) -> None:
        log = "slurmstepd: error: Detected 1 oom_kill event in StepId=1.batch.\nall done 100%"
        finding = classify(log, state="COMPLETED", exit_code="0:0")
        assert named(finding) == "runtime/host_oom"

    def test_a_full_disk_below_exit_0(self) -> None:
        log = "samtools: write failed: No space left on device\nfinished"
        assert classify(log, exit_code=0).subclass == "no_space_left"

    def test_the_explanation_says_so(self) -> None:
        finding, why = diagnose("fine", state="COMPLETED", exit_code="0:0")
        assert finding.confidence <= 0.5
        assert "proves no success" in why

    def test_guesses_are_not_believed_after_success(self) -> None:
        assert classify("KeyError: 'x' (ignored)", exit_code=0).subclass == "not_a_failure"
        assert classify("KeyError: 'x'", exit_code=1).subclass == "shape_config"

    @pytest.mark.parametrize(
        "log", ["cuda: invalid value, ignored", "Execution halted", "error: argument -x: bad"]
    )
    def test_what_is_little_sure_is_no_proof_against_it(self, log: str) -> None:
        assert classify(log, state="COMPLETED", exit_code="0:0").subclass in (
            "not_a_failure",
            "shape_config",
        )

    def test_an_abort_of_mpi_counts_even_then(self) -> None:
        log = "MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD"
        assert classify(log, state="COMPLETED", exit_code="0:0").subclass == "mpi_abort"


class TestUnknown:
    def test_unknown_stays_unknown(self) -> None:
        finding = classify("a\nb\nc\nd", exit_code=3)
        assert finding.failure_class is FailureClass.RUNTIME
        assert (finding.subclass, finding.action) == ("unknown", Action.FIX_NO_RETRY)
        assert finding.confidence <= 0.1
        assert finding.evidence == ("b", "c", "d", "exit code 3")

    def test_a_complaint_of_no_known_kind_is_a_guess_and_says_so(self) -> None:
        finding = classify("ERROR: the wheel has nine spokes", exit_code=1)
        assert named(finding) == "runtime/shape_config"
        assert finding.confidence <= 0.2
        assert classify("ERROR: task failed with exit code 1", exit_code=1).subclass == "unknown"

    def test_no_witness_at_all_is_a_state_not_known(self) -> None:
        assert named(classify(None)) == "scheduler/unknown_state"

    def test_a_missing_file_is_an_empty_log(self, tmp_path: Path) -> None:
        assert named(classify(tmp_path / "none.log", state="TIMEOUT")) == "scheduler/time_limit"


class TestEnds:
    @pytest.mark.parametrize(
        ("code", "name"),
        [
            (137, "host_oom"),
            ("137", "host_oom"),
            ("137:0", "host_oom"),
            ("9:0", "host_oom"),
            ("0:9", "host_oom"),
            (-9, "host_oom"),
            ("0:125", "host_oom"),
            (139, "segfault"),
            ("0:11", "segfault"),
            (-11, "segfault"),
            (140, "time_limit"),
            ("12:0", "time_limit"),
            (127, "dependency_import"),
            ("0:53", "permission"),
            (136, "not_converged"),
            (247, "host_oom"),
            ("245:0", "segfault"),
            (9, "unknown"),
            (255, "unknown"),
            (1, "unknown"),
            ("?", "unknown"),
        ],
    )
    def test_exit_codes_without_words(self, code: int | str, name: str) -> None:
        assert classify("", exit_code=code).subclass == name

    @pytest.mark.parametrize(
        ("state", "name"),
        [
            ("TO", "time_limit"),
            ("timeout", "time_limit"),
            ("OUT_OF_ME+", "host_oom"),
            ("CANCELLED+", "cancelled"),
            ("CANCELLED by 1000", "cancelled"),
            ("CANCELLED by 0", "preempted"),
            ("RUNNING", "unknown_state"),
            ("COMPLETED,COMPLETING", "unknown_state"),
            ("['NODE_FAIL', 'REQUEUED']", "preempted"),
        ],
    )
    def test_states_as_people_paste_them(self, state: str, name: str) -> None:
        assert classify("", state=state).subclass == name

    def test_two_witnesses_are_surer_than_one(self) -> None:
        log = "slurmstepd: error: *** JOB 1 ON a CANCELLED AT 2025 DUE TO TIME LIMIT ***"
        alone, both = classify(log), classify(log, state="TIMEOUT")
        assert both.confidence > alone.confidence


class TestLogText:
    def test_a_progress_bar_hides_nothing(self) -> None:
        bar = "".join(f"\r {n}%|##   | {n}/100 [00:01<00:02, 3.1it/s]" for n in range(100))
        log = bar + "CUDA out of memory. Tried to allocate 2 GiB\r" + bar
        finding = classify(log, exit_code=1)
        assert finding.subclass == "gpu_oom"
        assert "CUDA out of memory. Tried to allocate 2 GiB" in finding.evidence[0]

    def test_colours_hide_nothing(self) -> None:
        log = "\x1b[31mModule\x1b[0mNot\x1b[1;33mFoundError\x1b[0m: No module named 'x'"
        assert classify(log, exit_code=1).subclass == "dependency_import"

    @pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "utf-16", "utf-16-le", "utf-8-sig"])
    def test_encodings(self, encoding: str) -> None:
        data = "ü\n./x.sh: Zeile 3: 7 Getötet   ./solve\n".encode(encoding)
        assert classify(data, exit_code=1).subclass == "host_oom"

    def test_mixed_encodings_in_one_log(self) -> None:
        data = "Größe\n".encode("latin-1") + "Auf dem Gerät ist kein Speicherplatz".encode()
        assert lines_of(data) == ["Größe", "Auf dem Gerät ist kein Speicherplatz"]

    def test_bytes_that_are_no_text(self) -> None:
        assert classify(bytes(range(256)) * 50, exit_code=1).subclass == "unknown"

    def test_head_and_tail_of_a_huge_file(self, tmp_path: Path) -> None:
        path = tmp_path / "huge.log"
        with path.open("wb") as stream:
            stream.write(b"Lmod has detected the following error: module(s) are unknown: x\n")
            stream.truncate(3 << 30)
            stream.seek(0, 2)
            stream.write(b"\nOSError: [Errno 28] No space left on device\n")
        assert classify(path, exit_code=1).subclass == "no_space_left"
        assert len("".join(lines_of(path))) < HEAD_BYTES + TAIL_BYTES

    def test_a_stream_is_kept_at_both_ends(self) -> None:
        middle = b"m" * (3 * (HEAD_BYTES + TAIL_BYTES))
        kept = read_stream(io.BytesIO(b"first\n" + middle + b"\nlast"))
        assert len(kept) == HEAD_BYTES + TAIL_BYTES + 1
        assert kept.startswith(b"first\n")
        assert kept.endswith(b"\nlast")
        assert read_stream(io.BytesIO(b"short")) == b"short"

    def test_memory_stays_bounded_on_gigabytes(self, tmp_path: Path) -> None:
        path = tmp_path / "huge.log"
        with path.open("wb") as stream:
            stream.truncate(4 << 30)
            stream.seek(0, 2)
            stream.write(b"\nOSError: [Errno 28] No space left on device\n")
        code = (
            "import sys, pathlib\n"
            "from milepost.evidence.classify import classify\n"
            "found = classify(pathlib.Path(sys.argv[1]), exit_code=1)\n"
            "status = pathlib.Path('/proc/self/status').read_text().split()\n"
            "print(found.subclass, status[status.index('VmHWM:') + 1])\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True
        )
        name, kilobytes = done.stdout.split()
        assert name == "no_space_left"
        assert int(kilobytes) < 256 << 10

    def test_the_first_and_the_last_lines_of_a_kind_are_looked_at(self) -> None:
        noise = "cannot open optional plugin of colour\n" * 5000
        last = "cannot open /data/in.csv: No such file or directory"
        for log in (f"{last}\n{noise}", f"{noise}{last}"):
            assert classify(log, exit_code=1).subclass == "missing_file"

    def test_decoding_never_fails(self) -> None:
        assert decode(b"\xff\xfeA\0") == "A"
        assert decode(b"") == ""

    def test_one_endless_line(self) -> None:
        assert classify("x" * 2_000_000, exit_code=1).subclass == "unknown"
        log = "." * 2_000_000 + "FileNotFoundError: x.csv"
        assert classify(log, exit_code=1).subclass == "missing_file"

    def test_a_log_truncated_under_its_writer_begins_with_nul(self) -> None:
        log = bytes(5000) + b"OSError: [Errno 28] No space left on device\n"
        assert classify(log, exit_code=1).subclass == "no_space_left"

    def test_earlier_attempts_in_an_appended_log_do_not_count(self) -> None:
        first = "slurmstepd: error: *** JOB 1 ON a CANCELLED AT 2025 DUE TO PREEMPTION ***\n"
        second = "step\n" * 40 + "FileNotFoundError: [Errno 2] No such file: 'x.csv'\n"
        assert classify(first + second, state="FAILED").subclass == "missing_file"
        assert classify(first + second, state="PREEMPTED").subclass == "preempted"


class TestOwnSignatures:
    OWN: ClassVar[dict[str, Any]] = {
        "name": "cold-flux",
        "class": "runtime",
        "subclass": "not_converged",
        "action": "retry_same",
        "words": ["flux capacitor"],
        "pattern": r"is (?:cold|hot)",
        "why": "it must be warm",
    }

    def test_they_come_first(self) -> None:
        log = "the Flux Capacitor is cold\nKeyError: 'x'"
        finding, why = diagnose(log, exit_code=1, extra=[self.OWN])
        assert (finding.subclass, finding.action, why) == (
            "not_converged",
            "retry_same",
            "it must be warm",
        )
        assert classify(log, exit_code=1).subclass == "shape_config"

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            ({"class": "weather"}, "weather"),
            ({"action": "pray"}, "pray"),
            ({"pattern": "("}, "not a regular expression"),
            ({"wrods": ["x"]}, "no key 'wrods'"),
            ({"words": []}, "needs `words`"),
        ],
    )
    def test_mistakes_are_named(self, change: dict[str, Any], said: str) -> None:
        with pytest.raises(ConfigError, match=said.replace("(", r"\(")) as caught:
            load_signatures([{**self.OWN, **change}])
        assert caught.value.where == "cold-flux"

    def test_a_missing_key_is_named(self) -> None:
        with pytest.raises(ConfigError, match="needs 'class'"):
            load_signatures([{"words": ["x"]}])


class TestCommand:
    def test_text(self, tmp_path: Path) -> None:
        path = tmp_path / "a.log"
        path.write_text("OSError: [Errno 28] No space left on device\n")
        result = CliRunner().invoke(command, [str(path), "--state", "FAILED"])
        assert result.exit_code == 0
        assert "storage/no_space_left, next fix_no_retry" in result.stdout
        assert "| OSError: [Errno 28] No space left on device" in result.stdout

    def test_json_one_line_a_log(self, tmp_path: Path) -> None:
        for name in ("a.log", "b.log"):
            (tmp_path / name).write_text("killed by signal 9")
        names = [str(tmp_path / name) for name in ("a.log", "b.log")]
        result = CliRunner().invoke(command, [*names, "--json", "--exit-code", "137"])
        rows = [json.loads(line) for line in result.stdout.splitlines()]
        assert [row["log"] for row in rows] == names
        assert {row["subclass"] for row in rows} == {"host_oom"}
        for row in rows:
            assert row["class"] == "runtime"
            assert row["action"] == "retry_more_memory"
            assert row["evidence"] == ["killed by signal 9", "exit code 137"]
            assert 0 < row["confidence"] < 1

    def test_stdin_and_own_signatures(self, tmp_path: Path) -> None:
        own = tmp_path / "own.yaml"
        own.write_text(yaml.safe_dump({"signatures": [TestOwnSignatures.OWN]}))
        result = CliRunner().invoke(
            command, ["-", "--signatures", str(own)], input="flux capacitor is hot"
        )
        assert "runtime/not_converged, next retry_same" in result.stdout

    def test_a_missing_log_is_named(self, tmp_path: Path) -> None:
        result = CliRunner().invoke(command, [str(tmp_path / "no.log")])
        assert isinstance(result.exception, DataError)
        assert str(tmp_path) in str(result.exception)
