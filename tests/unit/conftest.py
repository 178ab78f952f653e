"""Unit tests hear no Slurm, also on a machine that has one; a test may give recorded answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pytest

from milepost.slurm.command import Said, replaced_by


def _no_slurm(argv: Sequence[str], env: Mapping[str, str], timeout_s: float) -> Said:
    raise FileNotFoundError(argv[0])


@pytest.fixture(autouse=True)
def no_slurm() -> Iterator[None]:
    with replaced_by(_no_slurm):
        yield
