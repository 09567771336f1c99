"""What is read of torchrun's frames: in PyTorch's own by `test_torchrun`, and here where they are not as expected."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.agent.messages import Failure
from holdfast.torchrun import launcher


def failure(code: int, path: str = "<N/A>", timestamp: int = 1000, local_rank: int = 0) -> Any:
    """As PyTorch's `ProcessFailure` has it."""
    return SimpleNamespace(local_rank=local_rank, exitcode=code, error_file=path, timestamp=timestamp)


def test_frames_of_another_shape_tell_nothing() -> None:
    handler = object()
    assert launcher.worker_spec(handler) is None
    assert launcher.round_result(handler) is None
    assert launcher.final_result(handler) is None


def test_anothers_frames_are_not_ones_own() -> None:
    handler, other = object(), object()

    def agent(rdzv_handler: object, run_result: object) -> object:
        return launcher.round_result(handler)

    assert agent(other, "another's") is None
    assert agent(handler, "its own") == "its own"


class Result:
    """A `RunResult`, as far as it is recognised."""

    def __init__(self, *, failed: bool) -> None:
        self.failed = failed

    def is_failed(self) -> bool:
        return self.failed


class Agent:
    """Calls a handler's shutdown from where the agents of some releases do."""

    def __init__(self, handler: object) -> None:
        self._worker_group = SimpleNamespace(spec=SimpleNamespace(rdzv_handler=handler))
        self.handler = handler

    def run(self, result: object) -> object:
        return launcher.final_result(self.handler)

    def _invoke_run(self, run_result: object) -> object:
        spec = self._worker_group.spec
        assert spec.rdzv_handler is self.handler
        return launcher.final_result(self.handler)


@pytest.mark.row("D41", level="pure")
def test_D41_a_result_is_found_where_pytorch_2_5_shuts_down_within_its_agent() -> None:
    agent, failed = Agent(object()), Result(failed=True)
    assert agent._invoke_run(failed) is failed, "as it stops its workers for good"
    assert agent.run(failed) is failed, "as it has ended"
    assert agent.run("no result yet") is None

    def launch_agent(spec: object, result: object) -> object:
        return launcher.final_result(agent.handler)

    assert launch_agent(agent._worker_group.spec, failed) is failed, "as the launchers of other releases do"
    assert launch_agent(Agent(object())._worker_group.spec, failed) is None


def test_what_a_signal_ended_is_taken_to_have_fallen_first() -> None:
    gave_up, killed = failure(1, local_rank=0), failure(-9, local_rank=1)
    found = launcher.failures([gave_up, killed], seen_running=999.5)
    assert found == (Failure(1, -9, 999.5, "signal 9 (SIGKILL)"), Failure(0, 1, 1000.0, "exit code 1"))


def test_what_has_written_its_error_failed_when_it_wrote_it(tmp_path: Path) -> None:
    path = tmp_path / "error.json"
    path.write_text(json.dumps({"message": {"message": "no GPU", "extraInfo": {"timestamp": "1000"}}}))
    os.utime(path, (1000.25, 1000.25))
    (found,) = launcher.failures([failure(1, str(path))], seen_running=999.0)
    assert found == Failure(0, 1, 1000.25, "no GPU")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (FileNotFoundError("train"), "the workers cannot be started: train"),
        (PermissionError("train"), "the workers cannot be started: train"),
        (ConnectionResetError("store"), None),
        (TimeoutError("store"), None),
        (RuntimeError("store"), None),
    ],
)
def test_only_what_keeps_workers_from_starting_is_their_failure(error: Exception, words: str | None) -> None:
    found = launcher.not_started(error)
    assert (found.error if found else None) == words
    assert found is None or found.code == 126


@pytest.fixture
def workers() -> Iterator[Any]:
    """Two worker processes, as torchrun's agent has them: one runs, one has failed with 3 and is not reaped yet."""
    runs, failed = subprocess.Popen(["sleep", "60"]), subprocess.Popen(["sh", "-c", "exit 3"])
    os.waitid(os.P_PID, failed.pid, os.WEXITED | os.WNOWAIT)
    context = SimpleNamespace(pids=lambda: {0: runs.pid, 1: failed.pid}, error_files={})
    yield SimpleNamespace(_pcontext=context, runs=runs, failed=failed)
    runs.kill()
    runs.wait()
    failed.wait()


@pytest.mark.row("D42", level="pure")
def test_D42_a_worker_that_has_failed_is_seen_before_torchrun_says_so_and_is_left_for_it_to_reap(workers: Any) -> None:
    before = time.time()
    (found,) = launcher.died(workers, 999.5, threading.get_ident())
    assert (found.local_rank, found.code, found.error) == (1, 3, "exit code 3")
    assert before <= found.at <= time.time()
    assert workers.failed.wait() == 3, "its code is there for PyTorch"
    assert launcher.died(workers, 999.5, threading.get_ident()) == (), "and what PyTorch has reaped is its to tell"


@pytest.mark.row("D42", level="pure")
def test_D42_what_a_signal_ended_ran_when_it_was_last_seen_and_who_was_asked_to_has_not_failed(
    workers: Any,
) -> None:
    workers.failed.wait()
    workers.runs.kill()
    os.waitid(os.P_PID, workers.runs.pid, os.WEXITED | os.WNOWAIT)
    assert launcher.died(workers, 999.5, threading.get_ident()) == (Failure(0, -9, 999.5, "signal 9 (SIGKILL)"),)
    asked = subprocess.Popen(["sleep", "60"])
    asked.terminate()
    os.waitid(os.P_PID, asked.pid, os.WEXITED | os.WNOWAIT)
    agent = SimpleNamespace(_pcontext=SimpleNamespace(pids=lambda: {0: asked.pid}))
    assert launcher.died(agent, 999.5, threading.get_ident()) == ()
    asked.wait()


@pytest.mark.row("D42", level="pure")
def test_D42_what_ends_while_torchrun_stops_its_workers_has_not_failed(workers: Any) -> None:
    def _stop_workers() -> tuple[Failure, ...]:
        return launcher.died(workers, 999.5, threading.get_ident())

    assert _stop_workers() == ()


def test_an_agent_of_another_shape_tells_nothing() -> None:
    assert launcher.died(object(), 0.0, threading.get_ident()) == ()
    assert launcher.died(SimpleNamespace(_pcontext=SimpleNamespace()), 0.0, threading.get_ident()) == ()
