"""Start a workload's workflow, and handle an earlier one of the same name."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from temporalio.client import (
    Client,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
)
from temporalio.common import SearchAttributeKey
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from holdfast import names
from holdfast.activities.entities.executions import word_for
from holdfast.client.connection import Place, explained, refusals
from holdfast.client.found import Begun, check_removal, describe, is_removed, uid_of
from holdfast.client.patience import Patience
from holdfast.client.pending import activities_of
from holdfast.codec.options import encrypts
from holdfast.errors import AlreadyEnded, HoldfastError, InvalidWorkload, SpecConflict
from holdfast.model import Component, Phase, Workload, format_duration
from holdfast.worker.runtime.pollers import polled
from holdfast.workflows import start

_PHASE: Final = SearchAttributeKey.for_keyword(names.SA_PHASE)
_ENDED: Final = tuple(phase for phase in Phase if phase.ended)
_SETTLED: Final = (*_ENDED, Phase.TERMINATING)
_ATTEMPT: Final = SearchAttributeKey.for_int(names.SA_ATTEMPT)

_POLL_FIRST: Final = 0.2
_POLL_LONGEST: Final = 3.0
MAKING_WAY: Final = timedelta(minutes=10)
"""How long a submission waits until everything that an earlier one of its name holds is proven gone."""


async def begin(client: Client, place: Place, workload: Workload, *, again: bool) -> Begun:
    """Start the workload's workflow, or return the run that already runs this workload (see `Holdfast.submit`)."""
    stamped = start.stamped(workload)
    for last in (False, True):
        try:
            with refusals(place):
                options = start.options(stamped, again=again)
                handle = await client.start_workflow(names.WORKLOAD_WORKFLOW, **options)
            return Begun(handle.id, stamped.uid, handle.result_run_id or "")
        except WorkflowAlreadyStartedError:
            present = await _present(client, place, stamped, again=again and not last)
            if present is not None:
                return present
    raise HoldfastError(f"{stamped.workflow_id} is being submitted by someone else at this moment: try again")


def check_secrets(client: Client, components: Iterable[Component], what: str) -> None:
    """Refuse a Secret among the components if this client does not encrypt what it sends (row X6).

    Raises:
        InvalidWorkload: naming the component.
    """
    from holdfast.formats import secrets_of

    if not encrypts(client.data_converter) and (problems := secrets_of(components)):
        raise InvalidWorkload(problems, what)


class InTheWay(NamedTuple):
    """An earlier submission that must end before its name is free.

    Attributes:
        description: Its description when it was found.
        phases: The phases in which it may be ended. If it enters another, somebody has revived it, and it stays. Empty
            if it was cancelled: it ends by itself.
    """

    description: WorkflowExecutionDescription
    phases: tuple[Phase, ...]


async def in_the_way(
    client: Client, place: Place, workload: Workload, *, again: bool, is_under_way: Callable[[], Awaitable[bool]]
) -> InTheWay | None:
    """Return what is in the way of a workload that begins together with others; change nothing.

    With `again`, two kinds of earlier submissions may be ended, which `make_way` does: one of the same workload that
    still waits and never created an object, and one that has an outcome or was cancelled, and is still in the cluster.

    Args:
        client: The Temporal client.
        place: Temporal's address and namespace.
        workload: The workload to begin.
        again: Whether a workload that has ended may begin again.
        is_under_way: Returns whether another client has begun the same submission; what was found may then be its.

    Raises:
        SpecConflict: if another workload of this name exists.
        AlreadyEnded: if one has ended, and `again` is not given.
        HoldfastError: if the workload is under way already, and `again` is given; or if it is being removed, and
            `again` is not given.
    """
    description = await describe(client, place, workload.workflow_id)
    if description is None:
        return None
    if description.status is not WorkflowExecutionStatus.RUNNING:
        if again:
            return None
        raise AlreadyEnded(workload.workflow_id, _outcome(description))
    if await is_under_way():  # Check this after `_describe`: what begins from now on is not what was found.
        return None
    if not again:
        await check_removal(client, place, workload.workflow_id, description)
    elif leaving := await _leaving(client, place, description):
        return leaving
    await _same(description, workload)
    if not again:
        return None
    if not _waits(description):
        raise HoldfastError(f"{workload.workflow_id} is under way, of an earlier submission: cancel it first")
    return InTheWay(description, (Phase.PENDING,))


async def _present(client: Client, place: Place, workload: Workload, *, again: bool) -> Begun | None:
    """Return the existing run if it is the same workload; None if it has just ended and may begin again."""
    description = await describe(client, place, workload.workflow_id)
    if description is None:
        return None
    if description.status is not WorkflowExecutionStatus.RUNNING:
        if again:
            return None
        raise AlreadyEnded(workload.workflow_id, _outcome(description))
    if not again:
        # A graph is continued by submitting it again; workloads of it may have ended.
        if workload.graph is None and description.typed_search_attributes.get(_PHASE) in _ENDED:
            raise AlreadyEnded(workload.workflow_id, _outcome(description))
        await check_removal(client, place, workload.workflow_id, description)
    elif leaving := await _leaving(client, place, description):
        await make_way(client, place, leaving)
        return None
    await _same(description, workload)
    return Begun(description.id, await uid_of(description), description.run_id)


async def _same(description: WorkflowExecutionDescription, workload: Workload) -> None:
    """Raise `SpecConflict` if the existing run is of another workload."""
    theirs, ours = str((await description.memo()).get(names.MEMO_SPEC_HASH, "")), workload.spec_hash()
    if theirs and theirs != ours:
        raise SpecConflict(workload.workflow_id, theirs, ours)


def _outcome(description: WorkflowExecutionDescription) -> str:
    """Return the phase in which a workload ended; for a workflow that was ended from outside, Temporal's word."""
    phase = description.typed_search_attributes.get(_PHASE)
    return phase if phase is not None and phase in _ENDED else word_for(description)


def _settled(description: WorkflowExecutionDescription) -> bool:
    """Whether the workload has an outcome, so that only its resources are still held or being removed.

    Read from its search attributes: the memo is not written in every phase, so a revived workload would look ended.
    """
    return description.typed_search_attributes.get(_PHASE) in _SETTLED


async def _leaving(client: Client, place: Place, description: WorkflowExecutionDescription) -> InTheWay | None:
    """Return an earlier submission that has an outcome or was cancelled; None if it goes on."""
    if _settled(description):
        return InTheWay(description, _SETTLED)
    return InTheWay(description, ()) if await is_removed(client, place, description) else None


def _waits(description: WorkflowExecutionDescription) -> bool:
    """Whether it is Pending and never had an attempt, so none of its objects was ever created."""
    shown = description.typed_search_attributes
    return shown.get(_PHASE) == Phase.PENDING.value and not shown.get(_ATTEMPT)


async def make_way(client: Client, place: Place, found: InTheWay) -> None:
    """Remove everything that an earlier submission still holds, and wait until it is proven gone (row D53).

    Args:
        client: The Temporal client.
        place: Temporal's address and namespace.
        found: The earlier submission.

    Raises:
        HoldfastError: if it was revived meanwhile, or is not gone within `MAKING_WAY`, or Temporal no longer answers by
            then; the message says what it waits for.
        NotReachable: if Temporal does not take the cancel.
    """
    description, phases = found
    uid = await uid_of(description)
    handle = client.get_workflow_handle(description.id, run_id=description.run_id)
    try:
        if phases:
            await handle.signal(names.SIGNAL_CANCEL, args=["it is submitted again", uid, [one.value for one in phases]])
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND or "completed" not in error.message.lower():
            raise explained(error, place) from error
    patience, begun, pause = Patience(), time.monotonic(), _POLL_FIRST
    while True:
        left = begun + MAKING_WAY.total_seconds() - time.monotonic()
        try:
            async with asyncio.timeout(max(left, _POLL_LONGEST)):  # The last pause may have ended after the limit.
                seen = await patience.ask(lambda: describe(client, place, description.id))
        except TimeoutError:
            raise HoldfastError(
                f"Temporal at {place} does not answer: the cancel of {description.id} was sent, and nothing was "
                "submitted: submit again once Temporal answers"
            ) from None
        if seen is None or seen.status is not WorkflowExecutionStatus.RUNNING or await uid_of(seen) != uid:
            return
        now = seen.typed_search_attributes.get(_PHASE)
        if phases and now not in {*phases, *_SETTLED}:
            raise HoldfastError(
                f"{description.id} has been revived meanwhile and is {now}: nothing was submitted, and it was not "
                f"cancelled; `holdfast cancel {names.name_of(description.id)}` ends it"
            )
        if time.monotonic() - begun >= MAKING_WAY.total_seconds():
            raise HoldfastError(await _unmoved(client, seen, str(now)))
        await asyncio.sleep(pause)
        pause = min(pause * 1.3, _POLL_LONGEST)


async def _unmoved(client: Client, description: WorkflowExecutionDescription, phase: str) -> str:
    """Return a message that says what the end of an earlier submission waits for."""
    now, under_way = datetime.now(UTC), await activities_of(description)
    sentences = [sentence for activity in under_way if (sentence := activity.sentence(now))]
    if sentences:
        why = sentences[0]
    elif under_way:
        why = f"{under_way[0].type} is under way"
    else:
        found = await polled(client, description.task_queue or names.QUEUE_WORKFLOWS)
        why = "its workflow has not begun to" if found.served else f"no worker answers: {found.sentence(now)}"
    return (
        f"{description.id} is {phase} and is still being removed after {format_duration(MAKING_WAY)}: {why}. Nothing "
        f"was submitted; `holdfast explain {names.name_of(description.id)}` says what it waits for: submit again once "
        "it is gone"
    )
