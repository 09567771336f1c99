"""A workload whose memo cannot be read holds up nothing that looks at others (rows D2, D8, L9, L11; record 0070)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest
from temporalio.client import WorkflowExecutionStatus
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes
from temporalio.testing import ActivityEnvironment

from holdfast import names
from holdfast.activities.entities.broker import weigh
from holdfast.activities.entities.dependents import depended_on
from holdfast.activities.entities.queues import look_queue
from holdfast.errors import Undecodable
from holdfast.model.calls.broker import WeighInput
from holdfast.model.calls.queue import LookQueueInput, QueueHolder
from holdfast.model.entities.broker import Broker

ROW = pytest.mark.row
LOCKED, OPEN = names.workflow_id("dev", "ns", "locked"), names.workflow_id("dev", "ns", "open")
RUNNING, ENDED = WorkflowExecutionStatus.RUNNING, WorkflowExecutionStatus.COMPLETED


class Listed:
    """Temporal with some open workloads; without a memo, one cannot be decrypted."""

    def __init__(self, memos: dict[str, dict[str, Any] | None]) -> None:
        self.memos = memos
        self.status = RUNNING
        self.phases: dict[str, str] = {}

    async def list_workflows(self, _: str) -> AsyncIterator[Any]:
        for name in self.memos:
            yield self._execution(name)

    def get_workflow_handle(self, name: str) -> Any:
        async def describe(**_: Any) -> Any:
            return self._execution(name)

        return SimpleNamespace(describe=describe)

    def _execution(self, name: str) -> Any:
        async def memo() -> dict[str, Any]:
            found = self.memos[name]
            if found is None:
                raise Undecodable("encrypted with key 'old', which keys.json lacks: add it there")
            return found

        return SimpleNamespace(id=name, memo=memo, status=self.status, typed_search_attributes=self._columns(name))

    def _columns(self, name: str) -> TypedSearchAttributes:
        key = SearchAttributeKey.for_keyword(names.SA_PHASE)
        return TypedSearchAttributes([SearchAttributePair(key, self.phases[name])] if name in self.phases else [])


class Empty:
    """A cluster with nothing in it."""

    async def list(self, *_: Any, **__: Any) -> dict[str, Any]:
        return {"items": []}


async def looked(temporal: Listed) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Look at a queue that both workloads hold quota of; return the open ones, and those that are gone."""
    holders = tuple(QueueHolder(workload=name, uid=f"uid-{name}") for name in (LOCKED, OPEN))
    given = LookQueueInput(cluster="dev", queue="q", holders=holders)
    site = Mock(kube=Empty())
    seen = await ActivityEnvironment().run(look_queue, cast(Any, site), cast(Any, temporal), given)
    return seen.workloads, seen.gone


@ROW("D8", level="pure")
async def test_D8_a_queue_looks_past_one_that_cannot_be_read_and_leaves_its_quota_to_it() -> None:
    temporal = Listed({LOCKED: None, OPEN: {names.MEMO_QUEUED: True, names.MEMO_UID: f"uid-{OPEN}"}})
    assert await looked(temporal) == ((OPEN,), ())


@ROW("L9", level="pure")
@pytest.mark.parametrize(
    ("phase", "holds", "asks", "begun"),
    [
        ("Running", False, True, ("uid",)),
        ("Running", True, True, ()),
        ("Running", False, False, ()),
        ("Pending", False, True, ()),
        ("Suspended", False, True, ()),
        ("", False, True, ()),
    ],
)
async def test_L9_a_look_finds_what_has_begun_without_its_queue(
    phase: str, holds: bool, asks: bool, begun: tuple[str, ...]
) -> None:
    temporal = Listed({OPEN: {names.MEMO_QUEUED: True, names.MEMO_UID: "uid"}})
    temporal.phases = {OPEN: phase} if phase else {}
    holders = (QueueHolder(workload=OPEN, uid="uid"),) if holds else ()
    given = LookQueueInput(cluster="dev", queue="q", holders=holders, asks_begun=asks)
    seen = await ActivityEnvironment().run(look_queue, cast(Any, Mock(kube=Empty())), cast(Any, temporal), given)
    assert seen.begun == begun


@ROW("L9", level="pure")
async def test_L9_one_that_cannot_be_read_and_has_ended_lets_its_quota_go() -> None:
    temporal = Listed({LOCKED: None})
    temporal.memos[OPEN] = {}
    temporal.status = ENDED
    _, gone = await looked(temporal)
    assert gone == (f"uid-{LOCKED}", f"uid-{OPEN}")


@ROW("D8", level="pure")
async def test_D8_a_broker_counts_one_that_cannot_be_read_as_unheard() -> None:
    temporal = Listed({LOCKED: None, OPEN: {}})
    given = WeighInput(broker=Broker(cluster="dev", at_once=1))
    seen = await ActivityEnvironment().run(weigh, cast(Any, temporal), given)
    assert (seen.unheard, seen.candidates) == (1, ())


@ROW("D2", level="pure")
@pytest.mark.parametrize(
    ("kind", "entity"),
    [(names.QUEUE_WORKFLOW, names.queue_id("dev", "q")), (names.BROKER_WORKFLOW, names.broker_id("dev"))],
)
async def test_D2_one_that_cannot_be_read_may_depend_on_a_queue_or_a_broker(kind: str, entity: str) -> None:
    assert await depended_on(cast(Any, Listed({OPEN: {}, LOCKED: None})), kind, entity)
    assert not await depended_on(cast(Any, Listed({OPEN: {}})), kind, entity)
