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
    Evidence,
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
    State,
    Time,
    Workload,
)
from holdfast.model.calls.plan import (
    AnchorKind,
    CopyLaunch,
    DataVolume,
    GangPods,
    PlannedComponent,
    Target,
    copies_ref,
    has_copy,
    object_name,
    planned,
)
from holdfast.model.life.evidence import StacksRequest
from holdfast.model.life.state import PromisedRestart
from holdfast.model.observation import Asked
from holdfast.model.packed import PackedPayload
from holdfast.model.spec.selection import Selection
from holdfast.model.spec.volume_claim import VolumeClaim
from holdfast.model.words import Outside

_Gang = Annotated[GangPods | None, Field(exclude_if=lambda value: value is None)]
"""How the pods of the workload's gang are made, if it has one."""


_CopyLaunches = Annotated[dict[str, dict[int, CopyLaunch]], Field(exclude_if=lambda value: not value)]
"""By component and index: the copies that were made again alone (row J23)."""
_Restarts = Annotated[dict[str, int], Field(exclude_if=lambda value: not value)]
"""By component: how often all of its copies were restarted before, as their labels tell it; if it is left out, as often
as an attempt or launch was before this one (row J11)."""
_InPlace = Annotated[int | None, Field(exclude_if=lambda value: value is None)]
"""The in-place restart attempt at which its pods begin; None: they wait at no barrier (row J24)."""
_Data = Annotated[tuple[DataVolume, ...], Field(exclude_if=lambda value: not value)]
"""The data sets that the workload's pods read, if any: always the same within one attempt (row L14)."""


class PodBounds(Payload):
    """The bounds that nodes themselves enforce on a workload's pods (row L18)."""

    active_deadline: int | None = None
    """Seconds from a pod's start after which its node ends it; None: never."""
    termination_grace: int | None = None
    """Seconds between TERM and KILL, for a pod whose template sets none; None: the Kubernetes default."""


class RehearseInput(Payload):
    """Ask whether some components could be made again in their new form; this changes nothing.

    The checks are those of `prepare`. `Rehearsed.refusal` is a final refusal by the namespace, the account or the dry
    run; creation handles refusals that may pass or that it waits for. An existing object of ours is no obstacle, since
    it is deleted first. Without an answer of the API server: `ClusterUnreachable`, retried.
    """

    target: Target
    attempt: int
    plan: tuple[PlannedComponent, ...]
    """The plan of the whole workload: it gives a component's place in the document."""
    components: tuple[Component, ...]
    """The components that would be made, in the plan's order."""
    standing: bool = False
    """Whether all other components exist: then nothing that one of them brings is still missing."""
    config_hashes: dict[str, str] = {}
    labels: dict[str, str] = {}
    bounds: PodBounds = PodBounds()
    gang: _Gang = None
    data: _Data = ()
    nodes_excluded: tuple[str, ...] = ()
    nodes_disliked: tuple[str, ...] = ()
    nodes_unmarked: bool = False
    waits: bool = False
    """Whether their creation waits for a missing right, so that it is no reason to refuse."""


class Rehearsed(Payload):
    """The API server's answer about components that are not made yet."""

    refusal: str = ""
    """Why it would refuse them, each problem with its field's path; empty if it would create them."""


class MakeInput(Payload):
    """The input to make some components under an attempt's owner, as `run_as`.

    A transient refusal (quota, webhook, conflict with an object whose owner is dying) is retried inside. A final one
    (invalid, forbidden, a foreign object of the same name, something no longer permitted) is returned as a failure,
    never raised as an exception.
    """

    target: Target
    attempt: int
    owner_uid: str
    components: tuple[Component, ...]
    """The components in the order in which they are made."""
    config_hashes: dict[str, str] = {}
    """By component: the digest of their configuration that its pods carry."""
    launches: dict[str, int] = {}
    """By component: how often it has been made again within this attempt; 0 if left out."""
    copy_launches: _CopyLaunches = {}
    restarts: _Restarts = {}
    labels: dict[str, str] = {}
    bounds: PodBounds = PodBounds()
    gang: _Gang = None
    data: _Data = ()
    nodes_excluded: tuple[str, ...] = ()
    """Nodes on which none of its pods may run (row A17)."""
    nodes_disliked: tuple[str, ...] = ()
    """Nodes to which any other with room is preferred (row U9)."""
    nodes_unmarked: bool = False
    """Whether its pods run only on unmarked nodes, by the labels that the worker knows as marks (row D21)."""
    waits: bool = False
    """Whether it also waits for a missing right."""
    patience: float | None
    """Seconds for which a transient refusal (quota, webhook) by an API server that answers is tolerated before it is
    returned as a failure; None: for ever. Time in which the API server did not answer does not count."""
    report: Report
    """The status applied before the first change, unless it repeats the last one."""
    resume_from: str | None = None
    """Where its pods find the checkpoint that they resume from, empty for none; None: they make no checkpoints."""
    in_place: _InPlace = None
    made: tuple[ObjectRef, ...] = ()
    """The objects made by a creation that was broken off: they belong to this submission, and are no interruption."""
    replaces_interrupted: bool = False
    """Whether a creation that an earlier try left half-made is returned as `Created.interrupted` instead of completed:
    S4. An attempt whose owner is marked submitted is complete, and is left as it is: S3."""


class CreateInput(MakeInput):
    """Create all components in order, owned by the attempt's owner, then mark the owner submitted (rows S1 to S4).

    The workload's own claims come first: those that exist are left as they are (row J22).
    Several copies of one component are created at a time; a refusal of one names it, and stops the others' creation.
    """

    claims: Annotated[tuple[VolumeClaim, ...], Field(exclude_if=lambda value: not value)] = ()
    """The workload's own claims, which are created first."""
    report_submitted: Report
    """The status applied when all components exist."""
    strict: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Whether fields that the API server does not know are refused; on attempt 1 they always are."""
    hands_over: bool = False
    """Whether it returns `Created.broken_off` when it is cancelled, and does not end as cancelled."""


class Created(Payload):
    """Whether all components exist, or why not."""

    objects: tuple[ObjectRef, ...] = ()
    failure: Failure | None = None
    exhausted: bool = False
    """Whether the failure is a transient refusal that used up `patience`."""
    interrupted: str = ""
    """Why everything that exists must be removed and made again."""
    borne: float = 0.0
    """Seconds for which it has tolerated refusals."""
    broken_off: bool = False
    """Whether it was broken off, as the workflow asked, before it was done; `objects` are made."""


class PrepareInput(Payload):
    """Run every check that can refuse the attempt, then ensure that the anchor and the attempt's owner exist.

    In order: the cluster is the intended one (`ClusterMismatch`, retried); the namespace is enabled, the service
    account and those of the pods opted in, every component's kind is served and namespaced, the account may create and
    delete it (`Refused`, not retried); the anchor is ours or absent, while a settled anchor of an earlier workload of
    the same name is replaced (`ObjectConflict`, not retried). If components are given, a dry run shows that the API
    server would create them (`Refused`).
    """

    target: Target
    attempt: int
    plan: tuple[PlannedComponent, ...]
    spec_hash: str
    report: Report
    selection: Annotated[Selection | None, Field(exclude_if=lambda value: value is None)] = None
    """The rules by which snapshots of the attempt choose the failures that they carry."""
    waits: bool = False
    """Whether a missing right, kind or permission of the namespace leads to a wait instead of a refusal."""
    patience: float | None = None
    """Seconds to wait for it (then `SubmissionTimeout`, not retried); None: for ever."""
    borne: float = 0.0
    """Seconds of refusals that this submission has tolerated before this preparation: `patience` is the rest."""
    hands_over: bool = False
    """Whether it returns `Prepared.broken_off` when it is cancelled, and does not end as cancelled."""
    waits_for_kinds: bool = False
    """Whether it waits as long for a missing kind, with the rights that come with it; all else is refused."""
    anchored: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Whether the anchor was there before this first attempt: it stays if that is refused."""
    barrier: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Whether its pods wait at a barrier: the account must be allowed to patch them (`Refused`; row J24)."""
    components: tuple[Component, ...] = ()
    """The components that the API server checks in a dry run, before anything is made (`Refused`, each field named);
    none: no dry run."""
    config_hashes: dict[str, str] = {}
    labels: dict[str, str] = {}
    bounds: PodBounds = PodBounds()
    gang: _Gang = None
    data: _Data = ()
    create: Annotated[CreateInput | None, Field(exclude_if=lambda value: value is None)] = None
    """What it creates once the owner exists, if no other operation has reported anything since it began; its owner, and
    its components, if they are given above, are filled in. None: the workflow asks for it afterwards."""


class Prepared(Payload):
    """The owner to create objects under, and the operator's limits."""

    cluster_uid: str
    owner_uid: str
    """Empty if there is none: another operation has reported since it began, or it was broken off."""
    anchor_uid: str = ""
    limits: Limits = Limits()
    sequence: int = 0
    """The sequence of the report on the anchor: this workload's reports must continue above it."""
    borne: float = 0.0
    """Seconds for which it has tolerated refusals."""
    broken_off: bool = False
    """Whether it was broken off, as the workflow asked, before it was done."""
    asked: Annotated[Asked | None, Field(exclude_if=lambda value: value is None)] = None
    """The request in the custom resource that stands for the workload; None if an Anchor stands for it."""
    creator: Annotated[Outside, Field(exclude_if=lambda value: not value)] = ""
    """The user who created that resource, as the API server signed it there; empty: nobody is known (row F13)."""
    pod_sets: Annotated[dict[str, tuple[PodSet, ...]], Field(exclude_if=lambda value: not value)] = {}
    """The pod sets of each component, as that resource has them now: additions of its admitter are applied (row F4)."""
    created: Annotated[Created | None, Field(exclude_if=lambda value: value is None)] = None
    """The result of `PrepareInput.create`; None if it was not given, or not begun."""


class ReplaceInput(MakeInput):
    """Make some components of a living attempt again, without the others (rows S7 to S9).

    Each is deleted by its uid, in the foreground, proven gone with its pods, and created, whatever the others wait for
    (row D17). Objects that pods read, by their `config`, are deleted after the pods and created before them. An object
    that already has the requested launch comes from an earlier try and is kept. Pods that do not end by themselves
    within `grace` are deleted by force.
    """

    grace: float
    """Seconds for pods to end by themselves."""
    copies: Annotated[dict[str, tuple[int, ...]], Field(exclude_if=lambda value: not value)] = {}
    """By component: the only copies that are made again, by index; all, if left out (row J23)."""
    graces: dict[str, float] = {}
    """By component: the rest of its grace, if an operation that was broken off had begun it."""
    copy_graces: Annotated[dict[str, dict[int, float]], Field(exclude_if=lambda value: not value)] = {}
    """By component and index of a copy: the rest of its own grace, since it may have joined the others later."""
    parts: bool = False
    """Whether it returns once some exist again and the others wait for long (`Replaced.left`), and returns what it has
    made if it is broken off (`Replaced.broken_off`)."""
    report_done: Report
    """The status applied when all exist again."""


class Replaced(Payload):
    """Whether the components exist again, except those in `left`, or why not."""

    objects: tuple[ObjectRef, ...] = ()
    failure: Failure | None = None
    left: tuple[str, ...] = ()
    """Components that still wait to be deleted or created."""
    borne: float = 0.0
    """Seconds for which it has tolerated refusals."""
    broken_off: bool = False
    """Whether it was broken off, as the workflow asked, before it was done; `objects` are made."""


class ClearInput(Payload):
    """Delete the objects of an ended workload that are still active, and keep the rest of its attempt (row J12).

    First the attempt's owner is marked as ended: from then on nothing is made under it, and nothing of it is missing.
    Objects that are neither complete nor failed, by their own status or else by their pods, are then deleted by uid and
    version, so that one that ends in that moment is kept, and proven gone with their pods. Each copy is judged on its
    own. Pods that do not end by themselves within `grace` are deleted by force.
    """

    target: Target
    attempt: int
    owner_uid: str
    plan: tuple[PlannedComponent, ...]
    """The components that were made."""
    until: Time | None = None
    """The time at which it returns even if it is not done; None: never."""
    grace: float
    """Seconds for pods to end by themselves."""
    report: Report
    """The status applied before the first change."""
    report_done: Report
    """The status applied when nothing is active any more."""
    evidence_of: Annotated[tuple[str, ...] | None, Field(exclude_if=lambda value: value is None)] = None
    """The pods whose evidence it keeps before it deletes anything, as a removal does (row P3); None: it keeps none."""
    stacks: Annotated[StacksRequest | None, Field(exclude_if=lambda value: value is None)] = None
    """Which of these pods are asked for the stacks of their programs; None: none."""


class Cleared(Payload):
    """Whether nothing of an attempt is active any more, and the objects that exist then."""

    done: bool
    seen: Observation | None = None
    evidence: Annotated[Evidence | None, Field(exclude_if=lambda value: value is None)] = None
    """What was kept before the deletion began; None if it was not asked for, or this worker keeps no evidence."""


class ParkInput(Payload):
    """Suspend the unfinished components of an attempt in place, and prove that no pod of them is left (row J14).

    The attempt's owner and each unfinished Job are marked with the turn: from then on nothing of it is missing. Every
    change names the uid and version of the object as read. Pods that do not end by themselves within `grace` are
    deleted by force.
    """

    target: Target
    attempt: int
    owner_uid: str
    plan: tuple[PlannedComponent, ...]
    """The components that were made; those that bring pods are suspended."""
    turn: int
    """How often the attempt was suspended in place or resumed, including this time: odd."""
    grace: float
    """Seconds for pods to end by themselves."""
    report: Report
    """The status applied before the first change."""
    report_done: Report
    """The status applied when no pod is left."""


class Parked(Payload):
    """Whether an attempt is suspended in place, and the objects that exist then."""

    done: bool
    refused: str = ""
    """Why the cluster refuses the suspension: then the attempt must be deleted."""
    turn: int = 0
    """The later turn that the attempt already has, if that is why it was not done."""
    seen: Observation | None = None


class UnparkInput(Payload):
    """Resume components of an attempt that was suspended in place (row J14).

    The current labels, annotations, node selector, tolerations and scheduling gates of its pod template are merged
    into each unfinished Job. Objects that have ended stay as they are; the next look notices objects that are gone.
    Refused if its pods may no longer run (row X4).
    """

    target: Target
    attempt: int
    owner_uid: str
    components: tuple[Component, ...]
    config_hashes: dict[str, str] = {}
    launches: dict[str, int] = {}
    copy_launches: _CopyLaunches = {}
    restarts: _Restarts = {}
    labels: dict[str, str] = {}
    gang: _Gang = None
    turn: int
    """As in `ParkInput`: even."""
    resume_from: str | None = None
    """As in `MakeInput`."""
    in_place: _InPlace = None
    data: _Data = ()
    report: Report
    """The status applied before the first change."""
    report_done: Report
    """The status applied when all of them are resumed."""


class Unparked(Payload):
    """Whether components are resumed, or why they cannot be."""

    done: bool
    refused: str = ""
    """Why the cluster refuses to resume them: then a new attempt is made."""
    turn: int = 0
    pod_sets: Annotated[dict[str, tuple[PodSet, ...]] | None, Field(exclude_if=lambda value: value is None)] = None
    """Where its pods run from now on, as its custom resource says (row F4); None if no custom resource stands for it,
    or a worker of an earlier release has not read it."""


class ScaledFrom(Payload):
    """The current size of a living attempt's gang."""

    min: int
    max: int
    pods: int


class ScaleInput(Payload):
    """Resize a living attempt's gang: the pods of its Job, and the members of its rendezvous (row T6).

    A Job that shrinks removes the pods of the highest indexes. Objects that are gone or have ended are left as they
    are: the next look notices them. The call may be repeated: the last requested size stands. Growing is refused if its
    pods may no longer run (row X4).
    """

    target: Target
    attempt: int
    owner_uid: str
    plan: tuple[PlannedComponent, ...]
    """The plan of the whole workload, with the pods that are expected from now on."""
    component: str
    """The component whose pods are the members."""
    min: int
    max: int
    pods: int
    """The wanted number of pods, spares included."""
    was: ScaledFrom | None = None
    """The current size, which the gang keeps if the resize is refused (row D40)."""
    again: bool = False
    """Whether an earlier resize of this attempt was broken off: a refusal then undoes its changes."""
    data: _Data = ()


class Scaled(Payload):
    """Whether an attempt's gang was resized."""

    done: bool
    refused: str = ""
    """Why the cluster refuses the resize; the gang keeps its size."""


class CheckpointInput(Payload):
    """Ask the running pods of an attempt to save their state, and follow their answers (row L32).

    Only pods of the attempt, by uid, attempt and component, are asked. With the protocol `annotation` each pod gets the
    request in one patch, by its uid and the version that was read; the patch removes an earlier answer. With `http`
    each pod gets the request repeatedly, by a POST only to its own address, until it has saved or reports that it
    cannot. The activity returns once it waits for no pod any more, or at `until`, after one more look at the pods.
    """

    target: Target
    attempt: int
    checkpoint: Checkpoint
    components: tuple[str, ...]
    """The components whose pods are asked."""
    number: int
    """The number of the request, counted over the workload's life."""
    sent: Annotated[int, Field(exclude_if=lambda value: not value)] = 0
    """The number that pods are given, by which they tell it from any other; 0: `number`, from an earlier release."""
    reason: str
    running: int
    """How many pods ran when it was decided: pods missing since then have not saved."""
    finished: int = 0
    """How many had succeeded by then."""
    members: Annotated[int, Field(exclude_if=lambda value: not value)] = 0
    """The most members of a round, if it is a gang with spares, which cannot answer; 0: all pods answer."""
    until: Time
    report: Report


class Checkpointed(Payload):
    """The answers of the pods that were asked."""

    answers: Answers
    blind: tuple[Interval, ...] = ()


class ObserveInput(Payload):
    """Observe one attempt live, by quorum reads. While the API server does not answer, it keeps trying."""

    target: Target
    attempt: int
    owner_uid: str
    plan: tuple[PlannedComponent, ...]
    report: Report
    leases: bool = False
    """Whether to read when the nodes of its living pods last renewed their leases."""
    decides: bool = False
    """Whether a failure that it confirms is acted on at once: then the next operation may carry its report."""


class ClaimLeft(Payload):
    """A claim of the workload, as the removal of an attempt finds it (row J22)."""

    name: str
    goes: bool
    """Whether it is deleted and proven gone, too: this ends the workload's life, and it is not to be retained."""
    retain: bool = False
    """Whether it outlives the workload."""


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
    """The least seconds for pods to end by themselves, from the begin of the deletion and without time in which the API
    server did not answer: a graceful removal that begins late continues past `until` for this long."""
    report: Report
    """The status applied before the deletion."""
    report_gone: Report
    """The status applied when all is proven gone."""
    everything: bool = False
    """Whether to remove every attempt of this workload that is found. Otherwise a higher one than `attempt` belongs to
    another memory, unknown here: then nothing is deleted (`ForeignAttempt`, not retried), but for the attempt itself
    where the workload has ended."""
    strip_finalizers: bool = False
    """Whether a forced removal removes foreign finalizers from objects whose deletion does not complete (row U2). Never
    from the attempt's owner or the anchor, and never the garbage collector's own."""
    release_anchor: bool = False
    """Once gone: remove our finalizer from the anchor, since the workload's life ends with this removal."""
    delete_anchor: bool = False
    """Once gone and released: delete the anchor too (the user deleted the workload)."""
    deletes_first: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Delete the custom resource before anything else, since its TTL is over: our finalizer holds it (row J15)."""
    claims: Annotated[tuple[ClaimLeft, ...], Field(exclude_if=lambda value: not value)] = ()
    """The workload's own claims."""
    follows: CheckpointInput | None = None
    """The checkpoint under way as it begins: answers of pods within their termination grace are returned (row L19)."""
    evidence_of: Annotated[tuple[str, ...] | None, Field(exclude_if=lambda value: value is None)] = None
    """The pods whose evidence a graceful removal keeps before it deletes anything, those that decided first, then
    others; None: it keeps none (row P3)."""
    stacks: Annotated[StacksRequest | None, Field(exclude_if=lambda value: value is None)] = None
    """Which of these pods are asked for the stacks of their programs; None: none."""


class Removed(Payload):
    """Whether everything is proven gone, and if not, what is left."""

    gone: bool
    remnants: tuple[Remnant, ...] = ()
    remnants_total: int = 0
    blind: tuple[Interval, ...] = ()
    answers: Answers | None = None
    """The answers of the pods that were saving, if a checkpoint was followed."""
    claims: Annotated[Claims | None, Field(exclude_if=lambda value: value is None)] = None
    """The claims of its pods that still existed once it was gone."""
    evidence: Annotated[Evidence | None, Field(exclude_if=lambda value: value is None)] = None
    """What was kept before the deletion began; None if it was not asked for, or this worker keeps no evidence."""


class ResetInput(Payload):
    """Look at an attempt, and remove it if the look leads to the promised restart; else only report and return.

    Before the first deletion it marks the anchor. A later try that finds the mark goes on without a look (record 0086).
    """

    look: ObserveInput
    """Its report is applied if nothing is removed. Its sequence is above those of the removal: once it is on the
    anchor, no late try can set the mark."""
    removal: RemoveInput
    workload: Workload
    memory: State
    """What the decision reads of the workflow's state, without the observation that the look replaces."""
    promise: PromisedRestart
    since: Time
    """When the workflow requested it: the look is at least as new."""
    settles: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Whether to begin no removal: only to find out if an earlier dispatch has begun it, and to look if not."""

    @property
    def target(self) -> Target:
        """The workload whose objects it may touch."""
        return self.removal.target

    @property
    def mark(self) -> str:
        """Identifies its decision. A restored Temporal server may reuse the sequence, but not the time."""
        removal = self.removal
        at = self.promise.at.isoformat()
        return f"{removal.attempt}/{removal.owner_uid}/{removal.report.sequence}/{at}"


class Reset(Payload):
    """What the look found, and how the removal ended."""

    confirmed: bool = False
    """Whether the removal has begun: its mark is on the anchor."""
    seen: Observation | None = None
    """What the look found; None if an earlier try has looked and begun the removal."""
    removed: Removed | None = None
    """How the removal ended; None if it has not begun, was broken off, or is only settled."""


class Progress(Payload):
    """The heartbeat details of a waiting activity, which show a user what it waits for."""

    doing: str = ""
    remaining: tuple[str, ...] = ()
    """Sentences, at most 16."""
    remaining_total: int = 0
    pods: Annotated[int | None, Field(exclude_if=lambda value: value is None)] = None
    """How many pods are among what remains; None: it does not wait for pods to go."""
    blind: tuple[Interval, ...] = ()
    """When the cluster could not be observed; carried from one try of the activity to the next."""
    borne: float = 0.0
    """Seconds for which transient refusals have been tolerated so far, over all tries."""
    saved: Annotated[dict[str, str], Field(exclude_if=lambda value: not value)] = {}
    """Where pods being removed have saved their state, by uid, as releases before `places` tell it (row L19)."""
    places: Annotated[dict[str, tuple[str, ...]], Field(exclude_if=lambda value: not value)] = {}
    """The same: digests of the pods' uids, by the place; at most two places, since two disagree as well as more."""


class ProbeInput(Payload):
    """Ask the running pods of an attempt, round after round, whether they still serve (row L28).

    Only pods of the workload's namespace, workload and attempt are asked, at their own addresses. Facts that the API
    server does not give, and failures of this worker, count neither for nor against a pod. It ends with a failure, or
    when it is cancelled, and then returns its counts; counts also survive its worker, in its heartbeats.
    """

    target: Target
    attempt: int
    probe: Probe
    failing: dict[str, int] = {}
    """How often in a row pods did not answer before it began, by uid."""


class Probed(Payload):
    """The pod that has been silent for too long, or the counts when it was broken off."""

    failure: Failure | None = None
    failing: dict[str, int] = {}


class AnchorInput(Payload):
    """The contents of an Anchor, besides its workload's identity."""

    plan: tuple[PlannedComponent, ...]
    spec_hash: str


class ReportInput(Payload):
    """Apply a status to the anchor if no other activity would carry it soon."""

    target: Target
    report: Report
    anchor: Annotated[AnchorInput | None, Field(exclude_if=lambda value: value is None)] = None
    """The Anchor to make first if there is none (record 0096). It is not made where the workload may not begin: its
    namespace is not enabled, or another workload has its name. None: a missing anchor stays missing."""


class Reported(Payload):
    """The result of applying a status."""

    sequence: int = 0
    """The sequence of a later status on the anchor, reported before this memory was restored; 0 if ours stands."""
    creator: Annotated[Outside, Field(exclude_if=lambda value: not value)] = ""
    """As in `Prepared`."""
    anchored: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Whether the anchor of `ReportInput.anchor` exists."""


class WatchInput(Payload):
    """Watch some of a cluster's shards until told to stop; signals workflows on meaningful transitions."""

    cluster: str
    cluster_uid: str
    shards: tuple[int, int]
    """First and last shard, inclusive."""


class WatchNodesInput(PackedPayload):
    """Watch the leases and the health of a cluster's nodes until told to stop; signals news to their monitor, batched.

    It signals changes, never heartbeats: silence, renewal after silence, broken hardware. Each try first asks the
    monitor what it knows. An earlier release sent that here, packed.
    """

    cluster: str
    cluster_uid: str
    timings: NodeTimings


class LookNodesInput(Payload):
    """Read some nodes and their leases live, by quorum reads. While the API server does not answer, it keeps trying."""

    cluster: str
    cluster_uid: str
    nodes: tuple[str, ...]
    uids: dict[str, str] = {}
    """By name: the node of that name that is meant; each sight repeats it."""


class LookedNodes(Payload):
    """The nodes as found."""

    nodes: tuple[NodeSight, ...]
    blind: tuple[Interval, ...] = ()


class MarkNodesInput(Payload):
    """Write the state of some nodes on their objects, keep new pods off nodes that are Down, or undo both (row L5).

    A node without a pod or a mark of this installation is left as it is. Every change names the uid and the version of
    the object as read.
    """

    cluster: str
    cluster_uid: str
    nodes: tuple[NodeWish, ...]


class MarkedNodes(Payload):
    """The result for each node."""

    nodes: tuple[NodeMarked, ...]


__all__ = [
    "AnchorKind",
    "CheckpointInput",
    "Checkpointed",
    "ClaimLeft",
    "ClearInput",
    "Cleared",
    "CopyLaunch",
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
