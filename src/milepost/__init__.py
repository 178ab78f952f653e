"""milepost: from a written launch contract to an evidence-based closeout.

The package is small on purpose at its top: importing it costs a few milliseconds, and
`Checkpointer` (what a solver uses) is loaded only when it is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["Checkpointer", "__version__"]

if TYPE_CHECKING:
    from milepost.checkpoint.checkpointer import Checkpointer


def __getattr__(name: str) -> Any:
    if name == "Checkpointer":
        from milepost.checkpoint.checkpointer import Checkpointer

        return Checkpointer
    raise AttributeError(f"module 'milepost' has no attribute {name!r}")
