"""What torchrun knows of its workers and does not tell a rendezvous handler: read from the frames that call it.

Everything here only looks, at the local variables of PyTorch's `launch_agent` and `SimpleElasticAgent`, which are named
alike from 1.13 to 2.15. Where they are not found, each function says so by what it returns, and the handler does
without.
"""

from __future__ import annotations

import inspect
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from holdfast.agent import error_file
from holdfast.agent.messages import Failure
from holdfast.agent.workers import describe

CANNOT_START: Final = 126
"""As a shell has it for a command that cannot be run."""
_UNTOLD: Final = "torchrun does not say how"


def worker_spec(handler: object) -> Any | None:
    """Return the `WorkerSpec` that this handler belongs to: workers, role."""
    for found in _callers():
        spec = found.get("spec")
        if spec is not None and getattr(spec, "rdzv_handler", None) is handler:
            return spec
    return None


def round_result(handler: object) -> Any | None:
    """Return the `RunResult` of the round that torchrun's agent has just looked at, while the agent runs."""
    for found in _callers():
        if found.get("rdzv_handler") is handler and "run_result" in found:
            return found["run_result"]
    return None


def final_result(handler: object) -> Any | None:
    """Return the `RunResult` with which the agent has ended; None if it has not, but by an exception."""
    for found in _callers():
        if getattr(found.get("spec"), "rdzv_handler", None) is handler and "result" in found:
            return found["result"]
    return None


def failures(told: Iterable[Any], seen_running: float) -> tuple[Failure, ...]:
    """Return how workers failed, the earliest first.

    Args:
        told: PyTorch's `ProcessFailure`s.
        seen_running: When all workers were last seen running, in seconds since the epoch.
    """
    found = [_failure(one, seen_running) for one in told]
    return tuple(sorted(found, key=lambda one: (one.at, one.local_rank)))


def unexplained(at: float) -> tuple[Failure, ...]:
    """Return a failure of which nothing is known but that it was one."""
    return (Failure(0, 1, at, _UNTOLD),)


def not_started(error: BaseException) -> Failure | None:
    """Return the failure that an exception of torchrun's stands for: workers that cannot be started; else None."""
    ours = isinstance(error, OSError) and not isinstance(error, (TimeoutError, ConnectionError))
    return Failure(0, CANNOT_START, time.time(), f"the workers cannot be started: {error}") if ours else None


def _failure(one: Any, seen_running: float) -> Failure:
    told = error_file.read(str(one.error_file))
    code = int(one.exitcode) or 1
    if told:
        # The file's own time has whole seconds only, and the earliest failure is the one that is charged.
        return Failure(int(one.local_rank), code, _written(str(one.error_file)), told.error or describe(code))
    # torchrun only looks now and then, and notes whole seconds. What a signal ended fell first, more likely than not,
    # soon after all were seen running; who merely gave up, as those do whose peer is gone, did so when it was noticed.
    at = seen_running if code < 0 else max(seen_running, float(one.timestamp))
    return Failure(int(one.local_rank), code, at, describe(code))


def _written(path: str) -> float:
    try:
        return min(os.stat(path).st_mtime, time.time())
    except OSError:
        return time.time()


def _callers() -> Iterator[Mapping[str, Any]]:
    """Yield the local variables of all that is being called here, from the inside out."""
    frame = inspect.currentframe()
    while frame is not None:
        yield frame.f_locals
        frame = frame.f_back
