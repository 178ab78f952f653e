"""A persistent worker: imports the user's callable once, then runs tasks that come by a pipe.

One JSON object per line each way, on descriptors of their own, so that whatever the callable
prints goes to the log and cannot be taken for an answer. The worker dies with its runner.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

PR_SET_PDEATHSIG = 1
TRACE_BYTES = 64 << 10


def load_callable(name: str) -> Callable[..., Any]:
    """Import `package.module:name`, the current folder first."""
    if "" not in sys.path:
        sys.path.insert(0, "")
    module, _, attribute = name.partition(":")
    function: Callable[..., Any] = getattr(importlib.import_module(module), attribute)
    return function


def run_one(function: Callable[..., Any], request: dict[str, Any]) -> dict[str, Any]:
    """Call the function on one task; the answer holds its result or its trace."""
    out = request["out"]
    params = dict(request["params"])
    if out is not None:
        Path(out).mkdir(parents=True, exist_ok=True)
        params["out"] = out
        os.environ["MILEPOST_OUT"] = out
    os.environ["MILEPOST_TASK"] = request["key"]
    started, cpu = time.monotonic(), time.process_time()
    answer: dict[str, Any] = {"key": request["key"], "exit": 0}
    try:
        returned = function(**params)
        answer["returned"] = returned if isinstance(returned, dict) else None
        line = json.dumps(answer)
    except SystemExit as stop:
        answer |= {"exit": stop.code if isinstance(stop.code, int) else 1, "returned": None}
        answer["trace"] = f"SystemExit: {stop.code}"
    except Exception:  # noqa: BLE001 - whatever a task raises is its result, told to the runner
        answer |= {"exit": 1, "returned": None, "trace": traceback.format_exc()[-TRACE_BYTES:]}
    else:
        answer = json.loads(line)
    sys.stdout.flush()
    if "trace" in answer:
        print(answer["trace"], file=sys.stderr, flush=True)
    answer["seconds"] = time.monotonic() - started
    answer["cpu_s"] = time.process_time() - cpu
    answer["max_rss_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    return answer


def main() -> None:
    """Serve requests from descriptor argv[2], answers on argv[3], until the pipe ends."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(sys.argv[4]):
        sys.exit(1)  # the runner ended before the line above took effect
    function = load_callable(sys.argv[1])
    with (
        os.fdopen(int(sys.argv[2]), "r", encoding="utf-8") as requests,
        os.fdopen(int(sys.argv[3]), "w", encoding="utf-8") as answers,
    ):
        for line in requests:
            json.dump(run_one(function, json.loads(line)), answers)
            answers.write("\n")
            answers.flush()


if __name__ == "__main__":
    main()
