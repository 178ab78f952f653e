"""/etc/slurm: a link to the testbed's own files while it is up; what stood there comes back.

The snakemake executor takes SLURM_CONF out of a job's environment, so the files must stand in the default place.
Two renames do it, so that a crash in between leaves a state that the next `up` or `down` understands:
1. /etc/slurm            -> /etc/slurm.before-milepost-testbed   (what stood there)
2. a link in the making  -> /etc/slurm                           (ours)
"""

import os
from pathlib import Path

from .layout import ETC_BACKUP, ETC_SLURM, OWN_FILE, Layout, TestbedError, Unavailable


def check_free(layout: Layout) -> None:
    """Raise Unavailable when /etc/slurm is in use by a Slurm that is not this testbed."""
    owner = linked_state()
    if owner is not None and owner != layout.state and (owner / OWN_FILE).exists():
        raise Unavailable(
            f"{ETC_SLURM}: belongs to the testbed in {owner}. "
            f"End it first: scripts/slurm-testbed --state {owner} down"
        )
    if owner is None and os.path.lexists(ETC_SLURM / "slurm.conf"):
        raise Unavailable(
            f"{ETC_SLURM}/slurm.conf: is not the testbed's; this machine belongs to a Slurm cluster. "
            "Nothing was changed. Use a machine or container without Slurm."
        )


def linked_state() -> Path | None:
    """Return the state folder that /etc/slurm leads to, or None when it is no link of a testbed."""
    if not ETC_SLURM.is_symlink():
        return None
    target = Path(os.readlink(ETC_SLURM))
    ours = target.name == "etc" and ((target / OWN_FILE).exists() or not target.exists())
    return target.parent if ours else None


def install(layout: Layout) -> None:
    """Set the link; idempotent. Raises TestbedError when what stood there cannot be put aside."""
    if linked_state() == layout.state:
        return
    check_free(layout)
    if linked_state() is not None:
        ETC_SLURM.unlink()  # of a testbed whose folder is gone
    if os.path.lexists(ETC_SLURM):
        put_aside()
    temporary = ETC_SLURM.with_name("slurm.milepost-testbed.new")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(layout.etc)
    temporary.rename(ETC_SLURM)


def put_aside() -> None:
    if os.path.lexists(ETC_BACKUP):
        raise TestbedError(
            f"{ETC_BACKUP}: an earlier backup stands beside a new {ETC_SLURM}. "
            "Look at both and remove or rename one of them."
        )
    try:
        ETC_SLURM.rename(ETC_BACKUP)
    except OSError as error:
        raise TestbedError(
            f"{ETC_SLURM}: cannot be renamed ({error.strerror}); is it a mount point? Unmount it first."
        ) from error


def restore(layout: Layout) -> None:
    """Take the link away and put back what stood there; idempotent."""
    if linked_state() == layout.state:
        ETC_SLURM.unlink()
    if os.path.lexists(ETC_BACKUP) and not os.path.lexists(ETC_SLURM):
        ETC_BACKUP.rename(ETC_SLURM)
