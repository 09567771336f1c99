"""A broker's look at workloads of which many do not answer (rows L11, D8)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
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
    """Temporal as a look sees it: some workloads answer a query at once, others never do."""

    def __init__(self, answering: int, silent: int) -> None:
        self.answers = {f"workload/dev/ns/good-{at}": status() for at in range(answering)}
        self.names = [f"workload/dev/ns/bad-{at}" for at in range(silent)] + list(self.answers)

    async def list_workflows(self, _: str) -> AsyncIterator[Any]:
        async def memo() -> dict[str, bool]:
            return {names.MEMO_SAVES: True}

        for name in self.names:
            yield SimpleNamespace(id=name, memo=memo, typed_search_attributes={})

    def get_workflow_handle(self, name: str) -> Any:
        async def query(_: str, *, result_type: type[Status], rpc_timeout: timedelta) -> Status:
            if name in self.answers:
                await asyncio.sleep(0.01)
                return self.answers[name]
            await asyncio.sleep(rpc_timeout.total_seconds())
            raise RPCError("no answer", RPCStatusCode.DEADLINE_EXCEEDED, b"")

        return SimpleNamespace(query=query)


def look(temporal: Listed) -> tuple[Weighed, float]:
    """Look in virtual time; return what is seen, and after how many seconds."""
    loop = VirtualLoop()
    try:
        given = WeighInput(broker=Broker(cluster="dev"))
        seen = loop.run_until_complete(ActivityEnvironment().run(weigh, cast(Any, temporal), given))
        return seen, loop.time()
    finally:
        loop.close()


@ROW("D8", level="pure")
def test_D8_a_thousand_that_do_not_answer_a_query_delay_nobody_else() -> None:
    seen, seconds = look(Listed(answering=20, silent=1000))
    assert seconds <= SPAN
    assert (seen.running, seen.unheard) == (20, 1000)
    assert len(seen.candidates) + len(seen.later) == 20


@ROW("D8", level="pure")
def test_D8_a_look_ends_with_what_it_has_before_its_timeout_and_leaves_out_nobody_for_ever() -> None:
    reached = set[str]()
    for _ in range(12):
        seen, seconds = look(Listed(answering=20, silent=10_000))
        assert seconds < 5 * 60
        assert seen.running + seen.unheard == 10_020
        reached |= {one.workload for one in seen.candidates} | set(seen.later)
    assert len(reached) == 20


@ROW("L11", level="pure")
def test_all_that_answer_are_weighed_soon() -> None:
    seen, seconds = look(Listed(answering=2000, silent=0))
    assert (seen.running, seen.unheard) == (2000, 0)
    assert seconds < 10
