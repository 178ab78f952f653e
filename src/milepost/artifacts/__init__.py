"""Do the expected artifacts verify? A folder and a check in, proofs of its files out.

A check is written in the config as `{path, check, and the options of that check}`; CHECKS lists
the kinds with their options. config/README.md describes them for people.
"""

from __future__ import annotations

from milepost.artifacts.checks import CHECKS, check_artifact
from milepost.artifacts.proofs import verify_proofs

__all__ = ["CHECKS", "check_artifact", "verify_proofs"]
