"""What must not leave the site is found and taken out; ordinary prose stays as it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.run_folder import finished_sweep
from helpers.secrets import CREDENTIALS, PLANTED, PROSE
from milepost.cli.public import command
from milepost.errors import Suspect
from milepost.evidence.private_names import Names, known_names, named, names_in
from milepost.evidence.redact import find_credentials, find_secrets, redact, without_credentials

NOBODY = Names()

LEAKS = {
    "secret": [
        "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk\nAAAA\n-----END OPENSSH PRIVATE KEY-----",
        "-----BEGIN RSA PRIVATE KEY-----\ncut off here",
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFakeFakeFake me",
        "id AKIAIOSFODNN7EXAMPLE",
        "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCY",
        "ghp_" + "a1B2" * 9,
        "github_pat_" + "x" * 30,
        "glpat-abcdefghij0123456789",
        "hf_" + "Z" * 34,
        "xoxb-1234567890-abcdef",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.c2lnbmF0dXJl",
        "Authorization: Bearer abcdef0123456789",
        "password=hunter2",
        "DB_PASSWORD: 's3 cr3t'",
        '"api_key": "0a1b2c3d4e5f"',
        "WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567",
        "tool --token abcdef99 --quiet",
        "https://bob:pa55@git.example.org/repo.git",
    ],
    "mail": ["write to jane.doe+hpc@phys.example.ac.uk."],
    "address": ["from 10.12.0.7:6817", "peer 192.168.1.20<39138>", "fe80::1ff:fe23:4567:890a%ib0", "2001:db8::1"],
    "mac": ["link 00:1A:2b:3c:4d:5e up", "00-1a-2b-3c-4d-5e"],
    "path": [
        "/home/jdoe/runs/a.log",
        "in '/lustre/project/x/data.h5'",
        "/scratch3",
        "~jdoe/bin",
        "~/.ssh/config",
        "C:\\Users\\jdoe\\x.txt",
        "cd /cluster/work/group",
    ],
    "storage": ["s3://our-bucket/prefix", "file:///srv/data"],
    "job": ["Submitted batch job 481516", "JobId=481516", "job 481516 failed", "StepId=481516.batch", "slurm-481516.out", "SLURM_JOB_ID: 481516", "JOB 481516 ON x"],
    "account": ["--account=phys_ml", "#SBATCH -A phys_ml", "Account=phys_ml", "project: phys_ml", "--qos high", "qos=high"],
    "partition": ["--partition=gpu-long", "#SBATCH --time=1:00 -p gpu-long", "Partition=gpu", "queue: long"],
    "host": [
        "alloc NodeList=gpu[001-004]",
        "JOB 1 ON nid001234 CANCELLED",
        "slurmstepd-c07: error",
        "login2.cluster.example.edu",
        "db.intern",
        "on node0123 again",
        "--nodelist=c01,c02",
        "hostname: frida",
    ],
    "user": ["user=jdoe", "CANCELLED by 10234"],
    "environment": ["SLURM_SUBMIT_HOST=frida", "export RUN_DIR=here"],
}  # fmt: skip


@pytest.mark.parametrize(("kind", "text"), [(k, t) for k, ts in LEAKS.items() for t in ts])
def test_each_kind_is_found_and_taken_out(kind: str, text: str) -> None:
    leaks = find_secrets(text, NOBODY)
    assert kind in {leak.kind for leak in leaks}, leaks
    clean = redact(text, NOBODY)
    assert f"[{kind}]" in clean
    for leak in leaks:
        assert text[leak.start : leak.end] == leak.text


@pytest.mark.parametrize("text", PROSE)
def test_prose_and_numbers_stay(text: str) -> None:
    assert find_secrets(text, NOBODY) == []
    assert redact(text, NOBODY) == text


@pytest.mark.parametrize("text", [t for ts in LEAKS.values() for t in ts])
def test_what_was_redacted_leaks_nothing(text: str) -> None:
    clean = redact(text, NOBODY)
    assert find_secrets(clean, NOBODY) == []
    assert redact(clean, NOBODY) == clean


@pytest.mark.parametrize("kind", PLANTED)
def test_each_planted_thing_is_found_and_taken_out(kind: str) -> None:
    planted = PLANTED[kind]
    clean = redact(planted.text, NOBODY)
    assert [word for word in planted.secrets if word in clean] == []
    assert redact(clean, NOBODY) == clean
    inside = f"We sampled the surface. {planted.text}\nIt was quick."
    assert [word for word in planted.secrets if word in redact(inside, NOBODY)] == []


@pytest.mark.parametrize("kind", CREDENTIALS)
def test_no_record_holds_a_credential(kind: str) -> None:
    planted = PLANTED[kind]
    record = {"items": [{"evidence": planted.text}], "lines": planted.text.split("\n"), "n": 4}
    clean = without_credentials(record)
    assert clean["n"] == 4
    assert [word for word in planted.secrets if word in json.dumps(clean)] == []
    assert without_credentials(clean) == clean


def test_a_record_keeps_hosts_and_paths() -> None:
    record = {"log": "/home/jdoe/a.log on frida", "job": "481516", "tuple": ("a", ["10.1.2.3"])}
    assert without_credentials(record) is record
    mixed = record | {"env": {"DB_PASSWORD": "hunter2", "DB_HOST": "frida"}}
    assert without_credentials(mixed) == record | {
        "env": {"DB_PASSWORD": "[secret]", "DB_HOST": "frida"}
    }


@pytest.mark.parametrize("text", PROSE)
def test_prose_holds_no_credentials(text: str) -> None:
    assert find_credentials(text) == []


def test_a_numbered_host_gives_its_sisters_away() -> None:
    names = Names(hosts=frozenset({"frida17"}))
    assert redact("frida03, frida[1-4] and frida18.lab", names) == "[host], [host] and [host]"
    assert redact("frida herself, fridays", names) == "frida herself, fridays"


def test_names_of_other_kinds_and_job_numbers() -> None:
    names = named("account", ["phys_ml", "gpu", None]) | named("job", ["4711", "x"])
    assert redact("phys_ml on a gpu, 4711 of 14711", names) == "[account] on a gpu, [job] of 14711"


def test_known_names_are_found_as_whole_words() -> None:
    names = Names(frozenset({"jdoe"}), frozenset({"frida"}))
    assert redact("JDoe ran it on frida, not on fridays; jdoes", names) == (
        "[user] ran it on [host], not on fridays; jdoes"
    )


def test_a_home_folder_gives_its_owner_away_everywhere() -> None:
    text = "cwd /home/mmuster/x\nmmuster said so\n"
    assert redact(text, NOBODY) == "cwd [path]\n[user] said so\n"


def test_a_prompt_gives_user_and_host_away() -> None:
    assert names_in("anna@frida:~$ ls") == Names(frozenset({"anna"}), frozenset({"frida"}))
    assert redact("anna@frida:~$ ls\nfrida is slow, says anna", NOBODY) == (
        "[user]@[host]:~$ ls\n[host] is slow, says [user]"
    )


def test_common_words_are_no_names() -> None:
    assert names_in("/home/ubuntu/x /root/y ~user/z") == NOBODY
    assert "root" not in known_names().users
    assert "localhost" not in known_names().hosts


def test_this_process_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USER", "Zaphod")
    known_names.cache_clear()
    try:
        assert "zaphod" in known_names().users
    finally:
        known_names.cache_clear()


def test_lines_and_columns_count_from_one() -> None:
    leaks = find_secrets("first\n  password=abc\n\nmail a.b@example.org", NOBODY)
    assert [(leak.line, leak.column) for leak in leaks] == [(2, 12), (4, 6)]


def test_the_hint_does_not_give_the_secret_away() -> None:
    (leak,) = find_secrets("password=correcthorsebattery", NOBODY)
    assert leak.hint == "co… (19 characters)"
    (short,) = find_secrets("password=hunter2", NOBODY)
    assert short.hint == "… (7 characters)"


def test_the_excerpt_shows_the_place_and_masks_all_of_it() -> None:
    text = "run\n  by a.b@example.org with password=hunter2 from 10.1.2.3 " + "x" * 80 + "\nnext"
    first, second, third = find_secrets(text, NOBODY)
    assert first.excerpt == "by [mail] with password=[secret] from [address]"
    assert "[mail]" in second.excerpt and "[address] xxx" in third.excerpt
    assert not any("hunter2" in leak.excerpt or "next" in leak.excerpt for leak in (first, second))


PIECES = st.sampled_from([t for ts in LEAKS.values() for t in ts] + PROSE)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.one_of(PIECES, st.text(max_size=30)), max_size=5).map("\n".join))
def test_redaction_is_idempotent_on_any_text(text: str) -> None:
    once = redact(text, NOBODY)
    assert redact(once, NOBODY) == once


@pytest.mark.parametrize(
    "piece", ["a", "1:", "/x", ":", "a.", "a@", "a_", "=", "-", "\\", "~", "A1-"]
)
def test_no_pattern_blows_up_on_a_long_line(piece: str) -> None:
    line = piece * (20_000 // len(piece))
    assert redact(redact(line, NOBODY), NOBODY) == redact(line, NOBODY)


class TestCommand:
    def test_a_clean_file(self, tmp_path: Path) -> None:
        path = tmp_path / "note.md"
        path.write_text("We sampled 100 ligands.\n")
        result = CliRunner().invoke(command, ["--check", str(path)])
        assert result.exit_code == 0
        assert "nothing found" in result.stdout

    def test_a_leak_is_told_by_line_and_ends_with_21(self, tmp_path: Path) -> None:
        path = tmp_path / "note.md"
        path.write_text("ok\npassword=correcthorse\n")
        result = CliRunner().invoke(command, ["--check", str(path)])
        assert isinstance(result.exception, Suspect)
        assert result.exception.exit_code == 21
        assert f"{path}:2:10: secret" in result.stdout
        assert "correcthorse" not in result.stdout

    def test_json(self, tmp_path: Path) -> None:
        path = tmp_path / "note.md"
        path.write_text("ok\npassword=correcthorse\n")
        result = CliRunner().invoke(command, ["--check", str(path), "--json"])
        assert json.loads(result.stdout)["leaks"] == [
            {"kind": "secret", "line": 2, "column": 10, "characters": 12}
            | {"excerpt": "password=[secret]"}
        ]

    def test_redact_from_stdin(self) -> None:
        result = CliRunner().invoke(command, ["--redact", "-"], input="mail a@b.example\n")
        assert result.stdout == "mail [mail]\n"

    def test_the_excerpt_is_shown_and_masked(self, tmp_path: Path) -> None:
        path = tmp_path / "note.md"
        path.write_text("so see /home/jdoe/run with password=correcthorse there\n")
        result = CliRunner().invoke(command, ["--check", str(path)])
        assert result.stdout.count("[path] with password=[secret]") == 2
        assert "jdoe" not in result.stdout and "correcthorse" not in result.stdout

    def test_text_in_utf_16_is_read(self, tmp_path: Path) -> None:
        path = tmp_path / "note.txt"
        path.write_bytes("mail a@b.example".encode("utf-16"))
        assert isinstance(CliRunner().invoke(command, ["--check", str(path)]).exception, Suspect)

    def test_what_a_run_knows_is_looked_for(self, tmp_path: Path) -> None:
        folder = finished_sweep(tmp_path)
        folder.attempt("0001", 2, host="isar12", slurm_job_id="770815")
        path = tmp_path / "note.md"
        path.write_text("Isar12 was slow in 770815.\n")
        assert CliRunner().invoke(command, ["--check", str(path)]).exit_code == 0
        words = ["--check", str(path), "--run", "sweep", "--root", str(tmp_path)]
        result = CliRunner().invoke(command, words)
        assert f"{path}:1:1: host" in result.stdout and f"{path}:1:20: job" in result.stdout

    def test_one_of_the_two_is_needed(self) -> None:
        assert CliRunner().invoke(command, []).exit_code == 2
