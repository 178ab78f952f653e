"""The texts that a person wrote for the public, and whether they may be published.

Purpose, software and note are the only free texts of the public record. One that would tell
something private is withheld as a whole, never mended in silence: where one thing was found there
may be another that no rule knows. What a run itself knows as private (its hosts, jobs, accounts,
values of its environment) is looked for besides what the rules find.
"""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from milepost.config.spec import RunSpec
from milepost.evidence.private_names import Names, host_names, known_names, named
from milepost.evidence.redact import Leak, find_secrets
from milepost.evidence.types import RunEvidence
from milepost.evidence.words import plural


@dataclass(frozen=True, slots=True)
class Withheld:
    """A text that is not published: `what` it is, `kinds` of leaks with their counts, and what
    stands around the first one, masked."""

    what: str
    kinds: Mapping[str, int]
    file: str | None = None
    line: int | None = None
    excerpt: str = ""

    def __str__(self) -> str:
        found = ", ".join(f"{count} {kind}" for kind, count in self.kinds.items())
        place = "" if self.file is None else f" ({self.file}:{self.line})"
        around = f', in "{self.excerpt}"' if self.excerpt else ""
        return f"the {self.what}{place}: {found}{around}"


@dataclass(frozen=True, slots=True)
class PublicTexts:
    """What may be published; None or nothing where there is no text, or it is withheld."""

    purpose: str | None = None
    software: tuple[str, ...] = ()
    note: str | None = None
    withheld: tuple[Withheld, ...] = ()

    def flag(self, run: str) -> str | None:
        """A line for a person about what was withheld; None when nothing was."""
        if not self.withheld:
            return None
        count = plural(len(self.withheld), "text")
        what = "; ".join(map(str, self.withheld))
        file = next((w.file for w in self.withheld if w.file is not None), None)
        fix = "mend it and close again"
        if file is not None:
            fix = f"milepost public --check {file} --run {run}; {fix}"
        return f"{count} withheld from the public record, {what}\n  next: {fix}"


def public_texts(run: RunEvidence) -> PublicTexts:
    """Check purpose, software and note of a run; reads the file of the note."""
    spec = run.spec
    if spec is None:
        return PublicTexts()
    names = known_names() | run_names(run)
    withheld: list[Withheld] = []

    def checked(what: str, text: str | None, file: str | None = None) -> str | None:
        leaks = find_secrets(text, names) if text else []
        if leaks:
            withheld.append(_withheld(what, leaks, file))
        return None if leaks else text

    purpose = checked("purpose", spec.purpose)
    software = [checked("software", name) for name in spec.software]
    note = checked("note", _note(run, spec), spec.public_note)
    return PublicTexts(purpose, tuple(s for s in software if s), note, tuple(withheld))


def run_names(run: RunEvidence) -> Names:
    """What this run knows as private: machines, jobs, where it was to run, its environment."""
    attempts = [a for shard in run.shards for a in shard.attempts]
    holders = [shard.holder.host for shard in run.shards if shard.holder is not None]
    names = host_names([*(a.host for a in attempts if a.host), *holders])
    names |= named("job", {a.slurm_job_id for a in attempts})
    return names if run.spec is None else names | _spec_names(run.spec)


def _spec_names(spec: RunSpec) -> Names:
    place = spec.slurm
    names = named("account", [place.account, place.qos, place.reservation])
    names |= named("partition", [place.partition])
    names |= named("environment", spec.work.environment.values())
    tiers = [spec.tiers.scratch, spec.tiers.warm, spec.tiers.cold]
    return names | named("storage", [urlsplit(t).netloc for t in tiers if t and "://" in t])


def _note(run: RunEvidence, spec: RunSpec) -> str | None:
    """The text of the file that privacy.public_note names; None when it is not there."""
    if spec.public_note is None:
        return None
    path: Path = run.paths.root / spec.public_note
    return path.read_text(encoding="utf-8", errors="replace").strip() if path.is_file() else None


def _withheld(what: str, leaks: Sequence[Leak], file: str | None) -> Withheld:
    kinds: Mapping[str, Any] = collections.Counter(leak.kind for leak in leaks)
    return Withheld(what, dict(kinds), file, leaks[0].line if file else None, leaks[0].excerpt)
