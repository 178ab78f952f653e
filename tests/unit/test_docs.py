"""The documents are true: links resolve, named commands exist, the words are the code's words."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from milepost.cli.main import VERBS
from milepost.errors import RESUMABLE, MilepostError
from milepost.journal import COLUMNS, CRC_COLUMN
from milepost.model import Verdict
from milepost.shardtable import HEADER

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("notes/*.md"),
        *ROOT.glob("config/*.md"),
    ]
)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`([^`\n]+)`")


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def prose(page: Path) -> str:
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """Anchors of the headings, made as the usual renderers make them."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_resolve(page: Path) -> None:
    for target in LINK.findall(prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), f"{page.name} links to {target}"
        assert there.is_relative_to(ROOT), f"{page.name} links out of the project: {target}"
        if anchor and there.suffix == ".md":
            assert anchor in anchors(there), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_named_scripts_and_verbs_exist(page: Path) -> None:
    source = page.read_text(encoding="utf-8")
    for script in re.findall(r"\bscripts/([a-z_-]+)", source):
        assert (ROOT / "scripts" / script).is_file(), f"{page.name} names scripts/{script}"
    spans = [*CODE.findall(prose(page)), *(block for _, block in FENCE.findall(source))]
    for span in spans:
        for verb in re.findall(r"(?:^|\$ |exec )milepost ([a-z][a-z-]*)", span, re.MULTILINE):
            assert verb in VERBS, f"{page.name} names `milepost {verb}`"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_blocks_compile(page: Path) -> None:
    for language, block in FENCE.findall(page.read_text(encoding="utf-8")):
        if language == "python":
            compile(block, str(page), "exec")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_yaml_blocks_parse(page: Path) -> None:
    import yaml

    for language, block in FENCE.findall(page.read_text(encoding="utf-8")):
        if language == "yaml":
            assert yaml.safe_load(block)


def test_readme_is_short_and_shows_the_two_commands() -> None:
    lines = text("README.md").splitlines()
    assert len(lines) <= 120
    assert "scripts/run" in text("README.md")
    assert "scripts/test" in text("README.md")


def test_readme_options_of_snakemake_name_real_targets() -> None:
    rules = "\n".join(path.read_text() for path in ROOT.glob("workflow/**/*.smk"))
    rules += text("workflow/Snakefile")
    names = set(re.findall(r"^(?:rule|checkpoint) (\w+):", rules, re.MULTILINE))
    for page in PAGES:
        for line in re.findall(r"^\$? ?snakemake (.+)$", page.read_text(), re.MULTILINE):
            words = shlex.split(line.partition("#")[0])
            targets = [w for w in words if w.isidentifier() and w not in ("slurm", "local")]
            assert set(targets) <= names, f"{page.name}: snakemake {line}"


def test_the_layers_name_every_module_and_no_other() -> None:
    block = next(b for _, b in FENCE.findall(text("docs/design.md")) if b.startswith("errors"))
    lines = [re.split(r"\s{3,}", line)[0].split() for line in block.splitlines()]
    named = {word for line in lines[:-1] for word in line}
    source = ROOT / "src/milepost"
    modules = {p.stem for p in source.glob("[a-z]*.py")}
    modules |= {p.parent.name for p in source.glob("[a-z]*/__init__.py")}
    assert named == modules


def test_formats_name_every_variable_of_the_environment() -> None:
    sources = [p.read_text(encoding="utf-8") for p in ROOT.glob("src/milepost/**/*.py")]
    variables = {v for source in sources for v in re.findall(r"MILEPOST_[A-Z][A-Z_]*[A-Z]", source)}
    page = text("docs/formats.md")
    assert {v for v in variables if f"`{v}`" not in page} == set()


def test_glossary_has_the_words_of_the_design() -> None:
    words = set(re.findall(r"^\| \*\*(.+?)\*\* \|", text("docs/glossary.md"), re.MULTILINE))
    needed = {
        "adapter", "artifact", "attempt", "checkpoint", "chunk", "closeout", "contract",
        "evidence", "generation", "journal", "lease", "run", "shard", "task", "tier", "verdict",
    }  # fmt: skip
    assert needed <= words
    assert sorted(words, key=str.lower) == re.findall(
        r"^\| \*\*(.+?)\*\* \|", text("docs/glossary.md"), re.MULTILINE
    )


def test_glossary_names_every_verdict() -> None:
    for verdict in Verdict:
        assert str(verdict) in text("docs/glossary.md")
        assert f"| `{verdict}` |" in text("docs/formats.md")


def test_formats_list_every_exit_code() -> None:
    listed = {int(code) for code in re.findall(r"^\| (\d+) \|", text("docs/formats.md"), re.M)}
    errors = {kind.exit_code for kind in _subclasses(MilepostError)}
    assert listed == {0, MilepostError.exit_code, RESUMABLE} | errors


def _subclasses(kind: type[MilepostError]) -> set[type[MilepostError]]:
    below = {cls for cls in kind.__subclasses__() if cls.__module__ == "milepost.errors"}
    return below | {deep for cls in below for deep in _subclasses(cls)}


def test_formats_show_the_headers_as_written() -> None:
    page = text("docs/formats.md")
    assert f"{COLUMNS},{CRC_COLUMN}\n" in page
    assert f"`{','.join(HEADER)}`" in page


def test_the_example_row_of_the_journal_is_valid() -> None:
    from milepost.journal import decode_row

    block = next(b for _, b in FENCE.findall(text("docs/formats.md")) if b.startswith(COLUMNS))
    row = decode_row(block.splitlines()[1].encode())
    assert row is not None
    assert row.status == "done"
    assert row.data["result"]["accuracy"] == 0.98


def test_the_task_key_of_the_formats_is_that_of_the_code(
    capsys: pytest.CaptureFixture[str],
) -> None:
    from milepost.config.tasks import task_key

    blocks = [b for lang, b in FENCE.findall(text("docs/formats.md")) if lang == "python"]
    block = next(b for b in blocks if "sha256" in b)
    exec(compile(block, "docs/formats.md", "exec"), {})
    assert capsys.readouterr().out.strip() == task_key({"kernel": "rbf", "C": "10", "gamma": "0.3"})


def test_the_atomic_write_of_the_patterns_writes(tmp_path: Path) -> None:
    import os

    blocks = [b for lang, b in FENCE.findall(text("docs/patterns.md")) if lang == "python"]
    block = next(b for b in blocks if "replace(path)" in b)
    exec(
        compile(block, "docs/patterns.md", "exec"), {"path": tmp_path / "a", "text": "b", "os": os}
    )
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_the_configuration_of_the_readme_is_valid(tmp_path: Path) -> None:
    import yaml

    from milepost.config.load import parse_config

    block = next(b for lang, b in FENCE.findall(text("README.md")) if lang == "yaml")
    (tmp_path / "config").mkdir()
    (tmp_path / "config/ligands.csv").write_text("ligand\nZ1\n")
    config = parse_config(yaml.safe_load(block), "README.md", tmp_path)
    assert list(config.runs) == ["dock"]


def test_the_solver_of_the_readme_runs_stops_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed by a signal after some steps, it ends in the state of an undisturbed one."""
    import signal

    import numpy as np

    monkeypatch.delenv("MILEPOST_CKPT", raising=False)
    blocks = [b for lang, b in FENCE.findall(text("README.md")) if lang == "python"]
    code = compile(next(b for b in blocks if "Checkpointer" in b), "README.md", "exec")

    def solve(folder: str, signal_at: int | None = None) -> Any:
        (tmp_path / folder).mkdir(exist_ok=True)
        monkeypatch.chdir(tmp_path / folder)
        calls = iter(range(1000))

        def advance(x: Any, rng: Any) -> Any:
            if next(calls) == signal_at:
                signal.raise_signal(signal.SIGTERM)
            return x + rng.standard_normal(3)

        def init() -> Any:
            return np.zeros(3), np.random.default_rng(4), 0

        def load(saved: Any) -> Any:
            rng = np.random.default_rng(4)
            rng.bit_generator.state = saved.meta["rng"]
            return saved.arrays["x"], rng, saved.step + 1

        names = {"n_steps": 8, "advance": advance, "init": init, "load": load}
        exec(code, names)
        return names["x"]

    undisturbed = solve("calm")
    with pytest.raises(SystemExit) as ended:
        solve("rough", signal_at=3)
    assert ended.value.code == RESUMABLE
    assert solve("rough").tobytes() == undisturbed.tobytes()


def test_documents_name_nothing_of_a_workplace() -> None:
    for page in PAGES:
        assert not re.search(r"/work/\w|/home/\w|/tmp/uvenv", page.read_text(encoding="utf-8"))
