"""The plan as one page for people."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from typing import Any


def report_html(plan: Mapping[str, Any]) -> str:
    """A self-contained page; a function of plan.json alone."""
    return (
        f"<!doctype html><meta charset=utf-8><pre>{html.escape(json.dumps(plan, indent=2))}</pre>\n"
    )
