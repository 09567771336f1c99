"""What is read of torchrun's frames: in PyTorch's own by `test_torchrun`, and here where they are not as expected."""

from __future__ import annotations

import json
import os
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
