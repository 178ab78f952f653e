"""`python -m bench`: run the measurements and write docs/benchmarks.md."""

from __future__ import annotations

import argparse
import datetime
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from bench import checkpoint, overhead
from bench.checkpoint import Row
from bench.measure import Sample, machine

REPEATS, QUICK_REPEATS = 5, 2
BUSY_LOAD = 0.25
"""Load for each core above which a measurement is marked as disturbed."""
PAGE = Path(__file__).resolve().parents[1] / "docs" / "benchmarks.md"


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="small sizes; print, write nothing")
    size.add_argument("--full", action="store_true", help="100,000 tasks with every tool")
    parser.add_argument("--repeats", type=int, help="rounds of each measurement")
    parser.add_argument("--folder", type=Path, help="measure on this file system (default: /tmp)")
    parser.add_argument("--to", type=Path, help=f"the page to write (default: docs/{PAGE.name})")
    parser.add_argument(
        "--only",
        choices=["overhead", "checkpoint"],
        help="one part; that of checkpoints replaces its section of the page",
    )
    options = parser.parse_args()
    counts, sizes = overhead.SIZES, checkpoint.SIZES
    if options.quick:
        counts, sizes = overhead.QUICK, checkpoint.QUICK
    elif options.full:
        counts = overhead.FULL
    repeats = options.repeats or (QUICK_REPEATS if options.quick else REPEATS)
    busy = busy_note()
    tasks: list[Sample] = []
    checkpoints: list[Row] = []
    if options.only != "checkpoint":
        tasks = overhead.measure(counts, repeats, options.folder, say)
    if options.only != "overhead":
        checkpoints = checkpoint.measure(sizes, repeats, options.folder, say)
    page = "\n".join(render(tasks, checkpoints, repeats, busy))
    target = options.to or PAGE
    if options.only == "checkpoint" and not options.quick:
        page = replace_section(target, render_checkpoints(checkpoints, busy))
    elif options.to is None and (options.quick or options.only):
        print(page)
        return
    target.write_text(page, encoding="utf-8")
    say(f"wrote {target}")


def render(
    tasks: Sequence[Sample], checkpoints: Sequence[Row], repeats: int, busy: str
) -> list[str]:
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    return [
        "# Benchmarks",
        "",
        f"Written by `scripts/bench` on {today}; {repeats} rounds on {machine()}.",
        f"{busy}Numbers of another machine differ; their ratios hold better. Run it on yours.",
        "",
        *overhead.describe(),
        *overhead.table(tasks),
        *render_checkpoints(checkpoints, busy="", is_part=True),
    ]


def render_checkpoints(rows: Sequence[Row], busy: str, is_part: bool = False) -> list[str]:
    """The section about checkpoints; measured alone, it names its machine itself."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    stamp = [] if is_part else [f"Measured on {today}, {machine()}. {busy}".strip(), ""]
    heading, *text = checkpoint.describe()
    return [heading, "", *stamp, *text[1:], *checkpoint.table(rows)]


def replace_section(page: Path, section: Sequence[str]) -> str:
    """The text of `page` with this section in the place of the one with the same heading."""
    before, heading, rest = page.read_text(encoding="utf-8").partition(f"\n{section[0]}\n")
    if not heading:
        return before.rstrip() + "\n\n" + "\n".join(section)
    following = re.search(r"^## ", rest, re.MULTILINE)
    after = rest[following.start() :] if following else ""
    return before + "\n" + "\n".join(section) + after


def busy_note() -> str:
    """A warning when other work competes for the machine, to be asked before measuring."""
    load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    if load < BUSY_LOAD * cores:
        return ""
    return f"**The machine was busy (load {load:.1f} on {cores} cores): a quiet one is faster.** "


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
