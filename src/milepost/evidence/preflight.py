"""The pre-production checklist: may this run be launched at its full size?

Each check is a pure function of the facts: it holds, it does not, or it does not apply or could
not be measured; with its evidence, and what to do. The gate of `submit` is narrower (smoke test,
plan and room of this very contract); what fails here besides is a person's to decide.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from milepost.evidence.closeout import Item
from milepost.evidence.preflight_checkpoint import CHECKPOINT_QUESTIONS
from milepost.evidence.preflight_facts import Facts
from milepost.evidence.words import duration, plural, some


def checks(facts: Facts) -> tuple[Item, ...]:
    """The whole list, in the order of docs/preflight.md."""
    return tuple(question(facts) for question in (*_FIRST, *CHECKPOINT_QUESTIONS, *_LAST))


def failed(items: tuple[Item, ...]) -> tuple[Item, ...]:
    return tuple(item for item in items if item.holds is False)


def as_json(run: str, items: tuple[Item, ...]) -> dict[str, Any]:
    return {
        "run": run,
        "ready": not failed(items),
        "checks": [item.as_json() for item in items],
    }


def _contract(facts: Facts) -> Item:
    key, title = "contract", "The contract is frozen and its inputs are as they were"
    fix = f"milepost contract {facts.run}"
    if facts.contract is None:
        return Item(key, title, False, "there is none, or it is damaged", fix)
    if facts.changed_inputs:
        named = some(facts.changed_inputs)
        text = f"{plural(len(facts.changed_inputs), 'input')} changed since: {named}"
        return Item(key, title, False, text, f"{fix}, then the smoke test and the plan again")
    inputs = plural(len(facts.contract["inputs"]), "input file")
    return Item(key, title, True, f"{str(facts.contract['digest'])[:19]}, {inputs}")


def _restored(facts: Facts) -> Item:
    """Create, crash, restore."""
    key, title = "create_crash_restore", "It was made, killed and restored on this contract"
    smoke, fix = facts.smoke, f"milepost smoke {facts.run}"
    if smoke is None:
        return Item(key, title, False, "there is no smoke test", fix)
    if facts.contract is None or smoke.get("contract_digest") != facts.contract["digest"]:
        return Item(key, title, False, "the smoke test is of another contract", fix)
    if smoke.get("passed") is not True:
        return Item(key, title, False, f"it did not pass: {smoke.get('reason')}", f"mend it; {fix}")
    killed, resumed = smoke.get("killed") or {}, smoke.get("resumed") or {}
    if not killed or not resumed:
        return Item(key, title, False, "it does not say that anything was killed and resumed", fix)
    step = resumed.get("restored_step")
    text = f"SIG{killed.get('signal')} after {killed.get('after')}, resumed"
    text += "" if step is None else f" at step {step}"
    control = smoke.get("control") or {}
    if control.get("equal") is not True:
        return Item(key, title, False, f"{text}; the results were not compared", fix)
    return Item(key, title, True, f"{text}; {control.get('metric')} as undisturbed")


def _versions(facts: Facts) -> Item:
    key, title = "versions", "Versions are recorded and are those of today"
    if facts.contract is None or facts.versions is None:
        return Item(key, title, None, "there is no contract")
    then = facts.contract["versions"]
    names = sorted(then.keys() | facts.versions.keys())
    other = [
        f"{name} {then.get(name, 'n/a')} -> {facts.versions.get(name, 'n/a')}"
        for name in names
        if then.get(name) != facts.versions.get(name)
    ]
    if other:
        fix = f"milepost contract {facts.run}, then the smoke test again, or bring them back"
        return Item(key, title, False, f"not as frozen: {some(other)}", fix)
    told = ", ".join(f"{name} {version}" for name, version in then.items())
    named = facts.spec.software if facts.spec else ()
    silent = [n for n in named if n.lower() not in {name.lower() for name in then}]
    more = f"; version not known: {some(silent)}" if silent else ""
    return Item(key, title, True, f"{told}; {_environment(facts)}{more}")


def _environment(facts: Facts) -> str:
    """What a restore compares, as the smoke test's checkpoints recorded it."""
    newest = next((r.newest for r in facts.rehearsed if r.newest is not None), None)
    if newest is None:
        return "no checkpoint names a container"
    known = newest.environment
    allowed = facts.spec.checkpoint.allow if facts.spec else ()
    may = f", may differ: {', '.join(allowed)}" if allowed else ""
    return f"container {known.container or 'n/a'}, GPU {known.gpu_profile or 'n/a'}{may}"


def _privacy(facts: Facts) -> Item:
    key, title = (
        "privacy",
        "No secret stands in the contract, and nothing private in what is public",
    )
    if facts.credentials:
        text = f"looks like a credential: {some(facts.credentials)}"
        fix = "take it out and hand it over by the environment of whoever submits, or by a key file"
        return Item(key, title, False, text, f"{fix}; change it where it was used")
    if facts.key_problem is not None:
        text = f"the key of the checkpoints cannot be used: {facts.key_problem}"
        return Item(key, title, False, text, "see checkpoint.encrypt")
    if facts.withheld:
        text = f"would be withheld from the public record: {'; '.join(map(str, facts.withheld))}"
        file = next((w.file for w in facts.withheld if w.file is not None), None)
        fix = f"milepost public --check {file} --run {facts.run}" if file else "mend that text"
        return Item(key, title, False, text, fix)
    if facts.spec is None:
        return Item(key, title, None, "there is no contract")
    how = "encrypted" if facts.spec.checkpoint.encrypt else "not encrypted"
    return Item(key, title, True, f"purpose, software and note tell nothing; checkpoints {how}")


def _cost(facts: Facts) -> Item:
    key, title = "cost", "Time, overhead and cost are computed"
    plan, fix = facts.plan, f"milepost plan {facts.run}"
    if plan is None:
        return Item(key, title, False, "there is no plan", fix)
    if facts.contract is not None and plan.get("contract_digest") != facts.contract["digest"]:
        return Item(key, title, False, "the plan is of another contract", fix)
    overhead = plan.get("overhead") or {}
    useful_s, fraction = overhead.get("useful_s"), overhead.get("fraction")
    if useful_s is None:
        text = "the plan knows no time: no task was measured at its full size"
        return Item(key, title, None, text)
    over = "n/a" if fraction is None else f"{100 * fraction:.3g} %"
    ends = (
        ""
        if plan.get("expected_s") is None
        else f", at its end after {duration(plan['expected_s'])}"
    )
    text = f"{duration(useful_s)} of work{ends}, overhead {over}"
    cost = plan.get("cost")
    if cost is not None:
        known = cost.get("total") if cost.get("total") is not None else cost.get("running")
        return Item(
            key, title, True, f"{text}, cost {known:.4g} {cost.get('currency') or ''}".strip()
        )
    if facts.spec is not None and facts.spec.planner.profiles is not None:
        fix = f"add a price to {facts.spec.planner.profiles}, then {fix}"
        return Item(key, title, False, f"{text}; no cost, although there are profiles", fix)
    return Item(key, title, True, f"{text}; cost n/a, since no prices are named")


Question = Callable[[Facts], Item]
_FIRST: tuple[Question, ...] = (_contract, _restored)
_LAST: tuple[Question, ...] = (_versions, _privacy, _cost)
