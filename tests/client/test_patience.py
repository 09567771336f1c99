"""Whoever waits goes on, though Temporal or its workers are away (row D52)."""

from __future__ import annotations

import logging

import pytest

from holdfast.client import patience
from holdfast.client.patience import Patience
from holdfast.errors import HoldfastError, NotAnswering, NotReachable

AWAY = NotReachable("Temporal", "here:7233", "start it", "refused", passing=True)
SILENT = NotAnswering("provisioner/dev: no worker answers: last poll 12s ago")


class Answers:
    """What is raised, in order; then an answer."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)

    async def __call__(self) -> str:
        if self.errors:
            raise self.errors.pop(0)
        return "done"


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "PAUSE", 0.0)


@pytest.mark.row("D52", level="pure")
async def test_D52_an_outage_of_temporal_and_one_of_its_workers_are_waited_through_and_said_once_each(
    caplog: pytest.LogCaptureFixture,
):
    one = Patience()
    with caplog.at_level(logging.WARNING):
        assert await one.ask(Answers(AWAY, AWAY, AWAY)) == "done"
        assert await one.ask(Answers(SILENT, SILENT)) == "done"
    assert [record.getMessage() for record in caplog.records] == [
        "Temporal at here:7233 does not answer (refused): still waiting; what was submitted runs on",
        "Temporal answers again",
        f"{SILENT}: still waiting",
        "a worker answers again",
    ]


@pytest.mark.parametrize(
    "error", [HoldfastError("refused"), NotReachable("Temporal", "here", "ask for the rights", "denied")]
)
async def test_what_is_refused_is_not_waited_for(error: HoldfastError):
    with pytest.raises(type(error)):
        await Patience().ask(Answers(error))
