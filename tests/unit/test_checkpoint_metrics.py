"""Metrics: read by the programs they are for, and every alert about one that exists."""

from __future__ import annotations

import re
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from helpers.packages import have
from milepost.checkpoint.checkpointer import Checkpointer
from milepost.checkpoint.metrics import (
    MetricsFile,
    SaveMetrics,
    UploadMetrics,
    as_text,
    metric_names,
)
from milepost.errors import StorageError
from milepost.resources import data_file, load_yaml
from milepost.tiers.local import LocalTier

ALERTS = "alerts.yaml"


def measured(path: Path) -> dict[str, float]:
    """Metric -> value, of a file with one series each."""
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    return {line.partition("{")[0].split()[0]: float(line.split()[-1]) for line in lines}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "metrics" / "0001.prom"
    monkeypatch.setenv("MILEPOST_METRICS", str(place))
    monkeypatch.setenv("MILEPOST_RUN", "walk")
    monkeypatch.setenv("MILEPOST_SHARD", "0001")
    return place


def test_saves_and_uploads_are_counted_where_the_runner_wants_them(
    place: Path, tmp_path: Path
) -> None:
    start = time.time()
    x = np.zeros(100_000)
    with Checkpointer(tmp_path / "ckpt", warm=LocalTier(tmp_path / "warm"), interval_s=7) as ck:
        for step in range(3):
            ck.save(step, {"x": x}, None)
            ck.wait()
        now = measured(place)
        assert now["milepost_checkpoint_running"] == 1
    end = measured(place)
    assert set(end) <= metric_names()
    assert 'milepost_checkpoint_commits_total{run="walk",shard="0001"} 3' in place.read_text()
    assert end["milepost_checkpoint_last_commit_step"] == 2
    assert end["milepost_checkpoint_logical_bytes_total"] == 3 * x.nbytes
    assert end["milepost_checkpoint_stored_bytes_total"] == sum(c.bytes_stored for c in ck.commits)
    blocked = sum(commit.blocked_s for commit in ck.commits)
    assert end["milepost_checkpoint_blocked_seconds_total"] == pytest.approx(blocked)
    assert start <= end["milepost_checkpoint_last_commit_timestamp_seconds"] <= time.time()
    assert end["milepost_checkpoint_interval_seconds"] == 7
    assert end["milepost_checkpoint_running"] == 0
    assert end["milepost_upload_queue_generations"] == 0
    assert end["milepost_upload_sent_generations_total"] >= 1
    assert "milepost_upload_queue_oldest_timestamp_seconds" not in end, "nothing waits"


def test_what_was_not_measured_has_no_line(place: Path, tmp_path: Path) -> None:
    with Checkpointer(tmp_path / "ckpt") as ck:
        ck.restore()
        names = set(measured(place))
    assert "milepost_checkpoint_last_blocked_seconds" not in names
    assert not {name for name in names if name.startswith("milepost_upload")}, "no tier, no queue"


def test_a_failed_save_is_counted(place: Path, tmp_path: Path) -> None:
    def fail(step: str) -> None:
        if step == "manifest-durable":
            raise StorageError("no room")

    with (
        pytest.raises(StorageError, match="no room"),
        Checkpointer(tmp_path / "ckpt", hook=fail) as ck,
    ):
        ck.save(0, {"x": np.zeros(3)}, None)
    found = measured(place)
    assert found["milepost_checkpoint_failures_total"] == 1
    assert found["milepost_checkpoint_commits_total"] == 0
    assert found["milepost_checkpoint_running"] == 0


def test_a_place_that_cannot_be_written_is_told_once_and_harms_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    metrics = MetricsFile({"MILEPOST_METRICS": str(tmp_path / "file" / "x.prom")})
    metrics.tell_saves(SaveMetrics())
    metrics.tell_uploads(UploadMetrics())
    assert capsys.readouterr().err.count("metrics are not written") == 1


def test_promtool_finds_nothing_to_complain_about() -> None:
    have("promtool", "prometheus")
    saves = SaveMetrics(committed=1.7e9, step=3, blocked_s=0.1, durable_s=1.0, interval_s=60.0)
    text = as_text(saves, {"run": 'a"\\\n', "shard": "1"})
    text += as_text(UploadMetrics(queue_since=1.7e9), {"run": "a"})
    assert set(re.findall(r"^(milepost_\w+)", text, re.M)) == metric_names()
    done = subprocess.run(
        ["promtool", "check", "metrics"],
        input=text,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_node_exporter_reads_the_files_of_several_shards(tmp_path: Path) -> None:
    have("prometheus-node-exporter", "prometheus-node-exporter")
    for shard in ("0001", "0002"):
        place = str(tmp_path / f"{shard}.prom")
        environ = {"MILEPOST_METRICS": place, "MILEPOST_RUN": "walk", "MILEPOST_SHARD": shard}
        metrics = MetricsFile(environ)
        metrics.tell_saves(SaveMetrics(commit_count=int(shard)))
        metrics.tell_uploads(UploadMetrics())
    text = scraped(tmp_path)
    assert "node_textfile_scrape_error 0" in text
    for shard in ("0001", "0002"):
        series = f'milepost_checkpoint_commits_total{{run="walk",shard="{shard}"}}'
        assert f"{series} {int(shard)}" in text


def scraped(folder: Path) -> str:
    """What a real node exporter makes of the files in `folder`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["--collector.disable-defaults", "--collector.textfile"]
    words += [f"--collector.textfile.directory={folder}", f"--web.listen-address=127.0.0.1:{port}"]
    with (folder / "exporter.log").open("w") as log:
        exporter = subprocess.Popen(["prometheus-node-exporter", *words], stderr=log)
    try:
        end = time.monotonic() + 30
        while time.monotonic() < end:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
                    return str(answer.read().decode())
            except urllib.error.URLError:
                assert exporter.poll() is None, (folder / "exporter.log").read_text()
                time.sleep(0.02)
        raise AssertionError("the exporter does not answer")
    finally:
        exporter.terminate()
        exporter.wait(20)


def test_every_metric_is_described() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "formats.md").read_text()
    told = set(re.findall(r"`(milepost_\w+)`", page))
    for line in page.splitlines():
        if line.startswith("| `milepost_"):
            prefix = "_".join(line.split("`")[1].split("_")[:2])
            told |= {prefix + end for end in re.findall(r"`…(_\w+)`", line)}
    assert metric_names() <= told, metric_names() - told


def rules() -> list[dict[str, Any]]:
    (group,) = load_yaml("policies", ALERTS)["groups"]
    return list(group["rules"])


def test_every_alert_is_about_metrics_that_exist() -> None:
    for rule in rules():
        named = set(re.findall(r"milepost_\w+", rule["expr"]))
        assert named, rule["alert"]
        assert named <= metric_names(), rule["alert"]


SERIES = {
    "MilepostCheckpointLate": {"checkpoint_last_commit_timestamp_seconds": "0x120"},
    "MilepostSaveFailed": {"checkpoint_failures_total": "0x60 1x60"},
    "MilepostDiskNearlyFull": {"checkpoint_drains_total": "0x60 1x60"},
    "MilepostCheckpointsDear": {"checkpoint_blocked_seconds_total": "0+9x120"},
    "MilepostSavesSkipped": {"checkpoint_saves_skipped_total": "0+2x120"},
    "MilepostUploadBehind": {"upload_queue_oldest_timestamp_seconds": "0x120"},
    "MilepostUploadFailed": {"upload_failures_total": "0x60 1x60"},
}
"""Alert -> the series, a value a minute, that differ from a run in which all is well."""
WELL = {
    "checkpoint_running": "1x120",
    "checkpoint_interval_seconds": "120x120",
    "checkpoint_last_commit_timestamp_seconds": "0+60x120",
    "checkpoint_commits_total": "0+1x120",
    "checkpoint_failures_total": "0x120",
    "checkpoint_drains_total": "0x120",
    "checkpoint_blocked_seconds_total": "0+0.1x120",
    "checkpoint_waited_seconds_total": "0x120",
    "checkpoint_saves_skipped_total": "0x120",
    "upload_queue_oldest_timestamp_seconds": "0+60x120",
    "upload_failures_total": "0x120",
}


def test_each_alert_fires_for_its_trouble_and_for_no_other(tmp_path: Path) -> None:
    have("promtool", "prometheus")
    assert set(SERIES) == {rule["alert"] for rule in rules()}
    tests = []
    for trouble in [None, *SERIES]:
        series = WELL | SERIES.get(trouble or "", {})
        labels = '{run="walk",shard="0001"}'
        tests.append(
            {
                "interval": "1m",
                "input_series": [
                    {"series": f"milepost_{name}{labels}", "values": values}
                    for name, values in series.items()
                ],
                "promql_expr_test": [
                    {
                        "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                        "eval_time": "110m",
                        "exp_samples": []
                        if trouble is None
                        else [{"labels": f'{{alertname="{trouble}"}}', "value": 1}],
                    }
                ],
            }
        )
    whole = {"rule_files": [str(data_file("policies", ALERTS))], "evaluation_interval": "1m"}
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(whole | {"tests": tests}))
    done = subprocess.run(
        ["promtool", "test", "rules", str(tmp_path / "test.yaml")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
