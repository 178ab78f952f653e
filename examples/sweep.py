"""Score one support vector machine on handwritten digits: the many-small-tasks example.

`score` is what milepost calls in a worker process that lives for many tasks, so scikit-learn and
the digits are loaded once for each worker. The same as a command, for a single task:

    python examples/sweep.py --kernel rbf --C 10 --gamma 0.05 --out /tmp/one
"""

from __future__ import annotations

import argparse
import json
import os
from functools import cache
from pathlib import Path
from typing import Any

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.svm import SVC

SPLIT_SEED = 20240607
VALIDATION_FRACTION = 0.4
PIXEL_MAX = 16.0


@cache
def digits() -> tuple[Any, Any, Any, Any]:
    """Train and validation pixels (scaled to 0..1) and labels: always the same split."""
    pixels, labels = load_digits(return_X_y=True)
    split = train_test_split(
        pixels / PIXEL_MAX,
        labels,
        test_size=VALIDATION_FRACTION,
        random_state=SPLIT_SEED,
        stratify=labels,
    )
    return tuple(split)


def score(kernel: str, C: str, gamma: str, out: str) -> dict[str, Any]:
    """Train on one part of the digits, score on the other, write `out`/score.json.

    Parameters are strings, as in the task table; `gamma` is a number, `scale` or `auto`. The
    result is a flat object and depends on nothing but the parameters.
    """
    train_x, valid_x, train_y, valid_y = digits()
    width = gamma if gamma in ("scale", "auto") else float(gamma)
    machine = SVC(kernel=kernel, C=float(C), gamma=width).fit(train_x, train_y)
    result = {
        "accuracy": round(float(machine.score(valid_x, valid_y)), 6),
        "support_vectors": int(machine.n_support_.sum()),
        "train_samples": len(train_y),
        "validation_samples": len(valid_y),
    }
    write_json(Path(out) / "score.json", result)
    return result


def write_json(path: Path, value: Any) -> None:
    """Write under another name, then rename: `path` is complete or absent."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
    part.replace(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernel", required=True, choices=["linear", "poly", "rbf", "sigmoid"])
    parser.add_argument("--C", required=True, help="penalty of an error, a positive number")
    parser.add_argument("--gamma", default="scale", help="kernel width: a number, scale or auto")
    parser.add_argument("--out", required=True, help="folder for score.json")
    task = parser.parse_args()
    print(json.dumps(score(task.kernel, task.C, task.gamma, task.out)))


if __name__ == "__main__":
    main()
