"""What a command that waits shows: how far it has come, and what holds it (row E5)."""

from __future__ import annotations

import asyncio
import io
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.cli.common.live import LiveLine
from holdfast.cli.common.options import EXIT_TIMEOUT, Chosen, NotInTime, exit_code_of
from holdfast.cli.common.progress import GOALS, doing, show, text
from holdfast.client.views import ActivityView, StatusView
from holdfast.model import Phase, PodCounts, Reason, Status
from holdfast.model.calls.cluster import Progress
from holdfast.model.observation import Waiting

pytestmark = pytest.mark.row("E5", level="pure")
NOW = datetime(2026, 1, 31, 2, 14, 50, tzinfo=UTC)


def view(phase: Phase, **fields: Any) -> StatusView:
    given: dict[str, Any] = {"name": "train", "namespace": "team", "cluster": "dev", "uid": "u", "reason": Reason.HELD}
    return StatusView(status=Status.model_validate({**given, "phase": phase, "since": NOW, **fields}), fresh=True)


def removing(**fields: Any) -> ActivityView:
    beat = Progress(doing="waiting for what is being deleted", **fields).model_dump(mode="json", by_alias=True)
    return ActivityView(type="remove", state="Started", attempt=1, heartbeat=(beat,))


def test_E5_a_removal_counts_the_pods_that_are_gone_and_says_what_holds_it() -> None:
    held = "Pod worker-3 (finalizer example.com/hold)"
    seen = doing(
        view(Phase.SUSPENDING, pods=PodCounts(expected=64)),
        (removing(remaining=(held, "Pod worker-4"), remaining_total=4, pods=3),),
        NOW,
    )
    assert seen == f"Suspending, 61 of 64 pods gone, left: {held} and 3 more"
    line = text("team/train", "suspend", seen, timedelta(seconds=41), 0, 1)
    assert line == f"41s: waiting until team/train is Suspended: {seen}"


def test_E5_more_pods_than_are_expected_are_not_less_than_none_gone() -> None:
    seen = doing(view(Phase.TERMINATING, pods=PodCounts(expected=2)), (removing(pods=5),), NOW)
    assert seen == "Terminating, 0 of 5 pods gone"


def test_E5_a_start_counts_the_pods_that_run_and_says_what_they_wait_for() -> None:
    waits = (Waiting(reason="Unschedulable", count=2, message="0/8 nodes have enough cpu"),)
    seen = doing(view(Phase.RESUMING, pods=PodCounts(expected=4, running=2, pending=2), waiting=waits), (), NOW)
    assert seen == "Resuming, 2 of 4 pods running, 2 pending, 2 pods unschedulable: 0/8 nodes have enough cpu"


def test_E5_anything_else_is_said_in_its_own_words() -> None:
    assert doing(view(Phase.PENDING, message="it waits in queue gpus"), (), NOW) == "Pending, it waits in queue gpus"
    late = ActivityView(type="remove", state="Scheduled", attempt=1, since=NOW - timedelta(seconds=90))
    assert "no worker of this cluster has taken it for 90s" in doing(view(Phase.SUSPENDING), (late,), NOW)


def test_E5_of_several_it_is_said_how_many_are_done() -> None:
    line = text("team/c", "cancel", "Terminating", timedelta(minutes=3, seconds=12), 2, 5)
    assert line == "2 of 5 done, 3m12s: waiting until team/c is gone: Terminating"
    assert text("team/c", "cancel", "", timedelta(0), 0, 1) == "0s: waiting until team/c is gone"
    assert set(GOALS) == {"suspend", "resume", "preempt", "checkpoint", "cancel", "retry", "graph"}


class Terminal(io.StringIO):
    def __init__(self) -> None:
        super().__init__()
        self.written = asyncio.Event()

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.written.set()
        return super().write(text)


def test_E5_a_line_is_overwritten_on_a_terminal_and_never_written_into_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    terminal, pipe = Terminal(), io.StringIO()
    for stream in (terminal, pipe):
        line = LiveLine(stream)
        line.show("61 of 64 pods gone\x1b[2J, left: Pod worker-3")
        line.erase()
    assert pipe.getvalue() == ""
    shown = terminal.getvalue().split("\r\x1b[2K")
    assert shown[0] == shown[2] == ""
    assert shown[1].startswith("61 of 64 pods gone")
    assert len(shown[1]) == 19
    assert "\x1b" not in shown[1], "what others have written moves no cursor"
    assert LiveLine(Terminal(), wanted=False).on is False


async def test_E5_what_has_not_been_asked_yet_is_not_done() -> None:
    async def status() -> StatusView:
        return view(Phase.SUSPENDING, message="asked")

    async def under_way() -> tuple[ActivityView, ...]:
        return ()

    run: Any = SimpleNamespace(status=status, under_way=under_way)
    terminal = Terminal()
    showing = asyncio.create_task(show(LiveLine(terminal), {Chosen("team", "b"): run}, ["a"], "suspend", 5))
    async with asyncio.timeout(10):
        await terminal.written.wait()
    showing.cancel()
    assert "1 of 5 done, 0s: waiting until team/b is Suspended: Suspending, asked" in terminal.getvalue()


def test_E5_what_is_late_has_an_exit_code_of_its_own() -> None:
    assert exit_code_of(NotInTime("late")) == EXIT_TIMEOUT == 4
