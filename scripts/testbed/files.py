"""The state folder and the files in it: keys, configuration from the templates, GPU files."""

import os
import secrets
import shutil
import stat
from pathlib import Path

from .layout import (
    CLUSTER,
    GPUS_PER_NODE,
    NODES,
    OWN_FILE,
    PORTS,
    Layout,
    TestbedError,
    host_name,
    is_bindable,
)

TEMPLATES = Path(__file__).parent / "templates"
MUNGE_KEY_BYTES = 128


def make_state(layout: Layout) -> None:
    """Make the folder or take it over when it is ours. Raises TestbedError for a folder that is not."""
    if layout.state.exists() and not layout.is_ours() and any(layout.state.iterdir()):
        raise TestbedError(
            f"{layout.state}: holds something else. Name another folder with --state."
        )
    layout.state.mkdir(parents=True, exist_ok=True)
    layout.state.chmod(0o755)  # commands of other users reach the munge socket through it
    (layout.state / OWN_FILE).touch()
    for folder in (layout.etc, layout.run, layout.log, layout.devices, layout.state / "ctld"):
        folder.mkdir(exist_ok=True)
        folder.chmod(0o755)
    for node in NODES:
        (layout.state / "spool" / node).mkdir(parents=True, exist_ok=True)
        for index in range(GPUS_PER_NODE):
            make_device(layout.devices / f"{node}gpu{index}")
    make_secret(layout.munge_key, secrets.token_bytes(MUNGE_KEY_BYTES))
    make_secret(layout.password_file, secrets.token_hex(16).encode())


def make_device(path: Path) -> None:
    """Make a second /dev/null. Where that is forbidden a plain file serves, but jobs see no CUDA_VISIBLE_DEVICES."""
    if path.exists():
        return
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    except PermissionError:
        path.touch()


def make_secret(path: Path, content: bytes) -> None:
    """Write the file once, readable by root alone; an existing one stays."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    if not path.exists():
        write_private(path, content)


def write_private(path: Path, content: bytes) -> None:
    temporary = path.with_name(path.name + ".new")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)
    temporary.replace(path)


def write_configuration(layout: Layout, cgroup_version: int) -> None:
    """Write all templates into etc/; slurmdbd.conf and the SQL with mode 600."""
    values = {
        "BINDING": "CommunicationParameters=NoInAddrAny,NoCtldInAddrAny" if is_bindable() else "",
        "STATE": str(layout.state),
        "HOST": host_name(),
        "CLUSTER": CLUSTER,
        "PASSWORD": layout.password_file.read_text(),
        **{f"PORT_{name.upper()}": str(port) for name, port in PORTS.items()},
    }
    sources = {
        name: name
        for name in ("slurm.conf", "gres.conf", "slurmdbd.conf", "mariadb.cnf", "database.sql")
    }
    sources["cgroup.conf"] = f"cgroup-v{cgroup_version}.conf"
    (layout.etc / OWN_FILE).touch()
    for target, source in sources.items():
        text = (TEMPLATES / source).read_text()
        for key, value in values.items():
            text = text.replace(f"@{key}@", value)
        write_private(layout.etc / target, text.encode())
        if target not in ("slurmdbd.conf", "database.sql"):
            (layout.etc / target).chmod(0o644)


def remove_state(layout: Layout) -> None:
    """Remove the folder, if it is ours; its mark goes last."""
    if not layout.is_ours():
        return
    for entry in layout.state.iterdir():
        if entry.name == OWN_FILE:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    shutil.rmtree(layout.state)
