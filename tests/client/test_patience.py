"""Whoever waits goes on, though Temporal or its workers are away (row D52)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.cli.common.options import exit_code_of
from holdfast.client import patience, submission
from holdfast.client.connection import Place
from holdfast.client.patience import Patience
from holdfast.client.run import Run
from holdfast.client.views import StatusView
from holdfast.errors import EndedFirst, HoldfastError, NotAnswering, NotReachable
from holdfast.model import Phase, Reason, Status

AWAY = NotReachable("Temporal", "here:7233", "start it", "refused", passing=True)
SILENT = NotAnswering("provisioner/dev: no worker answers: last poll 12s ago")


class Answers:
    """What is raised, in order; then an answer."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)

    async def __call__(self) -> str:
        if self.errors:
            raise self.errors.pop(0)
        return "done"


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "PAUSE", 0.0)


@pytest.mark.row("D52", level="pure")
async def test_D52_an_outage_of_temporal_and_one_of_its_workers_are_waited_through_and_said_once_each(
    caplog: pytest.LogCaptureFixture,
):
    one = Patience()
    with caplog.at_level(logging.WARNING):
        assert await one.ask(Answers(AWAY, AWAY, AWAY)) == "done"
        assert await one.ask(Answers(SILENT, SILENT)) == "done"
    assert [record.getMessage() for record in caplog.records] == [
        "Temporal at here:7233 does not answer (refused): still waiting; what was submitted runs on",
        "Temporal answers again",
        f"{SILENT}: still waiting",
        "a worker answers again",
    ]


@pytest.mark.parametrize(
    "error", [HoldfastError("refused"), NotReachable("Temporal", "here", "ask for the rights", "denied")]
)
async def test_what_is_refused_is_not_waited_for(error: HoldfastError):
    with pytest.raises(type(error)):
        await Patience().ask(Answers(error))


class Ending(Run):
    """A run whose recorded status is known: it has ended, or is held."""

    async def watch(self) -> AsyncIterator[StatusView]:
        status = Status.model_validate(
            {"name": "train", "namespace": "team", "cluster": "dev", "uid": "u", "since": "2026-01-01T00:00:00Z"}
            | {"phase": self.uid, "reason": Reason.RETRY_LIMIT_EXCEEDED, "message": "restarts 3 of 3"}
            | ({"reason": Reason.HELD} if self.uid == Phase.PENDING else {})
        )
        yield StatusView(status=status, fresh=False, closed=status.reason is not Reason.HELD)


def ending(phase: Phase) -> Run:
    nobody: Any = None
    return Ending(nobody, Place("here:7233", "default"), "workload/dev/team/train", phase.value)


@pytest.mark.row("E5", level="pure")
@pytest.mark.parametrize(("phase", "code"), [(Phase.FAILED, 1), (Phase.CANCELLED, 2)])
async def test_E5_what_ends_before_what_is_waited_for_says_how_and_a_failure_has_its_exit_code(phase: Phase, code: int):
    with pytest.raises(EndedFirst, match=f"ended {phase.value} before that was reached: restarts 3 of 3") as told:
        await ending(phase).until(lambda status: status.phase is Phase.RUNNING)
    assert exit_code_of(told.value) == code


@pytest.mark.row("E5", level="pure")
@pytest.mark.parametrize("kind", ["", "jobset/"])
async def test_E5_what_is_held_is_told_with_the_commands_that_a_person_may_paste(kind: str):
    nobody: Any = None
    held = Ending(nobody, Place("here:7233", "default"), f"workload/dev/team/{kind}train", Phase.PENDING.value)
    with pytest.raises(HoldfastError) as told:
        await held.until(lambda status: status.phase is Phase.RUNNING)
    assert str(told.value) == (
        "team/train on cluster dev is held until a person decides: restarts 3 of 3; "
        f"`holdfast retry team/{kind}train` removes what is there and begins a new attempt, "
        f"`holdfast cancel team/{kind}train` removes it and ends"
    )


async def test_a_size_that_no_gang_can_have_is_refused_before_anybody_is_asked():
    with pytest.raises(HoldfastError) as told:
        await ending(Phase.RUNNING).scale(0)
    assert "cannot have that size: max: expected greater than or equal to 1 (found 0)" in str(told.value)


def test_a_run_that_was_started_with_what_is_no_workload_says_which_field():
    with pytest.raises(HoldfastError) as told:
        ending(Phase.FAILED)._started_with({"name": "Bad Name"})  # pyright: ignore[reportPrivateUsage] as read
    assert "was started with what is no workload: " in str(told.value)
    assert "name: 'Bad Name': expected a Kubernetes name" in str(told.value)
    assert "\n" not in str(told.value)


@pytest.mark.row("D53", level="pure")
async def test_D53_a_submission_that_makes_way_does_not_wait_for_temporal_without_end(monkeypatch: pytest.MonkeyPatch):
    """The cancel is taken; then Temporal is away."""
    sent = list[str]()

    async def memo() -> dict[str, str]:
        return {}

    async def signal(name: str, **_: Any) -> None:
        sent.append(name)

    async def away(*_: object) -> None:
        raise AWAY

    monkeypatch.setattr(submission, "MAKING_WAY", timedelta(seconds=0.2))
    monkeypatch.setattr(submission, "_POLL_LONGEST", 0.1)
    monkeypatch.setattr(submission, "describe", away)
    earlier: Any = SimpleNamespace(id="workload/dev/team/train", run_id="run", memo=memo)
    client: Any = SimpleNamespace(get_workflow_handle=lambda *_, **__: SimpleNamespace(signal=signal))
    with pytest.raises(
        HoldfastError, match=r"the cancel of workload/dev/team/train was sent, and nothing was submitted"
    ):
        async with asyncio.timeout(30):
            await submission.make_way(client, Place("here", "default"), submission.InTheWay(earlier, (Phase.PENDING,)))
    assert sent == ["cancel"]
