"""The latest run of a name: whether there is one, and whose it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from temporalio.client import Client, WorkflowExecutionDescription, WorkflowExecutionStatus
from temporalio.common import SearchAttributeKey
from temporalio.service import RPCError, RPCStatusCode

from holdfast import names
from holdfast.client.connection import Place, explained
from holdfast.errors import HoldfastError
from holdfast.model import Phase
from holdfast.model.labels import KUEUE_QUEUE

_PHASE: Final = SearchAttributeKey.for_keyword(names.SA_PHASE)
_OWN_KIND: Final = "Workload"
"""The custom resource whose queue is one of Holdfast's."""


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


def check_own(what: str, own: str, found: str) -> None:
    """Check that a name still belongs to this submission (row D46).

    Args:
        what: the workload or graph, for the message.
        own: the uid of this submission; empty: whichever has the name.
        found: the uid that has the name; empty: an earlier release did not record it.

    Raises:
        HoldfastError: if it belongs to another.
    """
    if own and found and found != own:
        raise HoldfastError(
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


async def check_retry(what: str, description: WorkflowExecutionDescription) -> None:
    """Check that Kueue would count the quota of a workload that begins again (row F8).

    Args:
        what: the workload, for the message.
        description: The latest run.

    Raises:
        HoldfastError: if it is a custom resource that has ended, and whose quota Kueue counts.
    """
    memo, phase = await description.memo(), description.typed_search_attributes.get(_PHASE)
    kind = str(memo.get(names.MEMO_KIND, ""))
    # `Workload.kueue_admits`, by what can be read without a worker.
    if not memo.get(names.MEMO_APPLIED) or KUEUE_QUEUE not in memo.get(names.MEMO_LABELS, {}) or kind == _OWN_KIND:
        return
    if description.status is WorkflowExecutionStatus.RUNNING and phase != Phase.FAILED.value:
        return
    raise HoldfastError(f"{what} has ended, and Kueue counts its quota as free: delete the {kind}, and apply it again")


def check_removal(what: str, description: WorkflowExecutionDescription) -> None:
    """Check that a workload is not being removed after a cancel: it begins no other attempt (row D53).

    Args:
        what: the workload, for the message.
        description: The latest run.

    Raises:
        HoldfastError: if it is; the message says how to run it anew.
    """
    phase = description.typed_search_attributes.get(_PHASE)
    if description.status is WorkflowExecutionStatus.RUNNING and phase == Phase.TERMINATING.value:
        raise HoldfastError(
            f"{what} is being removed: submit it with --again (again=True), which waits for that and runs it anew"
        )


async def uid_of(description: WorkflowExecutionDescription) -> str:
    """Return the uid of the submission that a run is of; empty if an earlier release did not record it."""
    return str((await description.memo()).get(names.MEMO_UID, ""))
