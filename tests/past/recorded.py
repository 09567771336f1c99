"""The recorded histories, as stories: one for each scenario, of one run or of several."""

from __future__ import annotations

from functools import cache
from itertools import groupby

from temporalio.client import WorkflowHistory
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.converter import DataConverter

from holdfast.past import Run, Story, read_run, story_of
from tests.replay.gangs import GANGS
from tests.replay.machines import MACHINES
from tests.replay.record import HISTORIES, SCENARIOS


@cache
def _files() -> dict[str, list[str]]:
    stems = sorted(path.stem for path in HISTORIES.glob("*.json"))

    def scenario(stem: str) -> str:
        return next(name for name in sorted(SCENARIOS, key=len, reverse=True) if stem.startswith(name))

    return {name: list(found) for name, found in groupby(stems, scenario)}


OTHERS = {"monitored", *GANGS, *MACHINES}
"""Lives of a cluster's monitor of nodes, its provisioner and gangs' rendezvous, which are no workload's."""
NAMES = sorted(set(_files()) - OTHERS)


def histories(name: str) -> list[WorkflowHistory]:
    """Return the raw histories of a scenario's runs."""
    return [WorkflowHistory.from_json("recorded", (HISTORIES / f"{stem}.json").read_text()) for stem in _files()[name]]


async def runs(name: str, converter: DataConverter = pydantic_data_converter) -> list[Run]:
    """Return the runs of a scenario."""
    return [await read_run(history.events, converter) for history in histories(name)]


async def story(name: str) -> Story:
    """Return the story of a scenario."""
    return story_of(await runs(name))
