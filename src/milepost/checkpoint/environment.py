"""Where a checkpoint was made, as far as it decides whether a restart is legal; no host names."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from milepost import __version__
from milepost.errors import DataError

_CONTAINER_NAMES = (
    "MILEPOST_CONTAINER",
    "APPTAINER_CONTAINER",
    "SINGULARITY_CONTAINER",
)


@dataclass(frozen=True, slots=True)
class Environment:
    """Digests or names that were given by the environment; None where none was given."""

    container: str | None = None
    gpu_profile: str | None = None
    code: str | None = None
    libraries: Mapping[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {
            "container": self.container,
            "gpu_profile": self.gpu_profile,
            "code": self.code,
            "libraries": dict(self.libraries),
        }

    @classmethod
    def parse(cls, value: Mapping[str, Any]) -> Environment:
        """Undo `as_json`; a wrong type is a DataError."""
        texts = {key: value.get(key) for key in ("container", "gpu_profile", "code")}
        libraries = value.get("libraries", {})
        if not all(text is None or isinstance(text, str) for text in texts.values()):
            raise DataError(f"field environment is {texts!r:.100}, expected text or null")
        if not isinstance(libraries, dict):
            raise DataError("field environment.libraries is not an object")
        return cls(**texts, libraries={str(k): str(v) for k, v in libraries.items()})


def current_environment(environ: Mapping[str, str] | None = None) -> Environment:
    """This process's environment.

    The container comes from MILEPOST_CONTAINER (a digest, set by the runner) or from what
    Apptainer and Singularity set; the GPU profile from MILEPOST_GPU_PROFILE; the code from
    MILEPOST_CODE. Libraries are those of the scientific stack that are loaded already.
    """
    env = os.environ if environ is None else environ
    container = next((env[name] for name in _CONTAINER_NAMES if env.get(name)), None)
    libraries = {"milepost": __version__, "python": platform.python_version()}
    for name in ("numpy", "scipy", "torch", "jax", "cupy", "mpi4py"):
        version = getattr(sys.modules.get(name), "__version__", None)
        if isinstance(version, str):
            libraries[name] = version
    return Environment(
        container,
        env.get("MILEPOST_GPU_PROFILE") or None,
        env.get("MILEPOST_CODE") or None,
        libraries,
    )
