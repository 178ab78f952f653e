"""Look into configuration data that may be wrong anywhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from milepost.config.schema import Problem, key_path

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class View:
    """A place in the data. What is missing or of another type reads as None, never as an error:
    the schema has reported it already."""

    data: Any
    path: tuple[str | int, ...] = ()

    def at(self, *path: str | int) -> View:
        data = self.data
        for part in path:
            is_key = isinstance(data, Mapping) and part in data
            is_index = isinstance(data, list) and isinstance(part, int) and part < len(data)
            data = data[part] if is_key or is_index else None
        return View(data, (*self.path, *path))

    def has(self, key: str) -> bool:
        """Is the key written and not null?"""
        return self.at(key).data is not None

    def get(self, kind: type[T], *path: str | int) -> T | None:
        data = self.at(*path).data
        return data if isinstance(data, kind) and type(data) is not bool else None

    def text(self, *path: str | int) -> str | None:
        return self.get(str, *path) or None

    def items(self, *path: str | int) -> Iterator[View]:
        """The members of a list, or of a mapping in its order."""
        inner = self.at(*path)
        keys: Iterator[Any] = iter(())
        if isinstance(inner.data, Mapping):
            keys = iter(inner.data)
        elif isinstance(inner.data, list):
            keys = iter(range(len(inner.data)))
        return (inner.at(key) for key in keys)

    @property
    def key(self) -> str:
        return key_path(self.path)

    @property
    def name(self) -> str:
        return str(self.path[-1])

    def wrong(self, says: str) -> Problem:
        return Problem(self.key, says)
