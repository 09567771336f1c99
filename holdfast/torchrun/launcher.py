"""Reads what torchrun knows of its workers and does not tell a rendezvous handler, from the frames that call it.

This module only reads the local variables of PyTorch's `launch_agent` and `SimpleElasticAgent`, which have the same
names from 1.13 to 2.15. If they are not found, each function returns None or an empty result, and the handler works
without it.
"""

from __future__ import annotations

import inspect
import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from holdfast.agent import error_file
from holdfast.agent.messages import Failure
from holdfast.agent.workers import describe

CANNOT_START: Final = 126
"""The exit code of a shell for a command that cannot be run."""
_ASKED: Final = frozenset({-signal.SIGTERM, 128 + signal.SIGTERM})
"""The exit codes of workers that were asked to stop."""
_STOPPING: Final = frozenset({"_stop_workers", "_restart_workers", "_shutdown", "_terminate_process_handler"})
"""Functions of PyTorch's agent in which it stops workers that have not failed."""
_UNTOLD: Final = "torchrun does not say how"


def worker_spec(handler: object) -> Any | None:
    """Return the `WorkerSpec` that this handler belongs to: number of workers, role."""
    for found in _callers():
        spec = found.get("spec")
        if spec is not None and getattr(spec, "rdzv_handler", None) is handler:
            return spec
    return None


def round_result(handler: object) -> Any | None:
    """Return the `RunResult` of the round that torchrun's agent has just monitored, while the agent runs."""
    for found in _callers():
        if found.get("rdzv_handler") is handler and "run_result" in found:
            return found["run_result"]
    return None


def final_result(handler: object) -> Any | None:
    """Return the `RunResult` with which the agent ends; None if it ends by an exception.

    PyTorch 2.5 shuts the handler down in the agent, before its launcher has the result; others do so in the launcher.
    """
    for found in _callers():
        group = getattr(found.get("self"), "_worker_group", None)
        spec = found.get("spec") or getattr(group, "spec", None)
        if getattr(spec, "rdzv_handler", None) is handler:
            for name in ("result", "run_result"):
                if hasattr(found.get(name), "is_failed"):
                    return found[name]
    return None


def agent(handler: object) -> Any | None:
    """Return torchrun's agent, which owns the worker processes, while it asks this handler for a round."""
    for found in _callers():
        if getattr(found.get("spec"), "rdzv_handler", None) is handler and hasattr(found.get("self"), "_pcontext"):
            return found["self"]
    return None


def died(agent: Any, seen_running: float, thread: int) -> tuple[Failure, ...]:
    """Return the workers that have failed so far, the earliest first, before torchrun reports them (row D42).

    PyTorch stops all other workers, for up to 30 s, before it reports a failure. This function only observes the
    processes: PyTorch reaps them.

    Args:
        agent: torchrun's agent.
        seen_running: When all workers were last seen running, in seconds since the epoch.
        thread: The thread on which torchrun's agent runs.
    """
    context = getattr(agent, "_pcontext", None)
    try:
        pids: dict[int, int] = dict(context.pids()) if context is not None else {}
        files: dict[int, str] = dict(getattr(context, "error_files", None) or {})
    except Exception:  # Workers are starting, or this PyTorch differs: its own report follows later.
        return ()
    ended = {rank: code for rank, pid in pids.items() if (code := _ended(pid))}
    if not ended or _stops(thread):
        return ()
    # Once one has failed, PyTorch asks the others to stop: they have not failed by themselves.
    first = {rank: code for rank, code in ended.items() if code not in _ASKED}
    now = time.time()
    found = [_observed(rank, code, files.get(rank, ""), seen_running, now) for rank, code in first.items()]
    return tuple(sorted(found, key=lambda one: (one.at, one.local_rank)))


def _observed(rank: int, code: int, file: str, seen_running: float, now: float) -> Failure:
    told = error_file.read(file)
    if told:
        return Failure(rank, code, min(_written(file), now), told.error or describe(code))
    return Failure(rank, code, seen_running if code < 0 else now, describe(code))


def _ended(pid: int) -> int | None:
    """Return a child's exit code, or minus the signal that ended it; None if it runs or nothing is known."""
    try:
        found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except OSError:
        return None
    if found is None:
        return None
    return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status


def _stops(thread: int) -> bool:
    """Return whether torchrun's agent is stopping its workers for a reason other than a failure."""
    frame = sys._current_frames().get(thread)  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        if frame.f_code.co_name in _STOPPING:
            return True
        frame = frame.f_back
    return False


def failures(told: Iterable[Any], seen_running: float) -> tuple[Failure, ...]:
    """Return the failures of workers, the earliest first.

    Args:
        told: PyTorch's `ProcessFailure`s.
        seen_running: When all workers were last seen running, in seconds since the epoch.
    """
    found = [_failure(one, seen_running) for one in told]
    return tuple(sorted(found, key=lambda one: (one.at, one.local_rank)))


def unexplained(at: float) -> tuple[Failure, ...]:
    """Return a failure without any details."""
    return (Failure(0, 1, at, _UNTOLD),)


def not_started(error: BaseException) -> Failure | None:
    """Return the failure of workers that cannot be started, if an exception of torchrun means that; else None."""
    ours = isinstance(error, OSError) and not isinstance(error, (TimeoutError, ConnectionError))
    return Failure(0, CANNOT_START, time.time(), f"the workers cannot be started: {error}") if ours else None


def _failure(one: Any, seen_running: float) -> Failure:
    told = error_file.read(str(one.error_file))
    code = int(one.exitcode) or 1
    if told:
        # The time in the file has whole seconds only, and the earliest failure is charged: use the file's mtime.
        return Failure(int(one.local_rank), code, _written(str(one.error_file)), told.error or describe(code))
    # torchrun polls, and records whole seconds. A worker that a signal ended most likely failed first, soon after all
    # were seen running. A worker that exits because its peer is gone did so when torchrun noticed it.
    at = seen_running if code < 0 else max(seen_running, float(one.timestamp))
    return Failure(int(one.local_rank), code, at, describe(code))


def _written(path: str) -> float:
    try:
        return min(os.stat(path).st_mtime, time.time())
    except OSError:
        return time.time()


def _callers() -> Iterator[Mapping[str, Any]]:
    """Yield the local variables of each frame on the stack, from the innermost."""
    frame = inspect.currentframe()
    while frame is not None:
        yield frame.f_locals
        frame = frame.f_back
