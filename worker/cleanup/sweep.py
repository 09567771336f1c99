"""Judges what outages leave behind in a cluster, and what may be removed: facts in, verdicts out. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from pydantic import ValidationError

from holdfast import names
from holdfast.activities.facts.snapshot import plan_of
from holdfast.activities.facts.workload_key import WorkloadKey
from holdfast.activities.kube.raw import mapping
from holdfast.model import Phase
from holdfast.model.calls.cluster import PlannedComponent

_RECORDED: Final = frozenset({Phase.SUCCEEDED.value, Phase.FAILED.value})
"""Outcomes after which the anchor stays as the record."""


class Verdict(StrEnum):
    """What to do with the objects found of a workload."""

    ENDED = "ended"
    """The run it belongs to is closed: everything is removed."""
    STRAY = "stray"
    """Its workflow is running, and is past some of the attempts found: those are removed."""
    UNKNOWN = "unknown"
    """Temporal does not know it, or whose its ended workflow was: only listed, unless a person says otherwise."""
    DOUBT = "in doubt"
    """It cannot be identified for certain: never touched."""
    ALIVE = "alive"
    """Its workflow is running: never touched."""


@dataclass(frozen=True, slots=True)
class AttemptLeft:
    """An attempt's owner object."""

    name: str
    uid: str
    number: int
    deleting: bool = False
    plan: tuple[PlannedComponent, ...] = ()


@dataclass(frozen=True, slots=True)
class Left:
    """The objects of one workload in the cluster: its anchor, if it has our finalizer, and its attempts."""

    namespace: str
    name: str
    workload_uid: str
    workflow_id: str
    anchor: bool = False
    """Whether there is an anchor that still has our finalizer."""
    attempts: tuple[AttemptLeft, ...] = ()
    problem: str = ""
    """Why its objects cannot be trusted."""

    def sentence(self) -> str:
        """Name the objects: `anchor, attempts 1 and 2`."""
        numbers = [str(one.number) for one in self.attempts]
        listed = " and ".join(filter(None, (", ".join(numbers[:-1]), *numbers[-1:])))
        attempts = f"attempt{'s' if len(numbers) > 1 else ''} {listed}" if numbers else ""
        return ", ".join(filter(None, ("anchor" if self.anchor else "", attempts)))


@dataclass(frozen=True, slots=True)
class Found:
    """All objects of Holdfast in a cluster."""

    left: tuple[Left, ...] = ()
    """Workloads of this installation that still hold something, by namespace and name."""
    settled: int = 0
    """Number of anchors of this installation that hold nothing any more: records of outcomes."""
    foreign: int = 0
    """Number of anchors and attempts of other installations, or under another cluster name."""


@dataclass(frozen=True, slots=True)
class RunFact:
    """What Temporal reports of one run of a workflow id."""

    uid: str
    """The workload's uid as the run states it, or else its first run's id, which is the default uid."""
    running: bool
    word: str
    """Temporal's status of the run: Running, Terminated, ..."""
    said: bool = True
    """Whether the run itself states the uid."""
    phase: str = ""
    attempt: int | None = None
    """Its current or a recent attempt: attempts only ever grow."""
    held: bool = False
    """Whether it is Held: cluster and workflow contradict each other, and only a person can say which is right."""
    unreadable: str = ""
    """Why its memo could not be read."""


@dataclass(frozen=True, slots=True)
class Life:
    """What Temporal reports of a workload."""

    current: RunFact | None = None
    """The latest run under the workload's workflow id."""
    own: RunFact | None = None
    """This workload's own run, if it is not the latest."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict and its consequences."""

    verdict: Verdict
    why: str
    doomed: tuple[AttemptLeft, ...] = ()
    """Attempts to delete."""
    releases: bool = False
    """Whether to release the anchor, once all is proven gone."""
    deletes_anchor: bool = False
    """Whether to delete the anchor too: there is no outcome for it to record."""


def find(objects: Iterable[Mapping[str, Any]], installation: str, cluster: str) -> Found:
    """Return what raw anchors and attempts, as listed, show of this installation."""
    groups: dict[WorkloadKey, list[Mapping[str, Any]]] = {}
    foreign = 0
    for thing in objects:
        metadata, spec = mapping(thing.get("metadata")), mapping(thing.get("spec"))
        owner = mapping(metadata.get("labels")).get(names.LABEL_INSTALLATION)
        if owner != installation or cluster_of(str(spec.get("workflowId"))) not in (cluster, ""):
            foreign += 1
        else:
            key = WorkloadKey(str(metadata.get("namespace")), str(spec.get("workloadUid")))
            groups.setdefault(key, []).append(thing)
    found = [_left(namespace, uid, things) for (namespace, uid), things in groups.items()]
    holding = [one for one in found if one.anchor or one.attempts]
    holding.sort(key=lambda one: (one.namespace, one.name, one.workload_uid))
    return Found(tuple(holding), settled=len(found) - len(holding), foreign=foreign)


def judge(left: Left, life: Life) -> Judgement:
    """Judge the objects found of a workload. Only a positive answer allows any removal."""
    if left.problem:
        return Judgement(Verdict.DOUBT, left.problem)
    current = life.current
    if current is None:
        why = f"Temporal knows no workflow {left.workflow_id}: it never began there, or its retention is over"
        return _all_goes(left, Verdict.UNKNOWN, why, delete=True)
    if current.unreadable and not current.running:
        why = (
            f"its workflow is over ({current.word}), and its memo cannot be read ({current.unreadable}): unless its "
            "key is lost, sweep from where the codec of this Temporal namespace is configured"
        )
        return _all_goes(left, Verdict.UNKNOWN, why, delete=True)
    if current.unreadable:
        return Judgement(
            Verdict.DOUBT,
            f"the memo of {left.workflow_id} cannot be read ({current.unreadable}): "
            "sweep from where the codec of this Temporal namespace is configured",
        )
    if current.running and not current.said:
        return Judgement(
            Verdict.DOUBT,
            "a run of its workflow has begun and does not say yet which workload it is: sweep again later",
        )
    if current.uid == left.workload_uid:
        return _alive(left, current) if current.running else _ended(left, current, "")
    if life.own is not None and life.own.running:
        return Judgement(Verdict.DOUBT, "another run has taken its workflow's place just now: sweep again later")
    if life.own is not None and life.own.uid == left.workload_uid:
        return _ended(left, life.own, "; a later run has taken its name")
    why = f"Temporal knows {left.workflow_id}, but no run of it that was workload {left.workload_uid}"
    return _all_goes(left, Verdict.UNKNOWN, why, delete=True)


def _ended(left: Left, run: RunFact, more: str) -> Judgement:
    ended = {one.value for one in Phase if one.ended}
    how = run.phase if run.phase in ended else f"{run.word}{f' while {run.phase}' if run.phase else ''}"
    why = f"its workflow is over: {how}{more}"
    return _all_goes(left, Verdict.ENDED, why, delete=run.phase not in _RECORDED)


def _all_goes(left: Left, verdict: Verdict, why: str, *, delete: bool) -> Judgement:
    return Judgement(verdict, why, left.attempts, releases=True, deletes_anchor=delete)


def _alive(left: Left, run: RunFact) -> Judgement:
    """Judge a workload with a running workflow: attempts that it is past, and has proven gone before, are removed."""
    if run.held and left.attempts:
        why = "its workflow is Held, since cluster and memory contradict each other: say `retry` or `cancel` to it"
        return Judgement(Verdict.DOUBT, why)
    if run.attempt is None:
        if not left.attempts:
            return Judgement(Verdict.ALIVE, "its workflow is running")
        return Judgement(
            Verdict.DOUBT, "its workflow is running, and cannot say at which attempt: is a worker running?"
        )
    past = tuple(one for one in left.attempts if one.number < run.attempt)
    if not past:
        return Judgement(Verdict.ALIVE, f"its workflow is running, at attempt {run.attempt}")
    several = len(past) > 1
    why = (
        f"its workflow is running and at attempt {run.attempt}: attempt{'s' if several else ''} "
        f"{', '.join(str(one.number) for one in past)} {'are' if several else 'is'} a late worker's leftover"
    )
    return Judgement(Verdict.STRAY, why, past)


def cluster_of(workflow_id: str) -> str:
    """Return the cluster in a workload's workflow id; empty if it is no such id."""
    try:
        return names.parse_workflow_id(workflow_id)[0]
    except ValueError:
        return ""


def _left(namespace: str, uid: str, things: Sequence[Mapping[str, Any]]) -> Left:
    problem, anchor, attempts = "", False, list[AttemptLeft]()
    workflow_id = str(mapping(things[0].get("spec")).get("workflowId"))
    for thing in things:
        problem = problem or _problem(namespace, workflow_id, thing)
        metadata, spec = mapping(thing.get("metadata")), mapping(thing.get("spec"))
        if thing.get("kind") == names.ANCHOR_KIND:
            anchor = names.FINALIZER in (metadata.get("finalizers") or ())
            continue
        number = spec.get("attempt")
        attempts.append(
            AttemptLeft(
                name=str(metadata.get("name")),
                uid=str(metadata.get("uid")),
                number=number if isinstance(number, int) else 0,
                deleting="deletionTimestamp" in metadata,
                plan=_plan(thing) or (),
            )
        )
    name = str(mapping(things[0].get("metadata")).get("name")) if problem else names.parse_workflow_id(workflow_id)[2]
    attempts.sort(key=lambda one: (one.number, one.name))
    return Left(namespace, name, uid, workflow_id, anchor, tuple(attempts), problem)


def _problem(namespace: str, workflow_id: str, thing: Mapping[str, Any]) -> str:
    """Say why an object cannot be trusted: Holdfast creates none whose labels and fields disagree."""
    metadata, spec = mapping(thing.get("metadata")), mapping(thing.get("spec"))
    labels, what = mapping(metadata.get("labels")), f"{thing.get('kind')} {metadata.get('name')}"
    own = str(spec.get("workflowId"))
    if not cluster_of(own):
        return f"{what} says {own!r} is its workflow: expected workload/<cluster>/<namespace>/<name>"
    _, named, name = names.parse_workflow_id(own)
    if named != namespace:
        return f"{what} is in namespace {namespace}, and its workflow {own} is of another"
    if own != workflow_id:
        return f"{what} belongs to workflow {own}, and others of the same workload to {workflow_id}"
    if labels.get(names.LABEL_WORKLOAD_UID) != spec.get("workloadUid"):
        return f"{what} has a label {names.LABEL_WORKLOAD_UID} that is not its workload's uid"
    if thing.get("kind") == names.ANCHOR_KIND:
        named = names.anchor_name(name)
        return (
            "" if metadata.get("name") == named else f"{what} is not named {named}, as its workload's anchor would be"
        )
    if labels.get(names.LABEL_ATTEMPT) != str(spec.get("attempt")):
        return f"{what} has a label {names.LABEL_ATTEMPT} that is not its attempt's number"
    return "" if _plan(thing) is not None else f"{what} has a plan that this release cannot read"


def _plan(thing: Mapping[str, Any]) -> tuple[PlannedComponent, ...] | None:
    try:
        return plan_of(thing)
    except ValidationError:
        return None
