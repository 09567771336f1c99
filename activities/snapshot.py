"""From what the cluster holds of one attempt to one `Observation`. Pure: the live look and the watch both use it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from holdfast.activities.contract import PlannedComponent
from holdfast.activities.nodes import NodeMark, on_marked
from holdfast.activities.pod_facts import PodFacts, PodState
from holdfast.activities.raw import mapping, mappings, one_line, time_of, version_of
from holdfast.model import ComponentView, Failure, FailureClass, Interval, Observation, PodCounts, Reason, Scope
from holdfast.model.observation import FAILURES_MAXIMUM

MESSAGE_MAXIMUM = 200
ENDED = frozenset({PodState.SUCCEEDED, PodState.FAILED})
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class TrueCondition:
    """A condition of an object's status that holds."""

    type: str
    reason: str
    message: str
    since: datetime | None


@dataclass(frozen=True, slots=True)
class ObjectFacts:
    """All that a snapshot needs of an anchor, an owner or a component: small enough to be kept by thousands."""

    uid: str
    name: str
    owner_uids: tuple[str, ...]
    deleting: bool
    created: datetime | None
    submitted: bool
    conditions: tuple[TrueCondition, ...]
    revision: int


def object_facts(raw: Mapping[str, Any]) -> ObjectFacts:
    """Return what a snapshot needs of an anchor, an attempt's owner or a component."""
    metadata: Mapping[str, Any] = raw["metadata"]
    status = mapping(raw.get("status"))
    return ObjectFacts(
        uid=metadata.get("uid", ""),
        name=metadata.get("name", ""),
        owner_uids=tuple(str(one.get("uid", "")) for one in mappings(metadata.get("ownerReferences"))),
        deleting="deletionTimestamp" in metadata,
        created=time_of(metadata.get("creationTimestamp")),
        submitted=status.get("submitted") is True,
        conditions=_true_conditions(status.get("conditions")),
        revision=version_of(metadata),
    )


def plan_of(owner: Mapping[str, Any]) -> tuple[PlannedComponent, ...]:
    """Return the plan an attempt's owner object carries."""
    return tuple(PlannedComponent.model_validate(entry) for entry in mappings(mapping(owner.get("spec")).get("plan")))


def summarize(
    *,
    workload_uid: str,
    attempt: int,
    owner_uid: str,
    plan: Sequence[PlannedComponent],
    anchor: ObjectFacts | None,
    owner: ObjectFacts | None,
    objects: Mapping[str, ObjectFacts | None],
    pods: Iterable[PodFacts],
    at: datetime,
    live: bool = False,
    epoch: int = 0,
    revision: int | None = None,
    blind: tuple[Interval, ...] = (),
    unseen: Collection[str] = (),
    marks: Mapping[str, NodeMark] = MappingProxyType({}),
) -> Observation:
    """Return the snapshot of one attempt.

    Args:
        workload_uid: whose attempt.
        attempt: its number; pods of another attempt or workload are passed over.
        owner_uid: the owner object this attempt was created under; empty takes the one that is found.
        plan: the attempt's components.
        anchor: the workload's anchor, None where there is none.
        owner: the attempt's owner object, None where there is none.
        objects: each component's object under its planned name, by component; None or absent where there is none.
        pods: pods that carry the workload's uid.
        at: when this was seen.
        live: whether by quorum reads.
        epoch: restorations of the cluster so far.
        revision: the version up to which everything given is known; None takes the highest version among what is given,
            which is right only for a reader that applies all changes in order.
        blind: when the observer could not see.
        unseen: components whose kind the observer does not read: taken to be there.
        marks: the nodes that are marked as bad, by name.
    """
    ours = [pod for pod in pods if pod.workload_uid == workload_uid and pod.attempt == attempt]
    if owner is not None and owner_uid and owner.uid != owner_uid:
        owner = None
    owner_uid = owner_uid or (owner.uid if owner else "")
    by_component: dict[str, list[PodFacts]] = {}
    for pod in ours:
        by_component.setdefault(pod.component, []).append(pod)
    submitted = owner is not None and owner.submitted and not owner.deleting
    views: dict[str, ComponentView] = {}
    failures: list[Failure] = []
    for component in plan:
        found = objects.get(component.name)
        if found is not None and owner_uid not in found.owner_uids:
            found = None
        present = found is not None or component.name in unseen
        counts, failed_pods = _count(component, by_component.get(component.name, ()))
        verdicts = [one for one in (found.conditions if found else ()) if one.type in component.status.failed]
        views[component.name] = ComponentView(
            # Until the owner is marked submitted, what is not there has not been created yet: that is not missing.
            found=present or not submitted,
            uid=found.uid if found else "",
            complete=present and _complete(component, found, counts),
            failed=bool(verdicts),
            pods=counts,
        )
        failures += [_pod_failure(pod, attempt, owner, at) for pod in failed_pods]
        if marks and not views[component.name].complete:
            alive = [pod for pod in by_component.get(component.name, ()) if pod.state is not PodState.FAILED]
            failures += on_marked([*alive, *failed_pods], marks, attempt, at)
        if found is not None and verdicts:
            failures.append(_verdict(component, found, verdicts[0], attempt, at))
        if submitted and not present:
            failures.append(_missing(component, attempt, at))
    if revision is None:
        known = [*(one.revision for one in (anchor, owner, *objects.values()) if one), *(pod.revision for pod in ours)]
        revision = max(known, default=0)
    return Observation(
        workload_uid=workload_uid,
        attempt=attempt,
        owner_uid=owner_uid,
        at=at,
        live=live,
        epoch=epoch,
        revision=revision,
        owner_found=owner is not None,
        owner_deleting=owner is not None and owner.deleting,
        anchor_deleting=anchor is not None and anchor.deleting,
        components=views,
        unplanned=sum(pod.state not in ENDED for name in by_component.keys() - views for pod in by_component[name]),
        failures=_kept(failures, FAILURES_MAXIMUM),
        failures_total=len(failures),
        blind=blind,
    )


def _kept(failures: Iterable[Failure], most: int) -> tuple[Failure, ...]:
    """Return the failures that travel, in the order in which they decide, when not all can.

    They are not cut in that order: many alike must not hide another that decides otherwise. What befell a component or
    all of the workload comes first, then the earliest of each kind of failure, then the rest.
    """
    rest = sorted(failures, key=Failure.order)
    kinds: set[tuple[FailureClass, str, int | None]] = set()
    ranked: list[tuple[int, int]] = []
    for index, one in enumerate(rest):
        kind = (one.cls, one.reason, one.exit_code)
        ranked.append((0 if one.scope is not Scope.MEMBER else 2 if kind in kinds else 1, index))
        if one.scope is Scope.MEMBER:
            kinds.add(kind)
    return tuple(rest[index] for index in sorted(index for _, index in sorted(ranked)[:most]))


def _count(component: PlannedComponent, pods: Sequence[PodFacts]) -> tuple[PodCounts, list[PodFacts]]:
    """Count a component's pods, and return those failed ones that nothing has replaced (row A18)."""
    states = dict.fromkeys(PodState, 0)
    for pod in pods:
        states[pod.state] += 1
    failed = [pod for pod in pods if pod.state is PodState.FAILED]
    if component.kind == "Pod" and component.api_version == "v1":
        unreplaced = len(failed)  # No controller stands behind it.
    else:
        standing = states[PodState.PENDING] + states[PodState.RUNNING] + states[PodState.SUCCEEDED]
        unreplaced = min(len(failed), max(0, component.expected_pods - standing))
    # A controller replaces the pods that failed first, so the last ones are those still unreplaced.
    failed.sort(key=_failed_at)
    counts = PodCounts(
        expected=component.expected_pods,
        pending=states[PodState.PENDING],
        running=states[PodState.RUNNING],
        succeeded=states[PodState.SUCCEEDED],
        failed=unreplaced,
        terminating=states[PodState.TERMINATING],
    )
    return counts, failed[len(failed) - unreplaced :]


def _complete(component: PlannedComponent, found: ObjectFacts | None, counts: PodCounts) -> bool:
    if component.status.complete:
        return found is not None and any(one.type in component.status.complete for one in found.conditions)
    if not component.expected_pods:
        return True
    return counts.succeeded >= component.expected_pods and not (counts.going or counts.failed)


def _pod_failure(pod: PodFacts, attempt: int, owner: ObjectFacts | None, at: datetime) -> Failure:
    return Failure(
        cls=pod.failure_class,
        scope=Scope.MEMBER,
        reason=pod.reason,
        time=pod.failure_time or pod.created or (owner.created if owner else None) or at,
        component=pod.component,
        subject=pod.name,
        node=pod.node,
        exit_code=pod.exit_code,
        message=pod.message,
        attempt=attempt,
    )


def _verdict(
    component: PlannedComponent, found: ObjectFacts, condition: TrueCondition, attempt: int, at: datetime
) -> Failure:
    return Failure(
        cls=FailureClass.APP,
        scope=Scope.COMPONENT,
        reason=condition.reason or Reason.FAILED_COMPONENT,
        time=condition.since or found.created or at,
        component=component.name,
        subject=found.name,
        message=condition.message,
        attempt=attempt,
    )


def _missing(component: PlannedComponent, attempt: int, at: datetime) -> Failure:
    return Failure(
        cls=FailureClass.MISSING,
        scope=Scope.COMPONENT,
        reason=Reason.MISSING_COMPONENT,
        time=at,
        component=component.name,
        subject=component.object_name,
        message=f"{component.kind} {component.object_name} is gone",
        attempt=attempt,
    )


def _true_conditions(conditions: Any) -> tuple[TrueCondition, ...]:
    return tuple(
        TrueCondition(
            type=str(entry.get("type", "")),
            reason=str(entry.get("reason") or ""),
            message=one_line(entry.get("message"), MESSAGE_MAXIMUM),
            since=time_of(entry.get("lastTransitionTime")),
        )
        for entry in mappings(conditions)
        if entry.get("status") == "True"
    )


def _failed_at(pod: PodFacts) -> tuple[datetime, str]:
    return (pod.failure_time or pod.created or _LONG_AGO, pod.name)
