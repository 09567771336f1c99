"""The last document and state of an entity, read from its runs' histories, since it cannot be queried (D2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from temporalio.client import Client

from holdfast import names
from holdfast.activities.entities.executions import PastRun, Word, past_runs
from holdfast.activities.kube.raw import mapping
from holdfast.model.calls.gang import GangBegin, GangEnd, GangSize, RendezvousMemory
from holdfast.model.entities.graph import Graph, GraphState
from holdfast.model.entities.queue import QueueNews, QueueState
from holdfast.model.packed import unpacked
from holdfast.policy.values.edit import edit

M = TypeVar("M")


class NotNow(Exception):
    """An entity cannot be started again yet; the message is the reason."""


async def configured(client: Client, workflow_id: str, model: type[M]) -> tuple[M, str | None, list[PastRun]]:
    """Return the last document of an entity, why it was told to end (None: it was not), and the runs read.

    Raises:
        NotNow: if no run is left that contains its document.
        RPCError: if Temporal does not answer.
    """
    closing: str | None = None
    runs = list[PastRun]()
    async for run in past_runs(client, workflow_id):
        runs.append(run)
        # A later configuration revokes a request to end.
        for word in reversed(run.words):
            if word.name == names.SIGNAL_CANCEL and closing is None:
                closing = str(word.arguments[0]) if word.arguments and word.arguments[0] else "a person asked for it"
            elif word.name == names.UPDATE_CONFIGURE and word.arguments:
                document = _read(model, word.arguments[0], workflow_id)
                if document is not None:
                    return document, closing, runs
        carried = _mapping(run.arguments[1] if len(run.arguments) > 1 else None)
        document = _read(model, carried.get(model.__name__.lower()), workflow_id)
        if document is not None:
            return document, closing or str(carried.get("closing") or "") or None, runs
        document = _read(model, run.arguments[0], workflow_id) if run.arguments else None
        if document is not None:
            return document, closing, runs
    raise NotNow("no run of it is left that says what it goes by: apply its document again")


def queue_memory(runs: Sequence[PastRun]) -> tuple[QueueState | None, list[QueueNews]]:
    """Return the state that the latest readable run of a queue began with, and the workloads' news since then.

    Args:
        runs: its runs, the latest first.
    """
    news, known = list[QueueNews](), None
    for run in runs:
        parts = (
            parsed(QueueNews, word.arguments[0])
            for word in run.words
            if word.name == names.SIGNAL_NEWS and word.arguments
        )
        news[:0] = [each for each in parts if each is not None]
        known = parsed(QueueState, run.arguments[1]) if len(run.arguments) > 1 else None
        if known is not None:
            break
    return known, news


async def graph_document(client: Client, workflow_id: str) -> tuple[Graph, GraphState | None, str, dict[str, Any]]:
    """Return a graph, the state its last run began with, why it was cancelled (empty: it was not), and its memo.

    Raises:
        NotNow: if no run is left that contains its document.
        RPCError: if Temporal does not answer.
    """
    words = list[Word]()
    async for run in past_runs(client, workflow_id):
        words[:0] = [word for word in run.words if word.name == names.SIGNAL_CANCEL]
        graph = _read(Graph, run.arguments[0], workflow_id) if run.arguments else None
        if graph is not None:
            carried = run.arguments[1] if len(run.arguments) > 1 else None
            cancelled = next((why for word in words if (why := _cancelled(graph, *word.arguments))), "")
            return graph, parsed(GraphState, carried), cancelled, run.memo
    raise NotNow("no run of it is left that says what it consists of: submit its file again")


def _cancelled(graph: Graph, reason: Any = "", uid: Any = "", *_: Any) -> str:
    """Return why a signal cancels a graph; empty if it names another submission, as in the workflow."""
    return "" if uid and uid != graph.uid else str(reason or "") or "the graph was cancelled"


def latest_begin(run: PastRun) -> GangBegin | None:
    """Return the attempt that a rendezvous served last."""
    inputs = [run.arguments, *(word.arguments for word in run.words if word.name == names.SIGNAL_ATTEMPT)]
    last: GangBegin | None = None
    for begin in map(_begin_of, inputs):
        if begin is not None and (last is None or begin.is_later(last)):
            last = begin
    return last


def rendezvous_memory(run: PastRun) -> tuple[RendezvousMemory | None, bool]:
    """Return the memory that a run began with, and whether that is certain; a first run begins with None."""
    started = _mapping(run.arguments[0] if run.arguments else None)
    if not started:
        return None, False
    carried = started.get("memory")
    memory = parsed(RendezvousMemory, carried)
    return memory, carried is None or memory is not None


def attempt_is_over(runs: Sequence[PastRun], begin: GangBegin) -> bool:
    """Whether a workload has reported the end of the attempt."""
    for run in runs:
        for word in run.words:
            end = parsed(GangEnd, word.arguments[0]) if word.name == names.SIGNAL_END and word.arguments else None
            if end is not None and end.workload_uid == begin.workload_uid and end.attempt >= begin.attempt:
                return True
    return False


def sized(begin: GangBegin, runs: Sequence[PastRun]) -> GangBegin:
    """Return the attempt with the last size that its gang was given; sizes of earlier attempts do not count.

    Args:
        begin: the attempt.
        runs: the runs of its rendezvous, the latest first, back to the first whose memory is certain.
    """
    gang, serves = begin.gang, False
    for run in reversed(runs):
        memory, _ = rendezvous_memory(run)
        if memory is not None and memory.state.run_id == begin.run_id:
            gang = memory.state.gang
        serves = serves or _begins(run.arguments, begin)
        for word in run.words:
            if word.name == names.SIGNAL_ATTEMPT:
                serves = serves or _begins(word.arguments, begin)
            elif word.name == names.UPDATE_RESIZE and serves:
                size = parsed(GangSize, word.arguments[0]) if word.arguments else None
                if size is not None and size.min <= size.max:
                    gang = edit(gang, min=size.min, max=size.max)
    return edit(begin, gang=gang)


def _begins(arguments: Sequence[Any], begin: GangBegin) -> bool:
    """Whether the input of a run, or of a signal, is this attempt."""
    found = _begin_of(arguments)
    return found is not None and found.run_id == begin.run_id


def _begin_of(arguments: Sequence[Any]) -> GangBegin | None:
    given = _mapping(arguments[0] if arguments else None)
    return parsed(GangBegin, {key: value for key, value in given.items() if key != "memory"})


def _read(model: type[M], document: Any, workflow_id: str) -> M | None:
    found = parsed(model, document)
    return found if found is not None and getattr(found, "workflow_id", "") == workflow_id else None


def parsed(model: type[M], document: Any) -> M | None:
    """Return a document, plain or packed, as a model; None if it does not fit the model."""
    if document is None:
        return None
    try:
        parsed: M = model.model_validate(unpacked(document))  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]
    except ValueError:
        return None
    return parsed  # pyright: ignore[reportUnknownVariableType]


def _mapping(value: Any) -> Mapping[str, Any]:
    """Return a JSON object, plain or packed; an empty one if the value is none."""
    try:
        return mapping(unpacked(value))
    except ValueError:
        return {}
