"""Rank the words of Python's own source: the example of a pipeline with seams.

Three stages, each reading what the former wrote: collect the text of a package of the standard
library, count its words, rank them. A stage writes its output whole or not at all.

    python examples/words.py collect --package json --out /tmp/words
    python examples/words.py count   --package json --out /tmp/words
    python examples/words.py rank    --package json --out /tmp/words
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

WORD = re.compile(r"[a-z]{3,}")
TOP_COUNT = 25


def collect(package: str, out: Path) -> None:
    """Join all .py files of the package, in the order of their names, into text.txt."""
    folder = Path(os.__file__).parent / package
    files = sorted(folder.rglob("*.py"))
    if not files:
        sys.exit(f"words: no Python files in {folder}; name a package of the standard library")
    texts = (file.read_text(encoding="utf-8", errors="replace") for file in files)
    write_text(out / "text.txt", "\n".join(texts))


def count(package: str, out: Path) -> None:
    """Count the words of text.txt into counts.csv, in the order of the alphabet."""
    text = (out / "text.txt").read_text(encoding="utf-8")
    words = Counter(WORD.findall(text.lower()))
    lines = ["word,count", *(f"{word},{words[word]}" for word in sorted(words))]
    write_text(out / "counts.csv", "\n".join(lines) + "\n")


def rank(package: str, out: Path) -> None:
    """Write the most frequent words of counts.csv and their entropy to ranking.json."""
    with (out / "counts.csv").open(encoding="utf-8", newline="") as stream:
        words = {row["word"]: int(row["count"]) for row in csv.DictReader(stream)}
    total = sum(words.values())
    ordered = sorted(words.items(), key=lambda item: (-item[1], item[0]))
    entropy = -sum(n / total * math.log2(n / total) for _, n in ordered)
    ranking = {
        "package": package,
        "words": total,
        "different": len(words),
        "entropy_bits": round(entropy, 6),
        "top": [{"word": word, "count": n} for word, n in ordered[:TOP_COUNT]],
    }
    write_text(out / "ranking.json", json.dumps(ranking, indent=2) + "\n")


STAGES: dict[str, Callable[[str, Path], None]] = {"collect": collect, "count": count, "rank": rank}


def write_text(path: Path, text: str) -> None:
    """Write under another name, then rename: `path` is complete or absent."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stage", choices=list(STAGES))
    parser.add_argument("--package", required=True, help="folder name below the standard library")
    parser.add_argument("--out", type=Path, required=True, help="folder of all three stages")
    options = parser.parse_args()
    STAGES[options.stage](options.package, options.out)


if __name__ == "__main__":
    main()
