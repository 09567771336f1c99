"""Entities that are terminated, or whose tasks fail for ever, and the watchdog, on a real Temporal server (row D2)."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, cast

import pytest
import pytest_asyncio
from temporalio import activity
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowHandle
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from holdfast import names
from holdfast.activities.entities.executions import input_of
from holdfast.client import Holdfast
from holdfast.client.connection import Place
from holdfast.client.entities.graph import GraphRun
from holdfast.client.entities.health import of_cluster
from holdfast.client.entities.queue import QueueRun
from holdfast.client.run import Run
from holdfast.model import Phase, Status, Workload
from holdfast.model.calls.gang import HubInput
from holdfast.model.calls.queue import LookQueueInput, SeenQueue
from holdfast.model.entities.broker import Broker
from holdfast.model.entities.graph import Edge, EdgeKind, Graph, GraphNode, ItemPhase
from holdfast.model.entities.graph import Place as InGraph
from holdfast.model.entities.queue import Queue, QueueStatus
from holdfast.model.gang.status import GangStatus
from holdfast.plugin import HoldfastPlugin
from holdfast.policy.entities.health import MARK
from holdfast.worker.entities.watchdog import Entities, Watchdog
from holdfast.worker.reach import IdentityError, bind
from holdfast.worker.runtime.health import Health
from holdfast.worker.runtime.metrics import Metrics
from holdfast.worker.runtime.settings import Settings
from holdfast.workflows.entities.node_monitor import NodeMonitorInput
from tests.client.server import temporal_server
from tests.e2e.ground.site import asked, until
from tests.fakes import activities_of
from tests.fakes.scripted import ScriptedCluster
from tests.policy.lives.life import workload
from tests.workflows.conftest import SCALED
from tests.workflows.gathered import CLUSTER as GATHERED
from tests.workflows.gathered import NAMESPACE, Gathering, ToldWorkload

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(600), pytest.mark.asyncio(loop_scope="module")]
UNREADABLE: dict[str, Any] = {"book": 5, "queue": 5, "items": 5, "broker": 5, "memory": 5}
"""A memory that no worker can read."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with temporal_server() as address:
        yield address


@activity.defn(name=names.ACTIVITY_GANG_HUB)
async def no_hub(given: HubInput) -> None:
    """The test itself is the hub."""
    raise ApplicationError("not here", next_retry_delay=timedelta(days=1))


@dataclass
class Scene:
    """A cluster's name, its entities, and a watchdog over them that looks when it is told to."""

    client: Client
    cluster: str
    scripted: ScriptedCluster
    open: list[str] = field(default_factory=list[str])
    """Ids of the workloads that a queue's look at the cluster finds."""
    metrics: Metrics = field(default_factory=Metrics)

    def watchdog(self, cluster: str = "") -> Watchdog:
        settings = Settings(
            cluster=cluster or self.cluster,
            watchdog_patience=timedelta(milliseconds=1),
            provisioner_url="",
        )
        return Watchdog(Entities(self.client, settings, cast("Any", None), "uid", "installed"), self.metrics)

    @activity.defn(name=names.ACTIVITY_LOOK_QUEUE)
    async def look(self, given: LookQueueInput) -> SeenQueue:
        return SeenQueue(kueue=False, workloads=tuple(self.open), gone=())

    @property
    def holdfast(self) -> Holdfast:
        return Holdfast(self.client, Place("here", "default"), self.cluster)

    async def begin(self, name: str, **fields: Any) -> WorkflowHandle[Any, Status]:
        spec = workload(timings=SCALED.model_dump(by_alias=False))
        spec = Workload.model_validate(
            {**spec.model_dump(mode="json"), "cluster": self.cluster, "name": name, "namespace": "team", **fields}
        )
        run = await self.holdfast.submit(spec)
        return self.client.get_workflow_handle(run.workflow_id, result_type=Status)

    async def explains(self, handle: WorkflowHandle[Any, Any]) -> tuple[str, ...]:
        return (await Run(self.client, Place("here", "default"), handle.id, "").explain()).entities

    async def reach(self, handle: WorkflowHandle[Any, Any], phase: str) -> Status:
        found = list[Status]()

        async def check() -> bool:
            found[:] = [await asked(lambda: handle.query(names.QUERY_STATUS, result_type=Status))]
            return found[0].phase == phase

        await until(check, 90, lambda: f"{handle.id} is {phase}: {found}")
        return found[0]

    async def first_to_reach(
        self, phase: str, *handles: WorkflowHandle[Any, Any]
    ) -> tuple[WorkflowHandle[Any, Any], ...]:
        """Return these with the one first that is in a phase."""
        reached = list[bool]()

        async def check() -> bool:
            reached[:] = [
                (await asked(lambda one=one: one.query(names.QUERY_STATUS, result_type=Status))).phase == phase
                for one in handles
            ]
            return any(reached)

        await until(check, 90, f"one is {phase}")
        return tuple(one for _, one in sorted(zip(reached, handles, strict=True), key=lambda each: not each[0]))

    async def running(self, handle: WorkflowHandle[Any, Any]) -> None:
        await self.reach(handle, "Resuming")

        async def check() -> bool:
            await self.scripted.sees(handle, 1, running=2)
            return (await asked(lambda: handle.query(names.QUERY_STATUS, result_type=Status))).phase == "Running"

        await until(check, 90, f"{handle.id} runs", pause=0.2)

    async def poison(self, workflow: str, workflow_id: str, *arguments: Any, queue: str = "") -> str:
        """Put a run with an unreadable memory in an entity's place, and return its run id."""
        handle = await self.client.start_workflow(
            workflow,
            args=list(arguments),
            id=workflow_id,
            task_queue=queue or names.QUEUE_WORKFLOWS,
            id_conflict_policy=WorkflowIDConflictPolicy.TERMINATE_EXISTING,
            task_timeout=timedelta(seconds=3),
        )
        return handle.result_run_id or ""

    async def rebuilt(self, workflow_id: str, run_id: str, cluster: str = "") -> None:
        """Have the watchdog look until it has begun an entity anew that cannot go on."""
        watchdog, handle = self.watchdog(cluster), self.client.get_workflow_handle(workflow_id)

        async def check() -> bool:
            await watchdog.look()
            return (await handle.describe()).run_id != run_id

        await until(check, 60, f"{workflow_id} is begun anew", pause=0.3)
        old = await self.client.get_workflow_handle(workflow_id, run_id=run_id).describe()
        assert old.status is WorkflowExecutionStatus.TERMINATED
        assert (await handle.describe()).status is WorkflowExecutionStatus.RUNNING

    def measured(self, workflow: str) -> float | None:
        return self.metrics.registry.get_sample_value("holdfast_entity_healthy", {"entity": workflow})


async def reason_of(handle: WorkflowHandle[Any, Any]) -> str:
    events = (await handle.fetch_history()).events
    return events[-1].workflow_execution_terminated_event_attributes.reason


@pytest_asyncio.fixture(loop_scope="module")
async def scene(address: str) -> AsyncIterator[Scene]:
    plain = await Client.connect(address, data_converter=pydantic_data_converter)
    plugged = await Client.connect(address, plugins=[HoldfastPlugin(roles=["workflows"])])
    scene = Scene(plain, f"c-{secrets.token_hex(3)}", ScriptedCluster())
    acts = [*activities_of(scene.scripted, "look_queue"), scene.look]
    async with (
        Worker(plugged, task_queue=names.QUEUE_WORKFLOWS, workflows=[ToldWorkload]),
        Worker(plugged, task_queue=names.queue_admission(scene.cluster, "gpus")),
        Worker(plain, task_queue=names.queue_cluster(scene.cluster), activities=acts),
        Worker(plain, task_queue=names.queue_wait(scene.cluster), activities=activities_of(scene.scripted)),
        Worker(plain, task_queue=names.queue_gangs(GATHERED), activities=[no_hub]),
    ):
        yield scene


async def queue_shows(run: QueueRun, admitted: int, waiting: int) -> None:
    found = list[QueueStatus]()

    async def check() -> bool:
        found[:] = [await run.status()]
        return (found[0].admitted, found[0].waiting) == (admitted, waiting)

    await until(check, 40, lambda: f"{admitted} let in, {waiting} wait: {found}")


async def a_full_queue(scene: Scene) -> tuple[QueueRun, WorkflowHandle[Any, Any], WorkflowHandle[Any, Any]]:
    """A queue with room for two pods: one workload runs, the other waits."""
    run = await scene.holdfast.apply_queue(Queue(name="gpus", cluster=scene.cluster, quota={"pods": "1"}))
    await run.configure(Queue(name="gpus", cluster=scene.cluster, quota={"pods": "2"}))
    first = await scene.begin("first", queue="gpus")
    await scene.running(first)
    second = await scene.begin("second", queue="gpus")
    await queue_shows(run, 1, 1)
    scene.open[:] = [first.id, second.id]
    return run, first, second


async def goes_on(
    scene: Scene, run: QueueRun, first: WorkflowHandle[Any, Any], second: WorkflowHandle[Any, Any]
) -> None:
    """The queue knows who holds its quota, and lets the next one in once that has ended, not before."""
    await queue_shows(run, 1, 1)
    assert (await run.status()).queue.quota == {"pods": "2"}, "what it was configured to last"
    assert (await scene.reach(second, "Pending")).attempt == 0
    await scene.scripted.sees(first, 1, succeeded=2, complete=True)
    assert (await first.result()).phase == "Succeeded"
    await scene.running(second)
    assert scene.scripted.entered.count("create") == 2


async def test_D2_a_queue_whose_memory_nobody_can_read_is_begun_anew_and_admits_nobody_twice(scene: Scene):
    run, first, second = await a_full_queue(scene)
    document = run.workflow_id, Queue(name="gpus", cluster=scene.cluster).model_dump(mode="json")
    admission = names.queue_admission(scene.cluster, "gpus")
    poisoned = await scene.poison(names.QUEUE_WORKFLOW, document[0], None, UNREADABLE, queue=admission)

    async def said() -> bool:
        return any("queue gpus: its workflow has failed its tasks" in one for one in await scene.explains(second))

    await until(said, 60, "explain says what is wrong with its queue")
    doctor = [one for one in await of_cluster(scene.client, scene.cluster) if not one.verdict.healthy]
    assert [one.workflow_id for one in doctor] == [run.workflow_id]
    await scene.rebuilt(run.workflow_id, poisoned)
    assert scene.measured(names.QUEUE_WORKFLOW) == 0
    reason = await reason_of(scene.client.get_workflow_handle(run.workflow_id, run_id=poisoned))
    assert reason.startswith(f"{MARK}: its workflow has failed its tasks since ")
    assert "Failed decoding arguments" not in reason, (
        "Temporal stores the reason in clear: no words of the failure (X6)"
    )
    await goes_on(scene, run, first, second)
    await scene.watchdog().look()
    assert scene.measured(names.QUEUE_WORKFLOW) == 1
    assert await scene.explains(second) == ()


async def test_D2_a_queue_that_was_terminated_is_begun_anew_by_several_watchdogs_at_once(scene: Scene):
    run, first, second = await a_full_queue(scene)
    handle = scene.client.get_workflow_handle(run.workflow_id)
    gone = (await handle.describe()).run_id
    await handle.terminate(reason="by mistake")
    (said,) = [one for one in await scene.explains(second) if "queue gpus" in one]
    assert "its workflow was terminated at" in said
    assert "(by mistake)" in said

    async def begun() -> bool:
        await asyncio.gather(*(scene.watchdog().look() for _ in range(3)))
        return (await handle.describe()).status is WorkflowExecutionStatus.RUNNING

    await until(begun, 90, "it is begun anew")
    assert (await handle.describe()).run_id != gone
    await goes_on(scene, run, first, second)


async def test_D2_a_queue_that_a_person_terminated_and_that_nobody_needs_stays_away(scene: Scene):
    run = await scene.holdfast.apply_queue(Queue(name="gpus", cluster=scene.cluster, quota={"pods": "2"}))
    await queue_shows(run, 0, 0)
    handle = scene.client.get_workflow_handle(run.workflow_id)
    await handle.terminate(reason="we do not want it")
    listed = f"WorkflowId = '{run.workflow_id}' AND ExecutionStatus = 'Terminated'"

    async def seen() -> bool:
        return (await scene.client.count_workflows(listed)).count == 1

    await until(seen, 90, "the list knows")
    await scene.watchdog().look()
    assert (await handle.describe()).status is WorkflowExecutionStatus.TERMINATED
    assert scene.measured(names.QUEUE_WORKFLOW) == 1


async def test_D2_a_queue_of_which_no_document_is_left_is_not_ended_and_a_person_reads_so(scene: Scene):
    queue, admission = names.queue_id(scene.cluster, "gpus"), names.queue_admission(scene.cluster, "gpus")
    poisoned = await scene.poison(names.QUEUE_WORKFLOW, queue, None, UNREADABLE, queue=admission)

    async def fails() -> bool:
        return any(one.workflow_id == queue and one.sentence for one in await of_cluster(scene.client, scene.cluster))

    await until(fails, 30, "doctor says so")
    watchdog, handle = scene.watchdog(), scene.client.get_workflow_handle(queue)
    await watchdog.look()
    before = (await handle.describe()).raw_description.pending_workflow_task.attempt

    async def fails_on() -> bool:
        return (await handle.describe()).raw_description.pending_workflow_task.attempt > before

    await until(fails_on, 30, "another task fails")
    for _ in range(2):
        await watchdog.look()
    found = await handle.describe()
    assert (found.run_id, found.status) == (poisoned, WorkflowExecutionStatus.RUNNING)
    assert scene.measured(names.QUEUE_WORKFLOW) == 0


async def test_D2_a_poisoned_node_monitor_and_a_terminated_watch_are_begun_by_the_settings(scene: Scene):
    monitor, watch = names.node_monitor_id(scene.cluster), names.watch_workflow_id(scene.cluster)
    given = NodeMonitorInput(cluster=scene.cluster, cluster_uid="uid").model_dump(mode="json")
    poisoned = await scene.poison(names.NODE_MONITOR_WORKFLOW, monitor, {**given, **UNREADABLE})
    await scene.watchdog().look()
    await scene.client.get_workflow_handle(watch).terminate(reason="by mistake")
    waits = await scene.begin("waits")
    (said,) = [one for one in await scene.explains(waits) if "cluster watch" in one]
    assert "was terminated" in said
    await scene.rebuilt(monitor, poisoned)
    for one in (monitor, watch):
        handle = scene.client.get_workflow_handle(one)
        assert (await handle.describe()).status is WorkflowExecutionStatus.RUNNING
        assert (await handle.query(names.QUERY_STATUS, result_type=dict))["cluster"] == scene.cluster


async def test_L4_L15_a_cluster_that_takes_anothers_place_gets_a_node_monitor_and_a_provisioner_of_its_own(
    scene: Scene,
):
    client, cluster = scene.client, f"c-{secrets.token_hex(3)}"
    settings = Settings(cluster=cluster, provisioner_url="https://bmc/{node}")
    watch = client.get_workflow_handle(names.watch_workflow_id(cluster))
    ids = (names.node_monitor_id(cluster), names.provisioner_id(cluster))

    async def bound(uid: str) -> list[tuple[str, str]]:
        """Start as a worker of this cluster does; return the run of each entity, and the cluster that it is of."""
        await bind(client, settings, uid, "installed", True, Health())
        found = [await client.get_workflow_handle(each).describe() for each in ids]
        return [(one.run_id, (await input_of(client, one.id, one.run_id))[0]["clusterUid"]) for one in found]

    first = await bound("old")
    assert [uid for _, uid in first] == ["old", "old"]
    assert await bound("old") == first
    with pytest.raises(IdentityError, match=f"temporal workflow terminate --workflow-id {watch.id}; "):
        await bound("new")
    await watch.terminate()
    later = await bound("new")
    assert [uid for _, uid in later] == ["new", "new"]
    assert await bound("new") == later
    for workflow_id, (run_id, _) in zip(ids, first, strict=True):
        ended = client.get_workflow_handle(workflow_id, run_id=run_id)
        assert await reason_of(ended) == "cluster new has taken the place of its cluster old"


async def test_D2_a_poisoned_broker_goes_by_what_it_was_configured_to_last(scene: Scene):
    run = await scene.holdfast.apply_broker(Broker(cluster=scene.cluster))
    await run.configure(Broker(cluster=scene.cluster, every=timedelta(minutes=7)))
    poisoned = await scene.poison(names.BROKER_WORKFLOW, run.workflow_id, None, UNREADABLE)
    await scene.rebuilt(run.workflow_id, poisoned)
    assert (await run.status()).broker.every == timedelta(minutes=7)


# A graph.


async def a_graph(
    scene: Scene, on: EdgeKind = EdgeKind.SUCCESS, phase: str = "Running"
) -> tuple[GraphRun, WorkflowHandle[Any, Any], WorkflowHandle[Any, Any]]:
    """A graph of two, the second of which waits for the first, which has come to a phase."""
    graph = Graph(
        name="g",
        namespace="team",
        cluster=scene.cluster,
        nodes=(GraphNode(name="a"), GraphNode(name="b", after=(Edge(node="a", on=on),))),
    )
    specs = [
        Workload.model_validate(
            {
                **workload(timings=SCALED.model_dump(by_alias=False)).model_dump(mode="json"),
                "cluster": scene.cluster,
                "namespace": "team",
                "name": graph.workload(item),
                "graph": InGraph(graph="g", item=item),
            }
        )
        for item in ("a", "b")
    ]
    run = await scene.holdfast.submit_graph(graph, specs)
    first, second = (scene.client.get_workflow_handle(one.workflow_id, result_type=Status) for one in specs)
    if on is EdgeKind.MUTEX:  # Whichever the graph hears of first is let in.
        first, second = await scene.first_to_reach(phase, first, second)
    await (scene.running(first) if phase == "Running" else scene.reach(first, phase))

    async def blocked() -> bool:
        return (await run.status()).items[second.id.rpartition("-")[2]].phase is ItemPhase.BLOCKED

    await until(blocked, 90, "the second waits")
    return run, first, second


async def graph_succeeds(
    scene: Scene, run: GraphRun, first: WorkflowHandle[Any, Any], second: WorkflowHandle[Any, Any]
) -> None:
    await scene.running(second)
    await scene.scripted.sees(second, 1, succeeded=2, complete=True)
    assert (await second.result()).phase == "Succeeded"
    assert (await run.result()).phase is Phase.SUCCEEDED
    assert scene.scripted.entered.count("create") == 2


async def test_D2_a_poisoned_graph_is_begun_anew_with_what_its_workloads_are(scene: Scene):
    run, first, second = await a_graph(scene)
    poisoned = await scene.poison(names.GRAPH_WORKFLOW, run.workflow_id, None, UNREADABLE)
    await scene.rebuilt(run.workflow_id, poisoned)
    items: dict[str, Any] = (await run.status()).items
    assert (items["a"].phase, items["b"].phase) == (ItemPhase.ADMITTED, ItemPhase.BLOCKED)
    assert (await scene.reach(second, "Pending")).attempt == 0
    await scene.scripted.sees(first, 1, succeeded=2, complete=True)
    assert (await first.result()).phase == "Succeeded"
    await graph_succeeds(scene, run, first, second)


async def test_D2_what_a_workload_told_a_graph_that_was_away_is_found_out(scene: Scene):
    run, first, second = await a_graph(scene)
    handle = scene.client.get_workflow_handle(run.workflow_id)
    gone = (await handle.describe()).run_id
    await handle.terminate(reason="by mistake")
    await scene.scripted.sees(first, 1, succeeded=2, complete=True)
    assert (await first.result()).phase == "Succeeded"
    (said,) = [one for one in await scene.explains(second) if "graph" in one]
    assert "no other workload of it begins" in said
    await scene.rebuilt(run.workflow_id, gone)
    await graph_succeeds(scene, run, first, second)


async def test_D2_a_workload_that_was_terminated_as_it_started_may_have_pods_and_its_mutex_holds(scene: Scene):
    run, first, second = await a_graph(scene, EdgeKind.MUTEX, "Resuming")
    await first.terminate(reason="by mistake")
    handle = scene.client.get_workflow_handle(run.workflow_id)
    gone = (await handle.describe()).run_id
    await handle.terminate(reason="by mistake")
    await scene.rebuilt(run.workflow_id, gone)
    items: dict[str, Any] = (await run.status()).items
    ended, waits = (one.id.rpartition("-")[2] for one in (first, second))
    assert (items[ended].phase, items[ended].released) == (ItemPhase.CANCELLED, False)
    assert items[waits].phase is ItemPhase.BLOCKED
    assert (await scene.reach(second, "Pending")).attempt == 0
    for each in (second, handle):
        await each.terminate()


# A rendezvous.


async def a_gang(scene: Scene) -> Gathering:
    """A gang of two that runs its second round, since one of them has failed once; and a workload that needs it."""
    gang = await Gathering(scene.client, f"g-{secrets.token_hex(3)}", 2, 2, max_restarts=3).open()
    await scene.client.start_workflow(
        "ToldWorkload", id=names.workflow_id(GATHERED, NAMESPACE, gang.name), task_queue=names.QUEUE_WORKFLOWS
    )
    await (await gang.join("a", "b")).obey()
    await (await gang.fails("b")).obey()
    assert (await gang.status()).round == 2
    return gang


async def meets_again(gang: Gathering) -> GangStatus:
    """The agents go on announcing themselves, with workers that run a round, and do as they are told."""
    before = max(number for _, number in gang.states.values())
    await gang.attach()
    hello = [gang.says(name, state) for name, (state, _) in list(gang.states.items())]
    await (await gang.tell(*hello)).obey()
    assert all(number > before for _, number in gang.states.values()), "a later round, or agents take it for an old one"
    return await gang.status()


async def test_D2_a_terminated_rendezvous_is_met_in_again_and_its_rounds_never_go_back(scene: Scene):
    gang = await a_gang(scene)
    gone = (await gang.handle.describe()).run_id
    revision, generation = gang.revision, gang.generation
    await gang.handle.terminate(reason="by mistake")
    await scene.rebuilt(gang.handle.id, gone, GATHERED)
    status = await meets_again(gang)
    assert (status.phase, status.participants) == ("Running", 2)
    assert gang.revision > revision
    assert gang.generation > generation


async def test_D2_a_poisoned_rendezvous_is_met_in_again_and_one_that_is_over_is_not(scene: Scene):
    gang = await a_gang(scene)
    poisoned = await scene.poison(
        names.RENDEZVOUS_WORKFLOW, gang.handle.id, {**gang.begin().model_dump(mode="json"), **UNREADABLE}
    )
    await scene.rebuilt(gang.handle.id, poisoned, GATHERED)
    assert (await meets_again(gang)).participants == 2
    await gang.ends()

    async def closed() -> bool:
        return (await gang.status()).closed is not None

    await until(closed, 90, "its attempt has ended")
    await gang.handle.terminate(reason="by mistake")
    listed = f"WorkflowId = '{gang.handle.id}' AND ExecutionStatus = 'Running'"

    async def seen() -> bool:
        return (await scene.client.count_workflows(listed)).count == 0

    await until(seen, 90, "the list knows")
    await scene.watchdog(GATHERED).look()
    assert (await gang.handle.describe()).status is WorkflowExecutionStatus.TERMINATED
