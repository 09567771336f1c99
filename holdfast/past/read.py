"""Reads histories into runs and stories, and says whose they are where that fails."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from google.protobuf.json_format import ParseError
from temporalio.client import WorkflowHistory
from temporalio.converter import DataConverter

from holdfast.errors import HoldfastError
from holdfast.past.decode import read_run
from holdfast.past.story import Story, story_of
from holdfast.past.tasks import Run


async def run_in(text: str, converter: DataConverter, source: str) -> Run:
    """Return the run whose history a text is, in Temporal's own JSON.

    Raises:
        HoldfastError: naming the source, if it is no such history.
    """
    try:
        history = WorkflowHistory.from_json("unknown", text)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, ParseError) as error:
        raise no_history(source, error) from error
    return await run_of(history, converter, source)


def no_history(source: str, error: Exception) -> HoldfastError:
    """Return the error for what is no history."""
    return HoldfastError(
        f"{source}: expected a Temporal history, as `temporal workflow show --output json` writes it: {error}"
    )


async def run_of(history: WorkflowHistory, converter: DataConverter, source: str) -> Run:
    """Return the run of a history.

    Raises:
        HoldfastError: naming the source, if it is no workload's.
    """
    try:
        return await read_run(history.events, converter)
    except ValueError as error:
        raise HoldfastError(f"{source}: {error}") from error
    except LookupError as error:
        raise HoldfastError(f"{source}: it lacks an event that others refer to: {error}") from error


def standing(runs: Iterable[Run]) -> list[Run]:
    """Return the runs by the time they began, without those whose place another took by a reset in Temporal.

    What continued a run whose place was taken is left out with it.
    """
    ordered = sorted(runs, key=lambda run: (run.began_at, run.reset_at or run.began_at))
    last = {run.origin: run.run_id for run in ordered}
    gone = {origin for origin, run_id in last.items() if origin != run_id}
    found: list[Run] = []
    for run in ordered:
        if last[run.origin] == run.run_id and run.previous_run_id not in gone:
            found.append(run)
        else:
            gone.add(run.run_id)
    return found


def told(runs: Sequence[Run], source: str) -> Story:
    """Return the story of the runs of one life, in their order.

    Raises:
        HoldfastError: naming the source, if this release cannot read them.
    """
    try:
        return story_of(runs)
    except ValueError as error:
        raise HoldfastError(f"{source}: {error}") from error
