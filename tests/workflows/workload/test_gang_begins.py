"""Of two submissions of a name, the later one's gang is served, whatever its submitter's clock says. No server."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from temporalio import workflow

from holdfast import names
from holdfast.activities.entities.executions import PastRun, Word
from holdfast.activities.entities.last_documents import latest_begin
from holdfast.model.calls.gang import GangBegin
from holdfast.model.gang.state import Gang
from holdfast.policy.loop.submission import submitted
from holdfast.policy.values.edit import edit
from holdfast.workflows.operations.gang import Meetings
from tests.policy.lives.life import workload

pytestmark = pytest.mark.row("T1", level="pure")
BEGUN = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
GANG = Gang(min=2, max=2)


def begin(
    monkeypatch: pytest.MonkeyPatch, uid: str, *, at: datetime, says: datetime = BEGUN, number: int = 1
) -> GangBegin:
    """Return how a rendezvous is told of an attempt whose workflow began then, and whose submitter says when."""
    monkeypatch.setattr(workflow, "info", lambda: SimpleNamespace(workflow_start_time=at, start_time=at))
    told: list[GangBegin] = []

    def act(_: str, given: GangBegin, *__: Any) -> None:
        told.append(given)

    monkeypatch.setattr(Meetings, "_act", staticmethod(act))
    spec = edit(workload(2), gang=GANG, submitted_at=says)
    attempt: Any = SimpleNamespace(number=number, meeting=SimpleNamespace(gang=GANG))
    Meetings()._begun(spec, submitted(spec, at), attempt, uid)
    return told[0]


def served(*begins: GangBegin) -> GangBegin | None:
    """Return which attempt a rendezvous that is started again serves, after it was told of these."""
    first, *later = (one.model_dump(mode="json") for one in begins)
    return latest_begin(PastRun("run", (first,), {}, tuple(Word(names.SIGNAL_ATTEMPT, (one,)) for one in later)))


def test_a_submitter_whose_clock_is_behind_is_the_later_one_all_the_same(monkeypatch: pytest.MonkeyPatch):
    first = begin(monkeypatch, "first", at=BEGUN, number=3)
    second = begin(monkeypatch, "second", at=BEGUN + MINUTE, says=BEGUN - MINUTE)
    assert second.is_later(first)
    assert not first.is_later(second), "what comes late of the first changes nothing"
    assert served(first, second) == served(first, second, first) == second


def test_of_one_submission_the_attempt_decides_whichever_run_tells_of_it(monkeypatch: pytest.MonkeyPatch):
    second = begin(monkeypatch, "uid", at=BEGUN + MINUTE, number=2)
    after_a_reset = begin(monkeypatch, "uid", at=BEGUN, number=3)
    assert served(second, after_a_reset) == after_a_reset
    assert served(after_a_reset, second) == after_a_reset
    again = begin(monkeypatch, "uid", at=BEGUN + 2 * MINUTE, number=2)
    assert not again.is_later(second), "a run that continues another tells of its attempt again"
