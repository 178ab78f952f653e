"""The report of a closeout: one self-contained HTML page."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from milepost.evidence.closing import Closing


def render(closing: Closing, record: dict[str, Any]) -> str:
    """The page as text."""
    rows = "".join(
        f"<li>{html.escape(str(i['holds']))}: {html.escape(i['title'])}: {html.escape(i['evidence'])}</li>"
        for i in record["items"]
    )
    return f"<!doctype html><meta charset=utf-8><h1>{html.escape(record['verdict'])}</h1><ul>{rows}</ul>\n"
