"""What the tests need in slurmdbd: accounts with shares, QOS that preempt, the users."""

import os

from .commands import ask
from .layout import ACCOUNTS, CLUSTER, Layout, TestbedError

QOS = {
    "low": ["priority=10"],
    "cancellable": ["priority=10", "preemptmode=cancel", "gracetime=10"],
    "limited": ["priority=10", "maxsubmitjobsperuser=2", "maxjobsperuser=1"],
    "high": ["priority=1000", "preempt=low,cancellable"],
}
ALREADY_THERE = ("Nothing new added", "already exists", "Nothing modified")


def users() -> list[str]:
    """Root, and whoever called sudo."""
    other = os.environ.get("SUDO_USER", "root")
    return ["root"] if other == "root" else ["root", other]


def set_up(layout: Layout) -> None:
    """Add cluster, accounts, QOS and users; done once for a state folder, harmless when repeated."""
    done = " ".join(users())
    if layout.accounts_done.exists() and layout.accounts_done.read_text() == done:
        return
    sacctmgr("add", "cluster", CLUSTER)
    for account, shares in ACCOUNTS.items():
        sacctmgr("add", "account", account, f"fairshare={shares}", f"cluster={CLUSTER}")
    for name, values in QOS.items():
        sacctmgr("add", "qos", name, *values)
    names = ",".join(["normal", *QOS])
    first = next(iter(ACCOUNTS))
    for user in users():
        for account in ACCOUNTS:
            sacctmgr("add", "user", user, f"account={account}", f"qos={names}", "defaultqos=normal")
        sacctmgr("modify", "user", "where", f"name={user}", "set", f"defaultaccount={first}")
    layout.accounts_done.write_text(done)


def sacctmgr(*arguments: str) -> None:
    answer = ask("sacctmgr", "-i", *arguments, timeout_s=30.0)
    text = answer.stdout + answer.stderr
    if answer.returncode != 0 and not any(words in text for words in ALREADY_THERE):
        raise TestbedError(f"sacctmgr {' '.join(arguments)}: {text.strip()}")
