"""A JobSet in the cluster begins suspended as JobSet has it, and goes first once its TTL is over (rows J14, J15)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.model import (
    After,
    ComponentView,
    CopyCounts,
    Failure,
    FailureClass,
    OperationKind,
    Parking,
    Phase,
    PodCounts,
    PodSet,
    Reason,
    Scope,
    Source,
    StartStatus,
    SuspendMode,
    Workload,
)
from holdfast.model.calls.cluster import Created, CreateInput, RemoveInput, Unparked
from holdfast.policy.attempt.park import begins_suspended
from holdfast.policy.loop.fold import fold
from holdfast.policy.loop.submission import submitted
from holdfast.policy.values.edit import edit
from holdfast.policy.values.events import Cancelled, Resumed
from holdfast.profiles.jobset import POLICY
from holdfast.workflows.operations.dispatch import call_of
from tests.policy.lives.elements import Elements, job, jobs

ROW = pytest.mark.row
JOBSET = Source(api_version="jobset.x-k8s.io/v1alpha2", kind="JobSet", generation=1)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@dataclass
class Applied(Elements):
    """A life whose Jobs are copies, and are seen suspended from the first if they were created so."""

    def look(self, **fields: Any) -> Any:
        attempt = self.state.attempt
        if attempt is not None and attempt.suspended:
            asleep = CopyCounts(expected=1, suspended=1)
            parked = {name: ComponentView(pods=PodCounts(), copies=asleep) for name in attempt.parked}
            self.views = {**self.views, **parked}
        return super().look(**fields)


def spec_of(*afters: Any, **fields: Any) -> Workload:
    made = (job("driver", 1, copies=1), job("worker", 1, copies=1, after=afters))
    return jobs(*made, policy=POLICY, source=JOBSET, **{"suspend": True, **fields})


def applied(*afters: Any, hold: OperationKind | None = None) -> Applied:
    spec = spec_of(*afters)
    one = Applied(spec=spec, hold={hold} if hold else set())
    one.state = edit(submitted(spec, one.now), begins_suspended=True)
    one.settle()
    return one


def sent(one: Applied) -> Any:
    return call_of(one.spec, one.state, "uid", one.now).argument


@ROW("J14", level="pure")
def test_J14_it_is_created_suspended_and_resumed_as_the_same_attempt():
    one = applied()
    assert one.kinds()[:4] == ["prepare", "create", "observe", "park"], "its Jobs are shown before they are proven idle"
    assert (one.state.phase, one.attempt, one.state.executions) == (Phase.SUSPENDED, 1, 1)
    one.tell(Resumed())
    assert (one.state.phase, one.attempt) == (Phase.RESUMING, 1)
    assert "unpark" in one.kinds()
    assert one.kinds().count("create") == 1


@ROW("J14", level="pure")
def test_J14_its_jobs_are_sent_suspended():
    one = applied(hold=OperationKind.CREATE)
    given: CreateInput = sent(one)
    assert [made.template["spec"]["suspend"] for made in given.components] == [True, True]
    assert "suspend" not in one.spec.components[0].template["spec"]


@ROW("J13", level="pure")
@pytest.mark.parametrize(
    ("status", "fields", "waiting"),
    [
        (StartStatus.READY, {}, ()),
        (StartStatus.READY, {"created_suspended": False}, ("worker",)),
        (StartStatus.COMPLETE, {}, ("worker",)),
    ],
)
def test_J13_what_waits_by_the_startup_policy_is_created_suspended_and_what_depends_on_another_is_not(
    status: StartStatus, fields: dict[str, bool], waiting: tuple[str, ...]
):
    one = applied(After(component="driver", status=status, **fields))
    attempt = one.state.attempt
    assert attempt is not None
    assert attempt.waiting == waiting
    assert attempt.parked == tuple(name for name in ("driver", "worker") if name not in waiting)


@ROW("J14", level="pure")
def test_J14_nothing_is_made_of_others_before_they_are_resumed():
    source = Source(api_version=JOBSET.api_version, kind=JOBSET.kind)
    by_deletion = edit(POLICY, deletion=edit(POLICY.deletion, suspend=SuspendMode.DELETE))

    def begins(spec: Workload, *, new: bool = True) -> bool:
        return begins_suspended(spec, edit(submitted(spec, NOON), begins_suspended=new))

    assert begins(spec_of())
    assert not begins(spec_of(suspend=False))
    assert not begins(spec_of(), new=False), "a run of an earlier release goes on as it began"
    assert not begins(edit(spec_of(), source=source)), "it was submitted, and no status shows Jobs"
    assert not begins(edit(spec_of(), policy=by_deletion)), "Kueue admits it"
    assert not begins(edit(spec_of(), sensitive=True)), "each act on it is recorded first"


@ROW("J14", level="pure")
def test_J14_one_that_is_resumed_or_deleted_while_it_is_created_goes_on_from_there():
    one = applied(hold=OperationKind.CREATE)
    one.tell(Resumed())
    assert one.kinds()[-1] == "create", "it is created suspended first"
    one.hold.clear()
    one.finish()
    one.settle()
    assert one.kinds()[2:5] == ["observe", "unpark", "observe"], one.kinds()
    assert one.state.phase is Phase.RESUMING
    other = applied(hold=OperationKind.CREATE)
    other.tell(Cancelled("no longer wanted"))
    other.hold.clear()
    other.settle()
    assert "remove" in other.kinds()


@ROW("J14", level="pure")
def test_J14_one_whose_jobs_are_refused_is_taken_away_and_not_tried_again():
    one = applied(hold=OperationKind.CREATE)
    failure = Failure(
        cls=FailureClass.LAUNCH, scope=Scope.COMPONENT, component="driver", subject="Job driver", reason="Invalid",
        time=one.now, attempt=1,
    )  # fmt: skip
    one.state = fold(one.state, Created(failure=failure), one.now)
    one.hold.clear()
    one.settle()
    assert (one.state.phase, one.kinds().count("create")) == (Phase.SUSPENDED, 1)
    assert "remove" in one.kinds()


@ROW("J14", level="pure")
def test_J14_what_its_templates_say_as_it_is_resumed_is_kept():
    one = applied()
    one.hold = {OperationKind.UNPARK}
    one.tell(Resumed())
    placed = {"driver": (PodSet(path="template.spec.template", replicas=1, labels={"flavor": "spot"}),)}
    one.state = fold(one.state, Unparked(done=True, pod_sets=placed), one.now)
    assert one.state.attempt is not None
    assert one.state.attempt.pod_sets == placed
    assert one.state.attempt.parking is not Parking.PARKED


@ROW("J15", level="pure")
def test_J15_once_its_ttl_is_over_the_jobset_is_deleted_before_its_jobs():
    timings = edit(POLICY.timings, success_ttl=timedelta(0))
    spec = edit(spec_of(suspend=False), policy=edit(POLICY, timings=timings))
    one = Applied(spec=spec, hold={OperationKind.REMOVE})
    one.up()
    one.says(driver="Complete", worker="Complete")
    given: RemoveInput = sent(one)
    assert (one.state.outcome, given.deletes_first) == (Phase.SUCCEEDED, True)
    other = Applied(spec=spec, hold={OperationKind.REMOVE})
    other.up()
    other.tell(Cancelled("no longer wanted", Reason.CANCEL_REQUESTED))
    assert not sent(other).deletes_first
