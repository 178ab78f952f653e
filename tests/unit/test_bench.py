"""The benchmark's own arithmetic: order, medians, ratios, and that cheating is noticed."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _in_the_workflow_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))


def module(name: str) -> Any:
    return importlib.import_module(f"bench.{name}")


class Fake:
    """A peer that makes the files of all names but the last `forgets`."""

    name = "fake"
    durable = "nothing"

    def __init__(self, forgets: int = 0) -> None:
        self.forgets = forgets

    def is_here(self) -> bool:
        return True

    def run(self, names: Sequence[str], place: Path, scratch: Path) -> float:
        for name in names[: len(names) - self.forgets]:
            (place / name).touch()
        return 0.25


def test_each_round_begins_with_another_one() -> None:
    order = list(module("measure").alternate("abc", 4))
    assert "".join(order) == "abcbcacababc"


def test_a_run_without_tools_is_empty() -> None:
    assert list(module("measure").alternate([], 3)) == []


def test_medians_and_ratios() -> None:
    measure = module("measure")
    samples = [measure.Sample("g", "a", 10, s) for s in (1.0, 9.0, 2.0)]
    samples += [measure.Sample("g", "b", 10, s) for s in (4.0, 4.0, 5.0)]
    first, second = measure.summarise(samples)
    assert (first.median_s, first.least_s, first.greatest_s, first.repeats) == (2.0, 1.0, 9.0, 3)
    assert measure.ratio([first, second], second, "a") == 2.0
    assert measure.ratio([first, second], second, "absent") is None


def test_a_peer_that_skips_a_task_is_not_a_result() -> None:
    overhead = module("overhead")
    assert overhead.once(Fake(), 5, None) == 0.25
    with pytest.raises(SystemExit, match="made 4 of 5"):
        overhead.once(Fake(forgets=1), 5, None)


def test_table_says_na_where_milepost_was_not_measured() -> None:
    measure, overhead = module("measure"), module("overhead")
    lines = list(overhead.table([measure.Sample("processes", "xargs -P", 1000, 2.0)]))
    assert lines[-2] == "| 1,000 | xargs -P | nothing | 2.000 | 2.000 - 2.000 | n/a | n/a |"


def test_table_compares_with_milepost() -> None:
    measure, overhead = module("measure"), module("overhead")
    samples = [measure.Sample("processes", "milepost", 1000, 1.0)]
    samples.append(measure.Sample("processes", "xargs -P", 1000, 0.8))
    rows = [line for line in overhead.table(samples) if line.startswith("| 1,000")]
    assert [row.split("|")[-2].strip() for row in rows] == ["0.80", "1.00"]


def test_start_up_is_taken_off_what_a_further_task_costs() -> None:
    measure, overhead = module("measure"), module("overhead")
    samples = [measure.Sample("processes", "milepost", 1, 0.5)]
    samples.append(measure.Sample("processes", "milepost", 1001, 1.5))
    one, many = measure.summarise(samples)
    assert overhead.marginal_ms(many, [one, many]) == pytest.approx(1.0)
    assert overhead.marginal_ms(one, [one, many]) is None
    assert overhead.marginal_ms(many, [many]) is None


@pytest.mark.parametrize("name", ["Xargs", "ProcessPool", "ProcessPoolSingle"])
def test_peers_do_their_tasks(name: str, tmp_path: Path) -> None:
    overhead = module("overhead")
    assert overhead.once(getattr(module("peers"), name)(), 20, tmp_path) > 0
    assert not list(tmp_path.iterdir())


def test_machine_names_no_host() -> None:
    import platform

    text = module("measure").machine()
    assert "Python" in text
    assert "cores" in text
    assert not platform.node() or f" {platform.node()} " not in text


@pytest.mark.parametrize(
    "name", ["milepost", "memory_copy", "raw_direct", "numpy_save", "copy_file"]
)
@pytest.mark.parametrize("number", range(3))
def test_ways_of_checkpointing_are_measured(name: str, number: int, tmp_path: Path) -> None:
    kind = module("states").KINDS[number]
    run = getattr(module("ways_tools" if name == "copy_file" else "ways_here"), name)
    saved = run(kind, 1 << 20, tmp_path)
    assert saved.blocked_s > 0
    if name != "memory_copy":
        assert saved.durable_s >= saved.blocked_s
        assert saved.stored_bytes > 0


def test_a_delta_stores_less_than_a_copy(tmp_path: Path) -> None:
    kinds = {kind.name: kind for kind in module("states").KINDS}
    delta = module("ways_here").milepost(kinds["changed"], 8 << 20, tmp_path / "a")
    assert delta.stored_bytes < (8 << 20) / 5
    assert delta.restore_s > 0


def test_a_restore_is_compared_with_the_state() -> None:
    state = module("states").random_floats(1 << 10)
    module("saved").same(state.copy(), state)
    with pytest.raises(SystemExit, match="another"):
        module("saved").same(state + 1, state)


def test_two_percent_are_changed() -> None:
    states = module("states")
    before, after = states.random_floats(1 << 20), states.random_floats(1 << 20)
    states.change_some(after)
    assert (before != after).mean() == pytest.approx(0.02, abs=0.001)


def test_medians_of_checkpoints_leave_out_what_was_not_measured() -> None:
    saved = module("saved")
    results = [saved.Saved(1.0, 5.0), saved.Saved(3.0, None), saved.Saved(2.0, 7.0)]
    assert saved.median(results) == saved.Saved(2.0, 6.0)


def test_the_table_of_checkpoints_shows_ratios_and_what_is_missing() -> None:
    checkpoint, saved = module("checkpoint"), module("saved")
    size = 1 << 30
    rows = [
        checkpoint.Row("random", size, "milepost", saved.Saved(0.1, 0.5, 0.2, size, 0.4)),
        checkpoint.Row("random", size, "raw direct write", saved.Saved(0.25, 0.25, 0.1, size)),
    ]
    lines = list(checkpoint.table(rows))
    assert (
        "| 1024 MiB | milepost | 0.100 (1) | 0.500 (1) | 2.15 | 100.0 % | 0.200 (1) | 0.400 (1) |"
        in lines
    )
    assert any(line.startswith("| 1024 MiB | raw direct write | 0.250 (2.5) |") for line in lines)
    assert any(line.endswith("| n/a |") for line in lines)


def test_a_peer_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    checkpoint, ways, save = module("checkpoint"), module("ways"), module("ways_here").numpy_save
    absent = ways.Way("tape", "slow", save, lambda: False)
    here = ways.Way("numpy.save", "quick", save)
    monkeypatch.setattr(checkpoint, "WAYS", (absent, here))
    said: list[str] = []
    rows = checkpoint.measure((1 << 20,), 1, tmp_path, said.append)
    assert {row.name for row in rows} == {"numpy.save"}
    assert "tape is not installed; left out" in said


def test_the_bars_of_checkpoints_compare_the_right_ways() -> None:
    checkpoint, Saved = module("checkpoint"), module("saved").Saved
    seconds = {
        "milepost": Saved(0.11, 0.5, 1.0, 1, 0.5),
        "one memory copy": Saved(0.1),
        "raw direct write": Saved(0.4, 0.4),
        "torch DCP save": Saved(1.0, 1.0, 1.0, 1, 1.0),
        "restic": Saved(6.0, 6.0, 1.0, 1, 2.0),
    }
    rows = [
        checkpoint.Row(kind, 1 << 30, name, saved)
        for kind in ("random", "changed")
        for name, saved in seconds.items()
    ]
    bars = list(checkpoint.bars(rows))
    assert [bar.value for bar in bars] == pytest.approx([1.1, 0.8, 2.0, 12.0, 4.0])
    assert [bar.is_met() for bar in bars] == [True, True, False, True, True]


def test_only_its_own_section_of_the_page_is_renewed() -> None:
    with_section = module("__main__").with_section
    page = "# B\n\n## Checkpoints\n\nold\n\n## Other\n\nkept\n"
    text = with_section(page, ["## Checkpoints", "", "new", ""])
    assert text == "# B\n\n## Checkpoints\n\nnew\n\n## Other\n\nkept\n"
    assert with_section("# B\n", ["## C", "", "new"]) == "# B\n\n## C\n\nnew"


def test_every_part_has_a_title_and_a_section() -> None:
    parts = module("__main__").PARTS
    assert len({part.TITLE for part in parts.values()}) == len(parts)
    assert all(callable(part.section) for part in parts.values())


@pytest.mark.parametrize(
    ("value", "at_least", "cell"),
    [(1.4, False, "yes"), (1.6, False, "**no**"), (1.6, True, "yes"), (None, True, "n/a")],
)
def test_a_bar_is_met_or_not_or_not_measured(
    value: float | None, at_least: bool, cell: str
) -> None:
    part = module("part")
    row = list(part.bars_table([part.Bar("speed", value, 1.5, at_least)]))[2]
    assert row.endswith(f"| {cell} |")
    assert ("n/a" in row) == (value is None)


def test_the_bars_of_overhead_compare_with_each_tool() -> None:
    measure, overhead = module("measure"), module("overhead")
    seconds = {"milepost": 1.2, "xargs -P": 1.0, "GNU parallel --joblog": 3.6, "HyperQueue": 1.8}
    samples = [measure.Sample("processes", name, 10, one) for name, one in seconds.items()]
    bars = list(overhead.bars(samples))
    assert [bar.value for bar in bars] == pytest.approx([1.2, 3.0, 1.5])
    assert [bar.is_met() for bar in bars] == [True, True, False]


@pytest.mark.parametrize("name", ["MilepostProcesses", "MilepostCallables"])
def test_milepost_does_its_tasks(name: str, tmp_path: Path) -> None:
    assert module("overhead").once(getattr(module("milepost"), name)(), 5, tmp_path) > 0


def test_readers_of_a_run_must_find_every_task(tmp_path: Path) -> None:
    reconcile = module("reconcile")
    for has_artifacts in (False, True):
        root = tmp_path / str(has_artifacts)
        root.mkdir()
        reconcile.make_run(root, reconcile.Case("rows", 1_500, has_artifacts))
        seconds, peak = reconcile.once(reconcile.OURS, root, 1_500)
        assert seconds > 0 and peak > 1 << 20
    (root / "results" / "rows" / "artifacts" / reconcile._key(7) / "score.json").unlink()
    with pytest.raises(SystemExit, match="did not find 1500 tasks"):
        reconcile.once(reconcile.OURS, root, 1_500)
    assert reconcile.once("csv.DictReader", root, 1_500)[0] > 0  # it only counts rows


def test_the_bars_of_reconcile_are_those_of_a_million_rows() -> None:
    measure, reconcile = module("measure"), module("reconcile")
    samples = [measure.Sample("rows", reconcile.OURS, 1_000_000, 4.0)]
    samples.append(measure.Sample("rows", "pandas.read_csv", 1_000_000, 8.0))
    summaries = measure.summarise(samples)
    memory = {("rows", one.name): 500_000_000 for one in summaries}
    bars = list(reconcile.bars(summaries, memory))
    assert [(bar.value, bar.limit, bar.is_met()) for bar in bars] == [
        (4.0, 5, True),
        (0.5, 1, True),
        (0.5, 1, True),
    ]
    lines = list(reconcile.table(summaries, memory))
    assert any(line.endswith("| 8.00 | 8.00 - 8.00 | 500 | 2.00 |") for line in lines)


@pytest.mark.parametrize("sizes", ["equal", "twenty", "different"])
def test_the_planners_choice_is_as_good_as_a_model_of_every_shard(sizes: str) -> None:
    plan = module("plan")
    lengths = getattr(plan, sizes)(30)
    ours, naive = plan.ours(lengths, "HiGHS"), plan.naive(lengths, "HiGHS")
    assert ours.cost <= naive.cost * (1.0 + naive.gap)
    assert (ours.solver, ours.error) == ("HiGHS", 0.0)
