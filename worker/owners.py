"""Who may ask for each activity: the workflow that owns what it touches (row X2)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from holdfast import names
from holdfast.model.calls.broker import AskInput, WeighInput
from holdfast.model.calls.gang import GangBegin, HubInput
from holdfast.model.calls.plan import Target
from holdfast.model.calls.queue import LookQueueInput


class Owner(NamedTuple):
    """A workflow, by its type and its id."""

    type: str
    id: str


def _watch(given: Any) -> Owner:
    return Owner(names.CLUSTER_WATCH_WORKFLOW, names.watch_workflow_id(given.cluster))


def _monitor(given: Any) -> Owner:
    return Owner(names.NODE_MONITOR_WORKFLOW, names.node_monitor_id(given.cluster))


def _provisioner(given: Any) -> Owner:
    return Owner(names.PROVISIONER_WORKFLOW, names.provisioner_id(given.cluster))


def _queue(given: LookQueueInput) -> Owner:
    return Owner(names.QUEUE_WORKFLOW, names.queue_id(given.cluster, given.queue))


def _broker(given: WeighInput) -> Owner:
    return Owner(names.BROKER_WORKFLOW, names.broker_id(given.broker.cluster))


def _broker_of_workload(given: AskInput) -> Owner:
    try:
        cluster, _, _ = names.parse_workflow_id(given.workload)
    except ValueError:
        cluster = ""
    return Owner(names.BROKER_WORKFLOW, names.broker_id(cluster))


def _gang(given: GangBegin) -> Owner:
    return Owner(names.WORKLOAD_WORKFLOW, given.workflow_id)


def _rendezvous(given: HubInput) -> Owner:
    return Owner(names.RENDEZVOUS_WORKFLOW, names.rendezvous_id(given.cluster, given.namespace, given.workload))


OWNERS: Final[Mapping[str, Callable[[Any], Owner]]] = {
    names.ACTIVITY_WATCH: _watch,
    names.ACTIVITY_WATCH_NODES: _monitor,
    names.ACTIVITY_LOOK_NODES: _monitor,
    names.ACTIVITY_MARK_NODES: _monitor,
    names.ACTIVITY_ENLIST: _provisioner,
    names.ACTIVITY_PROVISION: _provisioner,
    names.ACTIVITY_CHECK_PROVISIONER: _provisioner,
    names.ACTIVITY_LOOK_QUEUE: _queue,
    names.ACTIVITY_WEIGH: _broker,
    names.ACTIVITY_ASK: _broker_of_workload,
    names.ACTIVITY_BEGIN_GANG: _gang,
    names.ACTIVITY_GANG_HUB: _rendezvous,
}
"""The owner of what an activity touches, by its name and from its input. All others name a workload by `target`."""


class OwnersOnly(Interceptor):
    """Refuses an activity that another workflow than the owner asks for by accident (row X2).

    It is no defence: whoever writes to the Temporal namespace chooses a workflow's type and id.
    """

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        """Compare before each activity."""
        return _Compared(next)


class _Compared(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        info = activity.info()
        owner = _owner(info.activity_type, input.args[0]) if input.args else None
        if owner is not None and owner != (info.workflow_type, info.workflow_id):
            raise ApplicationError(
                f"workflow {info.workflow_id!r} of type {info.workflow_type} may not {info.activity_type} what belongs "
                f"to {owner.id!r}: expected that workflow, of type {owner.type}",
                type=names.ERROR_REFUSED,
                non_retryable=True,
            )
        return await super().execute_activity(input)


def _owner(name: str, given: Any) -> Owner | None:
    """Return the owner of what an activity touches; None if nothing says whose it is."""
    if name in OWNERS:
        return OWNERS[name](given)
    target: Any = getattr(given, "target", None)
    return Owner(names.WORKLOAD_WORKFLOW, target.workflow_id) if isinstance(target, Target) else None
