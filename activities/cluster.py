"""The cluster activities, as a worker registers them: thin methods over the modules that do the work."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from temporalio import activity

from holdfast import names
from holdfast.activities.data.settings import Data
from holdfast.activities.data.stage import stage
from holdfast.activities.entities import broker
from holdfast.activities.entities.over import is_over
from holdfast.activities.entities.queues import look_queue
from holdfast.activities.entities.sensitive import any_sensitive
from holdfast.activities.evidence.store import EvidenceStore
from holdfast.activities.facts.nodes import Marks, Silence
from holdfast.activities.kube.blindness import Sight
from holdfast.activities.kube.client import Kube
from holdfast.activities.kube.priority import Precedence
from holdfast.activities.nodes import provisioner
from holdfast.activities.nodes.machine import Provisioning
from holdfast.activities.nodes.machine_identity import Identities
from holdfast.activities.nodes.marks import look_nodes, mark_nodes
from holdfast.activities.objects.rehearse import rehearse_change
from holdfast.activities.operations.barrier import barrier
from holdfast.activities.operations.checkpoint import checkpoint
from holdfast.activities.operations.clear import clear
from holdfast.activities.operations.create import create
from holdfast.activities.operations.observe import observe
from holdfast.activities.operations.park import park, unpark
from holdfast.activities.operations.prepare import prepare
from holdfast.activities.operations.probe import probe
from holdfast.activities.operations.remove import force_remove, remove
from holdfast.activities.operations.replace import replace
from holdfast.activities.operations.report import report
from holdfast.activities.operations.reset import reset
from holdfast.activities.operations.scale import resize_rendezvous, scale
from holdfast.activities.progress.follow import follow
from holdfast.activities.site.site import Site
from holdfast.model import Limits, OperationKind
from holdfast.model.calls.barrier import BarrierInput, Lifted
from holdfast.model.calls.broker import AskDone, AskInput, WeighInput
from holdfast.model.calls.cluster import (
    Checkpointed,
    CheckpointInput,
    Cleared,
    ClearInput,
    Created,
    CreateInput,
    LookedNodes,
    LookNodesInput,
    MarkedNodes,
    MarkNodesInput,
    Observation,
    ObserveInput,
    Parked,
    ParkInput,
    Prepared,
    PrepareInput,
    Probed,
    ProbeInput,
    Rehearsed,
    RehearseInput,
    Removed,
    RemoveInput,
    Replaced,
    ReplaceInput,
    Reported,
    ReportInput,
    Reset,
    ResetInput,
    Scaled,
    ScaleInput,
    Unparked,
    UnparkInput,
)
from holdfast.model.calls.operations import OPERATIONS
from holdfast.model.calls.progress import Followed, FollowInput
from holdfast.model.calls.provisioner import (
    CheckProvisionerInput,
    Enlisted,
    EnlistInput,
    Provisioned,
    ProvisionInput,
)
from holdfast.model.calls.queue import LookQueueInput, SeenQueue
from holdfast.model.calls.stage import Staged, StageInput
from holdfast.model.entities.broker import Weighed
from holdfast.model.entities.provisioner import Checked


class ClusterActivities:
    """The activities of one cluster, for a worker that holds the rights to it."""

    def __init__(
        self,
        kube: Kube,
        cluster: str,
        cluster_uid: str,
        installation: str,
        limits: Limits,
        sight: Sight | None = None,
        marks: Marks | None = None,
        silence: Silence | None = None,
        rendezvous: str = "",
        data: Data | None = None,
        provisioning: Provisioning | None = None,
        namespaces: tuple[str, ...] = (),
        rendezvous_ca: Callable[[], str] = str,
        *,
        managed_by: str = names.MANAGED_BY,
        encrypted: bool = False,
        evidence: EvidenceStore | None = None,
    ) -> None:
        """Prepare the activities.

        Args:
            kube: the client.
            cluster: the cluster's name in workflow ids.
            cluster_uid: uid of its `kube-system` namespace.
            installation: id of this installation, label-safe.
            limits: what the operator allows.
            sight: the record of when the cluster could not be seen; the client's own by default.
            marks: how a bad node is recognised.
            silence: how long a node may be silent before it is found Down.
            rendezvous: the address where pods reach the rendezvous of their gang; empty: they cannot.
            data: the settings for data sets; None where this worker stages none.
            provisioning: the service that boots, erases and powers off nodes' machines; None without one.
            namespaces: the only namespaces in which anything is made or changed; empty: every enabled one.
            rendezvous_ca: returns the authority that signed the rendezvous' certificate, PEM; empty: the public ones.
            managed_by: what custom resources say in `managedBy` that are for this installation.
            encrypted: whether this worker encrypts what Temporal stores.
            evidence: where evidence of failed attempts is kept; None where this worker keeps none.
        """
        seeing = (sight or kube.sight, marks or Marks(), silence or Silence())
        self._provisioning = provisioning
        self._identities = Identities()
        where = (cluster, cluster_uid, installation)
        self._site = Site(
            kube,
            *where,
            limits,
            *seeing,
            rendezvous=rendezvous,
            rendezvous_ca=rendezvous_ca,
            data=data,
            namespaces=namespaces,
            managed_by=managed_by,
            encrypted=encrypted,
            evidence=evidence,
        )

    @property
    def precedence(self) -> Precedence:
        """What goes first in a burst."""
        return self._site.precedence

    @property
    def short(self) -> list[Callable[..., Any]]:
        """The activities for the cluster's queue of short activities."""
        return [
            *self._operations(names.queue_cluster),
            self.rehearse,
            self.look_nodes,
            self.mark_nodes,
            self.look_queue,
            self.weigh_checkpoints,
            self.ask_checkpoint,
            self.enlist_node,
        ]

    @property
    def waits(self) -> list[Callable[..., Any]]:
        """The activities for the cluster's queue of long waits."""
        operations = self._operations(names.queue_wait)
        return [*operations, self.probe, self.follow_progress, self.scale, self.provision_node, self.check_provisioner]

    def _operations(self, queue: Callable[[str], str]) -> list[Callable[..., Any]]:
        return [getattr(self, kind.value) for kind, row in OPERATIONS.items() if row.queue is queue]

    @property
    def all(self) -> list[Callable[..., Any]]:
        """All activities."""
        return [*self.short, *self.waits]

    @activity.defn(name=OperationKind.PREPARE)
    async def prepare(self, given: PrepareInput) -> Prepared:
        """Run every check that can refuse the attempt, then ensure that the anchor and the attempt's owner exist."""
        return await prepare(self._site, given)

    @activity.defn(name=names.ACTIVITY_REHEARSE)
    async def rehearse(self, given: RehearseInput) -> Rehearsed:
        """Ask the API server whether it would make components as changed; this changes nothing."""
        return await rehearse_change(self._site, given)

    @activity.defn(name=OperationKind.CREATE)
    async def create(self, given: CreateInput) -> Created:
        """Create all components, then mark the attempt submitted."""
        return await create(self._site, given)

    @activity.defn(name=OperationKind.STAGE)
    async def stage(self, given: StageInput) -> Staged:
        """Fetch the data sets that an attempt reads until they are complete in the cache."""
        return await stage(self._site, given, partial(is_over, self._site, activity.client()))

    @activity.defn(name=OperationKind.OBSERVE)
    async def observe(self, given: ObserveInput) -> Observation:
        """Look at one attempt live."""
        return await observe(self._site, given)

    @activity.defn(name=OperationKind.RESET)
    async def reset(self, given: ResetInput) -> Reset:
        """Look at an attempt, and remove it if the look repeats the promised decision."""
        return await reset(self._site, given)

    @activity.defn(name=OperationKind.REMOVE)
    async def remove(self, given: RemoveInput) -> Removed:
        """Delete an attempt in the foreground and wait for the proof."""
        return await remove(self._site, given)

    @activity.defn(name=OperationKind.FORCE_REMOVE)
    async def force_remove(self, given: RemoveInput) -> Removed:
        """Delete by force the objects left of an attempt, until they are proven gone."""
        return await force_remove(self._site, given)

    @activity.defn(name=OperationKind.REPLACE)
    async def replace(self, given: ReplaceInput) -> Replaced:
        """Make some components of a living attempt again, alone."""
        return await replace(self._site, given)

    @activity.defn(name=OperationKind.CLEAR)
    async def clear(self, given: ClearInput) -> Cleared:
        """Delete the objects of an ended workload that are still active, and keep those that have ended."""
        return await clear(self._site, given)

    @activity.defn(name=OperationKind.BARRIER)
    async def barrier(self, given: BarrierInput) -> Lifted:
        """Bring all pods of an attempt to their barrier, and let their programs start."""
        return await barrier(self._site, given)

    @activity.defn(name=OperationKind.PARK)
    async def park(self, given: ParkInput) -> Parked:
        """Suspend the unfinished components of an attempt in place, and prove that none of their pods are left."""
        return await park(self._site, given)

    @activity.defn(name=OperationKind.UNPARK)
    async def unpark(self, given: UnparkInput) -> Unparked:
        """Resume components of an attempt that was suspended in place."""
        return await unpark(self._site, given)

    @activity.defn(name=names.ACTIVITY_SCALE)
    async def scale(self, given: ScaleInput) -> Scaled:
        """Resize the gang of a living attempt."""
        return await scale(self._site, given, resize_rendezvous)

    @activity.defn(name=OperationKind.CHECKPOINT)
    async def checkpoint(self, given: CheckpointInput) -> Checkpointed:
        """Ask the pods of an attempt to save their state, and follow their answers."""
        return await checkpoint(self._site, given)

    @activity.defn(name=names.ACTIVITY_LOOK_NODES)
    async def look_nodes(self, given: LookNodesInput) -> LookedNodes:
        """Read some nodes and their leases live."""
        return await look_nodes(self._site, given)

    @activity.defn(name=names.ACTIVITY_MARK_NODES)
    async def mark_nodes(self, given: MarkNodesInput) -> MarkedNodes:
        """Write the state of some nodes on their objects."""
        return await mark_nodes(self._site, given, lambda workloads: any_sensitive(activity.client(), workloads))

    @activity.defn(name=names.ACTIVITY_LOOK_QUEUE)
    async def look_queue(self, given: LookQueueInput) -> SeenQueue:
        """Find out which workloads of an admission queue still exist."""
        return await look_queue(self._site, activity.client(), given)

    @activity.defn(name=names.ACTIVITY_WEIGH)
    async def weigh_checkpoints(self, given: WeighInput) -> Weighed:
        """Look at all running workloads that can save their state, and weigh what a checkpoint of each is worth."""
        return await broker.weigh(activity.client(), given, self._site.data)

    @activity.defn(name=names.ACTIVITY_ASK)
    async def ask_checkpoint(self, given: AskInput) -> AskDone:
        """Ask a workload to save its state and to run on."""
        return await broker.ask(activity.client(), given)

    @activity.defn(name=names.ACTIVITY_ENLIST)
    async def enlist_node(self, given: EnlistInput) -> Enlisted:
        """Find the provisioning service of a node; quarantine a node that is to be wiped."""
        return await provisioner.enlist(self._site, self._provisioning, given)

    @activity.defn(name=names.ACTIVITY_PROVISION)
    async def provision_node(self, given: ProvisionInput) -> Provisioned:
        """Boot, wipe or power off a node's machine, or lift its quarantine; a try may do only a part of it."""
        return await provisioner.provision(self._site, self._provisioning, given, self._identities)

    @activity.defn(name=names.ACTIVITY_CHECK_PROVISIONER)
    async def check_provisioner(self, given: CheckProvisionerInput) -> Checked:
        """Ask the provisioning service whether it would take a request."""
        return await provisioner.check(self._site, self._provisioning, given)

    @activity.defn(name=names.ACTIVITY_PROBE)
    async def probe(self, given: ProbeInput) -> Probed:
        """Ask the pods of an attempt whether they still serve, until one has been silent for too long."""
        return await probe(self._site, given)

    @activity.defn(name=names.ACTIVITY_FOLLOW)
    async def follow_progress(self, given: FollowInput) -> Followed:
        """Follow the steps of a workload's pods (rows P1, P2)."""
        return await follow(self._site, given)

    @activity.defn(name=OperationKind.REPORT)
    async def report(self, given: ReportInput) -> Reported:
        """Apply a status to the anchor."""
        return await report(self._site, given)
