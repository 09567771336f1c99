"""Lattice's requeue policies on virtual time: what comes back to its queue, how often, when it leaves (L17 to L27)."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast.model import (
    ConditionType,
    Failure,
    FailureClass,
    OperationKind,
    Phase,
    Probe,
    Reason,
    Scope,
    SuspendMode,
    Unbounded,
)
from holdfast.model.calls.cluster import Removed
from holdfast.policy.attempt.requeue import CYCLE
from holdfast.policy.failures.rules import rule_on
from holdfast.policy.loop.advance import decisions
from holdfast.policy.loop.fold import fold
from holdfast.policy.sides.probe import probed, silence
from holdfast.policy.status.audit import audited
from holdfast.policy.status.explain import explain_of, status_of
from holdfast.policy.status.report import conditions
from holdfast.policy.values.decision import Create, Fail, Hold, Restart
from holdfast.policy.values.edit import edit
from holdfast.policy.values.events import (
    Cancelled,
    Event,
    Observed,
    ProbeEnded,
    RequeueAsked,
    RequeueRequest,
    Resumed,
    Retried,
    StepsRead,
    Suspended,
)
from holdfast.policy.values.steps import Run
from holdfast.policy.verdicts.progress import stall
from holdfast.profiles import lattice
from tests.policy.attempt.requeue_matrix import POLICIES, Cell, cells, page
from tests.policy.lives.elements import Elements, streams
from tests.policy.lives.life import START, Life, workload

ROW = pytest.mark.row
PAGE = Path(__file__).parents[3] / "docs/requeue.md"
PAUSE = lattice.BATCH.timings.retry_pause_period


def life(policy: str = "on_node_failure", **fields: Any) -> Life:
    return Life(spec=workload(policy=POLICIES[policy], submitted_at=START - timedelta(days=1), **fields)).runs()


def loses_its_node(one: Life) -> Life:
    return one.sees(running=1, failed=1, cls="NodeLost", why="NodeLost")


def comes_back(one: Life) -> Life:
    return one.after(seconds=PAUSE.total_seconds()).sees(running=2)


def holds_quota(one: Life) -> bool:
    found = {each.type: each.status for each in conditions(one.spec, one.state)}
    return found[ConditionType.QUOTA_RESERVED]


TABLE = list(cells())


def node_side(cell: Cell) -> bool:
    return cell.cause.startswith(("node lost", "hardware"))


@ROW("L17", level="pure")
@ROW("L21", level="pure")
@ROW("L22", level="pure")
@ROW("L23", level="pure")
def test_L21_L22_L23_the_page_of_the_matrix_is_current() -> None:
    renew = "python -m tests.policy.attempt.requeue_matrix > docs/requeue.md"
    assert PAGE.read_text(encoding="utf-8") == page(), f"renew it: {renew}"


@ROW("L22", level="pure")
@ROW("U13", level="pure")
def test_U13_a_drain_takes_a_service_one_pod_at_a_time_and_an_allocation_goes_back_to_its_queue() -> None:
    evicted = Failure(
        cls=FailureClass.NODE_LOST, scope=Scope.MEMBER, reason="EvictionByEvictionAPI", time=START, component="train"
    )
    found = {one.profile: rule_on(one, evicted) for one in (lattice.SERVICE, lattice.BATCH)}
    told = {name: (ruling.rule, ruling.action.grace, ruling.action.requeue) for name, ruling in found.items()}
    assert told == {
        "lattice-service": ("displaced-pods", True, True),
        "lattice-batch": ("node-lost", False, True),
    }


@ROW("L17", level="pure")
@ROW("L21", level="pure")
def test_L21_under_never_any_failure_but_a_prologue_with_retries_left_is_terminal() -> None:
    found = [cell for cell in TABLE if cell.policy == "never" and not cell.sensitive]
    ends = [cell for cell in found if cell.cause not in {"prologue fails", "nobody knows"}]
    assert len(ends) > 30
    assert [cell for cell in ends if not isinstance(cell.decision, Fail)] == []


@ROW("L17", level="pure")
@ROW("L22", level="pure")
def test_L22_under_on_node_failure_nodes_alone_bring_it_back_and_an_application_never() -> None:
    found = [cell for cell in TABLE if cell.policy == "on_node_failure" and not cell.sensitive]
    back = {cell.cause for cell in found if isinstance(cell.decision, Restart) and cell.decision.requeue}
    assert back == {"node lost (agent, partition)", "hardware"}
    app = [cell.decision for cell in found if cell.cause.startswith(("application", "component"))]
    assert app
    assert all(isinstance(one, Fail) for one in app)


@ROW("L17", level="pure")
@ROW("L23", level="pure")
def test_L23_under_always_all_but_the_walltime_and_a_used_up_prologue_bring_it_back() -> None:
    found = [cell for cell in TABLE if cell.policy == "always" and not cell.sensitive]
    final = {cell.cause: cell.decision.reason for cell in found if isinstance(cell.decision, Fail)}
    assert final.pop("prologue fails, retries used up") is Reason.PROLOGUE_FAILURE_MAX_RETRIES
    assert final.pop("walltime is over") is Reason.WALLTIME_EXCEEDED
    assert final.pop("walltime is over, requeues used up") is Reason.WALLTIME_EXCEEDED
    assert final.pop("a deadline of its own"), "the walltime's backstop is one"
    assert set(final.values()) == {Reason.MAX_REQUEUE_EXCEEDED}
    assert set(final) == {"application exits, requeues used up", "node lost, requeues used up"}


@ROW("L7", level="pure")
def test_L7_what_is_sensitive_is_requeued_under_no_policy_and_by_no_cause() -> None:
    sensitive = [cell for cell in TABLE if cell.sensitive]
    again = [cell for cell in sensitive if isinstance(cell.decision, Restart)]
    assert {cell.cause for cell in again} == {"prologue fails"}, "what was never started is tried elsewhere"
    assert all(isinstance(one.decision, Restart) and not one.decision.requeue for one in again)
    plain = {(one.policy, one.cause, one.lifecycle): one for one in TABLE if not one.sensitive}
    for cell in sensitive:
        other = plain[cell.policy, cell.cause, cell.lifecycle].decision
        if isinstance(other, Restart) and other.requeue:
            assert isinstance(cell.decision, Hold), cell


@ROW("L22", level="pure")
@ROW("L26", level="pure")
def test_L22_a_requeue_lets_go_of_the_quota_once_all_is_proven_gone_and_is_charged_once() -> None:
    one = life()
    one.hold = {OperationKind.REMOVE}
    loses_its_node(one)
    assert (one.state.phase, one.state.reason, holds_quota(one)) == (Phase.RESETTING, Reason.REQUEUED, True)
    one.finish().settle()
    assert (one.state.phase, one.state.reason, holds_quota(one)) == (Phase.PENDING, Reason.QUEUED, False)
    assert (one.state.used, one.state.requeues, one.state.restarts) == ({"restart": 1}, 1, 1)
    assert "in queue default" in one.waits_for
    one.hold = set()
    comes_back(one)
    assert (one.state.phase, one.attempt, holds_quota(one)) == (Phase.RUNNING, 2, True)


@ROW("L24", level="pure")
def test_L24_the_fourth_failure_is_terminal_and_101_is_refused() -> None:
    one = life("always")
    for back in range(1, 4):
        one.sees(running=1, failed=1)
        comes_back(one)
        assert (one.state.phase, one.attempt, one.state.requeues) == (Phase.RUNNING, back + 1, back)
    one.sees(running=1, failed=1)
    assert (one.state.phase, one.state.reason) == (Phase.FAILED, Reason.MAX_REQUEUE_EXCEEDED)
    assert one.state.used == {"restart": 3}
    budget = lattice.BATCH.budget("restart")
    assert type(budget).model_validate({**budget.model_dump(), "limit": 100}).limit == 100
    with pytest.raises(ValueError, match="limit: 101: expected at most 100"):
        type(budget).model_validate({**budget.model_dump(), "limit": 101})


@ROW("L16", level="pure")
@ROW("L24", level="pure")
def test_L24_a_requeue_renews_the_prologues_own_budget_and_a_prologue_charges_no_requeue() -> None:
    one = life("always")
    one.sees(running=1, failed=1, cls="Launch", why="UnexpectedAdmissionError")
    assert (one.state.used, one.state.requeues, one.state.phase) == ({"launch": 1}, 0, Phase.RESETTING)
    comes_back(one)
    one.sees(running=1, failed=1)
    assert (one.state.used, one.state.requeues) == ({"restart": 1}, 1)


@ROW("L25", level="pure")
@pytest.mark.parametrize("between", ["at once", "after the requeue"])
def test_L25_two_who_expect_the_same_count_raise_it_exactly_once(between: str) -> None:
    one = life()
    told = RequeueAsked(RequeueRequest(expected_requeue_count=0, node="node-7"))
    if between == "at once":
        one.state = fold(one.state, told, one.now)
        one.tell(told)
        comes_back(one)
    else:
        one.tell(told)
        comes_back(one)
        one.tell(told)
    assert (one.attempt, one.state.requeues, one.state.used) == (2, 1, {"restart": 1})
    assert (one.state.phase, one.state.dropped) == (Phase.RUNNING, 1)
    one.tell(RequeueAsked(RequeueRequest(expected_requeue_count=1, cls=FailureClass.HARDWARE)))
    assert (comes_back(one).attempt, one.state.requeues) == (3, 2)


@ROW("L25", level="pure")
@pytest.mark.parametrize(("policy", "phase"), [("never", Phase.FAILED), ("always", Phase.PENDING)])
def test_L25_whoever_asks_is_answered_by_the_workloads_own_policy(policy: str, phase: Phase) -> None:
    one = life(policy).tell(RequeueAsked(RequeueRequest(expected_requeue_count=0)))
    assert one.state.phase is phase
    before = one.state
    one.tell(RequeueAsked(RequeueRequest(expected_requeue_count=one.state.requeues)))
    assert one.state == edit(before, dropped=before.dropped + 1), "nothing of it runs"


@ROW("L25", level="pure")
@ROW("L28", level="pure")
def test_L25_a_request_about_a_node_that_is_avoided_stands_in_the_way_of_nothing() -> None:
    one = life("always", probe=Probe(port=8080), lifecycle=Unbounded())
    one.state = edit(one.state, shows_waits=True)
    for number, node in ((1, "node-7"), (2, "node-9")):
        assert probed(one.spec, one.state) == number
        one.tell(hardware(number - 1, node))
        assert (comes_back(one).attempt, one.state.requeues) == (number + 1, number)
        one.tell(hardware(number, node))
        one.tell(hardware(number, node))
        assert (one.attempt, one.state.requeues, one.state.dropped) == (number + 1, number, 2 * number)
        said = [cause.message for cause in one.state.causes if "but no rule acts on it" in cause.message]
        assert len(said) == number, "once, however often it is asked for"
        assert node in said[-1]
    assert probed(one.spec, one.state) == 3


def hardware(count: int, node: str) -> RequeueAsked:
    return RequeueAsked(RequeueRequest(expected_requeue_count=count, cls=FailureClass.HARDWARE, node=node))


def put_to_sleep(told: Event) -> Life:
    """Return a workload of which something is told just as it is suspended in place, and is told again later."""
    policy = edit(POLICIES["always"], deletion=edit(POLICIES["always"].deletion, suspend=SuspendMode.IN_PLACE))
    one = Life(spec=workload(policy=policy, probe=Probe(port=8080), lifecycle=Unbounded())).runs()
    one.state = edit(one.state, shows_waits=True)
    one.state = fold(fold(one.state, told, one.now), Suspended("make room"), one.now)
    assert one.state.attempt is not None
    assert one.state.attempt.told is not None
    one.settle()
    assert (one.state.phase, one.state.attempt.number) == (Phase.SUSPENDED, 1)
    one.after(hours=48).tell(told)
    return one


@ROW("L25", level="pure")
@ROW("L28", level="pure")
@ROW("J14", level="pure")
@pytest.mark.parametrize(
    "told",
    [
        RequeueAsked(RequeueRequest(expected_requeue_count=0, cls=FailureClass.HARDWARE, node="node-7")),
        RequeueAsked(RequeueRequest(expected_requeue_count=0, cls=FailureClass.NODE_LOST, node="node-7")),
        ProbeEnded(1, silence(1, START, "train", "train-0", "node-7", "no answer")),
        StepsRead(1, None, stall(1, START)),
    ],
    ids=["hardware", "a lost node", "probe", "stall"],
)
def test_J14_what_was_told_of_pods_that_a_suspension_removed_does_not_end_those_that_come_back(told: Event) -> None:
    one = put_to_sleep(told)
    assert one.state.attempt is not None
    assert one.state.attempt.told is None
    assert one.state.dropped == isinstance(told, RequeueAsked)
    one.tell(Resumed())
    one.sees(running=2).after(hours=1)
    assert (one.state.phase, one.attempt, one.state.restarts) == (Phase.RUNNING, 1, 0)
    assert probed(one.spec, one.state) == 1
    one.tell(told)
    assert one.state.restarts == 1, "what is told of those counts"


@ROW("L26", level="pure")
def test_L26_a_requeued_workload_stands_before_one_that_was_submitted_later() -> None:
    first, later = life(), life()
    later.spec = later.spec.model_copy(update={"submitted_at": START})
    loses_its_node(first)
    told = [status_of(one.spec, one.state, one.now, "uid") for one in (later, first)]
    assert min(told, key=lambda status: status.submitted_at or START) is told[1]
    assert told[1].submitted_at == START - timedelta(days=1)
    assert (told[1].requeues, told[0].requeues) == (1, 0)
    assert "since 2025-12-31 00:00:00 UTC" in first.waits_for


@ROW("L27", level="pure")
@pytest.mark.parametrize("pause", [timedelta(0), CYCLE / 2, PAUSE])
def test_L27_what_came_back_in_a_cycle_is_admitted_in_the_next_and_never_in_that_one(pause: timedelta) -> None:
    given = lattice.BATCH.model_copy(
        update={"timings": lattice.BATCH.timings.model_copy(update={"retry_pause_period": pause})}
    )
    one = Life(spec=workload(policy=given)).runs()
    one.hold = {OperationKind.REMOVE}
    loses_its_node(one)
    at = one.now
    one.state = fold(one.state, Removed(gone=True), at)
    taken = list(decisions(one.spec, one.state, at))
    assert not [each for each in taken if isinstance(each.decision, Create)], "it is in its queue for this cycle"
    one.hold = set()
    one.settle()
    attempt = one.state.attempt
    assert attempt is not None
    assert (attempt.number, attempt.requeued_in, one.state.cycle) == (1, 0, 0)
    one.tell(Observed(one.look()))
    assert one.attempt == 1, "news is no cycle"
    one.after(seconds=max(pause, CYCLE).total_seconds())
    assert (one.attempt, one.state.cycle) == (2, 1)
    assert one.state.since >= at + CYCLE


@ROW("L27", level="pure")
def test_L27_a_person_who_will_not_wait_begins_a_cycle_and_one_who_suspends_keeps_its_place() -> None:
    one = loses_its_node(life())
    assert "`holdfast retry default/train-llm` skips the pause" in explain_of(one.spec, one.state, one.now).unblock
    one.tell(Retried())
    assert (one.attempt, one.state.cycle) == (2, 1)
    two = loses_its_node(life()).tell(Suspended())
    assert two.state.phase is Phase.SUSPENDED
    two.tell(Resumed())
    two.after(seconds=PAUSE.total_seconds())
    assert (two.attempt, two.state.used) == (2, {"restart": 1})


@ROW("L22", level="pure")
def test_L22_explain_names_the_rule_that_decides_and_what_follows() -> None:
    one = life()
    one.hold = {OperationKind.REMOVE}
    loses_its_node(one)
    told = explain_of(one.spec, one.state, one.now)
    assert "(rule node-lost)" in told.why
    assert "goes back to queue default; after 5s attempt 2" in told.next[-1].what
    one.finish().settle()
    told = explain_of(one.spec, one.state, one.now)
    assert told.now == "waiting in its queue; its quota is released"
    assert "admitted in cycle 1 at the earliest" in told.next[0].what


@ROW("L7", level="pure")
def test_L7_sensitive_work_is_held_until_a_person_says_retry_or_cancel() -> None:
    one = life("always", sensitive=True)
    loses_its_node(one)
    assert (one.state.phase, one.state.reason, one.attempt) == (Phase.PENDING, Reason.HELD, 1)
    assert "sensitive" in one.state.message
    assert "remove" not in one.kinds(), "nothing is touched"
    assert holds_quota(one)
    one.after(hours=10)
    assert (one.state.reason, one.state.requeues, one.state.used) == (Reason.HELD, 0, {})
    one.tell(Retried("looked into it"))
    assert (one.attempt, one.state.phase) == (2, Phase.RESUMING)
    assert one.state.used == {}, "a person's word is charged to nothing"
    other = loses_its_node(life(sensitive=True)).tell(Cancelled())
    assert other.ended is Phase.CANCELLED


@ROW("L7", level="pure")
def test_L7_sensitive_work_that_ends_well_while_it_is_held_has_succeeded() -> None:
    one = loses_its_node(life(sensitive=True))
    one.sees(succeeded=2, complete=True)
    assert (one.state.phase, one.state.held) == (Phase.SUCCEEDED, None)


@ROW("L36", level="pure")
def test_L36_what_is_done_to_sensitive_work_is_written_down_before_it_is_done() -> None:
    one = life("always", sensitive=True)
    loses_its_node(one).tell(Retried())
    one.tell(Cancelled())
    acts = ("create", "remove")
    kinds = one.kinds()
    assert kinds.count("create") == 2
    for at, kind in enumerate(kinds):
        if kind in acts and one.ran[at][1] != (one.ran[at - 1][1] if kinds[at - 1] == kind else 0):
            assert kinds[at - 1] == "report", f"{kind} at {at}: {kinds}"
    written = [cause.message for cause in one.state.causes if cause.reason is Reason.AUDITED]
    assert [text.split(":")[0] for text in written] == [
        "audit entry 1 create",
        "audit entry 1 remove",
        "audit entry 2 create",
        "audit entry 2 remove",
    ]
    assert "as default" in written[0] or one.spec.run_as in written[0]


@ROW("L36", level="pure")
def test_L36_each_time_that_a_component_is_made_again_is_written_down() -> None:
    one = Elements(spec=edit(streams(), sensitive=True)).up()
    for _ in range(2):
        one.deleted("pe-1")
        one.up()
    written = [cause.message for cause in one.state.causes if cause.reason is Reason.AUDITED]
    assert [text.split(":")[0] for text in written] == [
        "audit entry 1 create",
        "audit entry 1 replace pe-1=1",
        "audit entry 1 replace pe-1=2",
    ]


@ROW("L36", level="pure")
def test_L36_acts_on_many_components_that_begin_alike_have_an_entry_each() -> None:
    one = life("always", sensitive=True)
    many = tuple(f"trainer-group-{number:02}" for number in range(20))
    attempt = one.state.attempt
    assert attempt is not None
    entries = set[str]()
    for replacing in (many, (*many, "zz-exporter")):
        state = edit(one.state, attempt=edit(attempt, replacing=replacing), shows_waits=True)
        step = audited(one.spec, state, Run(OperationKind.REPLACE, "made again"))
        assert isinstance(step, Run)
        assert len(step.audits) <= 256
        entries.add(step.audits)
    assert len(entries) == 2


@ROW("L36", level="pure")
def test_L36_an_act_does_not_begin_while_its_entry_is_not_written() -> None:
    one = Life(spec=workload(policy=POLICIES["always"], sensitive=True))
    one.hold = {OperationKind.REPORT}
    one.settle()
    assert one.kinds()[-1] == "report"
    assert one.state.operation is not None
    assert one.state.operation.audits == "1 create"
    assert "Audited" in [event.reason for event in one.state.operation.report.events]
    one.after(hours=1)
    assert "create" not in one.kinds()
    one.hold = set()
    one.finish().settle()
    assert one.kinds()[-1] == "create"


@ROW("L33", level="pure")
def test_L33_it_runs_only_when_all_of_it_runs_and_does_not_go_back_on_what_comes_late() -> None:
    one = Life(spec=workload(policy=POLICIES["on_node_failure"])).settle()
    one.sees(running=1, pending=1)
    assert one.state.phase is Phase.RESUMING
    late = one.look()
    one.sees(running=2)
    assert one.state.phase is Phase.RUNNING
    dropped = one.state.dropped
    one.tell(Observed(late))
    assert (one.state.phase, one.state.dropped) == (Phase.RUNNING, dropped + 1)
    loses_its_node(one)
    comes_back(one)
    one.tell(Observed(late))
    assert (one.state.phase, one.attempt, one.state.dropped) == (Phase.RUNNING, 2, dropped + 2)
