"""Encryption of data files: AES-256-GCM under a key of their own, wrapped by the user's key.

Each data file has a fresh random data key, so a block's number in the file is a nonce that is
never used twice. A wrong key, tampering and damage are three different errors.
"""

from __future__ import annotations

import base64
import binascii
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from milepost.errors import ConfigError, DataError, Refused

KEY_BYTES = 32
TAG_BYTES = 16
CIPHER = "AES-256-GCM"
_WRAP_AAD = b"milepost data key v1"
_ID_CONTEXT = "milepost 2026 checkpoint key id v1"
_BLOCK, _TAIL = b"blk1", b"tail"


class WrongKey(Refused):
    """The data is encrypted under another key than the one given, or none was given."""


class Tampered(DataError):
    """The stored bytes match their digest, but they are not what the holder of the key wrote."""


@dataclass(frozen=True, slots=True)
class UserKey:
    """The user's key; `key_id` names it without telling it. It wraps the keys of data files."""

    secret: bytes
    key_id: str

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.key_id})"

    def wrap(self, secret: bytes) -> dict[str, Any]:
        """What a first page says of the data key `secret`, besides cipher and key id."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        nonce = os.urandom(12)
        wrapped = AESGCM(self.secret).encrypt(nonce, secret, _WRAP_AAD)
        return {"nonce": nonce.hex(), "wrapped_key": wrapped.hex()}

    def unwrap(self, info: Mapping[str, Any], path: Path) -> bytes:
        """Undo `wrap`; Tampered when it was changed, DataError when it is no wrapped key."""
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        try:
            nonce, wrapped = bytes.fromhex(info["nonce"]), bytes.fromhex(info["wrapped_key"])
            return AESGCM(self.secret).decrypt(nonce, wrapped, _WRAP_AAD)
        except (KeyError, TypeError, ValueError) as error:
            raise DataError("its first page is damaged", where=path) from error
        except InvalidTag as error:
            raise Tampered("its wrapped key was changed", where=path) from error


class DataKey:
    """The key of one data file."""

    def __init__(self, secret: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._aead = AESGCM(secret)

    def encrypt_block(self, number: int, data: bytes | memoryview, into: memoryview) -> int:
        """Encrypt a block into the buffer `into`; returns the length (16 bytes more)."""
        nonce = number.to_bytes(8, "little") + _BLOCK
        if hasattr(self._aead, "encrypt_into"):
            return int(self._aead.encrypt_into(nonce, data, None, into[: len(data) + TAG_BYTES]))
        sealed = self._aead.encrypt(nonce, bytes(data), None)
        into[: len(sealed)] = sealed
        return len(sealed)

    def decrypt_block(self, number: int, data: bytes | memoryview) -> bytes:
        return self._open(number.to_bytes(8, "little") + _BLOCK, data, f"block {number}")

    def encrypt_tail(self, data: bytes) -> bytes:
        return self._aead.encrypt(bytes(8) + _TAIL, data, None)

    def decrypt_tail(self, data: bytes) -> bytes:
        return self._open(bytes(8) + _TAIL, data, "the tail")

    def _open(self, nonce: bytes, data: bytes | memoryview, what: str) -> bytes:
        from cryptography.exceptions import InvalidTag

        try:
            return self._aead.decrypt(nonce, bytes(data), None)
        except InvalidTag as error:
            raise Tampered(
                f"{what} is intact by its digest but not authentic: somebody changed it",
                fix="find out who can write there; restore from another tier",
            ) from error


def new_data_key(user: UserKey) -> tuple[DataKey, dict[str, Any]]:
    """A fresh data key, and what the first page of its file says about it."""
    secret = os.urandom(KEY_BYTES)
    return DataKey(secret), wrapped_key(secret, user)


def wrapped_key(secret: bytes, user: UserKey) -> dict[str, Any]:
    """What the first page of a file says about its data key `secret`."""
    return {"cipher": CIPHER, "key_id": user.key_id, **user.wrap(secret)}


def open_data_key(info: Mapping[str, Any], user: UserKey | None, path: Path) -> DataKey:
    """The data key of the file `path`; WrongKey or Tampered when it cannot be had."""
    return DataKey(unwrapped_key(info, user, path))


def unwrapped_key(info: Mapping[str, Any], user: UserKey | None, path: Path) -> bytes:
    """The bytes of the data key of the file `path`; errors as `open_data_key`."""
    if info.get("cipher") != CIPHER:
        raise DataError(f"is encrypted with {info.get('cipher')!r}, not {CIPHER}", where=path)
    _check_key_id(info.get("key_id"), user, path)
    assert user is not None
    return user.unwrap(info, path)


def load_key(encrypt: Mapping[str, Any] | None) -> UserKey | None:
    """The user's key, as `encrypt` names it; None without `encrypt`.

    `{key_file: path}` or `{key_env: NAME}`: 32 bytes, raw, as 64 hexadecimal digits, or as base64.
    `{age_identity: path, age_recipient: text}`: keys of the age command; the recipient alone can
    save, the identity alone can both. A file with a key that others may read is refused.
    """
    given = {name: value for name, value in (encrypt or {}).items() if value}
    if not encrypt:
        return None
    ways: list[str] = [name for name in ("key_file", "key_env") if name in given]
    ways += ["age"] if {"age_identity", "age_recipient"} & set(given) else []
    if len(ways) != 1:
        raise ConfigError(
            "encrypt needs key_file, or key_env, or age_identity and age_recipient",
            where="checkpoint.encrypt",
        )
    if ways == ["age"]:
        from milepost.checkpoint.age import age_key

        return age_key(given.get("age_identity"), given.get("age_recipient"))
    if ways == ["key_file"]:
        data, where = _from_file(Path(str(given["key_file"])).expanduser())
    else:
        data, where = _from_env(str(given["key_env"]))
    secret = _parse_key(data, where)
    return UserKey(secret, key_id_of(secret))


def key_id_of(key: bytes) -> str:
    """A name for a key that does not tell it."""
    from blake3 import blake3

    return blake3(key, derive_key_context=_ID_CONTEXT).hexdigest(8)


def _check_key_id(wanted: object, user: UserKey | None, path: Path) -> None:
    if user is None:
        raise WrongKey(
            f"is encrypted under the key {wanted}, and no key is given",
            where=path,
            fix="name it in checkpoint.encrypt: {key_file: …} or {key_env: …}",
        )
    if wanted != user.key_id:
        raise WrongKey(
            f"is encrypted under the key {wanted}, but the key given is {user.key_id}",
            where=path,
            fix="give the key that was used when it was written",
        )


def check_private(path: Path) -> None:
    """Refuse a key file that others than its owner may read."""
    mode = path.stat().st_mode
    if stat.S_IMODE(mode) & 0o077:
        raise Refused(
            f"the key file may be read by others (mode {stat.S_IMODE(mode):04o})",
            where=path,
            fix=f"chmod 600 {path}",
        )


def _from_file(path: Path) -> tuple[bytes, str]:
    try:
        check_private(path)
        return path.read_bytes(), str(path)
    except OSError as error:
        raise ConfigError(f"the key file cannot be read ({error.strerror})", where=path) from error


def _from_env(name: str) -> tuple[bytes, str]:
    value = os.environ.get(name)
    if not value:
        raise ConfigError(f"the environment variable {name} holds no key", where="key_env")
    return value.encode(), name


def _parse_key(data: bytes, where: str) -> bytes:
    if len(data) == KEY_BYTES:
        return data
    text = data.strip()
    for decode in (bytes.fromhex, lambda t: base64.b64decode(t, validate=True)):
        try:
            secret: bytes = decode(text.decode("ascii"))
        except (ValueError, binascii.Error):
            continue
        if len(secret) == KEY_BYTES:
            return secret
    raise ConfigError(
        "the key is not 32 bytes",
        where=where,
        fix="make one with: head -c 32 /dev/urandom | base64 > key; chmod 600 key",
    )
