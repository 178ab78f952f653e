"""What the tests need in slurmdbd: accounts with shares, QOS that preempt, the users."""

import os

from .commands import ask, demand
from .layout import ACCOUNTS, CLUSTER, Layout, TestbedError

QOS = {
    "low": "priority=10",
    "cancellable": "priority=10 preemptmode=cancel gracetime=10",
    "limited": "priority=10 maxsubmitjobsperuser=2 maxjobsperuser=1",
    "high": "priority=1000 preempt=low,cancellable",
}


def users() -> list[str]:
    """Root, and whoever called sudo."""
    other = os.environ.get("SUDO_USER", "root")
    return ["root"] if other == "root" else ["root", other]


def set_up(layout: Layout) -> None:
    """Add cluster, accounts, QOS and users; done once for a state folder, harmless when repeated.

    Raises TestbedError when an association is missing afterwards.
    """
    done = " ".join(users())
    if layout.accounts_done.exists() and layout.accounts_done.read_text() == done:
        return
    check(sacctmgr(site_commands()) + sacctmgr(user_commands()))
    layout.accounts_done.write_text(done)


def site_commands() -> list[str]:
    return [
        f"add cluster {CLUSTER}",
        *(f"add qos {name} {values}" for name, values in QOS.items()),
        *(f"add account {name} cluster={CLUSTER} fairshare={n}" for name, n in ACCOUNTS.items()),
    ]


def user_commands() -> list[str]:
    names = ",".join(["normal", *QOS])
    accounts = ",".join(ACCOUNTS)
    first = next(iter(ACCOUNTS))
    return [
        *(f"add user {user} account={accounts} qos={names} defaultqos=normal" for user in users()),
        *(f"modify user where name={user} set defaultaccount={first}" for user in users()),
    ]


def sacctmgr(lines: list[str]) -> str:
    """Give all lines to one sacctmgr and return what it said: it goes on after "Nothing new added".

    One process knows only the QOS that were there when it first looked, so users need a process of their own.
    """
    answer = ask("sacctmgr", "-i", text="\n".join(lines) + "\n", timeout_s=60.0)
    return answer.stdout + answer.stderr


def check(transcript: str) -> None:
    """Compare what slurmdbd knows with what was asked for."""
    there = set(demand("sacctmgr", "-nP", "show", "assoc", "format=account,user").split())
    missing = {f"{account}|{user}" for account in ACCOUNTS for user in users()} - there
    known_qos = set(demand("sacctmgr", "-nP", "show", "qos", "format=name").split())
    missing |= {f"QOS {name}" for name in QOS if name not in known_qos}
    if missing:
        raise TestbedError(f"slurmdbd lacks {', '.join(sorted(missing))} after:\n{transcript}")
