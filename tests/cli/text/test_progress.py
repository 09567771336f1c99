"""What a command that waits shows: how far it has come, and what holds it (row E5)."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from holdfast.cli.app import app
from holdfast.cli.common.live import LiveLine
from holdfast.cli.common.options import EXIT_TIMEOUT, Chosen, NotInTime, Output, exit_code_of
from holdfast.cli.common.progress import GOALS, doing, kept, show, text
from holdfast.cli.entities.graph_text import doing as going
from holdfast.cli.workloads.watch import follow_all
from holdfast.client.views import ActivityView, StatusView
from holdfast.model import Phase, PodCounts, Reason, Status
from holdfast.model.calls.cluster import Progress
from holdfast.model.entities.graph import Item, ItemPhase
from holdfast.model.observation import Waiting
from tests.cli.page.test_graph import status as graph

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
    assert seen == "Starting, 2 of 4 pods running, 2 pending, 2 pods unschedulable: 0/8 nodes have enough cpu"


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


@pytest.mark.row("E8", level="pure")
def test_E8_a_line_of_wide_characters_does_not_wrap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    terminal = Terminal()
    LiveLine(terminal).show("Suspended: 为更重要的训练腾出节点")
    assert terminal.getvalue() == "\r\x1b[2KSuspended: 为更重要"


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


def test_E5_a_graph_says_how_far_it_has_come_and_what_is_left() -> None:
    nodes = [{"name": "fetch"}, {"name": "train", "tasks": 2}, {"name": "report"}]
    told = graph(nodes, train_0=ItemPhase.ADMITTED, train_1=ItemPhase.REFUSED, report=ItemPhase.BLOCKED)
    told.items["fetch"] = Item(phase=ItemPhase.SUCCEEDED, released=True)
    assert going(told) == "Running, under way, left: train-0 and 1 more"
    line = text("research/etl", "graph", going(told), timedelta(seconds=41), 0, 1)
    assert line == "41s: waiting until research/etl has ended: Running, under way, left: train-0 and 1 more"


async def test_E5_a_line_that_was_kept_is_erased_at_the_end_and_a_pipe_stays_empty() -> None:
    async def read(_: timedelta) -> str:
        return "1 of 2 gone"

    terminal, pipe = Terminal(), io.StringIO()
    async with asyncio.timeout(10), kept(LiveLine(terminal), read):
        await terminal.written.wait()
    async with kept(LiveLine(pipe), read):
        await asyncio.sleep(0)
    assert terminal.getvalue() == "\r\x1b[2K1 of 2 gone\r\x1b[2K"
    assert pipe.getvalue() == ""


class Waited:
    """A graph, or a workload, that does not end."""

    namespace, name = "team", "train"

    async def result(self) -> Any:
        await asyncio.Event().wait()

    async def status(self) -> Any:
        return view(Phase.RUNNING, pods=PodCounts(expected=2, running=2))

    async def under_way(self) -> tuple[ActivityView, ...]:
        return ()


async def test_E5_a_watched_workload_that_has_not_ended_in_time_says_how_far_it_has_come() -> None:
    runs: Any = [Waited(), Waited()]
    with pytest.raises(NotInTime) as late:
        await follow_all(runs, Output.TABLE, "0.2s")
    said = "team/train: not ended after 0.2s: Running, 2 of 2 pods running: `holdfast explain team/train` says what it"
    assert [line.startswith(said) for line in str(late.value).splitlines()] == [True, True], "one line for each"


def test_E5_a_graph_that_has_not_ended_in_time_has_exit_code_4(monkeypatch: pytest.MonkeyPatch) -> None:
    class Graph(Waited):
        async def status(self) -> Any:
            return graph([{"name": "fetch"}], fetch=ItemPhase.ADMITTED)

    @asynccontextmanager
    async def session(*_: Any) -> AsyncGenerator[Any]:
        yield SimpleNamespace(graph=lambda *_: Graph())

    monkeypatch.setattr("holdfast.cli.entities.graph.session", session)
    result = CliRunner().invoke(app, ["graph", "research/etl", "--wait", "--timeout", "0.2s"])
    assert result.exit_code == EXIT_TIMEOUT
    assert result.stdout == ""
    assert result.stderr == (
        "Error: research/etl: not ended after 0.2s: Running, under way, left: fetch: "
        "`holdfast graph research/etl` says what it waits for\n"
    ), "a pipe has no live line"


@pytest.mark.parametrize(
    "argv", [("graph", "x", "--timeout", "5m"), ("watch", "x", "--timeout", "soon"), ("submit", "x", "--timeout", "5m")]
)
def test_E5_a_timeout_that_cannot_be_meant_is_refused_before_anybody_is_asked(argv: tuple[str, ...]) -> None:
    assert CliRunner().invoke(app, list(argv)).exit_code == 2


def test_E5_what_is_late_has_an_exit_code_of_its_own() -> None:
    assert exit_code_of(NotInTime("late")) == EXIT_TIMEOUT == 4
