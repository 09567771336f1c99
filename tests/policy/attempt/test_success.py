"""What ends a workload as Succeeded, and what puts that out of reach (rows J12, J19), on virtual time."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from holdfast.model import (
    Action,
    ActionKind,
    After,
    ComponentView,
    ConditionType,
    CopyCounts,
    Deletion,
    Match,
    OperationKind,
    Phase,
    PodCounts,
    Policy,
    Reason,
    Rule,
    Scope,
    StartStatus,
    State,
    Success,
    SuccessOperator,
    SuspendMode,
    Workload,
)
from holdfast.model.observation import Asked
from holdfast.policy.status.explain import explain_of, status_of
from holdfast.policy.values.edit import edit
from holdfast.policy.values.events import Observed
from holdfast.profiles.streams import POLICY as STREAMS
from tests.policy.lives.elements import Elements, config, job, jobs, streams

ROW = pytest.mark.row
ANY, ALL = SuccessOperator.ANY, SuccessOperator.ALL
COMPONENT = Match(scopes=(Scope.COMPONENT,))
IGNORED = Rule(name="fail-job", match=COMPONENT, action=Action(kind=ActionKind.IGNORE, charge=None, grace=False))
RESTARTED = Action(grace=False)


def policy(operator: SuccessOperator = ALL, *components: str, rules: tuple[Rule, ...] = (), **fields: Any) -> Policy:
    return Policy(success=Success(operator=operator, components=components), rules=rules, default=RESTARTED, **fields)


def life(given: Policy, *components: str) -> Elements:
    return Elements(spec=jobs(*(components or ("driver", "worker", "helper")), policy=given)).up()


def told(one: Elements) -> str:
    explanation = explain_of(one.spec, one.state, one.now)
    return " | ".join([explanation.why, explanation.now, *(each.what for each in explanation.next)])


@ROW("J12", level="pure")
@pytest.mark.parametrize(
    ("success", "complete", "why"),
    [
        (policy(ALL), ["driver", "worker", "helper"], "all components are complete"),
        (policy(ALL, "driver"), ["driver"], "Job driver is complete"),
        (policy(ALL, "driver", "helper"), ["helper", "driver"], "all of Job driver, Job helper are complete"),
        (policy(ANY), ["helper"], "Job helper is complete, and any of Job driver, Job worker, Job helper is enough"),
        (policy(ANY, "driver"), ["worker", "driver"], "Job driver is complete"),
        (
            policy(ANY, "driver", "helper"),
            ["worker", "helper"],
            "Job helper is complete, and any of Job driver, Job helper is enough",
        ),
    ],
)
def test_J12_it_succeeds_with_the_last_that_is_needed_and_not_before(success: Policy, complete: list[str], why: str):
    one = life(success)
    for name in complete[:-1]:
        one.says(**{name: "Complete"})
        assert one.state.phase is Phase.RUNNING, f"{name} alone is not enough"
    one.says(**{complete[-1]: "Complete"})
    assert (one.state.phase, one.state.reason, one.state.message) == (Phase.SUCCEEDED, Reason.COMPLETED, why)
    assert one.state.outcome is Phase.SUCCEEDED


@ROW("J12", level="pure")
def test_J12_what_runs_on_after_success_is_removed_with_the_rest_and_holds_quota_until_then():
    one = life(policy(ANY, "driver")).says(driver="Complete")
    quota = {each.type: each.status for each in status_of(one.spec, one.state, one.now, "uid").conditions}
    assert quota[ConditionType.QUOTA_RESERVED] is True
    one.after(days=7)
    assert (one.ended, one.kinds()[-1]) == (Phase.SUCCEEDED, "remove")


@ROW("J12", level="pure")
def test_J12_the_cluster_is_told_as_soon_as_what_ran_on_has_ended():
    one = life(policy(ANY, "driver")).says(driver="Complete")
    one.hold = {OperationKind.REPORT}
    one.pods("driver", "worker", "helper", succeeded=2)
    assert one.waits_for == "telling the cluster: its last pod has ended, and it holds no quota"


@ROW("J12", level="pure")
def test_J12_what_is_complete_as_soon_as_it_is_there_is_nobodys_success():
    one = Elements(spec=jobs("driver", config(), policy=policy(ANY))).up()
    assert one.state.phase is Phase.RUNNING
    one.says(driver="Complete")
    assert one.state.phase is Phase.SUCCEEDED


@ROW("J12", level="pure")
@ROW("A11", level="pure")
@pytest.mark.parametrize("mode", SuspendMode)
@pytest.mark.parametrize("last", ["", "Complete"])
def test_J12_what_has_succeeded_is_not_suspended_by_whoever_asks_with_the_same_news(mode: SuspendMode, last: str):
    one = life(policy(deletion=Deletion(suspend=mode)), "driver", "worker").says(driver="Complete")
    before = Asked(kind="JobSet", generation=1)
    one.state = edit(one.state, shows_waits=True, asked=before)  # As every run does that begins now.
    one.views = {**one.views, "worker": edit(one.views["worker"], complete=last == "Complete")}
    one.tell(Observed(one.look(asked=edit(before, generation=2, suspend=True))))
    if last:
        assert (one.state.outcome, one.state.reason) == (Phase.SUCCEEDED, Reason.COMPLETED)
        assert not {"remove", "park"} & set(one.kinds())
    else:
        assert (one.state.outcome, one.state.phase) == (None, Phase.SUSPENDED)
        assert one.kinds()[-1] == ("remove" if mode is SuspendMode.DELETE else "park")


@ROW("J12", level="pure")
def test_J12_a_failure_is_ruled_as_ever_until_success():
    one = life(policy(ALL, "driver")).says(helper="Failed")
    assert (one.state.restarts, one.state.reason) == (1, Reason.RESETTING)
    assert one.state.used == {"restart": 1}
    one.after(seconds=90)
    one.up().says(driver="Complete")
    assert one.state.phase is Phase.SUCCEEDED


@ROW("J12", level="pure")
def test_J12_success_decides_before_a_failure_that_is_seen_with_it():
    one = life(policy(ALL, "driver")).says(driver="Complete", worker="Failed")
    assert (one.state.phase, one.state.restarts) == (Phase.SUCCEEDED, 0)


@ROW("J12", level="pure")
def test_J12_explain_says_what_success_looks_at():
    one = life(policy(ANY, "driver", "helper"))
    assert "6 of 6 pods run or have succeeded; it succeeds once any of Job driver, Job helper is complete" in told(one)
    assert "succeeds" not in told(life(policy(ALL)))


@ROW("J12", level="pure")
@ROW("J19", level="pure")
@pytest.mark.parametrize(
    ("success", "failed", "fails"),
    [
        (policy(ALL, rules=(IGNORED,)), ["helper"], True),
        (policy(ALL, "driver", "worker", rules=(IGNORED,)), ["helper"], False),
        (policy(ALL, "driver", "worker", rules=(IGNORED,)), ["helper", "driver"], True),
        (policy(ANY, rules=(IGNORED,)), ["helper", "driver"], False),
        (policy(ANY, rules=(IGNORED,)), ["helper", "driver", "worker"], True),
        (policy(ANY, "driver", "helper", rules=(IGNORED,)), ["worker", "driver"], False),
        (policy(ANY, "driver", "helper", rules=(IGNORED,)), ["helper", "driver"], True),
        (policy(ANY, "driver", rules=(IGNORED,)), ["driver"], True),
    ],
)
def test_J19_a_job_left_failed_ends_the_workload_only_where_it_cannot_succeed_any_more(
    success: Policy, failed: list[str], fails: bool
):
    one = life(success)
    for name in failed[:-1]:
        one.says(**{name: "Failed"})
        assert (one.state.phase, one.state.restarts) == (Phase.RUNNING, 0)
    one.says(**{failed[-1]: "Failed"})
    assert one.state.restarts == 0
    assert one.state.phase is (Phase.FAILED if fails else Phase.RUNNING)
    if fails:
        assert one.state.reason is Reason.SUCCESS_UNREACHABLE
        assert "observe" in one.kinds(), "a live look comes before it"
        assert one.state.outcome_failure is not None
        assert one.state.outcome_failure.component in failed


@ROW("J19", level="pure")
def test_J19_a_documents_rule_may_be_called_default():
    one = life(policy(ALL, "driver", "worker", rules=(edit(IGNORED, name="default"),)))
    one.state = edit(one.state, shows_waits=True)  # As every run does that begins now.
    one.says(worker="Failed")
    assert (one.state.phase, one.state.reason) == (Phase.FAILED, Reason.SUCCESS_UNREACHABLE)


@ROW("J19", level="pure")
def test_J19_the_workload_says_why_it_failed():
    one = life(policy(ALL, "driver", "worker", rules=(IGNORED,))).says(worker="Failed")
    assert one.state.message == (
        "success is out of reach: success needs that all of Job driver, Job worker are complete, and Job worker has "
        "failed for good (rule fail-job): worker: BackoffLimitExceeded"
    )
    assert one.state.message in [each.message for each in one.state.causes]


def ordered(given: Policy, *, last: StartStatus = StartStatus.COMPLETE) -> Elements:
    """Return the life of a driver, a worker that waits until it is complete, and a helper that waits for the worker."""
    worker = job("worker", after=(After(component="driver", status=StartStatus.COMPLETE),))
    helper = job("helper", after=(After(component="worker", status=last),))
    one = Elements(spec=jobs("driver", worker, helper, "free", policy=given))
    one.state = edit(one.state, shows_waits=True)  # As every run does that begins now.
    return one.up()


@ROW("J13", level="pure")
@ROW("J19", level="pure")
@pytest.mark.parametrize("last", StartStatus)
@pytest.mark.parametrize(
    ("success", "fails"),
    [
        (policy(ALL, "worker", rules=(IGNORED,)), True),
        (policy(ALL, "helper", rules=(IGNORED,)), True),
        (policy(ANY, "worker", "helper", rules=(IGNORED,)), True),
        (policy(ANY, "helper", "free", rules=(IGNORED,)), False),
        (policy(ALL, "free", rules=(IGNORED,)), False),
    ],
)
def test_J19_what_waits_for_a_job_left_failed_never_succeeds(success: Policy, fails: bool, last: StartStatus):
    one = ordered(success, last=last).says(driver="Failed")
    assert one.state.restarts == 0
    assert (one.state.phase, "observe" in one.kinds()) == (Phase.FAILED if fails else Phase.RUNNING, fails)
    if fails:
        assert one.state.reason is Reason.SUCCESS_UNREACHABLE
        assert one.state.outcome_failure is not None
        assert one.state.outcome_failure.component == "driver"


@ROW("J19", level="pure")
def test_J19_it_says_what_waits_and_for_what():
    one = ordered(policy(ALL, "worker", rules=(IGNORED,))).says(driver="Failed")
    assert one.state.message == (
        "success is out of reach: success needs that Job worker is complete, and Job worker waits for Job driver, "
        "which has failed for good (rule fail-job): driver: BackoffLimitExceeded"
    )


@ROW("J13", level="pure")
def test_J19_what_was_created_before_the_failure_goes_on():
    one = ordered(policy(ALL, "worker", rules=(IGNORED,))).says(driver="Complete")
    assert "worker" in one.views
    one.pods("worker", running=2)
    one.says(driver="Failed")
    assert one.state.outcome is None
    assert one.says(worker="Complete").state.phase is Phase.SUCCEEDED


@ROW("J19", level="pure")
def test_J19_what_is_still_to_succeed_succeeds():
    one = life(policy(ALL, "driver", rules=(IGNORED,))).says(helper="Failed").says(driver="Complete")
    assert one.state.phase is Phase.SUCCEEDED


@ROW("J19", level="pure")
def test_J19_of_a_restart_and_an_end_seen_together_the_earlier_failure_decides():
    ignored = IGNORED.model_copy(update={"match": Match(scopes=(Scope.COMPONENT,), components=("driver",))})
    for first, phase in (("driver", Phase.FAILED), ("worker", Phase.RESETTING)):
        one = life(policy(ALL, rules=(ignored,)))
        one.failed_at = {first: one.now}
        one.after(seconds=10)
        one.says(driver="Failed", worker="Failed")
        assert one.state.phase is phase, f"{first} failed first"


@ROW("J19", level="pure")
def test_J19_what_success_does_not_look_at_neither_ends_it_nor_decides_before_what_was_earlier():
    left = IGNORED.model_copy(update={"match": Match(scopes=(Scope.COMPONENT,), components=("driver", "helper"))})
    for second, phase in (("worker", Phase.RESETTING), ("driver", Phase.FAILED)):
        one = life(policy(ALL, "driver", rules=(left,)))
        third = "driver" if second == "worker" else "worker"
        begun = one.now
        one.after(seconds=10)
        one.failed_at = {"helper": begun, second: begun.replace(second=1), third: begun.replace(second=2)}
        one.says(helper="Failed", driver="Failed", worker="Failed")
        assert one.state.phase is phase, f"{second} failed before {third}"
        if phase is Phase.FAILED:
            assert one.state.outcome_failure is not None
            assert one.state.outcome_failure.component == "driver"


@ROW("J19", level="pure")
def test_J19_a_stale_report_ends_nothing():
    one = life(policy(ALL, rules=(IGNORED,)))
    well = one.views
    one.hold.add(OperationKind.OBSERVE)
    one.says(worker="Failed")
    assert one.state.phase is Phase.RUNNING
    one.hold.clear()
    one.views = well
    one.finish()
    one.settle()
    assert one.state.phase is Phase.RUNNING


def test_what_the_default_ignores_lives_on_as_ever():
    one = Elements(spec=streams(2, STREAMS, replacement=STREAMS.replacement.model_copy(update={"failed": False}))).up()
    one.pods("pe-1", failed=1)
    one.after(hours=1)
    assert one.state.outcome is None
    jobs_ = life(Policy(default=Action(kind=ActionKind.IGNORE, charge=None, grace=False)), "driver", "worker")
    jobs_.says(worker="Failed").after(hours=1)
    assert jobs_.state.outcome is None


def refusal(**success: Any) -> str:
    with pytest.raises(ValidationError) as caught:
        jobs("driver", config(), policy=Policy(success=Success(**success)))
    return str(caught.value)


@ROW("J12", level="pure")
@pytest.mark.parametrize(
    ("success", "text"),
    [
        ({"components": ("nobody",)}, "policy.success.components[0]: 'nobody' names no component: expected some of"),
        ({"components": ("driver", "driver")}, "policy.success.components[1]: 'driver' is given twice"),
        ({"components": ("adl",)}, "policy.success.components[0]: ConfigMap adl brings no pods"),
    ],
)
def test_J12_success_by_what_cannot_be_is_refused_with_its_path(success: dict[str, Any], text: str):
    assert text in refusal(**success)


def test_a_policy_that_says_nothing_of_success_is_written_as_before():
    spec = jobs("driver")
    assert "success" not in spec.model_dump(mode="json", by_alias=True)["policy"]
    state = State(since="2026-01-01T00:00:00Z", policy=spec.policy)  # type: ignore[arg-type]
    assert "success" not in state.model_dump(mode="json", by_alias=True)["policy"]
    other = jobs("driver", policy=policy(ANY, "driver"))
    assert other.spec_hash() != spec.spec_hash()
    assert Workload.model_validate_json(other.model_dump_json(by_alias=True)) == other


@ROW("J12", level="pure")
def test_J12_any_one_copy_is_enough_and_any_is_out_of_reach_only_with_the_last():
    def life_of(success: Policy) -> Elements:
        return Elements(spec=jobs(job("worker", 1, copies=3), policy=success)).up()

    def copies(one: Elements, *, failed: int = 0, succeeded: int = 0) -> Elements:
        counts = CopyCounts(expected=3, failed=failed, succeeded=succeeded)
        view = ComponentView(pods=PodCounts(expected=3, running=3), failed=bool(failed), copies=counts)
        one.views = {"worker": view}
        one.tell(Observed(one.look()))
        return one

    assert copies(life_of(policy(ANY)), succeeded=1).state.phase is Phase.SUCCEEDED
    assert copies(life_of(policy(ALL)), succeeded=2).state.phase is Phase.RUNNING
    assert copies(life_of(policy(ANY, rules=(IGNORED,))), failed=2).state.phase is Phase.RUNNING
    assert copies(life_of(policy(ANY, rules=(IGNORED,))), failed=3).state.phase is Phase.FAILED
    assert copies(life_of(policy(ALL, rules=(IGNORED,))), failed=1).state.phase is Phase.FAILED
