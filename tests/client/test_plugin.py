"""The plugin on a client, on a worker and on a Replayer."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.client import Client
from temporalio.contrib.pydantic import PydanticPayloadConverter
from temporalio.converter import CompositePayloadConverter, DataConverter, DefaultPayloadConverter, PayloadCodec
from temporalio.worker import Replayer, Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from holdfast import Holdfast, HoldfastError, HoldfastPlugin, Phase, names
from holdfast.model import Workload
from holdfast.model.calls import cluster
from holdfast.plugin import PASSTHROUGH, with_passthrough, with_pydantic
from holdfast.policy.verdicts import decide
from tests.client.sandboxed import Identities
from tests.fakes.several import Cluster, working

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(90)]


class Reversing(PayloadCodec):
    """A codec of the user's own."""

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [Payload(metadata={"encoding": b"reversed"}, data=p.SerializeToString()[::-1]) for p in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [Payload.FromString(p.data[::-1]) if p.metadata.get("encoding") == b"reversed" else p for p in payloads]


async def identities(client: Client, worker: Worker) -> list[int]:
    async with worker:
        return await client.execute_workflow(Identities.run, id=str(uuid4()), task_queue=worker.task_queue)


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sandbox imports a workflow's module anew, by its name."""
    monkeypatch.syspath_prepend(Path(__file__).parents[2])


@pytest.fixture
async def plain(address: str) -> Client:
    return await Client.connect(address)


async def test_pure_modules_are_the_hosts_own_in_the_sandbox(plain: Client) -> None:
    queue = str(uuid4())
    passed = await identities(
        plain, Worker(plain, task_queue=queue, workflows=[Identities], plugins=[HoldfastPlugin(["workflows"])])
    )
    assert passed == [id(Workload), id(names), id(cluster), id(decide)]

    loaded = await identities(plain, Worker(plain, task_queue=queue, workflows=[Identities]))
    assert not set(loaded) & set(passed)


async def test_without_a_role_a_worker_gets_no_workflows(client: Client) -> None:
    """The client has the plugin, so its workers have it too."""
    with pytest.raises(ValueError, match="At least one activity"):
        Worker(client, task_queue="x")


async def test_given_twice_is_as_given_once(address: str) -> None:
    """On the client, whose plugins go on to its workers, and on the worker too."""
    client = await Client.connect(address, plugins=[HoldfastPlugin(["workflows"])])
    queue = str(uuid4())
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The same plugin type")
        twice = Worker(client, task_queue=queue, plugins=[HoldfastPlugin(["workflows"])], workflows=[Identities])
    assert await identities(client, twice) == [id(Workload), id(names), id(cluster), id(decide)]
    assert client.data_converter.payload_converter_class is PydanticPayloadConverter


async def test_a_recorded_life_replays_with_the_plugin_alone(
    holdfast: Holdfast, client: Client, workload: Workload
) -> None:
    async with working(client, Cluster()):
        run = await holdfast.submit(workload)
        await run.until(lambda status: status.phase is Phase.RUNNING)
        await run.cancel(wait=True)
        await run.closed()
    history = await run.handle.fetch_history()
    await Replayer(workflows=[], plugins=[HoldfastPlugin(["workflows"])]).replay_workflow(history)


async def test_the_users_codec_is_kept(address: str, workload: Workload) -> None:
    converter = DataConverter(payload_codec=Reversing())
    client = await Client.connect(address, data_converter=converter, plugins=[HoldfastPlugin()])
    assert isinstance(client.data_converter.payload_codec, Reversing)
    async with Holdfast.connect(client=client, cluster="dev") as session, working(client, Cluster(complete=True)):
        run = await session.submit(workload)
        assert (await run.result()).phase is Phase.SUCCEEDED
        assert (await run.submitted()).name == workload.name
        await run.cancel()
        await run.closed()
    event = await anext(aiter(run.handle.fetch_history_events()))
    sent = event.workflow_execution_started_event_attributes.input.payloads[0]
    assert sent.metadata["encoding"] == b"reversed"


def test_a_payload_converter_of_the_users_own_is_not_thrown_away() -> None:
    class Own(CompositePayloadConverter):
        def __init__(self) -> None:
            super().__init__(*DefaultPayloadConverter.default_encoding_payload_converters)

    with pytest.raises(HoldfastError, match="Own cannot be kept"):
        with_pydantic(DataConverter(payload_converter_class=Own))

    class Better(PydanticPayloadConverter):
        pass

    mine = DataConverter(payload_converter_class=Better)
    assert with_pydantic(mine) is mine


def test_a_sandbox_keeps_its_own_restrictions() -> None:
    mine = SandboxedWorkflowRunner()
    mine = dataclasses.replace(mine, restrictions=mine.restrictions.with_passthrough_modules("mine"))
    both = with_passthrough(mine)
    assert isinstance(both, SandboxedWorkflowRunner)
    assert {"mine", *PASSTHROUGH} <= both.restrictions.passthrough_modules
    assert "holdfast" not in both.restrictions.passthrough_modules


def test_an_unknown_role_is_refused_with_those_there_are() -> None:
    with pytest.raises(HoldfastError, match="roles: 'cluster': expected some of workflows"):
        HoldfastPlugin(["cluster"])  # pyright: ignore[reportArgumentType]
