"""The questions of a closeout: pure functions of the facts.

A false item names the next action, which begins with or leads to `milepost reconcile`, never to
a fresh launch. What a run leaves behind is asked by `items_left`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from milepost.evidence import items_left
from milepost.evidence.account import failures
from milepost.evidence.closeout import Facts, Item
from milepost.evidence.control import Control, summary
from milepost.evidence.reconcile import ShardVerdict, count, not_done
from milepost.evidence.words import plural, some
from milepost.model import Verdict, WorkKind

_FINAL = (Verdict.DONE, Verdict.FAILED)


def items(facts: Facts) -> tuple[Item, ...]:
    """Every item, in the order in which a person wants to read them."""
    return tuple(question(facts) for question in _QUESTIONS)


def _contract(facts: Facts) -> Item:
    key, title = "contract_unchanged", "The contract is the one that was frozen"
    contract = facts.run.contract
    name = facts.run.paths.run
    if contract is None:
        fix = f"bring contract.json back from a backup, then milepost reconcile {name}"
        return Item(key, title, False, "there is no contract", fix)
    if facts.changed_inputs:
        return Item(
            key,
            title,
            False,
            f"{plural(len(facts.changed_inputs), 'input')} not as frozen: {some(facts.changed_inputs)}",
            "bring the named files back as they were, or name the change a new run;"
            f" then milepost reconcile {name}",
        )
    submission = facts.run.submission
    if submission is not None and submission.get("contract_digest") != contract["digest"]:
        what = f"shards were submitted under another contract, {_short(str(submission.get('contract_digest')))}"
        fix = f"bring that contract's files back, then milepost reconcile {name}"
        return Item(key, title, False, what, fix)
    text = (
        f"{_short(contract['digest'])}, {plural(len(contract['inputs']), 'input file')} as frozen"
    )
    if facts.amendments:
        text += f"; {plural(len(facts.amendments), 'accepted change')} that cannot alter results"
    return Item(key, title, True, text)


def _smoke(facts: Facts) -> Item:
    key, title = "smoke_passed", "The smoke test passed on this contract"
    smoke, contract = facts.run.smoke, facts.run.contract
    name = facts.run.paths.run
    fix = f"snakemake -c2 results/{name}/smoke/smoke.json, then milepost reconcile {name}"
    if smoke is None:
        return Item(key, title, False, "there is no smoke test", fix)
    if contract is not None and smoke.get("contract_digest") != contract["digest"]:
        return Item(key, title, False, "the smoke test belongs to another contract", fix)
    if smoke.get("passed") is not True:
        return Item(key, title, False, f"it did not pass: {smoke.get('reason')}", fix)
    tasks = (smoke.get("slice") or {}).get("tasks")
    size = "slice of unknown size" if tasks is None else plural(tasks, "task")
    return Item(key, title, True, f"{size}; {smoke.get('reason')}")


def _judged(facts: Facts) -> Item:
    key, title = "shards_judged", "Every shard has a final verdict"
    if not facts.verdicts:
        return _without_shards(facts, key, title)
    open_ = [v for v in facts.verdicts if v.verdict not in _FINAL]
    if not open_:
        text = ", ".join(f"{n} {word}" for word, n in count(facts.verdicts).items())
        return Item(key, title, True, text)
    named = some([f"{v.shard.name} ({v.verdict}: {v.decision.reason})" for v in open_])
    text = f"{plural(len(open_), 'shard')} without: {named}"
    return Item(key, title, False, text, _next(facts, open_))


def _shards(facts: Facts) -> Item:
    key, title = "shards_done", "Every shard has the verdict DONE"
    if not facts.verdicts:
        return _without_shards(facts, key, title)
    counts = ", ".join(f"{n} {word}" for word, n in count(facts.verdicts).items())
    open_ = not_done(facts.verdicts)
    if not open_:
        return Item(key, title, True, counts)
    names = some([v.shard.name for v in open_])
    return Item(key, title, False, f"{counts}; not DONE: {names}", _next(facts, open_))


def _without_shards(facts: Facts, key: str, title: str) -> Item:
    run = facts.run
    if run.spec is not None and run.spec.stop == "smoke-only":
        return Item(key, title, None, "the contract stops after the smoke test")
    return Item(
        key,
        title,
        False,
        "there is no shard table: nothing was submitted",
        f"milepost reconcile {run.paths.run}, which says what is there; milepost status names the rest",
    )


def _next(facts: Facts, open_: Sequence[ShardVerdict]) -> str:
    first, rest = open_[0], len(open_) - 1
    more = f" (and {rest} more in reconcile.csv)" if rest else ""
    look = f"milepost reconcile {facts.run.paths.run}"
    step = f"shard {first.shard.name}: {first.next_action}; {first.command}{more}"
    return step if look in step else f"{look}; then {step}"


def _artifacts(facts: Facts) -> Item:
    key, title = "artifacts_verified", "Every expected artifact verifies"
    run = facts.run
    if run.spec is not None and not run.spec.artifacts:
        return Item(key, title, None, "the contract expects no artifacts")
    if not run.shards:
        return Item(key, title, None, "nothing is done yet")
    bad = [p for shard in run.shards for p in shard.damaged]
    how = "sizes and digests" if run.deep else "sizes"
    if bad:
        named = some([f"{p.artifact} {p.what}" for p in bad])
        fix = f"milepost reconcile {run.paths.run} --deep, then run the named shards again"
        return Item(key, title, False, f"{plural(len(bad), 'task')}: {named}", fix)
    done = sum(shard.done for shard in run.shards)
    text = f"{how} of {plural(done, 'done task')} are as recorded"
    rest = sum(len(shard.tasks) for shard in run.shards) - done
    if rest:
        fix = f"milepost reconcile {run.paths.run}, then run the named shards again"
        more = f"{plural(rest, 'task')} {'is' if rest == 1 else 'are'} not done"
        return Item(key, title, False, f"{text}; {more}", fix)
    return Item(key, title, True, text)


def _terminal(facts: Facts) -> Item:
    key, title = "tasks_terminal", "No task is without a final row in a journal"
    run = facts.run
    if not run.shards:
        return Item(key, title, None, "there is no shard table")
    missing = {s.name: len(s.missing) for s in run.shards if s.missing}
    if not missing:
        return Item(key, title, True, plural(sum(len(s.tasks) for s in run.shards), "task"))
    named = some([f"{name} ({n})" for name, n in missing.items()])
    fix = f"milepost reconcile {run.paths.run}, then run the named shards again"
    return Item(
        key, title, False, f"{plural(sum(missing.values()), 'task')}, in shards {named}", fix
    )


def _classified(facts: Facts) -> Item:
    key, title = "failures_classified", "Every failure has a class"
    groups = failures(facts.run)
    if not groups:
        return Item(key, title, None, "nothing failed")
    text = ", ".join(f"{g['count']} {g['class']}/{g['subclass']}" for g in groups)
    unknown = [g for g in groups if g["class"] in ("unclassified", "none")]
    if not unknown:
        return Item(key, title, True, text)
    shard = unknown[0]["shards"][0]
    log = facts.run.paths.shard(shard).attempts
    look = f"read the logs in {log}, or: milepost classify {log}/*.log"
    fix = f"{look}; then milepost reconcile {facts.run.paths.run}"
    return Item(key, title, False, text, fix)


def _control(facts: Facts) -> Item:
    key, title = "control_metric", "The control metric agrees with its reference"
    spec = None if facts.run.spec is None else facts.run.spec.control
    if spec is None:
        return Item(key, title, None, "the contract names none")
    if facts.run.spec is not None and facts.run.spec.work.kind is WorkKind.BATCH:
        return Item(key, title, None, f"{spec.metric} is compared in the smoke test of a batch run")
    bad = [c for c in facts.controls if c.agrees is False]
    if bad:
        named = some([f"{c.shard}: {_apart(c)}" for c in bad])
        fix = (
            "look at the named shards before using any result;"
            f" then milepost reconcile {facts.run.paths.run}"
        )
        return Item(key, title, False, f"{spec.metric}: {summary(facts.controls)}; {named}", fix)
    if not any(c.agrees for c in facts.controls):
        return Item(key, title, None, f"{spec.metric} has no reference to compare with")
    return Item(key, title, True, f"{spec.metric}: {summary(facts.controls)}")


def _apart(control: Control) -> str:
    if control.problem:
        return control.problem
    away = "" if control.sigmas is None else f", {control.sigmas:.1f} sigma away"
    return f"{control.value:.6g}, reference {control.reference:.6g}{away}"


def _short(digest: str) -> str:
    algorithm, _, value = digest.partition(":")
    return f"{algorithm}:{value[:12]}"


_QUESTIONS: tuple[Callable[[Facts], Item], ...] = (
    _contract,
    _smoke,
    _judged,
    _shards,
    _artifacts,
    _terminal,
    _classified,
    _control,
    *items_left.QUESTIONS,
)
