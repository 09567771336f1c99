"""A workload that waits for its graph: nothing of it begins before, and its graph hears what it came to (row L31)."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.model import Phase, Reason, Workload
from holdfast.model.entities.graph import GraphNews, GraphOrder, Place
from holdfast.policy.loop.submission import submitted
from holdfast.policy.status.blocked import owed, waiting
from holdfast.policy.values.events import Cancelled, GraphMissing, GraphOrdered, GraphTold, Resumed, Retried, Suspended
from tests.policy.lives.life import Life, workload

pytestmark = pytest.mark.row("L31", level="pure")
UID = "uid-1"


def placed(**fields: Any) -> Workload:
    return workload(2, graph=Place(graph="etl", item="train"), **fields)


def begun(spec: Workload | None = None) -> Life:
    life = Life(spec or placed())
    life.state = submitted(life.spec, life.now)
    return life.settle()


def order(admit: bool = True) -> GraphOrdered:
    reason = Reason.QUEUED if admit else Reason.DEPENDENCY_UNSATISFIABLE
    return GraphOrdered(GraphOrder(workload_uid=UID, admit=admit, reason=reason, why="extract (Success)"))


def hear(life: Life) -> GraphNews | None:
    """Tell its graph what it has yet to hear; returns that."""
    news = owed(life.spec, life.state, UID)
    if news is not None:
        life.tell(GraphTold(news))
    return news


def test_L31_nothing_of_it_begins_before_its_graph_says_so():
    life = begun()
    assert (life.state.phase, life.state.reason) == (Phase.PENDING, Reason.BLOCKED)
    assert life.state.message == "it waits for its graph, etl"
    assert life.ran == []
    assert hear(life) == GraphNews(item="train", workload_uid=UID)
    assert hear(life) is None
    life.tell(order())
    assert life.state.attempt is not None
    assert life.state.attempt.number == 1
    assert [cause.message for cause in life.state.causes][:1] == ["extract (Success)"]
    assert hear(life) is None


def test_L31_what_it_waits_for_is_told_where_its_graph_is_not_there():
    life = begun()
    life.tell(GraphMissing("its graph, etl, is not there"))
    assert (life.state.phase, life.state.message) == (Phase.PENDING, "its graph, etl, is not there")
    news = owed(life.spec, life.state, UID)
    assert news is not None
    life.tell(GraphTold(news, waiting(life.spec)))
    assert (life.state.phase, life.state.message) == (Phase.PENDING, "it waits for its graph, etl")
    life.tell(order())
    assert life.state.blocked == ""
    life.tell(GraphTold(news, waiting(life.spec)))
    assert life.state.blocked == ""


def test_L31_it_is_let_in_once_and_for_good():
    life = begun()
    life.tell(order())
    life.tell(GraphMissing("late"))
    life.tell(order())
    assert life.state.blocked == ""
    assert [cause.message for cause in life.state.causes].count("extract (Success)") == 1


def test_L31_what_cannot_begin_any_more_is_cancelled_with_nothing_ever_made():
    life = begun()
    hear(life)
    life.tell(order(admit=False))
    assert (life.state.phase, life.state.reason) == (Phase.CANCELLED, Reason.DEPENDENCY_UNSATISFIABLE)
    assert life.ran == []
    assert hear(life) == GraphNews(item="train", workload_uid=UID, outcome=Phase.CANCELLED, released=True)


def test_L31_one_that_runs_is_removed_where_its_graph_is_cancelled():
    life = begun()
    life.tell(order()).runs()
    life.tell(order(admit=False))
    assert life.state.phase is Phase.CANCELLED
    assert life.state.attempt is not None
    assert life.state.attempt.gone_at is not None


def test_it_may_be_cancelled_and_suspended_while_it_waits():
    life = begun()
    life.tell(Suspended("later"))
    assert life.state.phase is Phase.SUSPENDED
    life.tell(order())
    assert life.state.phase is Phase.SUSPENDED
    life.tell(Resumed())
    assert life.state.attempt is not None
    life = begun()
    life.tell(Suspended("later")).tell(Resumed())
    assert (life.state.phase, life.state.reason) == (Phase.PENDING, Reason.BLOCKED)
    life.tell(Cancelled("not wanted"))
    assert (life.state.phase, life.state.reason) == (Phase.CANCELLED, Reason.CANCEL_REQUESTED)


def test_a_retry_does_not_push_it_in():
    life = begun()
    life.tell(Retried("now"))
    assert life.ran == []
    assert life.state.reason is Reason.BLOCKED


def test_L31_its_graph_hears_of_its_end_and_of_its_place_being_free():
    life = begun(placed(timings={"deletionOnFailureGracePeriod": "1h"}))
    hear(life)
    life.tell(order()).runs()
    assert hear(life) is None
    for _ in range(4):
        life.sees(failed=1, running=1).after(minutes=10).runs()
    assert life.state.outcome is Phase.FAILED
    assert hear(life) == GraphNews(item="train", workload_uid=UID, outcome=Phase.FAILED)
    life.after(hours=2)
    assert hear(life) == GraphNews(item="train", workload_uid=UID, outcome=Phase.FAILED, released=True)
    assert hear(life) is None


def test_one_without_a_graph_tells_nobody():
    life = begun(workload())
    assert life.state.attempt is not None
    assert owed(life.spec, life.state, UID) is None
