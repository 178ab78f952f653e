"""What must not leave the site is found and taken out; ordinary prose stays as it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from milepost.cli.public import command
from milepost.errors import Suspect
from milepost.evidence.private_names import Names, known_names, names_in
from milepost.evidence.redact import find_secrets, redact

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

HARMLESS = [
    "We used scikit-learn 1.4.2 and Python 3.11 for 1,234 tasks in 12:34:56.",
    "See https://scikit-learn.org/stable/modules/svm.html and doi:10.1000/xyz123.",
    "Energy -1.5 kJ/mol/nm; results in results/dock/artifacts; ratio a:b:c; and/or.",
    "The root mean square error is 0.1; passed: 12 tests; compass: north.",
    "512 tokens: 4096; tokenizer=bert; password: null; token: ${TOKEN}; key: value",
    "2026-01-01T00:00:00Z took 3600 s; accounts for 5 %; the partition function Z",
    "#!/usr/bin/env python3 > /dev/null 2>&1; /proc/cpuinfo; </div>",
    "interrupted by preemption 3 times; host memory 12 GB; job array of 100 tasks",
    "127.0.0.1 and ::1 are this machine; std::vector<int>; a::b",
    "blake3:1f3a9c and sha256:00ff; F1 = 0.98; step: 1200; C=10 gamma=0.1",
]


@pytest.mark.parametrize(("kind", "text"), [(k, t) for k, ts in LEAKS.items() for t in ts])
def test_each_kind_is_found_and_taken_out(kind: str, text: str) -> None:
    leaks = find_secrets(text, NOBODY)
    assert kind in {leak.kind for leak in leaks}, leaks
    clean = redact(text, NOBODY)
    assert f"[{kind}]" in clean
    for leak in leaks:
        assert text[leak.start : leak.end] == leak.text


@pytest.mark.parametrize("text", HARMLESS)
def test_prose_and_numbers_stay(text: str) -> None:
    assert find_secrets(text, NOBODY) == []
    assert redact(text, NOBODY) == text


@pytest.mark.parametrize("text", [t for ts in LEAKS.values() for t in ts])
def test_what_was_redacted_leaks_nothing(text: str) -> None:
    clean = redact(text, NOBODY)
    assert find_secrets(clean, NOBODY) == []
    assert redact(clean, NOBODY) == clean


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
    assert leak.hint == "cor… (19 characters)"


PIECES = st.sampled_from([t for ts in LEAKS.values() for t in ts] + HARMLESS)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.one_of(PIECES, st.text(max_size=30)), max_size=5).map("\n".join))
def test_redaction_is_idempotent_on_any_text(text: str) -> None:
    once = redact(text, NOBODY)
    assert redact(once, NOBODY) == once


@pytest.mark.parametrize("piece", ["a", "1:", "/x", ":", "a.", "a@", "a_", "=", "-", "\\", "~"])
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
        ]

    def test_redact_from_stdin(self) -> None:
        result = CliRunner().invoke(command, ["--redact", "-"], input="mail a@b.example\n")
        assert result.stdout == "mail [mail]\n"

    def test_one_of_the_two_is_needed(self) -> None:
        assert CliRunner().invoke(command, []).exit_code == 2
