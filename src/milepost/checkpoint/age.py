"""Keys of the `age` command: whoever has the recipient can save, only the identity can read.

Data keys go to `age` and come back through pipes; no key ever stands in a file, in the words of
a command or in its environment.
"""

from __future__ import annotations

import base64
import binascii
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from milepost.checkpoint.crypt import (
    KEY_BYTES,
    Tampered,
    UserKey,
    WrongKey,
    check_private,
    key_id_of,
)
from milepost.errors import ConfigError, DataError

_TIMEOUT_S = 60
_NO_MATCH = "no identity matched"


@dataclass(frozen=True, slots=True, repr=False)
class AgeKey(UserKey):
    """A recipient, and the file with its identity where there is one."""

    recipient: str
    identity: Path | None

    def wrap(self, secret: bytes) -> dict[str, Any]:
        done = _run(["age", "--encrypt", "--recipient", self.recipient], secret)
        if done.returncode != 0:
            raise ConfigError(f"age: {_said(done)}", where="checkpoint.encrypt.age_recipient")
        return {"wrap": "age", "wrapped_key": base64.b64encode(done.stdout).decode("ascii")}

    def unwrap(self, info: Mapping[str, Any], path: Path) -> bytes:
        try:
            wrapped = base64.b64decode(info["wrapped_key"], validate=True)
        except (KeyError, TypeError, binascii.Error) as error:
            raise DataError("its first page is damaged", where=path) from error
        if self.identity is None:
            raise WrongKey(
                "can only be read with an identity, and only the recipient is given",
                where=path,
                fix="name the file in checkpoint.encrypt: {age_identity: …}",
            )
        done = _run(["age", "--decrypt", "--identity", str(self.identity)], wrapped)
        if done.returncode == 0 and len(done.stdout) == KEY_BYTES:
            return done.stdout
        if _NO_MATCH in _said(done):
            raise WrongKey(
                "is encrypted for another recipient than this identity",
                where=path,
                fix="give the identity of the recipient that it was written for",
            )
        raise Tampered(f"its wrapped key was changed (age: {_said(done)})", where=path)


def age_key(identity: str | None, recipient: str | None) -> AgeKey:
    """The key of an identity file, of a recipient, or of both."""
    path = None if identity is None else Path(identity).expanduser()
    if path is not None:
        try:
            check_private(path)
        except OSError as error:
            raise ConfigError(
                f"the identity cannot be read ({error.strerror})", where=path
            ) from error
    if recipient is None:
        assert path is not None
        recipient = _recipient_of(path)
    return AgeKey(b"", f"age-{key_id_of(recipient.encode())}", recipient, path)


def _recipient_of(identity: Path) -> str:
    done = _run(["age-keygen", "-y", str(identity)], b"")
    lines = done.stdout.decode("utf-8", "replace").split()
    if done.returncode != 0 or not lines:
        raise ConfigError(
            f"does not tell its recipient ({_said(done)})",
            where=identity,
            fix="name it in checkpoint.encrypt.age_recipient",
        )
    return lines[0]


def _run(argv: Sequence[str], data: bytes) -> subprocess.CompletedProcess[bytes]:
    environ = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    try:
        return subprocess.run(
            argv,
            input=data,
            capture_output=True,
            env=environ,
            timeout=_TIMEOUT_S,
            start_new_session=True,
            check=False,
        )
    except FileNotFoundError as error:
        raise ConfigError(
            f"the command {argv[0]} is not there",
            where="checkpoint.encrypt",
            fix="install the package age, or use key_file",
        ) from error


def _said(done: subprocess.CompletedProcess[bytes]) -> str:
    return " ".join(done.stderr.decode("utf-8", "replace").split())[:300]
