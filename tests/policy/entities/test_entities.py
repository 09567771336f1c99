"""What is done about an entity, given what Temporal says of it; and the memories that it begins anew with (row D2)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import names
from holdfast.model import Cause, Condition, ConditionType, Phase, Status
from holdfast.model.entities.graph import Edge, EdgeKind, Graph, GraphNews, GraphNode, GraphState, Item, ItemPhase
from holdfast.model.entities.queue import Queue, QueueNews, Standing
from holdfast.model.gang.state import Gang, Said
from holdfast.model.gang.status import CloseReason, GangPhase
from holdfast.model.gang.wire import Join, MemberState, Report
from holdfast.model.vocabulary import Reason
from holdfast.policy.entities import queue as queue_policy
from holdfast.policy.entities import queue_rebuild
from holdfast.policy.entities.graph import step
from holdfast.policy.entities.graph_rebuild import Found, found_closed, found_open, rebuilt
from holdfast.policy.entities.health import (
    ENTITIES,
    MARK,
    Act,
    Entity,
    Execution,
    Sight,
    entity_of,
    first_of,
    is_needed,
    judge,
    needs_of,
    patience_with,
    reason_of,
    sentence,
)
from holdfast.policy.rendezvous import rebuild
from holdfast.policy.rendezvous.step import begun
from holdfast.policy.rendezvous.step import step as gang_step
from holdfast.policy.values.edit import edit

ROW = pytest.mark.row("D2", level="pure")
NOW = datetime(2026, 1, 31, 2, 15, tzinfo=UTC)
PATIENCE = timedelta(seconds=30)
LONG, SHORT = NOW - timedelta(seconds=60), NOW - timedelta(seconds=5)
RUNNING, LOST, FAILED, CANCELLED = Execution.RUNNING, Execution.LOST, Execution.FAILED, Execution.CANCELLED
WATCH, MONITOR, PROVISIONER, BROKER, QUEUE, GRAPH, RENDEZVOUS = (
    entity_of(one)
    for one in (
        names.CLUSTER_WATCH_WORKFLOW,
        names.NODE_MONITOR_WORKFLOW,
        names.PROVISIONER_WORKFLOW,
        names.BROKER_WORKFLOW,
        names.QUEUE_WORKFLOW,
        names.GRAPH_WORKFLOW,
        names.RENDEZVOUS_WORKFLOW,
    )
)
_FAULT: dict[str, Any] = {"failures": 3, "failure": "Nondeterminism: TimerStarted"}
CASES: dict[str, tuple[Entity, Execution, dict[str, Any], bool, Act]] = {
    "runs": (QUEUE, RUNNING, {}, True, Act.NOTHING),
    "two failures may pass": (QUEUE, RUNNING, {**_FAULT, "failures": 2, "since": LONG}, True, Act.NOTHING),
    "three in a row, just now": (QUEUE, RUNNING, {**_FAULT, "since": SHORT}, False, Act.NOTHING),
    "three in a row, for a minute": (QUEUE, RUNNING, {**_FAULT, "since": LONG}, False, Act.END),
    "tasks that only time out": (MONITOR, RUNNING, {"failures": 9}, False, Act.NOTHING),
    "a failure whose time is not known": (MONITOR, RUNNING, {**_FAULT}, False, Act.NOTHING),
    "terminated": (QUEUE, LOST, {"since": SHORT}, False, Act.BEGIN),
    "a monitor is terminated": (MONITOR, LOST, {"since": SHORT}, False, Act.BEGIN),
    "ended as it was told to": (QUEUE, Execution.ENDED, {"since": LONG}, True, Act.NOTHING),
    "a watch that was told to stop": (WATCH, Execution.ENDED, {"since": LONG}, False, Act.NOTHING),
    "a monitor that was told to stop": (MONITOR, Execution.ENDED, {"since": LONG}, False, Act.NOTHING),
    "a watch that was cancelled": (WATCH, CANCELLED, {"since": SHORT}, False, Act.BEGIN),
    "a monitor that was cancelled": (MONITOR, CANCELLED, {"since": SHORT}, False, Act.BEGIN),
    "a provisioner that was cancelled": (PROVISIONER, CANCELLED, {"since": SHORT}, False, Act.BEGIN),
    "a rendezvous that was cancelled": (RENDEZVOUS, CANCELLED, {"since": SHORT}, False, Act.BEGIN),
    "a broker ends when it is cancelled": (BROKER, CANCELLED, {"since": SHORT}, True, Act.NOTHING),
    "a queue ends when it is cancelled": (QUEUE, CANCELLED, {"since": SHORT}, True, Act.NOTHING),
    "a graph ends when it is cancelled": (GRAPH, CANCELLED, {"since": SHORT}, True, Act.NOTHING),
    "a broker that failed": (BROKER, FAILED, {"since": LONG}, False, Act.BEGIN),
    "a graph that failed is a result": (GRAPH, FAILED, {"since": LONG}, True, Act.NOTHING),
    "a rendezvous that failed": (RENDEZVOUS, FAILED, {"since": LONG}, False, Act.BEGIN),
    "a watch that fails at once is not begun at once": (WATCH, FAILED, {"since": SHORT}, False, Act.NOTHING),
    "settings want one": (MONITOR, Execution.ABSENT, {}, False, Act.BEGIN),
    "a document that nobody has": (QUEUE, Execution.ABSENT, {}, False, Act.NOTHING),
}


@ROW
@pytest.mark.parametrize("case", CASES)
def test_D2_what_is_done_about_an_entity(case: str) -> None:
    entity, execution, fields, healthy, act = CASES[case]
    verdict = judge(entity, Sight("id/local", execution, "run", **fields), NOW, PATIENCE)
    assert (verdict.healthy, verdict.act) == (healthy, act)
    assert bool(verdict.says) != healthy


@ROW
def test_D2_what_a_person_terminated_stays_away_until_somebody_depends_on_it() -> None:
    by_hand = Sight("queue/local/gpus", LOST, "run", reason="we do not want it")
    assert not is_needed(by_hand, False)
    assert is_needed(by_hand, True)
    ended = judge(QUEUE, Sight("queue/local/gpus", RUNNING, "run", **_FAULT, since=LONG), NOW, PATIENCE)
    assert reason_of(ended).startswith(MARK)
    assert is_needed(Sight("queue/local/gpus", LOST, "run", reason=reason_of(ended)), False)


@ROW
def test_D2_a_person_reads_what_is_wrong_and_what_that_means() -> None:
    seen = Sight("queue/local/gpus", RUNNING, "run", **_FAULT, since=datetime(2026, 1, 31, 2, 14, 9, tzinfo=UTC))
    said = sentence(QUEUE, seen.workflow_id, judge(QUEUE, seen, NOW, PATIENCE))
    assert said == (
        "queue gpus: its workflow has failed its tasks since 02:14:09 UTC (Nondeterminism: TimerStarted); "
        "until a worker has rebuilt it, no workload is admitted"
    )


@ROW
@pytest.mark.parametrize(
    ("seen", "act"),
    [
        ({"failures": 4, "since": LONG}, Act.NOTHING),
        ({"failures": 5, "since": LONG}, Act.END),
        ({"failures": 5, "since": SHORT}, Act.NOTHING),
        ({"failures": 4, "since": LONG, "latest": SHORT}, Act.END),
        ({"failures": 4, "since": SHORT, "latest": SHORT, "is_cut": True}, Act.END),
    ],
    ids=["no further try", "tried again", "went on, and fails anew", "a busy one", "a busy one, not read whole"],
)
def test_D2_a_fault_that_has_passed_ends_nobody(seen: dict[str, Any], act: Act) -> None:
    at_first = Sight("queue/local/gpus", RUNNING, "run", failures=4, failure="codec is away", since=LONG, latest=LONG)
    now = Sight("queue/local/gpus", RUNNING, "run", **{"failure": "codec is away", "latest": LONG, **seen})
    assert judge(QUEUE, at_first, NOW, PATIENCE, first_of(None, at_first)).act is Act.NOTHING
    assert judge(QUEUE, now, NOW, PATIENCE, first_of(at_first, now)).act is act
    assert first_of(replace(at_first, run_id="another"), now) is now, "of another run nothing is known"


@ROW
def test_D2_each_end_doubles_the_patience_up_to_an_hour() -> None:
    times = [patience_with(timedelta(minutes=2), ends).total_seconds() / 60 for ends in (0, 1, 2, 4, 5, 10**6)]
    assert times == [2, 4, 8, 32, 60, 60]
    assert patience_with(timedelta(hours=2), 3) == timedelta(hours=2)


@ROW
def test_D2_a_person_reads_of_no_rebuild_where_none_comes() -> None:
    slow = judge(QUEUE, Sight("queue/local/gpus", RUNNING, "run", failures=3), NOW, PATIENCE)
    assert sentence(QUEUE, "queue/local/gpus", slow) == (
        "queue gpus: 3 tasks of its workflow in a row took too long; until it goes on, no workload is admitted"
    )
    absent = judge(QUEUE, Sight("queue/local/gpus", Execution.ABSENT), NOW, PATIENCE)
    assert sentence(QUEUE, "queue/local/gpus", absent) == (
        "queue gpus: its workflow is not there; until its document is applied again, no workload is admitted"
    )
    assert absent.remedy == "apply its document again"
    assert "begins it anew" not in slow.remedy
    late = judge(QUEUE, Sight("queue/local/gpus", LOST, "run", reason="it timed out"), NOW, PATIENCE)
    assert late.says == "its workflow ended (it timed out)"
    assert "begins it anew" in late.remedy


@ROW
def test_D2_every_entity_is_in_the_table_with_an_id_of_its_own() -> None:
    assert len({one.type for one in ENTITIES}) == len(ENTITIES) == 7
    assert len({one.prefix("local") for one in ENTITIES}) == 7
    assert QUEUE.prefix("local") == "queue/local/"
    assert names.graph_id("local", "team", "g").startswith(GRAPH.prefix("local"))
    assert names.rendezvous_id("local", "team", "w").startswith(RENDEZVOUS.prefix("local"))
    assert not names.queue_id("local-2", "q").startswith(QUEUE.prefix("local"))


@ROW
def test_D2_a_workload_needs_what_it_names() -> None:
    place = names.workflow_id("local", "team", "w")
    assert [one for _, one in needs_of(place)] == ["cluster-watch/local", "node-monitor/local", "provisioner/local"]
    assert [one for _, one in needs_of(place, queue="gpus", graph="g", gang=True, saves=True)][3:] == [
        "checkpoint-broker/local",
        "queue/local/gpus",
        "graph/local/team/g",
        "rendezvous/local/team/w",
    ]


@ROW
def test_D2_those_that_failed_or_were_cancelled_are_listed_unless_they_ended_so() -> None:
    ends = {one.title: one.query_watched("local").partition("ExecutionStatus IN ")[2] for one in ENTITIES}
    assert ends["checkpoint broker"] == "('Running', 'Terminated', 'TimedOut', 'Failed')"
    assert ends["queue"] == ends["graph"] == "('Running', 'Terminated', 'TimedOut')"
    assert ends["rendezvous"] == "('Running', 'Terminated', 'TimedOut', 'Failed', 'Canceled')"


# A graph.


def a_graph() -> Graph:
    return Graph(
        name="g",
        cluster="local",
        nodes=(
            GraphNode(name="a"),
            GraphNode(name="b", after=(Edge(node="a"),)),
            GraphNode(name="x"),
            GraphNode(name="y", after=(Edge(node="x", on=EdgeKind.MUTEX),)),
        ),
    )


@ROW
def test_D2_a_graph_begun_anew_lets_nobody_in_beside_whom_it_excludes() -> None:
    graph = a_graph()
    found = {"a": Found("ua", admitted=True), "x": Found("ux"), "y": Found("uy", admitted=True), "b": Found("ub")}
    state, orders = step(graph, rebuilt(graph, None, found))
    assert orders == ()
    assert {name: one.phase.value for name, one in state.items.items()} == {
        "a": "Admitted",
        "b": "Blocked",
        "x": "Blocked",
        "y": "Admitted",
    }


@ROW
def test_D2_a_graph_begun_anew_goes_on_from_what_has_ended_meanwhile() -> None:
    graph = a_graph()
    found = {"a": Found("ua", Phase.SUCCEEDED, admitted=True, released=True), "b": Found("ub")}
    _, orders = step(graph, rebuilt(graph, None, found))
    assert [(one.item, one.admit) for one in orders] == [("b", True)]


@ROW
def test_D2_a_graph_begun_anew_keeps_what_nobody_knows_any_more_and_that_it_was_cancelled() -> None:
    graph = a_graph()
    known = GraphState(
        items={**{name: Item() for name in graph.items}, "a": Item(phase=ItemPhase.SUCCEEDED, uid="ua", released=True)}
    )
    state = rebuilt(graph, known, {"b": Found("ub", admitted=True)}, "we changed our mind")
    assert (state.items["a"].phase, state.items["b"].phase) == (ItemPhase.SUCCEEDED, ItemPhase.ADMITTED)
    assert state.cancelled == "we changed our mind"
    assert rebuilt(graph, known, {}).items["b"].phase is ItemPhase.AWAITED


@ROW
def test_D2_what_a_workload_shows_its_graph() -> None:
    status = Status(
        name="a", namespace="team", cluster="local", uid="ua", phase=Phase.PENDING, reason=Reason.BLOCKED, since=NOW
    )
    assert found_open(status) == Found("ua")
    assert found_open(edit(status, reason=Reason.QUEUED)).admitted, "let in, it waits in its queue"
    running = edit(status, phase=Phase.RUNNING, attempt=1)
    assert found_open(running) == Found("ua", admitted=True)
    assert found_closed("ua", running, failed=False).outcome is Phase.CANCELLED, "it was terminated"
    assert found_closed("ua", None, failed=True).outcome is Phase.FAILED
    refused = Cause(
        time=NOW, attempt=0, phase=Phase.PENDING, reason=Reason.DEPENDENCY_UNSATISFIABLE, message="a has not succeeded"
    )
    ended = Found("ua", Phase.CANCELLED, admitted=True, released=True, why="a has not succeeded")
    assert found_closed("ua", edit(status, phase=Phase.CANCELLED, causes=(refused,)), failed=False) == ended
    assert ended.news("a") == GraphNews(item="a", workload_uid="ua", outcome=Phase.CANCELLED, released=True)
    assert found_closed("ua", edit(running, phase=Phase.SUCCEEDED), failed=False).is_over
    holds = Condition(type=ConditionType.QUOTA_RESERVED, status=True, reason=Reason.STARTING)
    for last in (None, running, edit(running, phase=Phase.FAILED, conditions=(holds,))):
        assert found_closed("ua", last, failed=False).released
        assert not found_closed("ua", last, failed=False, cut_off=True).released, (
            "somebody terminated it: pods may live"
        )
    for last in (edit(running, phase=Phase.FAILED), status):
        assert found_closed("ua", last, failed=False, cut_off=True).released, "it has ended, or has not begun"
        assert not found_closed("ua", last, failed=False, cut_off=True, phase="Resuming").released, (
            "it has begun since, which it does not record: pods may live"
        )


# A queue.


@ROW
def test_D2_a_queue_begun_anew_knows_whom_it_had_let_in_until_its_cluster_says_otherwise() -> None:
    queue = Queue(name="gpus", cluster="local", quota={"pods": "2"})

    def news(uid: str, standing: Standing, turn: int = 1) -> QueueNews:
        place = names.workflow_id("local", "team", uid)
        return QueueNews(
            workload=place, uid=uid, turn=turn, standing=standing, demand={"pods": 2000}, submitted_at=LONG
        )

    holds = queue_rebuild.rebuilt(queue, None, [news("a", Standing.ASKS), news("a", Standing.HOLDS)])
    assert [uid for uid, one in holds.items.items() if one.admitted] == ["a"]
    later = [news("b", Standing.HOLDS), news("a", Standing.RELEASED), news("b", Standing.ASKS, 2)]
    assert queue_rebuild.rebuilt(queue, holds, later).items == {}
    # The workflow of `a` was terminated, and its pods live: a newcomer waits until they are gone.
    state, _ = queue_policy.on_workload_news(holds, news("c", Standing.ASKS), NOW)
    assert queue_policy.step(state)[1] == (), "nobody before it has seen its cluster"
    for _ in range(2):
        state, _ = queue_policy.on_look(
            state, queue_policy.Seen(False, (names.workflow_id("local", "team", "c"),), ()), NOW
        )
    assert queue_policy.step(state)[1] == ()
    state, _ = queue_policy.on_look(state, queue_policy.Seen(False, (), ("a",)), NOW)
    assert [one.given.uid for one in queue_policy.step(state)[1]] == ["c"]


@ROW
def test_D2_a_queue_begun_anew_asks_whom_it_had_let_in_since_they_may_have_let_go_meanwhile() -> None:
    queue = Queue(name="gpus", cluster="local", quota={"pods": "2"})
    news = {
        uid: QueueNews(
            workload=names.workflow_id("local", "team", uid),
            uid=uid,
            turn=1,
            standing=Standing.HOLDS,
            demand={"pods": 1000},
            submitted_at=LONG,
        )
        for uid in ("holds", "let-go", "lost")
    }
    state = queue_rebuild.rebuilt(queue, None, news.values())
    there = (news["holds"].workload, news["let-go"].workload)
    for _ in range(2):
        state, orders = queue_policy.on_look(state, queue_policy.Seen(False, there, ()), NOW)
        assert [(one.workload, one.given.again) for one in orders] == [(one, True) for one in there]
    assert set(state.items) == set(news), "nobody loses its place by not having answered yet"
    state, _ = queue_policy.on_workload_news(state, news["holds"], NOW)
    state, _ = queue_policy.on_workload_news(state, edit(news["let-go"], standing=Standing.RELEASED), NOW)
    assert [uid for uid, one in state.items.items() if one.admitted] == ["holds", "lost"]
    assert state.doubted == {}
    assert queue_policy.on_look(state, queue_policy.Seen(False, there, ()), NOW)[1] == (), (
        "they are asked twice, not on"
    )


# A rendezvous.


@ROW
def test_D2_rounds_of_a_rendezvous_begun_anew_go_on_beyond_all_that_its_history_can_have_formed() -> None:
    gang = Gang(min=1, max=4)
    before = edit(begun(gang, "uid-1", 1, LONG), round=7, revision=30, phase=GangPhase.RUNNING)
    after = rebuild.rebuilt(before, events=120, now=NOW)
    assert after.phase is GangPhase.FORMING
    assert after.round > 7 + 120
    assert after.revision > 30 + 120
    assert after.run_id == before.run_id
    assert after.why == "its rendezvous was begun anew"
    assert rebuild.rebuilt(edit(before, phase=GangPhase.CLOSED, closed=CloseReason.ENDED), 120, NOW).round == 7


@ROW
def test_D2_a_round_is_later_than_all_that_its_members_have_run() -> None:
    state = begun(Gang(min=1, max=1), "uid-1", 1, LONG)
    join = Join(
        member="a", pod_uid="pod-a", attempt=1, incarnation="i1", started_at=LONG, address="10.0.0.1", port=29500
    )
    said = Said(join=join, report=Report(state=MemberState.INIT, round=41, since=LONG))
    assert gang_step(state, [said], NOW).state.round == 42
