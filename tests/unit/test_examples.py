"""The workloads of the demo: right physics, same bytes each time, resume to the same bits."""

from __future__ import annotations

import csv
import importlib
import json
import math
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _in_the_workflow_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.delenv("MILEPOST_CKPT", raising=False)


def example(name: str) -> Any:
    return importlib.import_module(f"examples.{name}")


def simulate(beta: float, size: int = 32, sweeps: int = 6000, seed: int = 5) -> dict[str, Any]:
    simulation = example("ising").Simulation.start(beta, size, sweeps, seed)
    for block in range(len(simulation.energies)):
        simulation.advance(block)
    return dict(simulation.result())


# --- Ising: the exact solution


def test_onsager_at_high_temperature_is_the_series() -> None:
    """High-temperature expansion: u = -2 (t + 2 t^3 + ...), t = tanh(beta), to order t^5."""
    onsager = example("ising").onsager
    for beta in (0.001, 0.01, 0.02):
        t = math.tanh(beta)
        series = -2 * t - 4 * t**3 - 8 * t**5
        assert onsager(beta) == pytest.approx(series, abs=40 * t**7 + 1e-12)


def test_onsager_at_low_temperature_is_the_first_excitation() -> None:
    """One flipped spin costs 8 J: u = -2 + 8 exp(-8 beta) + ..."""
    for beta in (1.0, 1.5):
        first = -2 + 8 * math.exp(-8 * beta)
        assert example("ising").onsager(beta) == pytest.approx(first, abs=40 * math.exp(-12 * beta))


def test_onsager_at_the_critical_point_is_minus_root_two() -> None:
    ising = example("ising")
    assert ising.onsager(ising.CRITICAL_BETA) == pytest.approx(-math.sqrt(2), abs=1e-12)


def test_onsager_is_the_derivative_of_the_free_energy() -> None:
    """-d(ln Z / N)/d(beta), with Onsager's integral for ln Z done by quadrature."""
    from scipy.integrate import quad

    def log_z(beta: float) -> float:
        k = 2 * math.sinh(2 * beta) / math.cosh(2 * beta) ** 2
        inner = quad(
            lambda x: math.log((1 + math.sqrt(1 - (k * math.sin(x)) ** 2)) / 2), 0, math.pi / 2
        )[0]
        return math.log(2 * math.cosh(2 * beta)) + inner / math.pi

    for beta in (0.3, 0.36, 0.52, 0.6):
        step = 1e-4
        slope = -(log_z(beta + step) - log_z(beta - step)) / (2 * step)
        assert example("ising").onsager(beta) == pytest.approx(slope, abs=1e-5)


# --- Ising: the sampler


@pytest.mark.parametrize("beta", [0.3, 0.36, 0.52, 0.6])
def test_energy_agrees_with_onsager_within_its_error(beta: float) -> None:
    result = simulate(beta)
    assert 0 < result["error"] < 0.005
    assert result["sigmas"] == pytest.approx(
        abs(result["energy"] - result["onsager"]) / result["error"]
    )
    assert result["sigmas"] < 4


def test_each_site_has_its_four_neighbours() -> None:
    """The two colours, put back on one lattice, give the plain sum over all bonds."""
    import numpy as np

    ising = example("ising")
    rng = np.random.default_rng(3)
    black, white = (rng.choice(np.array([-1, 1], np.int8), (6, 3)) for _ in range(2))
    lattice = np.zeros((6, 6), int)
    for i in range(6):
        for j in range(3):
            lattice[i, 2 * j + i % 2] = black[i, j]
            lattice[i, 2 * j + 1 - i % 2] = white[i, j]
    around = sum(np.roll(lattice, shift, axis) for shift in (1, -1) for axis in (0, 1))
    of_black = ising.neighbours(white, of_black=True)
    of_white = ising.neighbours(black, of_black=False)
    for i in range(6):
        for j in range(3):
            assert of_black[i, j] == around[i, 2 * j + i % 2]
            assert of_white[i, j] == around[i, 2 * j + 1 - i % 2]


def test_energy_of_a_sweep_is_the_energy_of_the_lattice() -> None:
    ising = example("ising")
    lattice = ising.Lattice.start(0.4, 8, 1)
    for _ in range(5):
        energy = lattice.sweep()
        bonds = lattice.black * ising.neighbours(lattice.white, of_black=True)
        assert energy == -int(bonds.sum())


def test_binning_finds_the_correlation() -> None:
    """AR(1) with coefficient a: the error is the naive one times sqrt((1 + a) / (1 - a))."""
    import numpy as np

    rng = np.random.default_rng(11)
    noise = rng.standard_normal(1 << 16)
    series = np.empty_like(noise)
    last = 0.0
    for index, value in enumerate(noise):
        last = 0.8 * last + value
        series[index] = last
    naive = series.std() / math.sqrt(len(series))
    binned = example("ising").binning_error(series)
    assert binned / naive == pytest.approx(3.0, rel=0.25)
    assert example("ising").binning_error(series[:1]) == 0.0


def test_same_seed_same_bits_other_seed_other_bits() -> None:
    first, again = (simulate(0.36, size=16, sweeps=200) for _ in range(2))
    assert first == again
    assert simulate(0.36, size=16, sweeps=200, seed=6)["energy"] != first["energy"]


# --- Ising: stopped and resumed


class StopAfter:
    """Stands for a Checkpointer that is told to stop after a number of steps."""

    def __init__(self, steps: int, saved: Any = None) -> None:
        self.left = steps
        self.saved = saved

    @property
    def stopping(self) -> bool:
        return self.left <= 0

    def restore(self) -> Any:
        return self.saved

    def step(self, step: int, state: Any) -> None:
        self.left -= 1


def test_a_resumed_simulation_ends_in_the_same_bits(tmp_path: Path) -> None:
    from milepost import Checkpointer

    ising = example("ising")
    undisturbed = ising.Simulation.start(0.36, 16, 600, 2)
    assert ising.run(undisturbed, StopAfter(10**6))

    first = ising.Simulation.start(0.36, 16, 600, 2)
    with Checkpointer(tmp_path / "ckpt") as ck:
        for block in range(13):
            first.advance(block)
        ck.save(12, *first.state())
    second = ising.Simulation.start(0.36, 16, 600, 2)
    with Checkpointer(tmp_path / "ckpt") as ck:
        assert ising.run(second, ck)
    assert second.result() == undisturbed.result()
    assert second.energies.tobytes() == undisturbed.energies.tobytes()
    assert second.lattice.black.tobytes() == undisturbed.lattice.black.tobytes()


def test_a_signal_ends_it_with_75_and_it_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    from milepost import Checkpointer
    from milepost.errors import RESUMABLE

    ising = example("ising")
    undisturbed = ising.Simulation.start(0.5, 16, 600, 2)
    assert ising.run(undisturbed, StopAfter(10**6))
    with pytest.raises(SystemExit) as ended, Checkpointer(tmp_path / "ckpt") as ck:
        signal.raise_signal(signal.SIGTERM)
        assert not ising.run(ising.Simulation.start(0.5, 16, 600, 2), ck)
    assert ended.value.code == RESUMABLE
    resumed = ising.Simulation.start(0.5, 16, 600, 2)
    with Checkpointer(tmp_path / "ckpt") as ck:
        saved = ck.restore()
        assert saved is not None
        assert saved.step == 0
        assert ising.run(resumed, ck)
    assert resumed.result() == undisturbed.result()


def test_told_to_stop_is_not_finished() -> None:
    ising = example("ising")
    simulation = ising.Simulation.start(0.36, 16, 600, 2)
    assert not ising.run(simulation, StopAfter(3))
    assert not simulation.energies[3:].any()
    assert ising.run(ising.Simulation.start(0.36, 16, 600, 2), StopAfter(30))


def test_ising_as_a_command(tmp_path: Path) -> None:
    command = [sys.executable, "examples/ising.py", "--beta", "0.3", "--size", "16"]
    command += ["--sweeps", "400", "--out", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=60)
    result = json.loads((tmp_path / "energy.json").read_text())
    assert result["sweeps"] == 400
    assert result["energy"] == simulate(0.3, 16, 400, 1)["energy"]


@pytest.mark.parametrize("wrong", [["--size", "15"], ["--beta", "-1"], ["--sweeps", "0"]])
def test_ising_refuses_nonsense(wrong: list[str], tmp_path: Path) -> None:
    given = {"--beta": "0.3", "--size": "16", "--sweeps": "100", "--out": str(tmp_path)}
    given[wrong[0]] = wrong[1]
    command = [sys.executable, "examples/ising.py", *(x for pair in given.items() for x in pair)]
    ended = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, timeout=60)
    assert ended.returncode == 2
    assert wrong[0][2:].encode() in ended.stderr
    assert not list(tmp_path.iterdir())


# --- sweep


def test_score_is_deterministic_flat_and_written_as_returned(tmp_path: Path) -> None:
    score = example("sweep").score
    first = score(kernel="rbf", C="10", gamma="0.05", out=str(tmp_path / "a"))
    again = score(kernel="rbf", C="10", gamma="0.05", out=str(tmp_path / "b"))
    assert first == again == json.loads((tmp_path / "a/score.json").read_text())
    assert first["accuracy"] > 0.95
    assert first["train_samples"] + first["validation_samples"] == 1797
    assert all(isinstance(value, int | float) for value in first.values())
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["score.json"]


def test_kernels_differ(tmp_path: Path) -> None:
    """A linear machine is good, an over-narrow sigmoid is at chance: the sweep has a shape."""
    score = example("sweep").score
    linear = score("linear", "1", "scale", str(tmp_path))["accuracy"]
    hopeless = score("sigmoid", "0.3", "0.001", str(tmp_path))["accuracy"]
    assert linear > 0.95 > 0.2 > hopeless


# --- words


def test_stages_in_order_and_twice_the_same(tmp_path: Path) -> None:
    words = example("words")
    for folder in ("a", "b"):
        for stage in words.STAGES.values():
            stage("json", tmp_path / folder)
    files = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert files == ["counts.csv", "ranking.json", "text.txt"]
    for name in files:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    ranking = json.loads((tmp_path / "a/ranking.json").read_text())
    counts = [entry["count"] for entry in ranking["top"]]
    assert counts == sorted(counts, reverse=True)
    assert 0 < ranking["entropy_bits"] < math.log2(ranking["different"])


def test_counting_words(tmp_path: Path) -> None:
    words = example("words")
    words.write_text(tmp_path / "text.txt", "Self, self; the self! of a THE\n")
    words.count("any", tmp_path)
    assert (tmp_path / "counts.csv").read_text() == "word,count\nself,3\nthe,2\n"
    words.rank("any", tmp_path)
    ranking = json.loads((tmp_path / "ranking.json").read_text())
    assert ranking["words"] == 5
    assert ranking["entropy_bits"] == pytest.approx(0.970951)


def test_an_unknown_package_is_named(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no-such-package"):
        example("words").collect("no-such-package", tmp_path)


# --- the tables of the demo


@pytest.mark.parametrize(
    ("table", "columns"),
    [
        ("sweep.csv", ["kernel", "C", "gamma"]),
        ("ising.csv", ["beta", "size", "sweeps", "seed"]),
        ("words.csv", ["package"]),
    ],
)
def test_tables_have_no_row_twice(table: str, columns: list[str]) -> None:
    with (ROOT / "config" / table).open(newline="") as stream:
        header, *rows = [tuple(row) for row in csv.reader(stream)]
    assert list(header) == columns
    assert len(rows) == len(set(rows))


def test_every_word_member_is_in_this_python() -> None:
    library = Path(json.__file__).parents[1]
    with (ROOT / "config/words.csv").open(newline="") as stream:
        for row in csv.DictReader(stream):
            assert list((library / row["package"]).glob("*.py"))


# --- the configurations


@pytest.mark.parametrize("name", ["docking", "dynamics", "training"])
def test_example_configurations_are_valid(name: str, tmp_path: Path) -> None:
    """Each is valid once its tables, with a row each, and its inputs are there."""
    from milepost.config.load import load_config, parse_config

    path = ROOT / "config/examples" / f"{name}.yaml"
    data = load_config([path])
    for run in data["runs"].values():
        work = run["work"]
        columns = {*re.findall(r"{(\w+)}", work["command"]), *run["smoke"].get("set", {})} - {"out"}
        row = ",".join("1" for _ in columns)
        create(tmp_path / work.get("tasks", work.get("members")), f"{','.join(columns)}\n{row}\n")
        for pattern in work["inputs"]:
            create(tmp_path / pattern.replace("*", "any"))
    create(tmp_path / "config/gpu_profiles.yaml", (ROOT / "config/gpu_profiles.yaml").read_text())
    assert set(parse_config(data, [path], tmp_path).runs) == set(data["runs"])


def create(path: Path, content: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")


def test_the_demo_has_one_run_of_each_kind() -> None:
    from milepost.config.load import load_config, parse_config

    runs = parse_config(load_config([ROOT / "config/config.yaml"]), "demo", ROOT).runs
    assert {name: str(spec.work.kind) for name, spec in runs.items()} == {
        "sweep": "batch",
        "ising": "resumable",
        "words": "stages",
    }
    for spec in runs.values():
        assert spec.purpose
        assert spec.software
        assert spec.artifacts
