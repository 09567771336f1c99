"""The latest run of a name: whether there is one, and whose it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from temporalio.client import Client, WorkflowExecutionDescription
from temporalio.service import RPCError, RPCStatusCode

from holdfast import names
from holdfast.client.connection import Place, explained
from holdfast.errors import HoldfastError


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


async def uid_of(description: WorkflowExecutionDescription) -> str:
    """Return the uid of the submission that a run is of; empty if an earlier release did not record it."""
    return str((await description.memo()).get(names.MEMO_UID, ""))
