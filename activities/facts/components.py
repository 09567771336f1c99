"""Builds the view of one component, and its failures, from its objects and its pods. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Final, NamedTuple

from holdfast.activities.facts.nodes import NodeMark, on_marked
from holdfast.activities.facts.objects import ObjectFacts, TrueCondition
from holdfast.activities.facts.pods import PodFacts, PodState
from holdfast.activities.kube.raw import time_of
from holdfast.model import ComponentView, CopyCounts, Failure, FailureClass, PodCounts, Reason, Scope, StatusRule
from holdfast.model.calls.cluster import PlannedComponent
from holdfast.policy.failures.back_off import JOB_FIRST, JOB_MAXIMUM, earliest, pause_after
from holdfast.policy.failures.rules import SKEW

_ENDED_AT: Final = ("status.endTime", "status.completionTime", "status.terminationTime")
"""The fields in which kinds without conditions say when they ended."""
_LONG_AGO = datetime.min.replace(tzinfo=UTC)
_AHEAD: Final = timedelta(hours=1)
"""How far ahead the clock of a node may be."""
_JOB_ENDS: Final = frozenset({"Complete", "Failed", "FailureTarget", "SuccessCriteriaMet"})
"""Conditions after which a Job creates no more pods."""


class Unseen(Enum):
    """An object that the observer cannot read, and assumes to exist."""

    UNSEEN = 0


UNSEEN: Final = Unseen.UNSEEN


@dataclass(frozen=True, slots=True)
class Look:
    """What one look at an attempt knows apart from its components."""

    attempt: int
    owner: ObjectFacts | None
    at: datetime
    marks: Mapping[str, NodeMark]

    @property
    def submitted(self) -> bool:
        """Whether all was created: until then, an absent object has not been created yet, and is not missing.

        Nor is it missing while the workload is suspended, or once it has ended and its active objects were deleted.
        """
        owner = self.owner
        if owner is None or owner.suspended:
            return False
        return owner.submitted and not owner.deleting and not owner.ended


class Seen(NamedTuple):
    """A component's view, its failures, and its pods that have not been able to start so far."""

    view: ComponentView
    failures: list[Failure]
    stuck: list[Failure]


def view_of(
    component: PlannedComponent, found: ObjectFacts | Unseen | None, pods: Sequence[PodFacts], look: Look
) -> Seen:
    """Return the view of one object, with the pods that it created."""
    facts = found if isinstance(found, ObjectFacts) else None
    present = found is not None
    wanted = facts.wanted if facts is not None and facts.wanted is not None else component.expected_pods
    expected = min(wanted, component.expected_pods)
    job = facts.job if facts is not None and _is_job(component) else None
    counts, failed_pods = _count(component, pods, expected, job.completions if job is not None else None)
    verdicts = failures_said(component.status, facts, look.at) if facts else []
    complete = present and _complete(component, facts, counts)
    if complete:
        # Failed pods that its controller left behind on the way no longer count as failures (row D23).
        counts, failed_pods = counts.model_copy(update={"failed": 0}), []
    view = ComponentView(
        found=present or not look.submitted,
        uid=facts.uid if facts else "",
        complete=complete,
        failed=bool(verdicts),
        ready=_ready(component.status, facts) if facts else None,
        pods=counts,
        released=component.expected_pods - expected,
        overrun=max(0, wanted - component.expected_pods),
        starting=_starting(pods, counts),
        ending=_ending(pods, counts),
        backs_off_until=_backs_off_until(component, facts, pods, look.at) if counts.failed else None,
    )
    failures = [_pod_failure(pod, look) for pod in failed_pods]
    failures += [_pod_failure(pod, look) for pod in pods if pod.restarted and not complete]
    if look.marks and not view.complete:
        alive = [pod for pod in pods if pod.state is not PodState.FAILED]
        failed = [pod for pod in failed_pods if pod.state is PodState.FAILED]
        failures += on_marked([*alive, *failed], look.marks, look.attempt, look.at)
    if facts is not None and verdicts:
        failures.append(_verdict(component, facts, verdicts[0], look))
    if look.submitted and not present:
        failures.append(_missing(component, look))
    unstarted = [] if view.complete else [pod for pod in pods if _is_stuck(pod, look)]
    return Seen(view, failures, [_pod_failure(pod, look, stuck=True) for pod in unstarted])


def view_of_unserved(component: PlannedComponent, pods: Sequence[PodFacts]) -> Seen:
    """Return what is known of a component whose kind the cluster does not serve: the number of its pods (row D24).

    The controller that would replace or end them may not see them either, so nothing is concluded from them.
    """
    counts, _ = _count(component, pods, component.expected_pods)
    return Seen(ComponentView(pods=counts.model_copy(update={"failed": 0}), unserved=True), [], [])


def view_of_copies(
    component: PlannedComponent,
    objects: Sequence[ObjectFacts | Unseen | None],
    pods: Sequence[PodFacts],
    look: Look,
) -> Seen:
    """Return one view of all copies of a component: found if all are, complete if all are, failed if any has."""
    by_copy: dict[int | None, list[PodFacts]] = {}
    for pod in pods:
        by_copy.setdefault(pod.copy, []).append(pod)
    views: list[ComponentView] = []
    failures: list[Failure] = []
    stuck: list[Failure] = []
    tally = dict.fromkeys(CopyCounts.model_fields, 0) | {"expected": len(objects)}
    for index, (name, found) in enumerate(zip(component.object_names, objects, strict=True)):
        update = {"object_name": name, "expected_pods": component.pods_each, "copies": None}
        seen = view_of(component.model_copy(update=update), found, by_copy.pop(index, ()), look)
        views.append(seen.view)
        failures += seen.failures
        stuck += seen.stuck
        for standing in _standing(component, seen.view, found):
            tally[standing] += 1
    stray = [view_of(component.model_copy(update={"expected_pods": 0}), UNSEEN, by_copy[key], look) for key in by_copy]
    failures += [one for each in stray for one in each.failures]
    present = [one.uid for one in views if one.uid]
    view = ComponentView(
        found=all(one.found for one in views),
        uid=hashlib.sha256("/".join(present).encode()).hexdigest()[:16] if present else "",
        complete=all(one.complete for one in views),
        failed=any(one.failed for one in views),
        pods=_together([one.pods for one in (*views, *(each.view for each in stray))]),
        copies=CopyCounts(**tally),
        excused=sum(max(0, one.pods.expected - one.pods.ready) for one in views if one.complete or one.failed),
        released=sum(one.released for one in views),
        overrun=sum(one.overrun for one in views),
        starting=earliest(one.starting for one in views if one.unready and not one.failed),
        ending=earliest(one.ending for one in views if one.unready and not one.failed),
        backs_off_until=earliest(one.backs_off_until for one in views if one.pods.failed and not one.failed),
    )
    return Seen(view, failures, stuck)


def _backs_off_until(
    component: PlannedComponent, facts: ObjectFacts | None, pods: Sequence[PodFacts], at: datetime
) -> datetime | None:
    """Return until when a Job with retries left may wait on its own before it replaces a failed pod (row D22).

    Its controller doubles the pause with each failure since a success. Counting all failures gives an upper bound, and
    so does counting failed pods that its failure policy ignores: these use up no retries. A time that is far ahead of
    the look is the fault of a node's clock, and is waited for by nobody.
    """
    pods = [pod for pod in pods if pod.failure_time is None or pod.failure_time - at <= _AHEAD]
    job = facts.job if facts is not None and _is_job(component) else None
    if facts is not None and component.status.failed and not _is_job(component):
        return _children_back_off_until(pods)
    if facts is None or job is None or job.suspended or any(one.type in _JOB_ENDS for one in facts.conditions):
        return None
    times = [pod.failure_time for pod in pods if pod.state is PodState.FAILED]
    last = max((time for time in times if time is not None), default=None)
    failures = max(job.failed, len(times))
    if last is None or job.failed > job.limit:
        return None
    return last + pause_after(failures, JOB_FIRST, JOB_MAXIMUM)


def _children_back_off_until(pods: Sequence[PodFacts]) -> datetime | None:
    """Return the same for Jobs that a component has created, as a JobSet does; None without a failed pod of one.

    How many retries such a Job has is not known here. Once it has none, the component's own status says that it failed.
    """
    failed: dict[str, list[datetime]] = {}
    for pod in pods:
        if pod.state is PodState.FAILED and pod.failure_time and pod.controller and pod.controller.kind == "Job":
            failed.setdefault(pod.controller.uid, []).append(pod.failure_time)
    return earliest(max(times) + pause_after(len(times), JOB_FIRST, JOB_MAXIMUM) for times in failed.values())


def _starting(pods: Sequence[PodFacts], counts: PodCounts) -> datetime | None:
    """Return the creation time of the oldest pending pod still needed, newest first; None if too few exist (row D14).

    The newest pods count, since in a rolling update, or after many evictions in a row, each pod has its own time.
    """
    lacking = counts.expected - counts.ready
    created = sorted((pod.created or _LONG_AGO for pod in pods if pod.state is PodState.PENDING), reverse=True)
    return created[lacking - 1] if 0 < lacking <= len(created) else None


def _ending(pods: Sequence[PodFacts], counts: PodCounts) -> datetime | None:
    """Return until when the last of the pods being deleted may take to end; None if too few are (row D14).

    Its own grace may be longer than the workload's, and many controllers make no other pod before it is gone.
    """
    lacking = counts.expected - counts.ready - counts.pending
    known = sorted((pod.ends_by for pod in pods if pod.ends_by is not None), reverse=True)
    return known[lacking - 1] if 0 < lacking <= len(known) else None


def has_ended(component: PlannedComponent, found: ObjectFacts, pods: Sequence[PodFacts]) -> bool:
    """Whether an existing object is no longer active: it is complete or has failed, or its pods have."""
    look = Look(attempt=0, owner=None, at=_LONG_AGO, marks={})
    seen = view_of(component, found, pods, look)
    return bool({"succeeded", "failed"} & {*_standing(component, seen.view, found)})


def _standing(component: PlannedComponent, view: ComponentView, found: ObjectFacts | Unseen | None) -> list[str]:
    """Return the fields of `CopyCounts` in which one copy counts; empty if it is gone."""
    if view.complete:
        return ["succeeded"]
    if view.failed or (is_pod(component) and view.pods.failed):
        return ["failed"]
    if not view.uid and found is not UNSEEN:
        return []
    job = found.job if isinstance(found, ObjectFacts) and _is_job(component) else None
    if job is not None:
        told = {"ready": job.good >= job.wanted, "active": job.active > 0, "suspended": job.suspended}
    else:
        told = {
            "ready": view.started,
            "active": bool(view.pods.pending or view.pods.running or view.pods.terminating),
        }
    return [name for name, holds in told.items() if holds]


def _is_job(component: PlannedComponent) -> bool:
    return (component.api_version, component.kind) == ("batch/v1", "Job")


def is_pod(component: PlannedComponent) -> bool:
    """Whether a component is itself a pod."""
    return (component.api_version, component.kind) == ("v1", "Pod")


def _together(counts: Sequence[PodCounts]) -> PodCounts:
    return PodCounts(**{field: sum(getattr(one, field) for one in counts) for field in PodCounts.model_fields})


def _count(
    component: PlannedComponent, pods: Sequence[PodFacts], expected: int, completions: int | None = None
) -> tuple[PodCounts, list[PodFacts]]:
    """Count an object's pods, and return those that failed or were displaced, and have not been replaced.

    Rows A15, A18, L22.

    Args:
        component: The component as planned.
        pods: The pods of the object.
        expected: How many pods it should have at once.
        completions: Of a Job: how many of its pods must succeed; None if it does not say.
    """
    states = dict.fromkeys(PodState, 0)
    for pod in pods:
        states[pod.state] += 1
    failed = [pod for pod in pods if pod.state is PodState.FAILED]
    displaced = [pod for pod in pods if pod.state is PodState.TERMINATING and pod.reason]
    if is_pod(component):
        unreplaced = len(failed)  # It has no controller that would replace it.
    else:
        going, succeeded = states[PodState.PENDING] + states[PodState.RUNNING], states[PodState.SUCCEEDED]
        lacking = max(0, expected - going - succeeded)
        unreplaced = min(len(failed), lacking)
        if completions is not None:
            # Pods of earlier waves have succeeded, and replace none of this one.
            lacking = max(0, min(expected, completions - succeeded) - going)
            unreplaced = max(unreplaced, min(lacking, len(_last(pods, failed))))
        displaced = displaced[: max(0, lacking - unreplaced)]
    # A controller replaces the pods that failed first, so the last ones are those still unreplaced.
    failed.sort(key=_failed_at)
    counts = PodCounts(
        expected=expected,
        pending=states[PodState.PENDING],
        running=states[PodState.RUNNING],
        succeeded=states[PodState.SUCCEEDED],
        failed=unreplaced,
        terminating=states[PodState.TERMINATING],
    )
    return counts, [*failed[len(failed) - unreplaced :], *displaced]


def _last(pods: Sequence[PodFacts], failed: Sequence[PodFacts]) -> list[PodFacts]:
    """Return the failed pods of a Job after which it has created none.

    While it backs off it creates no pod, and afterwards all that it lacks. So a pod created after a failure tells that
    the failed pod was replaced, and that what is lacking now is the next of a pod that succeeded.
    """
    youngest = max((pod.created or _LONG_AGO for pod in pods), default=_LONG_AGO)
    return [pod for pod in failed if youngest <= max(_failed_at(pod)[0] + SKEW, pod.created or _LONG_AGO)]


def _complete(component: PlannedComponent, found: ObjectFacts | None, counts: PodCounts) -> bool:
    if component.status.tells_completion:
        return found is not None and says_complete(component.status, found)
    if not component.expected_pods:
        return True
    # A component that is scaled down to zero has not succeeded.
    return 0 < counts.expected <= counts.succeeded and not (counts.going or counts.failed)


def says_complete(rule: StatusRule, found: ObjectFacts) -> bool:
    """Whether an object's own status says that it is complete."""
    words = dict(found.words)
    return any(one.type in rule.complete for one in found.conditions) or any(
        one.holds(words) for one in rule.succeeded_when
    )


def failures_said(rule: StatusRule, found: ObjectFacts, at: datetime | None = None) -> list[TrueCondition]:
    """Return the failures in an object's own status, as conditions; `at` is their time if the status gives none."""
    words = dict(found.words)
    ended = next((end for end in (time_of(words.get(path)) for path in _ENDED_AT) if end is not None), at)
    said = [one for one in found.conditions if one.type in rule.failed]
    fields = [one for one in rule.failed_when if one.holds(words)]
    return said + [TrueCondition(one.path, Reason.FAILED_COMPONENT, str(one), ended) for one in fields]


def _ready(rule: StatusRule, found: ObjectFacts) -> bool | None:
    """Whether an object's own status says that it is ready; None if the rule does not cover readiness."""
    if not rule.tells_readiness:
        return None
    words = dict(found.words)
    said = any(one.type in rule.ready for one in found.conditions)
    return said or any(one.holds(words) for one in rule.ready_when)


def _is_stuck(pod: PodFacts, look: Look) -> bool:
    return pod.state is PodState.PENDING and pod.stuck_from is not None and pod.stuck_from <= look.at


def _pod_failure(pod: PodFacts, look: Look, *, stuck: bool = False) -> Failure:
    owner = look.owner
    return Failure(
        cls=pod.failure_class,
        scope=Scope.MEMBER,
        reason=pod.reason,
        time=pod.failure_time or pod.created or (owner.created if owner else None) or look.at,
        component=pod.component,
        subject=pod.name,
        node=pod.node,
        exit_code=pod.exit_code,
        exit_codes=pod.exit_codes,
        message=pod.message,
        attempt=look.attempt,
        stuck=stuck,
    )


def _verdict(component: PlannedComponent, found: ObjectFacts, condition: TrueCondition, look: Look) -> Failure:
    return Failure(
        cls=FailureClass.APP,
        scope=Scope.COMPONENT,
        reason=condition.reason or Reason.FAILED_COMPONENT,
        time=condition.since or found.created or look.at,
        component=component.name,
        subject=found.name,
        message=condition.message,
        attempt=look.attempt,
    )


def _missing(component: PlannedComponent, look: Look) -> Failure:
    return Failure(
        cls=FailureClass.MISSING,
        scope=Scope.COMPONENT,
        reason=Reason.MISSING_COMPONENT,
        time=look.at,
        component=component.name,
        subject=component.object_name,
        message=f"{component.kind} {component.object_name} is gone",
        attempt=look.attempt,
    )


def _failed_at(pod: PodFacts) -> tuple[datetime, str]:
    return (pod.failure_time or pod.created or _LONG_AGO, pod.name)
