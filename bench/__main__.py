"""`python -m bench`: run the measurements and write docs/benchmarks.md."""

from __future__ import annotations

import argparse
import datetime
import sys
from collections.abc import Sequence
from pathlib import Path

from bench import overhead
from bench.measure import Sample, machine

PAGE = Path(__file__).resolve().parents[1] / "docs" / "benchmarks.md"


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="small sizes; print, write nothing")
    size.add_argument("--full", action="store_true", help="100,000 tasks with every tool")
    parser.add_argument("--repeats", type=int, help="rounds of each measurement")
    parser.add_argument("--folder", type=Path, help="measure on this file system (default: /tmp)")
    parser.add_argument("--to", type=Path, default=PAGE, help="the page to write")
    options = parser.parse_args()
    sizes = overhead.SIZES
    if options.quick or options.full:
        sizes = overhead.QUICK if options.quick else overhead.FULL
    repeats = options.repeats or (overhead.QUICK_REPEATS if options.quick else overhead.REPEATS)
    samples = overhead.measure(sizes, repeats, options.folder, say)
    page = "\n".join(render(samples, repeats))
    if options.quick:
        print(page)
    else:
        options.to.write_text(page, encoding="utf-8")
        say(f"wrote {options.to}")


def render(samples: Sequence[Sample], repeats: int) -> list[str]:
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    return [
        "# Benchmarks",
        "",
        f"Written by `scripts/bench` on {today}; {repeats} rounds on {machine()}.",
        "Numbers of another machine differ; their ratios hold better. Run it on yours.",
        "",
        *overhead.describe(),
        *overhead.table(samples),
    ]


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
