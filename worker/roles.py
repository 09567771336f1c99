"""One Temporal worker per role and queue: its workflows or activities, and how many of them run at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, TypeAlias

from temporalio.client import Client
from temporalio.common import WorkerDeploymentVersion
from temporalio.worker import (
    FixedSizeSlotSupplier,
    Interceptor,
    PollerBehaviorAutoscaling,
    PollerBehaviorSimpleMaximum,
    Worker,
    WorkerDeploymentConfig,
    WorkerTuner,
    WorkflowRunner,
)

from holdfast import __version__, names
from holdfast.activities.cluster import ClusterActivities
from holdfast.runner import with_failing_once
from holdfast.worker.entities.queues import Admission
from holdfast.worker.gangs.hub import GangActivities
from holdfast.worker.nodes.watch import NodeWatchActivities
from holdfast.worker.owners import OwnersOnly
from holdfast.worker.runtime.logs import LogContext
from holdfast.worker.runtime.settings import Role, Settings
from holdfast.worker.runtime.slots import FRESH_SECONDS, FRESH_WAIT_SECONDS, FreshSlots
from holdfast.worker.watch.watch import WatchActivities
from holdfast.workflows import patches
from holdfast.workflows.decoding import Fitting
from holdfast.workflows.describing import Describing
from holdfast.workflows.measuring import Histories
from holdfast.workflows.versioning import APART, BEHAVIOR, DECLARED

STICKY_TIMEOUT: Final = timedelta(seconds=5)
"""How long a workflow task waits for the worker that caches its workflow, before any other may take it."""


HEARTBEAT_THROTTLE: Final = timedelta(seconds=1)

POLLS_LEAST: Final = 5
"""Polls that stay open even when idle: with a single one, a burst after a quiet hour arrives task by task."""

_QUEUE_CACHE: Final = 4
"""A queue has one workflow and, for a moment, its previous run."""
_QUEUE_POLLS: Final = 2
"""The minimum of a worker: one of the two is for its sticky queue."""

Slots: TypeAlias = FreshSlots | FixedSizeSlotSupplier


@dataclass(frozen=True)
class Site:
    """What the roles that act on a cluster need."""

    cluster: ClusterActivities
    watch: WatchActivities
    nodes: NodeWatchActivities
    gangs: GangActivities


def workers(
    client: Client, settings: Settings, site: Site | None, runner: WorkflowRunner, around: Sequence[Interceptor] = ()
) -> list[Worker | Admission]:
    """Return a worker for each role of the settings.

    Args:
        client: the Temporal client.
        settings: the roles, and how much of each runs at once.
        site: what the roles that act on a cluster need; None if there are no such roles.
        runner: runs the workflows.
        around: further interceptors of the activities, outside of all others.
    """
    made: list[Worker | Admission] = []
    runner = with_failing_once(runner)
    for role in settings.roles:
        if role is Role.WORKFLOWS:
            made.append(_workflows(client, settings, runner))
        elif role is Role.ADMISSION:
            made.append(Admission(client, settings, lambda queue: _admission(client, settings, runner, queue)))
        elif site is not None:
            made += [_activities(client, settings, role, share, around) for share in shares(settings, role, site)]
    if site is not None and settings.rendezvous_address:
        slots = FixedSizeSlotSupplier(settings.max_concurrent_gangs)
        share = (names.queue_gangs(settings.cluster), [site.gangs.gang_hub], slots)
        made.append(_activities(client, settings, Role.WATCH, share, around))
    return made


def limits(settings: Settings, site: Site | None) -> Iterator[tuple[str, str, int]]:
    """Yield how many tasks may run at once, by task queue and the SDK's name for the sort of worker."""
    for role in settings.roles:
        if role is Role.WORKFLOWS:
            yield names.QUEUE_WORKFLOWS, "WorkflowWorker", settings.max_concurrent_workflow_tasks
        elif role is not Role.ADMISSION and site is not None:
            for queue, _, slots in shares(settings, role, site):
                yield queue, "ActivityWorker", slots.most if isinstance(slots, FreshSlots) else slots.num_slots
    if site is not None and settings.rendezvous_address:
        yield names.queue_gangs(settings.cluster), "ActivityWorker", settings.max_concurrent_gangs


def _workflows(client: Client, settings: Settings, runner: WorkflowRunner) -> Worker:
    return Worker(
        client,
        task_queue=names.QUEUE_WORKFLOWS,
        workflows=[one for one in DECLARED if one not in APART],
        workflow_runner=runner,
        interceptors=[Fitting(), Describing(), Histories()],
        max_cached_workflows=settings.max_cached_workflows,
        max_concurrent_workflow_tasks=settings.max_concurrent_workflow_tasks,
        sticky_queue_schedule_to_start_timeout=STICKY_TIMEOUT,
        workflow_task_poller_behavior=PollerBehaviorAutoscaling(minimum=POLLS_LEAST),
        patch_activation_callback=patches.activation(settings.compatible_with),
        graceful_shutdown_timeout=settings.graceful_shutdown,
        build_id=_build_id(settings),
        deployment_config=_deployment(settings),
    )


def _admission(client: Client, settings: Settings, runner: WorkflowRunner, queue: str) -> Worker:
    """Return the worker of one admission queue: it runs a single workflow."""
    return Worker(
        client,
        task_queue=queue,
        workflows=APART,
        workflow_runner=runner,
        interceptors=[Fitting(), Describing(), Histories()],
        max_cached_workflows=_QUEUE_CACHE,
        max_concurrent_workflow_tasks=_QUEUE_CACHE,
        sticky_queue_schedule_to_start_timeout=STICKY_TIMEOUT,
        workflow_task_poller_behavior=PollerBehaviorSimpleMaximum(_QUEUE_POLLS),
        patch_activation_callback=patches.activation(settings.compatible_with),
        graceful_shutdown_timeout=settings.graceful_shutdown,
        build_id=_build_id(settings),
        deployment_config=_deployment(settings),
    )


Share = tuple[str, list[Callable[..., Any]], Slots]
"""A task queue, its activities, and the slots for them."""


def _activities(client: Client, settings: Settings, role: Role, share: Share, around: Sequence[Interceptor]) -> Worker:
    queue, activities, slots = share
    interceptors: Sequence[Interceptor] = [*around, LogContext(), OwnersOnly()]
    return Worker(
        client,
        task_queue=queue,
        activities=activities,
        tuner=_only_activities(slots),
        activity_task_poller_behavior=_polls(role),
        graceful_shutdown_timeout=settings.graceful_shutdown,
        # A cancellation arrives with the response to a heartbeat.
        max_heartbeat_throttle_interval=HEARTBEAT_THROTTLE,
        default_heartbeat_throttle_interval=HEARTBEAT_THROTTLE,
        interceptors=interceptors,
        build_id=_build_id(settings),
        deployment_config=_deployment(settings),
    )


def shares(settings: Settings, role: Role, site: Site) -> list[Share]:
    """Return the activities of a role that acts on a cluster, by task queue."""
    if role is Role.CLUSTER:
        slots = FreshSlots(settings.max_concurrent_activities, settings.max_fresh_activities, FRESH_SECONDS)
        return [(names.queue_cluster(settings.cluster), [*site.cluster.all, site.gangs.begin_gang], slots)]
    if role is Role.WAIT:
        slots = FreshSlots(settings.max_concurrent_waits, settings.max_fresh_waits, FRESH_WAIT_SECONDS)
        site.cluster.precedence.deletions.listeners.append(slots.ease)
        # Probes last for months, and must not leave a removal without a slot.
        probes = FreshSlots(settings.max_concurrent_probes, settings.max_fresh_waits, FRESH_WAIT_SECONDS)
        return [
            (names.queue_wait(settings.cluster), site.cluster.all, slots),
            (names.queue_probe(settings.cluster), [site.cluster.probe, site.cluster.follow_progress], probes),
        ]
    # One more than the shard sets and the node watch, so that one may restart while its last try is still ending.
    watches = [site.watch.watch, site.nodes.watch_nodes]
    return [(names.queue_watch(settings.cluster), watches, FixedSizeSlotSupplier(settings.watch_shard_sets + 2))]


def _polls(role: Role) -> PollerBehaviorAutoscaling:
    if role is Role.WATCH:
        return PollerBehaviorAutoscaling(initial=2)
    return PollerBehaviorAutoscaling(minimum=POLLS_LEAST)


def _only_activities(slots: Slots) -> WorkerTuner:
    none = FixedSizeSlotSupplier(1)
    return WorkerTuner.create_composite(
        workflow_supplier=none, activity_supplier=slots, local_activity_supplier=none, nexus_supplier=none
    )


def _build_id(settings: Settings) -> str | None:
    """Return the worker's build id in histories; None with a deployment, which has its own."""
    # Without one the SDK reads and hashes the code of every loaded module: half a second of each start.
    return None if settings.deployment_name else f"holdfast-{__version__}"


def _deployment(settings: Settings) -> WorkerDeploymentConfig | None:
    if not settings.deployment_name:
        return None
    return WorkerDeploymentConfig(
        version=WorkerDeploymentVersion(deployment_name=settings.deployment_name, build_id=settings.build_id),
        use_worker_versioning=True,
        default_versioning_behavior=BEHAVIOR,
    )
