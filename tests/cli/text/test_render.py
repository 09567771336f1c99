"""What people read: pure functions from values to text, compared with the texts of ux.md."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.cli.common import render
from holdfast.cli.workloads import history_text
from holdfast.cli.workloads.watch import Seen
from holdfast.client.summary import Summary
from holdfast.client.views import ActivityView, ExplanationView, StatusView, explanation_from
from holdfast.model import (
    BudgetStatus,
    Cause,
    Condition,
    ConditionType,
    Deadline,
    Explanation,
    Failure,
    FailureClass,
    Phase,
    PodCounts,
    Reason,
    Scope,
    Status,
)
from holdfast.model.life.history import Gap, History, NumberedCause

NOW = datetime(2026, 1, 31, 2, 14, 50, tzinfo=UTC)


def explanation(**changes: object) -> Explanation:
    forced = NOW + timedelta(minutes=9, seconds=20)
    fields: dict[str, object] = {
        "name": "train-llm",
        "phase": Phase.RESETTING,
        "reason": Reason.RESETTING,
        "since": NOW,
        "attempt": 2,
        "next_attempt": 3,
        "budgets": (BudgetStatus(name="restart", limit=3, used=2),),
        "why": "worker-3 exited 137 (OOMKilled) on node-7, 02:14:09; no recovery within failure grace (1m)",
        "now": "deleting attempt 2: 3 of 64 pods left, oldest 41s (worker-3: finalizer example.com/hold)",
        "next": (
            Deadline(at=forced, what="forceful deletion"),
            Deadline(at=forced, what="then retry pause 90s"),
            Deadline(at=forced, what="then recreate without node-7"),
        ),
    }
    return Explanation.model_validate({**fields, **changes})


def status(**changes: object) -> Status:
    fields: dict[str, object] = {
        "name": "train-llm",
        "namespace": "research",
        "cluster": "dev",
        "uid": "u-1",
        "phase": Phase.RUNNING,
        "reason": Reason.SUFFICIENT_PODS_READY,
        "message": "all expected pods run",
        "since": NOW - timedelta(minutes=3),
        "attempt": 1,
        "budgets": (BudgetStatus(name="restart", limit=3, used=0),),
        "pods": PodCounts(expected=4, running=3, pending=1),
    }
    return Status.model_validate({**fields, **changes})


def cause(message: str, seconds: int, reason: Reason = Reason.RESETTING) -> Cause:
    at = NOW + timedelta(seconds=seconds)
    return Cause(time=at, attempt=1, phase=Phase.RUNNING, reason=reason, message=message)


@pytest.mark.row("X13", level="pure")
def test_explain_is_as_ux_shows_it() -> None:
    assert render.explanation(ExplanationView(explanation=explanation(), fresh=True), NOW) == (
        "train-llm  Resetting  attempt 2 → 3      restarts 2 of 3\n"
        "why        worker-3 exited 137 (OOMKilled) on node-7, 02:14:09; no recovery within failure grace (1m)\n"
        "now        deleting attempt 2: 3 of 64 pods left, oldest 41s (worker-3: finalizer example.com/hold)\n"
        "next       02:24:10 UTC (in 9m20s) forceful deletion · then retry pause 90s · then recreate without node-7\n"
        "submitter  unverified (submitted through Temporal)"
    )


def test_explain_adds_what_an_activity_last_said() -> None:
    heartbeat = {"doing": "waiting until it is gone", "remaining": ["Pod a", "Pod b"], "remainingTotal": 7}
    removal = ActivityView(type="remove", state="Started", attempt=1, since=NOW, heartbeat=(heartbeat,))
    text = render.explanation(ExplanationView(explanation=explanation(), fresh=True, activities=(removal,)), NOW)
    assert "\n           waiting until it is gone: Pod a; Pod b; and 5 more\n" in text


def test_explain_says_when_no_worker_takes_the_activity() -> None:
    waiting = ActivityView(type="prepare", state="Scheduled", attempt=1, since=NOW - timedelta(seconds=40))
    text = render.explanation(ExplanationView(explanation=explanation(), fresh=True, activities=(waiting,)), NOW)
    assert "prepare: no worker of this cluster has taken it for 40s: is `holdfast worker` running there?" in text


def test_explain_shows_why_an_activity_is_tried_again() -> None:
    failing = ActivityView(type="prepare", state="Scheduled", attempt=4, last_failure="the API server is away")
    text = render.explanation(ExplanationView(explanation=explanation(), fresh=True, activities=(failing,)), NOW)
    assert "prepare: try 4: the API server is away" in text


def test_an_unreadable_heartbeat_is_passed_over() -> None:
    odd = ActivityView(type="remove", state="Started", attempt=1, heartbeat=(3, "x", {"doing": {}}))
    assert odd.sentence(NOW) == ""


@pytest.mark.row("D36", level="pure")
def test_D36_a_stale_explanation_says_so_first_and_promises_nothing_by_itself() -> None:
    told = explanation_from(status(phase=Phase.PENDING, reason=Reason.QUEUED, message="submitted"))
    text = render.explanation(ExplanationView(explanation=told, fresh=False), NOW)
    assert text.splitlines()[0].startswith("stale      no worker answered")
    assert "until a worker answers" in text
    assert "next       nothing happens until a worker answers" in text
    assert "nothing happens by itself" not in text


@pytest.mark.row("E7", level="pure")
@pytest.mark.parametrize(
    ("conditions", "why"),
    [
        (
            (("Unhealthy", True, "FoundFailedPods", "a exited 1"), ("PodsReady", False, "x", "1 do not run")),
            "a exited 1",
        ),
        ((("Unhealthy", True, "FoundFailedPods", ""),), "FoundFailedPods"),
        (
            (("Unhealthy", False, "Healed", ""), ("PodsReady", False, "InsufficientPodsReady", "1 do not run")),
            "1 do not run",
        ),
    ],
)
def test_E7_a_stale_explanation_tells_what_is_amiss(conditions: tuple[tuple[Any, ...], ...], why: str) -> None:
    known = [
        {"type": kind, "status": holds, "reason": "InsufficientPodsReady" if reason == "x" else reason, "message": said}
        for kind, holds, reason, said in conditions
    ]
    told = status(conditions=known, causes=(cause("attempt 1 runs", 0),))
    assert (explanation_from(told).why, explanation_from(told).now) == (why, "3 of 4 pods running, 1 pending")
    uncounted = told.model_copy(update={"pods": PodCounts()})
    assert explanation_from(uncounted).now == "all expected pods run", "what is not counted is not said"


@pytest.mark.row("E7", level="pure")
def test_E7_a_stale_explanation_of_what_is_well_tells_the_latest_cause_and_the_message() -> None:
    told = explanation_from(status(causes=(cause("attempt 1 runs", 0),)))
    assert (told.why, told.now) == ("attempt 1 runs", "all expected pods run")


@pytest.mark.row("D36", level="pure")
def test_D36_a_stale_status_says_so_first() -> None:
    lines = render.status(StatusView(status=status(), fresh=False), NOW).splitlines()
    assert lines[0].startswith("stale      no worker answered")
    assert "once a worker answers" in lines[0]
    assert sum(line.startswith("stale") for line in lines) == 1


@pytest.mark.row("D36", level="pure")
def test_D36_since_when_and_what_to_do_are_said_with_it() -> None:
    from holdfast.client.silence import Silence

    silence = Silence(
        why="no worker answers: last poll of the task queue q 4m40s ago, at 02:10:10 UTC",
        since=NOW - timedelta(minutes=4, seconds=40),
        remedy="start one: `holdfast worker`",
    )
    told = explanation_from(status())
    deadline = Deadline(at=NOW + timedelta(minutes=1), what="failure grace")
    told = told.model_copy(update={"next": (deadline,)})
    text = render.explanation(ExplanationView(explanation=told, fresh=False, silence=silence), NOW)
    assert text.splitlines()[:3] == [
        "stale      no worker answers: last poll of the task queue q 4m40s ago, at 02:10:10 UTC",
        "           this is what was last recorded; pods keep running, and failures are not acted on: "
        "once a worker answers, "
        "Holdfast acts on what it missed",
        "           start one: `holdfast worker`",
    ]
    assert "next       02:15:50 UTC failure grace ends\n           Holdfast acts on this once a worker answers" in text


def test_deadlines_on_another_day_carry_their_date() -> None:
    coming = (Deadline(at=NOW + timedelta(days=7), what="success TTL"),)
    assert render.deadlines(coming, NOW) == "2026-02-07 02:14:50 UTC (in 7d) success TTL"


def test_two_deadlines_at_different_times_carry_both() -> None:
    coming = (Deadline(at=NOW, what="a"), Deadline(at=NOW + timedelta(seconds=5), what="then, unless it heals: b"))
    assert render.deadlines(coming, NOW) == "02:14:50 UTC a · 02:14:55 UTC (in 5s) unless it heals: b"


def test_status_names_place_pods_conditions_and_failure() -> None:
    failure = Failure(
        cls=FailureClass.APP, scope=Scope.MEMBER, reason="OOMKilled", time=NOW, subject="w", exit_code=137
    )
    told = status(
        conditions=(Condition(type=ConditionType.PODS_READY, status=False, reason=Reason.INSUFFICIENT_PODS_READY),),
        failure=failure,
    )
    text = render.status(StatusView(status=told, fresh=True), NOW)
    assert text.splitlines() == [
        "train-llm  Running (InsufficientPodsReady)  restarts 0 of 3",
        "where      ns research on cluster dev, uid u-1",
        "since      02:11:50 UTC (3m ago)",
        "submitter  unverified (submitted through Temporal)",
        "attempt    1",
        "pods       3 of 4 pods running, 1 pending",
        "           PodsReady no (InsufficientPodsReady)",
        "failure    w exited 137 (OOMKilled)",
    ]


def test_the_list_is_a_table() -> None:
    one = Summary(
        workflow_id="workload/dev/research/x",
        run_id="r",
        cluster="dev",
        namespace="research",
        name="x",
        kind="AppWrapper",
        phase="Running",
        attempt=2,
        restarts=1,
        started_at=NOW - timedelta(hours=5, minutes=2, seconds=9),
        execution="Terminated",
    )
    heads, row = render.summaries([one], NOW).splitlines()
    assert heads.split()[:5] == ["NAMESPACE", "NAME", "KIND", "PHASE", "REASON"]
    assert row.split()[:3] == ["research", "x", "AppWrapper"]
    assert "workflow terminated (was Running)" in row
    assert "5h2m" in row
    assert render.summaries([], NOW) == "no workloads"


LAST = "worker-3 exited 137 (OOMKilled) on node-7 (rule failed-pods)"


def life_read() -> History:
    return History(
        name="x",
        namespace="default",
        cluster="dev",
        uid="u",
        workflow_id="workload/dev/default/x",
        runs=(),
        begun_at=NOW,
        phase=Phase.RESETTING,
        executions=1,
        restarts=1,
        budgets=(BudgetStatus(name="restart", limit=3, used=1),),
        causes=(NumberedCause(**cause(LAST, 1).model_dump(), number=9, written=True),),
        causes_total=9,
        gaps=(Gap(first=1, last=8, why="Temporal no longer keeps the run they were in"),),
        complete=False,
        exact=True,
        notes=("The workload began before the oldest run that Temporal keeps.",),
    )


def test_history_says_what_is_left_out() -> None:
    heads, gap, last, *_, note = history_text.history(life_read()).splitlines()
    assert heads.split() == ["RECORDED", "(UTC)", "ATTEMPT", "IN", "PHASE", "REASON", "WHAT", "HAPPENED"]
    assert gap.endswith("8 causes are not known: Temporal no longer keeps the run they were in")
    one = life_read().model_copy(update={"gaps": (Gap(first=8, last=8, why="lost"),)})
    assert "1 cause is not known: lost" in history_text.history(one)
    assert last.endswith(LAST)
    assert note == "note: The workload began before the oldest run that Temporal keeps."


@pytest.mark.row("E7", level="pure")
def test_E7_plain_manifests_are_not_called_by_the_kind_under_which_temporal_knows_them() -> None:
    kinds = {"List": "Manifests", "JobSet": "JobSet", "": ""}
    assert {kind: _kind_shown(kind) for kind in kinds} == kinds


def _kind_shown(kind: str) -> str:
    fields: dict[str, Any] = {
        "workflow_id": "workload/dev/research/x",
        "run_id": "r",
        "cluster": "dev",
        "namespace": "research",
    }
    one = Summary(name="x", kind=kind, phase="Running", started_at=NOW, execution="Running", **fields)
    heads, row = render.summaries([one], NOW).splitlines()
    return row[heads.index("KIND") : heads.index("PHASE")].strip()


@pytest.mark.row("E7", level="pure")
def test_E7_history_calls_the_first_start_starting_as_the_status_does() -> None:
    starts = [
        cause("begun", 0).model_copy(update={"phase": Phase.RESUMING, "attempt": attempt, "reason": reason})
        for attempt, reason in ((1, Reason.SUBMITTED), (1, Reason.RESUMED), (2, Reason.SUBMITTED))
    ]
    assert [render.phase_word(each) for each in starts] == ["Starting", "Resuming", "Resuming"]
    known = tuple(NumberedCause(**one.model_dump(), number=at, written=True) for at, one in enumerate(starts, 1))
    told = history_text.history(life_read().model_copy(update={"causes": known, "gaps": ()})).splitlines()[1:4]
    assert [line.split()[3] for line in told] == ["Starting", "Resuming", "Resuming"]


@pytest.mark.row("E7", level="pure")
def test_E7_what_has_not_begun_is_of_no_attempt() -> None:
    told = explanation(phase=Phase.PENDING, reason=Reason.QUEUED, attempt=0, next_attempt=None)
    head = render.explanation(ExplanationView(explanation=told, fresh=True), NOW).splitlines()[0]
    assert head == "train-llm  Pending      restarts 2 of 3"
    queued = status(phase=Phase.PENDING, reason=Reason.QUEUED, attempt=0)
    assert "\nattempt    -\n" in render.status(StatusView(status=queued, fresh=True), NOW)
    began = NumberedCause(**cause("begun", 0).model_copy(update={"attempt": 0}).model_dump(), number=1, written=True)
    row = history_text.history(life_read().model_copy(update={"causes": (began,), "gaps": ()})).splitlines()[1]
    assert row.split()[2] == "-"


@pytest.mark.row("E7", level="pure")
def test_E7_of_what_was_refused_no_pods_are_told_unless_some_were_seen() -> None:
    refused = status(phase=Phase.FAILED, reason=Reason.REFUSED, pods=PodCounts(expected=4))
    seen = refused.model_copy(update={"pods": PodCounts(expected=4, terminating=1)})
    nothing, some = (render.status(StatusView(status=one, fresh=True), NOW) for one in (refused, seen))
    assert "pods  " not in nothing
    assert "pods       0 of 4 pods running, 1 terminating" in some


@pytest.mark.row("E7", level="pure")
@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("InsufficientPodsReady: 1 of 2 pods do not run", " (InsufficientPodsReady): 1 of 2 pods do not run"),
        ("train: InsufficientPodsReady on node-7", ": train: InsufficientPodsReady on node-7"),
        ("train-0 exited 1 on node-7", " (InsufficientPodsReady): train-0 exited 1 on node-7"),
    ],
)
def test_E7_a_condition_says_its_reason_once(message: str, said: str) -> None:
    unhealthy = Condition(
        type=ConditionType.UNHEALTHY, status=True, reason=Reason.INSUFFICIENT_PODS_READY, message=message
    )
    told = StatusView(status=status(conditions=(unhealthy,)), fresh=True)
    assert f"           Unhealthy yes{said}\n" in f"{render.status(told, NOW)}\n"


def test_watch_tells_each_cause_and_transition_once() -> None:
    seen = Seen()
    first = status(causes=(cause("attempt 1 runs", 0),), causes_total=1)
    assert seen.news(first) == [
        "02:14:50Z                attempt 1 runs (Resetting)",
        "02:11:50Z  Running       all expected pods run",
    ]
    assert seen.news(first) == []
    assert seen.news(first.model_copy(update={"pods": PodCounts(expected=4, running=4)})) == []
    both = first.model_copy(update={"causes": (cause("a", 0), cause("b", 1), cause("c", 2)), "causes_total": 3})
    assert seen.news(both) == ["02:14:51Z                b (Resetting)", "02:14:52Z                c (Resetting)"]


def test_watch_names_a_new_attempt() -> None:
    before = status()
    after = status(phase=Phase.RESUMING, reason=Reason.SUBMITTED, message="all components exist", attempt=2, since=NOW)
    assert render.transition(before, after) == "02:14:50Z  Resuming      attempt 2: all components exist"


def test_ages_are_short() -> None:
    cases = {41: "41s", 192: "3m12s", 18125: "5h2m", 86400 * 12: "12d", -5: "0s"}
    assert {seconds: render.age(timedelta(seconds=seconds)) for seconds in cases} == cases


def test_what_waits_in_a_queue_says_its_place_there() -> None:
    waits = "gpus: place 2 of 3: it requests 2 pods, and 0 of 2 are free"
    text = render.explanation(ExplanationView(explanation=explanation(), fresh=True, queue=waits), NOW)
    assert f"queue      {waits}" in text.splitlines()
