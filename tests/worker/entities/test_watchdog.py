"""What the watchdog remembers between its looks (row D2)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio.client import WorkflowExecutionStatus
from temporalio.converter import DataConverter

from holdfast import names
from holdfast.policy.entities.health import Execution, Sight
from holdfast.worker.entities import watchdog as module
from holdfast.worker.entities.watchdog import Entities, Watchdog
from holdfast.worker.runtime.metrics import Metrics
from holdfast.worker.runtime.settings import Settings

pytestmark = pytest.mark.row("D2", level="pure")
BROKER = names.broker_id("local")
FAILING = Sight(
    BROKER, Execution.RUNNING, "run", since=datetime(2026, 1, 31, tzinfo=UTC), failures=3, failure="cannot be read"
)


class Codec:
    """A data converter whose codec may be away."""

    def __init__(self) -> None:
        self.works = True

    async def encode(self, values: Any) -> Any:
        if not self.works:
            raise RuntimeError("the codec's server does not answer")
        return await DataConverter.default.encode(values)

    async def decode(self, payloads: Any) -> Any:
        return await DataConverter.default.decode(payloads)


@dataclass
class Place:
    """Temporal with a checkpoint broker alone."""

    sight: Sight = FAILING
    stays_away: bool = False
    data_converter: Codec = field(default_factory=Codec)
    reads: int = 0
    """How often its histories were read whole."""
    ended: list[str] = field(default_factory=list[str])
    begun: int = 0

    async def list_workflows(self, query: str) -> AsyncIterator[Any]:
        if names.BROKER_WORKFLOW in query:
            runs = self.sight.execution is Execution.RUNNING
            status = WorkflowExecutionStatus.RUNNING if runs else WorkflowExecutionStatus.TERMINATED
            yield SimpleNamespace(id=BROKER, run_id=self.sight.run_id, status=status)

    def get_workflow_handle(self, workflow_id: str, *, run_id: str) -> Any:
        async def terminate(*, reason: str) -> None:
            self.ended.append(run_id)

        return SimpleNamespace(terminate=terminate)

    async def prepare(self, _client: Any, _workflow_id: str) -> Any:
        self.reads += 1
        return None if self.stays_away else self.start

    async def start(self) -> None:
        self.begun += 1

    def tries(self, failures: int) -> None:
        self.sight = replace(self.sight, failures=failures)


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Place:
    place = Place()

    async def sight(_client: Any, workflow_id: str) -> Sight:
        return place.sight if workflow_id == BROKER else Sight(workflow_id, Execution.RUNNING, "well")

    async def depended_on(*_: Any) -> bool:
        return True

    monkeypatch.setattr(module, "sight", sight)
    monkeypatch.setattr(module, "depended_on", depended_on)
    monkeypatch.setattr(module, "PREPARE", {names.BROKER_WORKFLOW: place.prepare})
    return place


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def watchdog(place: Place, metrics: Metrics) -> Watchdog:
    settings = Settings(cluster="local", provisioner_url="", watchdog_patience=timedelta(minutes=2))
    return Watchdog(Entities(cast("Any", place), settings, cast("Any", None), "uid", "installed"), metrics)


def healthy(metrics: Metrics) -> float | None:
    return metrics.registry.get_sample_value("holdfast_entity_healthy", {"entity": names.BROKER_WORKFLOW})


async def test_D2_an_entity_is_ended_once_another_task_has_failed(place: Place, watchdog: Watchdog):
    for _ in range(3):
        await watchdog.look()
    assert place.ended == [], "the fault may have passed before the first look"
    place.tries(4)
    await watchdog.look()
    assert (place.ended, place.begun) == (["run"], 1)


async def test_D2_what_fails_while_the_codec_is_away_does_not_count(place: Place, watchdog: Watchdog):
    await watchdog.look()
    place.data_converter.works = False
    for failures in (4, 5):
        place.tries(failures)
        await watchdog.look()
    place.data_converter.works = True
    await watchdog.look()
    assert place.ended == [], "no task has failed since the codec works"
    place.tries(6)
    await watchdog.look()
    assert place.ended == ["run"]


async def test_D2_an_entity_that_fails_again_and_again_is_ended_more_and_more_seldom(place: Place, watchdog: Watchdog):
    recent = datetime.now(UTC) - timedelta(minutes=3)
    for run in ("first", "second"):
        place.sight = replace(FAILING, run_id=run, since=recent)
        await watchdog.look()
        place.tries(4)
        await watchdog.look()
    assert place.ended == ["first"], "three minutes are more than two, and less than four"


async def test_D2_an_entity_that_was_to_end_stays_away_and_its_histories_are_read_once(
    place: Place, watchdog: Watchdog, metrics: Metrics
):
    place.sight = Sight(BROKER, Execution.LOST, "run", reason="by mistake")
    place.stays_away = True
    for _ in range(4):
        await watchdog.look()
        assert healthy(metrics) == 1
    assert (place.reads, place.begun) == (1, 0)
    assert min(watchdog._left.values()) > module.time.monotonic() + 200
