"""A broker's look at workloads of which many do not answer (rows L11, D8)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import ActivityEnvironment

from holdfast import names
from holdfast.activities.entities.broker import weigh
from holdfast.model import Status
from holdfast.model.calls.broker import WeighInput
from holdfast.model.entities.broker import Broker, Weighed
from tests.agent.virtual import VirtualLoop
from tests.policy.entities.test_broker import status

ROW = pytest.mark.row
SPAN = 60.0
"""Seconds within which a look is to end that 1,000 workloads do not answer."""


class Listed:
    """Temporal as a look sees it: some workloads answer a query at once, others never do; all are due by their memo."""

    def __init__(self, answering: int, silent: int) -> None:
        self.answers = {f"workload/dev/ns/good-{at}": status() for at in range(answering)}
        self.told = {f"workload/dev/ns/bad-{at}": status() for at in range(silent)} | self.answers
        self.queried: list[str] = []
        self.untold = ""
        """A workload whose memo has no status."""

    async def list_workflows(self, _: str) -> AsyncIterator[Any]:
        for name, told in self.told.items():

            async def memo(name: str = name, told: Status = told) -> dict[str, Any]:
                status = {names.MEMO_STATUS: told.model_dump(mode="json", by_alias=True)}
                return {names.MEMO_SAVES: True} | (status if name != self.untold else {})

            yield SimpleNamespace(id=name, memo=memo, typed_search_attributes={})

    def get_workflow_handle(self, name: str) -> Any:
        async def query(_: str, *, result_type: type[Status], rpc_timeout: timedelta) -> Status:
            self.queried.append(name)
            if name in self.answers:
                await asyncio.sleep(0.01)
                return self.answers[name]
            await asyncio.sleep(rpc_timeout.total_seconds())
            raise RPCError("no answer", RPCStatusCode.DEADLINE_EXCEEDED, b"")

        return SimpleNamespace(query=query)


def look(temporal: Listed, refused: Mapping[str, datetime] | None = None) -> tuple[Weighed, float]:
    """Look in virtual time; return what is seen, and after how many seconds."""
    loop = VirtualLoop()
    try:
        given = WeighInput(broker=Broker(cluster="dev", at_once=100), refused=dict(refused or {}))
        seen = loop.run_until_complete(ActivityEnvironment().run(weigh, cast(Any, temporal), given))
        return seen, loop.time()
    finally:
        loop.close()


@ROW("D8", level="pure")
def test_D8_a_thousand_that_do_not_answer_a_query_delay_nobody_else() -> None:
    seen, seconds = look(Listed(answering=20, silent=1000))
    assert seconds <= SPAN
    assert (seen.running, seen.unheard) == (20, 1000)
    assert len(seen.candidates) == 20


@ROW("D8", level="pure")
def test_D8_a_look_ends_with_what_it_has_before_its_timeout_and_leaves_out_nobody_for_ever() -> None:
    reached = set[str]()
    for _ in range(12):
        seen, seconds = look(Listed(answering=20, silent=10_000))
        assert seconds < 5 * 60
        assert seen.running + seen.unheard == 10_020
        reached |= {one.workload for one in seen.candidates}
    assert len(reached) == 20


@ROW("L11", level="pure")
def test_all_that_answer_are_weighed_soon() -> None:
    seen, seconds = look(Listed(answering=2000, silent=0))
    assert (seen.running, seen.unheard) == (2000, 0)
    assert seconds < 10


@ROW("L11", level="pure")
def test_one_whose_memo_says_that_it_is_not_due_is_not_queried() -> None:
    temporal = Listed(answering=3, silent=0)
    fresh, old, temporal.untold = temporal.told
    temporal.told[fresh] = status(since=datetime.now(UTC) - timedelta(minutes=1))
    seen, _ = look(temporal)
    assert sorted(temporal.queried) == [old, temporal.untold]
    assert (seen.running, [one.workload for one in seen.candidates]) == (3, [old, temporal.untold])


def test_one_that_took_no_request_is_not_queried_before_its_time() -> None:
    temporal = Listed(answering=2, silent=0)
    first, second = temporal.told
    now = datetime.now(UTC)
    refused = {first: now + timedelta(hours=1), second: now - timedelta(hours=1)}
    seen, _ = look(temporal, refused)
    assert (temporal.queried, seen.running) == ([second], 2)
