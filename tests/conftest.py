"""Stands here so that pytest puts this folder on the path: tests may import `helpers`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from helpers.browser import Browser, browser


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """One headless browser for all tests of pages."""
    with browser() as started:
        yield started
