"""scripts/slurm-testbed where it needs neither root nor Slurm: what it refuses, backs up, restores and ends."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))

from testbed import cgroups, cli, etc_slurm, files, packages, processes  # noqa: E402
from testbed.layout import Layout, TestbedError, Unavailable, layout_of  # noqa: E402

TestbedError.__test__ = False  # type: ignore[attr-defined]


@pytest.fixture
def etc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An /etc/slurm of the test's own, with a file of somebody else in it."""
    folder = tmp_path / "slurm"
    folder.mkdir()
    (folder / "plugstack.conf").write_text("theirs")
    monkeypatch.setattr(etc_slurm, "ETC_SLURM", folder)
    monkeypatch.setattr(etc_slurm, "ETC_BACKUP", tmp_path / "slurm.before")
    return folder


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    made = Layout(tmp_path / "state")
    files.make_state(made)
    files.write_configuration(made, 1)
    return made


def test_etc_slurm_is_put_aside_and_comes_back(etc: Path, layout: Layout) -> None:
    etc_slurm.install(layout)
    etc_slurm.install(layout)
    assert "ClusterName=testbed" in (etc / "slurm.conf").read_text()
    etc_slurm.restore(layout)
    etc_slurm.restore(layout)
    assert [path.name for path in etc.iterdir()] == ["plugstack.conf"]
    assert not etc_slurm.ETC_BACKUP.exists()


def test_a_crash_between_the_two_renames_is_understood(etc: Path, layout: Layout) -> None:
    etc_slurm.put_aside()
    assert not etc.exists()
    etc_slurm.install(layout)
    etc_slurm.restore(layout)
    assert (etc / "plugstack.conf").read_text() == "theirs"


def test_a_link_whose_state_folder_is_gone_is_replaced(
    etc: Path, layout: Layout, tmp_path: Path
) -> None:
    etc_slurm.put_aside()
    etc.symlink_to(tmp_path / "gone" / "etc")
    etc_slurm.install(layout)
    assert etc_slurm.linked_state() == layout.state


def test_a_real_slurm_conf_is_refused(etc: Path, layout: Layout) -> None:
    (etc / "slurm.conf").write_text("ClusterName=production")
    with pytest.raises(Unavailable, match="not the testbed's"):
        etc_slurm.install(layout)
    assert (etc / "slurm.conf").read_text() == "ClusterName=production"


def test_the_testbed_of_another_folder_is_refused(
    etc: Path, layout: Layout, tmp_path: Path
) -> None:
    etc_slurm.install(layout)
    with pytest.raises(Unavailable, match=r"--state .*state down"):
        etc_slurm.install(Layout(tmp_path / "other"))


def test_two_backups_are_never_mixed(etc: Path, layout: Layout) -> None:
    etc_slurm.ETC_BACKUP.mkdir()
    with pytest.raises(TestbedError, match="earlier backup"):
        etc_slurm.install(layout)
    assert (etc / "plugstack.conf").exists()


def test_secrets_are_private_and_stay(layout: Layout) -> None:
    key = layout.munge_key.read_bytes()
    files.make_state(layout)
    assert layout.munge_key.read_bytes() == key
    private = (
        layout.munge_key,
        layout.password_file,
        layout.etc / "slurmdbd.conf",
        layout.etc / "database.sql",
    )
    assert {path.stat().st_mode & 0o777 for path in private} == {0o600}


def test_no_placeholder_is_left_in_any_file(layout: Layout) -> None:
    for path in layout.etc.iterdir():
        text = path.read_text()
        assert not [
            word for word in ("@STATE@", "@HOST@", "@PORT", "@PASSWORD@") if word in text
        ], path


def test_a_folder_with_other_content_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(TestbedError, match="holds something else"):
        files.make_state(Layout(tmp_path))
    files.remove_state(Layout(tmp_path))
    assert (tmp_path / "thesis.tex").exists()


@pytest.mark.parametrize("name", ["/tmp/with space", "/tmp/" + "x" * 120, str(SCRIPTS / "state")])
def test_a_state_folder_that_cannot_serve_is_named(name: str) -> None:
    with pytest.raises(TestbedError, match="--state"):
        layout_of(name)


UNIFIED = "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n"
LEGACY = "".join(
    f"cgroup /sys/fs/cgroup/{name} cgroup rw,{name} 0 0\n"
    for name in ("memory", "freezer", "cpuacct")
)
HYBRID = LEGACY + "cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n"


@pytest.mark.parametrize(("mounts", "version"), [(UNIFIED, 2), (LEGACY, 1), (HYBRID, 1)])
def test_the_hierarchy_with_the_memory_controller_is_chosen(mounts: str, version: int) -> None:
    assert cgroups.mounted_version(mounts) == version


def test_without_control_groups_it_says_what_lacks() -> None:
    with pytest.raises(Unavailable, match="memory, freezer, cpuacct"):
        cgroups.mounted_version("proc /proc proc rw 0 0\n")


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        packages, "missing_programs", lambda: {"slurmd": "slurm-wlm", "munged": "munge"}
    )
    with pytest.raises(Unavailable, match=r"slurmd, munged .*apt-get install .*munge slurm-wlm"):
        packages.install_missing(allowed=False)


@pytest.fixture
def sleeper(layout: Layout) -> Iterator[processes.Process]:
    process = processes.spawn(layout, "munged", ["/bin/sleep", "600"])
    yield process
    if processes.find_process(process.pid) == process:
        os.kill(process.pid, signal.SIGKILL)


def test_a_daemon_is_known_by_pid_and_start_time(
    layout: Layout, sleeper: processes.Process
) -> None:
    assert processes.recorded(layout, "munged") == sleeper
    impostor = processes.Process(sleeper.pid, sleeper.start_ticks + 1)
    processes.write_record(layout, "munged", impostor)
    assert processes.recorded(layout, "munged") is None
    processes.kill([impostor])
    assert (
        processes.find_process(sleeper.pid) == sleeper
    )  # a later process of that pid is never hit


def test_a_daemon_without_record_is_found_by_its_mark(
    layout: Layout, sleeper: processes.Process
) -> None:
    layout.record("munged").unlink()
    assert processes.marked(layout) == [sleeper]
    processes.end(sleeper)
    assert processes.marked(layout) == []


def test_status_of_nothing_is_down(
    layout: Layout, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["slurm-testbed", "--state", str(layout.state), "status"])
    assert cli.main() == 1
    assert capsys.readouterr().out.splitlines()[-1].endswith(": down")


def test_the_script_starts_and_explains_itself() -> None:
    argv = [str(SCRIPTS / "slurm-testbed"), "--help"]
    answer = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=True)
    assert "kill-node" in answer.stdout
