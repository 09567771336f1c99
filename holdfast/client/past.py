"""Fetch a workload's past: the histories of all runs of its life, from Temporal or from files."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

from temporalio.client import Client
from temporalio.converter import DataConverter
from temporalio.exceptions import TemporalError
from temporalio.service import RPCError, RPCStatusCode

from holdfast.client.connection import Place, explained
from holdfast.client.found import describe
from holdfast.errors import HoldfastError, WorkloadNotFound
from holdfast.model import Workload
from holdfast.past import Run, Story
from holdfast.past.read import no_history, run_in, run_of, standing, told


async def fetch(client: Client, place: Place, workflow_id: str, run_id: str = "") -> Story:
    """Return the story of the life that a run belongs to; without a run id, of the latest run.

    No worker is needed. This reads Temporal's own record run by run, back to the first run and on to the latest. What a
    reset in Temporal took the place of is left out.

    Raises:
        WorkloadNotFound: if Temporal no longer knows it.
        NotReachable: if Temporal does not answer.
        HoldfastError: if this release cannot read it.
    """
    named = await _fetched(client, place, workflow_id, run_id)
    if named is None:
        raise WorkloadNotFound(workflow_id)
    if run_id and named.closed:
        named = await _last_of(client, place, named)
    runs = [named]
    while runs[0].previous_run_id:
        before = await _fetched(client, place, workflow_id, runs[0].previous_run_id)
        if before is None:
            break  # Its retention period is over; the story says so.
        runs.insert(0, before)
    while runs[-1].next_run_id:
        after = await _fetched(client, place, workflow_id, runs[-1].next_run_id)
        if after is None:
            break
        runs.append(after)
    return told(runs, workflow_id)


async def _last_of(client: Client, place: Place, run: Run) -> Run:
    """Return the latest run of a life: after a reset in Temporal, the run that was terminated does not name it."""
    latest = await describe(client, place, run.workflow_id)
    if latest is None or latest.run_id == run.run_id:
        return run
    if latest.raw_description.workflow_execution_info.first_run_id != run.first_run_id:
        return run  # It is of a later submission.
    return await _fetched(client, place, run.workflow_id, latest.run_id) or run


async def workload_of(client: Client, place: Place, workflow_id: str, run_id: str = "") -> Workload:
    """Return the submitted workload, from the run's first event. No worker is needed, and only one event is read.

    Raises:
        WorkloadNotFound: if Temporal no longer knows it.
        NotReachable: if Temporal does not answer.
        HoldfastError: if this release cannot read it.
    """
    handle = client.get_workflow_handle(workflow_id, run_id=run_id or None)
    try:
        first = await anext(aiter(handle.fetch_history_events(page_size=1)), None)
    except RPCError as error:
        translated = explained(error, place)
        if error.status is RPCStatusCode.NOT_FOUND and type(translated) is HoldfastError:
            raise WorkloadNotFound(workflow_id) from error
        raise translated from error
    if first is None:
        raise WorkloadNotFound(workflow_id)
    payloads = list(first.workflow_execution_started_event_attributes.input.payloads)[:1]
    try:
        (workload,) = await client.data_converter.decode(payloads, [Workload])
    except (TemporalError, ValueError) as error:
        raise HoldfastError(f"{workflow_id}: its workflow's input is no workload this release can read") from error
    return workload


async def _fetched(client: Client, place: Place, workflow_id: str, run_id: str) -> Run | None:
    """Return a run, or None if Temporal does not know it."""
    try:
        history = await client.get_workflow_handle(workflow_id, run_id=run_id or None).fetch_history()
    except RPCError as error:
        translated = explained(error, place)
        if error.status is RPCStatusCode.NOT_FOUND and type(translated) is HoldfastError:
            return None
        raise translated from error
    return await run_of(history, client.data_converter, workflow_id)


async def from_files(paths: Iterable[Path], converter: DataConverter) -> Story:
    """Return the story from exported Temporal histories: one file for each run, in any order.

    Args:
        paths: Files as `temporal workflow show --output json` writes them.
        converter: Reads their payloads.

    Raises:
        HoldfastError: if a file is not such a history, or the files are not all of one life.
    """
    runs: list[Run] = []
    for path in paths:
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise no_history(str(path), error) from error
        runs.append(await run_in(text, converter, str(path)))
    runs = standing(runs)
    for before, after in pairwise(runs):
        if after.first_run_id != before.first_run_id:
            raise HoldfastError(f"runs {before.run_id} and {after.run_id} are not of one life: give one life's files")
        if after.previous_run_id != before.run_id:
            raise HoldfastError(f"the run between {before.run_id} and {after.run_id} is missing: give its file too")
    return told(runs, "the histories given")
