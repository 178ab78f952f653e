"""A picture of the checkpoints of one size: what each way costs, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.saved import Saved

PANELS = (
    ("blocked_s", "the application waits"),
    ("durable_s", "durable"),
    ("cpu_s", "processor"),
    ("restore_s", "restored"),
)
_OURS, _OTHERS, _INK = "#0a7a5c", "#9aa5b1", "#777777"


def draw(
    path: Path, found: Mapping[str, Mapping[str, Saved]], ours: str, titles: Mapping[str, str]
) -> bool:
    """Write an SVG with a row for each kind of state; False when there is no matplotlib.

    `found`: kind -> name of the way -> medians. Seconds, on a logarithmic axis.
    """
    try:
        import matplotlib
    except ModuleNotFoundError:
        return False
    matplotlib.use("svg")
    from matplotlib import pyplot

    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "milepost", "font.size": 8})
    height = 0.9 + sum(0.25 + 0.19 * len(ways) for ways in found.values())
    figure, grid = pyplot.subplots(
        len(found), len(PANELS), figsize=(10, height), squeeze=False, sharex="col"
    )
    for row, (kind, ways) in zip(grid, found.items(), strict=True):
        for axis, (field, title) in zip(row, PANELS, strict=True):
            _bars(axis, ways, field, ours)
            axis.set_title(
                f"{title}, s" if kind == next(iter(found)) else "", fontsize=9, color=_INK
            )
        row[0].set_ylabel(titles[kind], color=_INK)
    figure.tight_layout()
    figure.savefig(path, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    pyplot.close(figure)
    return True


def _bars(axis, ways: Mapping[str, Saved], field: str, ours: str) -> None:  # type: ignore[no-untyped-def]
    known = {name: getattr(saved, field) for name, saved in ways.items() if getattr(saved, field)}
    names: Sequence[str] = sorted(known, key=lambda name: -known[name])
    values = [known[name] for name in names]
    axis.barh(names, values, color=[_OURS if name == ours else _OTHERS for name in names])
    axis.set_xscale("log")
    axis.minorticks_off()
    axis.bar_label(
        axis.containers[0], [f" {value:.2g}" for value in values], fontsize=6.5, color=_INK
    )
    axis.margins(x=0.25)
    axis.tick_params(colors=_INK, labelsize=7)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axis.spines[side].set_color(_INK)
