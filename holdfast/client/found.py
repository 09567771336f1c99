"""The latest run of a name: whether there is one, and whose it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowExecutionDescription, WorkflowExecutionStatus
from temporalio.common import SearchAttributeKey
from temporalio.service import RPCError, RPCStatusCode

from holdfast import names
from holdfast.activities.entities.executions import latest_events, plain
from holdfast.client.connection import Place, explained
from holdfast.errors import HoldfastError
from holdfast.model import Phase
from holdfast.model.labels import KUEUE_QUEUE

_PHASE: Final = SearchAttributeKey.for_keyword(names.SA_PHASE)
_OWN_KIND: Final = "Workload"
"""The custom resource whose queue is one of Holdfast's."""
_EVENTS: Final = 250
"""How many of the latest events are searched for a cancel. After it, few follow until it is carried out."""
_OVER: Final = (Phase.SUCCEEDED.value, Phase.CANCELLED.value)
"""The phases in which a workflow that still runs begins no other attempt, though nobody removes it."""


class Begun(NamedTuple):
    """Identifies a run."""

    workflow_id: str
    uid: str
    run_id: str


async def find(client: Client, place: Place, workflow_id: str) -> Begun | None:
    """Return the latest run of a workflow id, open or closed; None if there is none."""
    description = await describe(client, place, workflow_id)
    if description is None:
        return None
    return Begun(description.id, await uid_of(description), description.run_id)


def several(namespace: str, name: str, ids: Sequence[str]) -> HoldfastError:
    """Return the error that says that a name is that of several workloads, and how to name one of them."""
    return HoldfastError(
        f"{namespace}/{name} is the name of {len(ids)} workloads ({', '.join(ids)}): give the kind, as "
        f"{namespace}/{names.KINDS_IN_IDS[-1]}/{name}, or {namespace}/appwrapper/{name} for the one whose id has none"
    )


class Resubmitted(HoldfastError):
    """Another submission has the name by now."""


def check_own(what: str, own: str, found: str) -> None:
    """Check that a name still belongs to this submission (row D46).

    Args:
        what: the workload or graph, for the message.
        own: the uid of this submission; empty: whichever has the name.
        found: the uid that has the name; empty: an earlier release did not record it.

    Raises:
        Resubmitted: if it belongs to another.
    """
    if own and found and found != own:
        raise Resubmitted(
            f"{what} was submitted again meanwhile: this submission ({own}) is over, and the name is {found}'s now"
        )


async def describe(client: Client, place: Place, workflow_id: str) -> WorkflowExecutionDescription | None:
    """Return the description of a workflow's latest run; None if there is none."""
    try:
        return await client.get_workflow_handle(workflow_id).describe()
    except RPCError as error:
        translated = explained(error, place)
        if error.status is RPCStatusCode.NOT_FOUND and type(translated) is HoldfastError:
            return None
        raise translated from error


async def check_retry(client: Client, place: Place, what: str, description: WorkflowExecutionDescription) -> bool:
    """Check that a workload may begin again, and return whether that takes a new run: its own begins nothing more.

    Args:
        client: The Temporal client.
        place: Temporal's address and namespace.
        what: the workload, for the message.
        description: The latest run.

    Raises:
        HoldfastError: if it takes one, and is a custom resource or a workload of a graph: a new run would be a stranger
            to these. Also if Kueue counts its quota as free (row F8).
        NotReachable: if Temporal does not answer.
    """
    memo, phase = await description.memo(), description.typed_search_attributes.get(_PHASE)
    running = description.status is WorkflowExecutionStatus.RUNNING
    removed = await is_removed(client, place, description)
    over = removed or not running or phase in _OVER
    kind = str(memo.get(names.MEMO_KIND, ""))
    # `Workload.kueue_admits`, by what can be read without a worker.
    counted = memo.get(names.MEMO_APPLIED) and KUEUE_QUEUE in memo.get(names.MEMO_LABELS, {}) and kind != _OWN_KIND
    if counted and (not running or phase == Phase.FAILED.value):
        raise HoldfastError(
            f"{what} has ended, and Kueue counts its quota as free: delete the {kind}, and apply it again"
        )
    if over and (remedy := await anew(description)):
        how = "is being removed" if removed else "has ended"
        raise HoldfastError(f"{what} {how}: {remedy}")
    return over


async def check_removal(client: Client, place: Place, what: str, description: WorkflowExecutionDescription) -> None:
    """Check that a workload is not being removed after a cancel: it begins no other attempt (row D53).

    Args:
        client: The Temporal client.
        place: Temporal's address and namespace.
        what: the workload, for the message.
        description: The latest run.

    Raises:
        HoldfastError: if it is; the message says how to run it anew.
        NotReachable: if Temporal does not answer.
    """
    if await is_removed(client, place, description):
        raise HoldfastError(
            f"{what} is being removed: submit it with --again (again=True), which waits for that and runs it anew"
        )


async def is_removed(client: Client, place: Place, description: WorkflowExecutionDescription) -> bool:
    """Return whether a workload whose workflow runs is being removed after a cancel, or will be.

    Its phase says so only once its workflow has carried out the cancel, which waits for a worker, and for the end of a
    reset under way. A cancel is never taken back, so its history says it before.
    """
    if description.status is not WorkflowExecutionStatus.RUNNING:
        return False
    if description.typed_search_attributes.get(_PHASE) == Phase.TERMINATING.value:
        return True
    uid = await uid_of(description)
    try:
        async for event in latest_events(client, description.id, description.run_id, _EVENTS):
            if await _cancels(client, event, uid):
                return True
    except RPCError as error:
        if error.status is not RPCStatusCode.UNIMPLEMENTED:  # As by Temporal's server for tests.
            raise explained(error, place) from error
    return False


async def _cancels(client: Client, event: HistoryEvent, uid: str) -> bool:
    """Return whether an event of a run cancels it, or began it as the continuation of a cancelled one."""
    match event.event_type:
        case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED:
            return True
        case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED:
            signal = event.workflow_execution_signaled_event_attributes
            if signal.signal_name != names.SIGNAL_CANCEL:
                return False
            reason, meant, phases = (*await plain(client, signal.input), "", "", None)[:3]
            # With phases it may have no effect.
            return isinstance(reason, str) and not phases and (not meant or not uid or meant == uid)
        case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
            match await plain(client, event.workflow_execution_started_event_attributes.input):
                case (_, {"intent": {"cancel": True}}):
                    return True
                case _:
                    return False
        case _:
            return False


async def anew(description: WorkflowExecutionDescription) -> str:
    """Return what runs anew what has ended, if neither `submit --again` nor `retry` does; else empty."""
    memo = await description.memo()
    if memo.get(names.MEMO_APPLIED):
        return f"delete the {memo.get(names.MEMO_KIND, '')}, and apply it again"
    return "submit its graph again" if memo.get(names.MEMO_GRAPH) else ""


async def uid_of(description: WorkflowExecutionDescription) -> str:
    """Return the uid of the submission that a run is of; empty if an earlier release did not record it."""
    return str((await description.memo()).get(names.MEMO_UID, ""))
