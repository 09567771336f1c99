"""Signatures and payloads of the cluster activities: the one module of `activities` that workflows import.

Names are in `holdfast.names`; implementations are registered under those names by the worker. Every activity is
idempotent: it may run twice, or late. Errors a workflow must tell apart are `ApplicationError`s whose `type` is one of
the `ERROR_*` names; anything else is retried.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from holdfast.model import (
    Answers,
    Checkpoint,
    Claims,
    Component,
    Failure,
    Interval,
    Limits,
    NodeMarked,
    NodeSight,
    NodesSeen,
    NodeTimings,
    NodeWish,
    ObjectRef,
    Observation,
    Payload,
    PodSet,
    Probe,
    Remnant,
    Report,
    Time,
)
from holdfast.model.calls.plan import (
    AnchorKind,
    DataVolume,
    GangPods,
    PlannedComponent,
    Target,
    copies_ref,
    has_copy,
    object_name,
    planned,
)
from holdfast.model.observation import Asked
from holdfast.model.packed import PackedPayload
from holdfast.model.spec.selection import Selection

_Gang = Annotated[GangPods | None, Field(exclude_if=lambda value: value is None)]
"""How the pods of the workload's gang are made, where it has one."""


_Data = Annotated[tuple[DataVolume, ...], Field(exclude_if=lambda value: not value)]
"""The data sets that the workload's pods read, where it has any: of one attempt always the same (row L14)."""


class PodBounds(Payload):
    """What the nodes do to a workload's pods by themselves (row L18)."""

    active_deadline: int | None = None
    """Seconds from a pod's start after which its node ends it; None: never."""
    termination_grace: int | None = None
    """Seconds between TERM and KILL, for a pod whose template does not say; None: what Kubernetes gives it."""


class PrepareInput(Payload):
    """Ensure the anchor and this attempt's owner exist, after everything that can refuse has had its say.

    In order: the cluster is the one that was meant (`ClusterMismatch`, retried); the namespace is enabled, the service
    account and those of the pods opted in, every component's kind is served and namespaced, the account may create and
    delete it (`Refused`, not retried); the anchor is ours or absent, while a settled anchor of an earlier workload of
    the same name is replaced (`ObjectConflict`, not retried). Where components are given, the API server would create
    them (`Refused`).
    """

    target: Target
    attempt: int
    plan: tuple[PlannedComponent, ...]
    spec_hash: str
    report: Report
    selection: Annotated[Selection | None, Field(exclude_if=lambda value: value is None)] = None
    """The rules by which snapshots of the attempt choose the failures that travel."""
    waits: bool = False
    """Whether a missing right, kind or permission of the namespace is waited for instead of refused."""
    patience: float | None = None
    """Seconds for which it is waited for (`SubmissionTimeout`, not retried, after that); None: for ever."""
    borne: float = 0.0
    """Seconds for which this submission has borne refusals before this preparation: `patience` is what is left."""
    hands_over: bool = False
    """Whether it comes back with `Prepared.broken_off` when it is cancelled, and not as cancelled."""
    waits_for_kinds: bool = False
    """Whether a missing kind, with the rights that come with it, is waited for as long; all else is refused."""
    components: tuple[Component, ...] = ()
    """What the API server is asked to create in a dry run, before anything is made (`Refused`, each field named); none:
    it is not asked."""
    config_hashes: dict[str, str] = {}
    labels: dict[str, str] = {}
    bounds: PodBounds = PodBounds()
    gang: _Gang = None
    data: _Data = ()


class Prepared(Payload):
    """The owner to create under, and what the operator allows."""

    cluster_uid: str
    owner_uid: str
    anchor_uid: str = ""
    limits: Limits = Limits()
    sequence: int = 0
    """Of the report that the anchor bears: this workload's reports must go on above it."""
    borne: float = 0.0
    """Seconds for which it has borne refusals."""
    broken_off: bool = False
    """Whether it was broken off, at the workflow's wish, before it was done."""
    asked: Annotated[Asked | None, Field(exclude_if=lambda value: value is None)] = None
    """What the custom resource asks for that stands for the workload; None where an Anchor does."""
    pod_sets: Annotated[dict[str, tuple[PodSet, ...]], Field(exclude_if=lambda value: not value)] = {}
    """Of each component, as that resource has them now: what whoever admitted it adds to them is obeyed (row F4)."""


class RehearseInput(Payload):
    """Ask whether some components could be made anew as they are to be from now on; nothing is changed by it.

    As `prepare` does before an attempt: what the namespace, the account and the API server's dry run refuse for good
    comes back as `Rehearsed.refusal`; what may pass, or is waited for, is creation's to bear. An object of ours that is
    there is in nobody's way, since it goes first. Without an answer of the API server: `ClusterUnreachable`, retried.
    """

    target: Target
    attempt: int
    plan: tuple[PlannedComponent, ...]
    """Of the whole workload: by it a component's place in the document is told."""
    components: tuple[Component, ...]
    """Those that would be made, in the plan's order."""
    standing: bool = False
    """Whether all others are there: then nothing that one of them brings is still to come."""
    config_hashes: dict[str, str] = {}
    labels: dict[str, str] = {}
    bounds: PodBounds = PodBounds()
    gang: _Gang = None
    data: _Data = ()
    nodes_excluded: tuple[str, ...] = ()
    nodes_disliked: tuple[str, ...] = ()
    nodes_unmarked: bool = False
    waits: bool = False
    """Whether a missing right is waited for when they are made, and so is no reason to refuse."""


class Rehearsed(Payload):
    """What the API server has said of components that are not made yet."""

    refusal: str = ""
    """Why it would not make them, each problem with its field's path; empty if it would."""


class MakeInput(Payload):
    """What it takes to make some components under an attempt's owner, as `run_as`.

    A transient refusal (quota, webhook, conflict with an object whose owner is dying) is retried inside. A final one
    (invalid, forbidden, a foreign object of the same name, something that is not permitted any more) comes back as a
    failure, never as an exception.
    """

    target: Target
    attempt: int
    owner_uid: str
    components: tuple[Component, ...]
    """In the order in which they are made."""
    config_hashes: dict[str, str] = {}
    """By component: what its pods bear as the digest of their configuration."""
    launches: dict[str, int] = {}
    """By component: how often it has been made again within this attempt; 0 where left out."""
    labels: dict[str, str] = {}
    bounds: PodBounds = PodBounds()
    gang: _Gang = None
    data: _Data = ()
    nodes_excluded: tuple[str, ...] = ()
    """Nodes on which none of its pods is to run (row A17)."""
    nodes_disliked: tuple[str, ...] = ()
    """Nodes to which any other with room is preferred (row U9)."""
    nodes_unmarked: bool = False
    """Whether its pods run on nodes without a mark only, by the labels that the worker knows as marks (row D21)."""
    waits: bool = False
    """Whether a missing right is waited for, too."""
    patience: float | None
    """Seconds for which a transient refusal (quota, webhook) by an API server that answers is borne before it comes
    back as a failure; None: for ever. Time in which the API server did not answer does not count."""
    report: Report
    """Applied before the first change."""
    resume_from: str | None = None
    """Where its pods find the checkpoint that they go on from, empty for none; None: they make no checkpoints."""
    made: tuple[ObjectRef, ...] = ()
    """What a creation that was broken off has handed over: this submission's own, and no interruption."""
    replaces_interrupted: bool = False
    """Whether a creation that an earlier try left half-made comes back as `Created.interrupted` instead of being
    filled up: S4. An attempt whose owner is marked submitted is whole, and is left as it is: S3."""


class CreateInput(MakeInput):
    """Create all components in order, owned by the attempt's owner, then mark the owner submitted (rows S1 to S4).

    Copies of one component come several at a time; a refusal of one names it, and ends the others' creation.
    """

    report_submitted: Report
    """Applied when all components exist."""
    hands_over: bool = False
    """Whether it comes back with `Created.broken_off` when it is cancelled, and not as cancelled."""


class Created(Payload):
    """All components exist, or why not."""

    objects: tuple[ObjectRef, ...] = ()
    failure: Failure | None = None
    exhausted: bool = False
    """Whether the failure is a refusal that may pass, and `patience` was used up by it."""
    interrupted: str = ""
    """Why what is there is to be removed whole and made again."""
    borne: float = 0.0
    """Seconds for which it has borne refusals."""
    broken_off: bool = False
    """Whether it was broken off, at the workflow's wish, before it was done; `objects` are made."""


class ReplaceInput(MakeInput):
    """Make some components of a living attempt again, alone (rows S7 to S9).

    Each is deleted by its uid, in the foreground, proven gone with its pods, and created, whatever the others wait for
    (row D17). What pods read, by their `config`, goes once they are gone, and comes before them. What is there already
    with the launch that is asked for is an earlier try's and is kept. Pods that do not end by themselves within `grace`
    are deleted by force.
    """

    grace: float
    """Seconds that pods have to end by themselves."""
    graces: dict[str, float] = {}
    """By component: what is left of it, where an operation that was broken off had begun."""
    parts: bool = False
    """Whether it comes back once some exist again and the others wait for long (`Replaced.left`), and with what it has
    made where it is broken off (`Replaced.broken_off`)."""
    report_done: Report
    """Applied when all exist again."""


class Replaced(Payload):
    """All of them exist again, or those that are not left, or why not."""

    objects: tuple[ObjectRef, ...] = ()
    failure: Failure | None = None
    left: tuple[str, ...] = ()
    """Components that still wait to go or to come."""
    borne: float = 0.0
    """Seconds for which it has borne refusals."""
    broken_off: bool = False
    """Whether it was broken off, at the workflow's wish, before it was done; `objects` are made."""


class ClearInput(Payload):
    """Delete what is still active of a workload that has ended, and keep the rest of its attempt (row J12).

    First the attempt's owner is marked as ended: from then on nothing is made under it, and nothing of it is missing.
    What is neither complete nor failed, by its own word or else by its pods, is then deleted by its uid and version, so
    that what ends in that moment is kept, and proven gone with its pods. Of copies each is judged by itself. Pods that
    do not end by themselves within `grace` are deleted by force.
    """

    target: Target
    attempt: int
    owner_uid: str
    plan: tuple[PlannedComponent, ...]
    """What has been made."""
    until: Time | None = None
    """When it comes back even if it is not done; None: never."""
    grace: float
    """Seconds that pods have to end by themselves."""
    report: Report
    """Applied before the first change."""
    report_done: Report
    """Applied when nothing is active any more."""


class Cleared(Payload):
    """Whether nothing of an attempt is active any more, and what is there then."""

    done: bool
    seen: Observation | None = None


class ParkInput(Payload):
    """Suspend what is unfinished of an attempt in place, and prove that no pod of it is left (row J14).

    The attempt's owner and each unfinished Job are marked with the turn: from then on nothing of it is missing. Every
    change names the uid and the version of what was read. Pods that do not end by themselves within `grace` are deleted
    by force.
    """

    target: Target
    attempt: int
    owner_uid: str
    plan: tuple[PlannedComponent, ...]
    """What has been made; what of it brings pods is suspended."""
    turn: int
    """How often the attempt was suspended in place or resumed, this time included: odd."""
    grace: float
    """Seconds that pods have to end by themselves."""
    report: Report
    """Applied before the first change."""
    report_done: Report
    """Applied when no pod is left."""


class Parked(Payload):
    """Whether an attempt is suspended in place, and what is there then."""

    done: bool
    refused: str = ""
    """Why the cluster will not have it suspended so: then it is to be deleted."""
    turn: int = 0
    """The later turn that the attempt has already taken, where that is why it was not done."""
    seen: Observation | None = None


class UnparkInput(Payload):
    """Resume components of an attempt that was suspended in place (row J14).

    Into each unfinished Job what its pod template has now by way of labels, annotations, node selector, tolerations and
    scheduling gates is merged. What has ended stays as it is; what is gone is noticed by whoever looks next. Refused
    where its pods may not run any more (row X4).
    """

    target: Target
    attempt: int
    owner_uid: str
    components: tuple[Component, ...]
    config_hashes: dict[str, str] = {}
    launches: dict[str, int] = {}
    labels: dict[str, str] = {}
    gang: _Gang = None
    turn: int
    """As in `ParkInput`: even."""
    resume_from: str | None = None
    """As in `MakeInput`."""
    report: Report
    """Applied before the first change."""
    report_done: Report
    """Applied when all of them are resumed."""


class Unparked(Payload):
    """Whether components are resumed, or why they cannot be."""

    done: bool
    refused: str = ""
    """Why the cluster will not have them resumed so: then the attempt is made anew."""
    turn: int = 0


class ScaledFrom(Payload):
    """The size that a living attempt's gang has."""

    min: int
    max: int
    pods: int


class ScaleInput(Payload):
    """Give a living attempt's gang another size: its Job as many pods, its rendezvous as many members (row T6).

    Of fewer pods a Job takes those of the highest indexes away. What is gone or has ended is left as it is: whoever
    looks next notices. May be repeated: the last size that was asked for stands. Growing is refused where its pods may
    not run any more (row X4).
    """

    target: Target
    attempt: int
    owner_uid: str
    plan: tuple[PlannedComponent, ...]
    """Of the whole workload, with the pods that are expected from now on."""
    component: str
    """Whose pods the members are."""
    min: int
    max: int
    pods: int
    """How many there are to be, spares included."""
    was: ScaledFrom | None = None
    """The size that it has, and keeps if it is refused (row D40)."""
    again: bool = False
    """Whether an earlier resize of this attempt was broken off: what that changed is put back on a refusal."""


class Scaled(Payload):
    """Whether an attempt's gang has another size."""

    done: bool
    refused: str = ""
    """Why the cluster will not have it so; it keeps the size it has."""


class CheckpointInput(Payload):
    """Ask the running pods of an attempt to save their state, and follow their answers (row L32).

    Only pods of the attempt, by uid, attempt and component, are asked. With the protocol `annotation` each gets the
    request by one patch, by its uid and the version that was read, which takes an earlier answer away; with `http` each
    is sent the request again and again, by a POST to its own address alone, until it has saved or says that it cannot.
    It comes back once nothing is waited for any more, or at `until`, having looked at the pods once more after that.
    """

    target: Target
    attempt: int
    checkpoint: Checkpoint
    components: tuple[str, ...]
    """Whose pods are asked."""
    number: int
    """The request's, by which pods tell it from the one before."""
    reason: str
    running: int
    """How many pods ran when it was decided: those that are missing since have not saved."""
    finished: int = 0
    """How many had succeeded by then."""
    until: Time
    report: Report


class Checkpointed(Payload):
    """How the pods that were asked stand."""

    answers: Answers
    blind: tuple[Interval, ...] = ()


class ObserveInput(Payload):
    """Look at one attempt live, by quorum reads. While the API server does not answer, it goes on trying."""

    target: Target
    attempt: int
    owner_uid: str
    plan: tuple[PlannedComponent, ...]
    report: Report
    leases: bool = False
    """Whether to ask when the nodes of its living pods were last heard of."""
    decides: bool = False
    """Whether a failure that it confirms is acted on at once: its report may then be left to what follows."""


class RemoveInput(Payload):
    """Remove an attempt and prove it gone, waiting at most until `until` (then `Removed.gone` is false).

    Graceful removal is one foreground deletion of the attempt's owner. Forced removal deletes all remaining pods with
    grace 0, then the remaining objects, again and again until proven. Proof by quorum reads: the owner 404, every
    planned name 404 or of a foreign uid, no pod with the workload's uid. Every deletion carries a uid precondition.
    """

    target: Target
    attempt: int
    owner_uid: str
    plan: tuple[PlannedComponent, ...]
    objects: tuple[ObjectRef, ...] = ()
    until: Time
    grace: float = 0.0
    """Seconds that pods have at least to end by themselves, from the deletion's begin and without time in which the API
    server did not answer: a graceful removal that begins late goes on past `until` for as long."""
    report: Report
    """Applied before the deletion."""
    report_gone: Report
    """Applied when all is proven gone."""
    everything: bool = False
    """Remove every attempt of this workload that is found. Otherwise a higher one than `attempt` is another memory's,
    which nothing here knows of: then nothing is deleted (`ForeignAttempt`, not retried)."""
    strip_finalizers: bool = False
    """Whether a forced removal takes foreign finalizers off what is being deleted and does not go (row U2). Never off
    the attempt's owner or the anchor, and never the collector's own."""
    release_anchor: bool = False
    """Once gone: take our finalizer off the anchor, since the workload's life ends with this removal."""
    delete_anchor: bool = False
    """Once gone and released: delete the anchor too (the user deleted the workload)."""
    follows: CheckpointInput | None = None
    """What pods are saving as it begins: what they still answer in their termination grace is told (row L19)."""


class Removed(Payload):
    """Whether all is proven gone, and if not, what is left."""

    gone: bool
    remnants: tuple[Remnant, ...] = ()
    remnants_total: int = 0
    blind: tuple[Interval, ...] = ()
    answers: Answers | None = None
    """How the pods stood that were saving, where that was followed."""
    claims: Annotated[Claims | None, Field(exclude_if=lambda value: value is None)] = None
    """What was there of the claims of its pods once it was gone."""


class Progress(Payload):
    """What an activity that waits says in its heartbeats, for whoever asks meanwhile what it is waiting for."""

    doing: str = ""
    remaining: tuple[str, ...] = ()
    """Sentences, at most 16."""
    remaining_total: int = 0
    blind: tuple[Interval, ...] = ()
    """When the cluster could not be seen; carried from one try of the activity to the next."""
    borne: float = 0.0
    """Seconds for which transient refusals have been borne so far, over all tries."""
    saved: Annotated[dict[str, str], Field(exclude_if=lambda value: not value)] = {}
    """Where pods have saved their state whose removal is followed, by uid (row L19)."""


class ProbeInput(Payload):
    """Ask the running pods of an attempt, round after round, whether they still serve (row L28).

    Only pods of the workload's namespace, workload and attempt are asked, at their own addresses. What the API server
    does not tell, or this worker cannot do, counts neither for nor against a pod. It ends with a failure, or when it is
    cancelled, and then hands over what it has counted; counts also survive its worker, in its heartbeats.
    """

    target: Target
    attempt: int
    probe: Probe
    failing: dict[str, int] = {}
    """How often in a row pods have not answered before it began, by uid."""


class Probed(Payload):
    """Which pod has been silent for too long, or how far it was as it was broken off."""

    failure: Failure | None = None
    failing: dict[str, int] = {}


class ReportInput(Payload):
    """Apply a status to the anchor where no other activity would carry it soon."""

    target: Target
    report: Report


class Reported(Payload):
    """What became of a status."""

    sequence: int = 0
    """Of the later status that the anchor bears instead, told before this memory was restored; 0 where ours stands."""


class WatchInput(Payload):
    """Watch some of a cluster's shards until told to stop; signals workflows on meaningful transitions."""

    cluster: str
    cluster_uid: str
    shards: tuple[int, int]
    """First and last shard, inclusive."""


class WatchNodesInput(PackedPayload):
    """Watch the leases and the health of a cluster's nodes until told to stop; signals news to their monitor, batched.

    Never a heartbeat of a node, only what changes: silence, a voice again, broken hardware. Each try asks the monitor
    first what it knows. An earlier release told it here, packed.
    """

    cluster: str
    cluster_uid: str
    timings: NodeTimings


class LookNodesInput(Payload):
    """Look at some nodes and their leases live, by quorum reads. While the API server does not answer, it goes on."""

    cluster: str
    cluster_uid: str
    nodes: tuple[str, ...]


class LookedNodes(Payload):
    """What was found of them."""

    nodes: tuple[NodeSight, ...]
    blind: tuple[Interval, ...] = ()


class MarkNodesInput(Payload):
    """Say on some nodes' objects how they stand, keep new pods off those that are Down, or take both back (row L5).

    A node that holds no pod of this installation and bears no mark of it is left as it is. Every change names the uid
    and the version of what was read.
    """

    cluster: str
    cluster_uid: str
    nodes: tuple[NodeWish, ...]


class MarkedNodes(Payload):
    """What became of it."""

    nodes: tuple[NodeMarked, ...]


__all__ = [
    "AnchorKind",
    "CheckpointInput",
    "Checkpointed",
    "ClearInput",
    "Cleared",
    "CreateInput",
    "Created",
    "DataVolume",
    "GangPods",
    "LookNodesInput",
    "LookedNodes",
    "MakeInput",
    "MarkNodesInput",
    "MarkedNodes",
    "NodesSeen",
    "Observation",
    "ObserveInput",
    "ParkInput",
    "Parked",
    "PlannedComponent",
    "PrepareInput",
    "Prepared",
    "Progress",
    "RehearseInput",
    "Rehearsed",
    "RemoveInput",
    "Removed",
    "ReplaceInput",
    "Replaced",
    "ReportInput",
    "Reported",
    "ScaleInput",
    "Scaled",
    "Target",
    "UnparkInput",
    "Unparked",
    "WatchInput",
    "WatchNodesInput",
    "copies_ref",
    "has_copy",
    "object_name",
    "planned",
]
