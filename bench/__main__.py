"""`python -m bench`: run the measurements and write them into docs/benchmarks.md."""

from __future__ import annotations

import argparse
import datetime
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from bench import checkpoint, overhead, plan, reconcile, simulate
from bench.measure import machine
from bench.part import Options, Part

PARTS: dict[str, Part] = {
    "overhead": overhead,
    "checkpoint": checkpoint,
    "simulate": simulate,
    "plan": plan,
    "reconcile": reconcile,
}
"""In the order of the page."""
BUSY_LOAD = 0.25
"""Load for each core above which a measurement is marked as disturbed."""
PAGE = Path(__file__).resolve().parents[1] / "docs" / "benchmarks.md"
INTRODUCTION = """# Benchmarks

Written by `scripts/bench`, each part on the day and the machine that it names. Numbers of another machine
differ; their ratios hold better. Run it on yours.
"""


def main() -> None:
    options = parse()
    for name in options.only or PARTS:
        measured = measure(name, options)
        if options.is_printed:
            print("\n".join(measured))
            continue
        target = options.to or PAGE
        target.write_text(with_section(_page(target), measured), encoding="utf-8")
        say(f"wrote {measured[0]!r} into {target}")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    size = parser.add_mutually_exclusive_group()
    for name, text in (
        ("quick", "small sizes; print, write nothing"),
        ("full", "100,000 tasks with every tool"),
    ):
        size.add_argument(f"--{name}", action="store_const", dest="size", const=name, help=text)
    parser.set_defaults(size="usual")
    parser.add_argument("--repeats", type=int, help="rounds of each measurement")
    parser.add_argument("--folder", type=Path, help="measure on this file system (default: /tmp)")
    parser.add_argument("--to", type=Path, help=f"the page to write (default: docs/{PAGE.name})")
    parser.add_argument(
        "--only",
        action="append",
        choices=list(PARTS),
        help="this part (may be given again); its section of the page is renewed",
    )
    options = parser.parse_args()
    options.is_printed = options.size == "quick" and options.to is None
    if options.to is not None and not options.to.parent.is_dir():
        parser.error(f"--to {options.to}: there is no folder {options.to.parent}")
    return options


def measure(name: str, options: argparse.Namespace) -> list[str]:
    """The section of a part, heading first, with its day and machine."""
    busy = busy_note()
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    figures = None if options.is_printed else (options.to or PAGE).parent
    asked = Options(options.size, options.repeats, options.folder, figures, say)
    stamp = f"Measured on {today}, {machine()}. {busy}".strip()
    return [f"## {PARTS[name].TITLE}", "", stamp, "", *PARTS[name].section(asked)]


def _page(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else INTRODUCTION


def with_section(page: str, section: Sequence[str]) -> str:
    """The page with this section in the place of the one with the same heading, or at its end."""
    before, heading, rest = page.partition(f"\n{section[0]}\n")
    if not heading:
        return page.rstrip() + "\n\n" + "\n".join(section)
    following = re.search(r"^## ", rest, re.MULTILINE)
    after = rest[following.start() :] if following else ""
    return before + "\n" + "\n".join(section) + ("\n" if after else "") + after


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
