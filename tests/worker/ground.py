"""Real ground for the watch: objects as the activities leave them, a workflow that records what it is told, a proxy."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml
from google.protobuf.duration_pb2 import Duration
from temporalio import workflow
from temporalio.api.workflowservice.v1 import RegisterNamespaceRequest
from temporalio.client import Client, WorkflowHandle
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Worker

with workflow.unsafe.imports_passed_through():
    from holdfast import names
    from holdfast.activities.kube.client import Kube, NotFound
    from holdfast.local import Stack, worker_kubeconfig
    from holdfast.model import Observation
    from holdfast.plugin import with_passthrough
    from holdfast.worker.runtime.kube import Connector
    from holdfast.worker.runtime.metrics import Metrics
    from holdfast.worker.runtime.settings import Settings
    from holdfast.worker.watch.watch import WatchActivities
    from holdfast.workflows.entities.cluster_watch import ClusterWatch, ClusterWatchInput

RECORDER_QUEUE = "recorders"


@workflow.defn(name=names.WORKLOAD_WORKFLOW, sandboxed=False)
class Recorder:
    """Stands where a workload's workflow would, and only writes down what it is told."""

    def __init__(self) -> None:
        self._told: list[tuple[datetime, Observation]] = []
        self._over = False

    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: self._over)

    @workflow.signal(name=names.SIGNAL_OBSERVE)
    def observe(self, observation: Observation) -> None:
        self._told.append((workflow.now(), observation))  # noqa: TID251 - it decides nothing

    @workflow.signal
    def finish(self) -> None:
        self._over = True

    @workflow.query
    def told(self) -> list[tuple[datetime, Observation]]:
        return self._told


class Proxy:
    """A TCP proxy before the API server, that can be cut or made to swallow everything."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._open = asyncio.Event()
        self._open.set()
        self._server: asyncio.Server | None = None
        self.port = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def cut(self) -> None:
        """Close everything, and refuse what comes."""
        assert self._server is not None
        self._server.close()
        for writer in list(self._writers):
            writer.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def restore(self) -> None:
        self._open.set()
        await self.start()

    def freeze(self) -> None:
        """Leave every connection open, and carry nothing."""
        self._open.clear()

    def thaw(self) -> None:
        self._open.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(self._host, self._port)
        except OSError:
            writer.close()
            return
        self._writers |= {writer, far_writer}
        for source, sink in ((reader, far_writer), (far_reader, writer)):
            task = asyncio.create_task(self._carry(source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _carry(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                await self._open.wait()
                sink.write(data)
                await sink.drain()
        sink.close()
        self._writers.discard(sink)


@dataclass
class Ground:
    """A namespace of Kubernetes and one of Temporal, for one test."""

    kube: Kube
    client: Client
    proxy: Proxy
    settings: Settings
    cluster: str
    cluster_uid: str
    namespace: str
    uids: dict[str, str] = field(default_factory=dict)
    deciding: Worker = field(init=False)
    """Runs the workflows under test."""

    # Objects, as the activities leave them.

    def labels(self, workload: str, attempt: int, component: str) -> dict[str, str]:
        return {
            names.LABEL_INSTALLATION: self.cluster,
            names.LABEL_WORKLOAD_UID: workload,
            names.LABEL_ATTEMPT: str(attempt),
            names.LABEL_COMPONENT: component,
            names.LABEL_SHARD: str(names.shard_of(workload)),
        }

    def owner(self, workload: str, attempt: int) -> list[dict[str, Any]]:
        return [
            {
                "apiVersion": names.API_VERSION,
                "kind": names.ATTEMPT_KIND,
                "name": names.attempt_name(workload, attempt),
                "uid": self.uids[f"{workload}/{attempt}"],
                "controller": False,
                "blockOwnerDeletion": True,
            }
        ]

    async def anchor(self, workload: str) -> None:
        made = await self.kube.create(
            {
                "apiVersion": names.API_VERSION,
                "kind": names.ANCHOR_KIND,
                "metadata": {
                    "name": workload,
                    "namespace": self.namespace,
                    "finalizers": [names.FINALIZER],
                    "labels": self.labels(workload, 0, ""),
                },
                "spec": {"workloadUid": workload, "workflowId": self.workflow_id(workload)},
            }
        )
        self.uids[workload] = made["metadata"]["uid"]

    async def attempt(self, workload: str, attempt: int, plan: list[dict[str, Any]]) -> None:
        made = await self.kube.create(
            {
                "apiVersion": names.API_VERSION,
                "kind": names.ATTEMPT_KIND,
                "metadata": {
                    "name": names.attempt_name(workload, attempt),
                    "namespace": self.namespace,
                    "labels": self.labels(workload, attempt, ""),
                },
                "spec": {
                    "workloadUid": workload,
                    "workflowId": self.workflow_id(workload),
                    "attempt": attempt,
                    "plan": plan,
                },
            }
        )
        self.uids[f"{workload}/{attempt}"] = made["metadata"]["uid"]

    async def submitted(self, workload: str, attempt: int = 1) -> None:
        name = names.attempt_name(workload, attempt)
        found = await self.kube.get(names.API_VERSION, names.ATTEMPT_KIND, name, self.namespace)
        await self.kube.patch(
            names.API_VERSION,
            names.ATTEMPT_KIND,
            name,
            self.namespace,
            uid=self.uids[f"{workload}/{attempt}"],
            resource_version=found["metadata"]["resourceVersion"],
            patch={"status": {"submitted": True}},
            subresource="status",
        )

    async def job(self, workload: str, attempt: int = 1, pods: int = 2, name: str = "job") -> None:
        labels = self.labels(workload, attempt, name)
        await self.kube.create(
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {
                    "name": f"{workload}-{name}",
                    "namespace": self.namespace,
                    "labels": labels,
                    "ownerReferences": self.owner(workload, attempt),
                },
                "spec": {
                    "parallelism": pods,
                    "completions": pods,
                    "backoffLimit": 100,
                    "template": {
                        "metadata": {"labels": labels},
                        "spec": {
                            "restartPolicy": "Never",
                            "nodeSelector": {"holdfast.dev/node": "fake"},
                            "tolerations": [{"operator": "Exists"}],
                            "containers": [{"name": "main", "image": "none.invalid/none:1"}],
                        },
                    },
                },
            }
        )

    def plan(self, workload: str, pods: int = 2, name: str = "job") -> dict[str, Any]:
        return {
            "name": name,
            "apiVersion": "batch/v1",
            "kind": "Job",
            "objectName": f"{workload}-{name}",
            "expectedPods": pods,
            "status": {"complete": ["Complete"], "failed": ["Failed"]},
        }

    async def workload(self, workload: str, pods: int = 2) -> WorkflowHandle[Any, Any]:
        """Everything a workload's first attempt has, and the workflow that records."""
        handle = await self.record(workload)
        await self.anchor(workload)
        await self.attempt(workload, 1, [self.plan(workload, pods)])
        await self.job(workload, pods=pods)
        await self.submitted(workload)
        return handle

    async def pods(self, workload: str) -> list[dict[str, Any]]:
        found = await self.kube.list(
            "v1", "Pod", self.namespace, labels=f"{names.LABEL_WORKLOAD_UID}={workload}", timeout=30
        )
        return found["items"]

    async def fail(self, pod: dict[str, Any]) -> None:
        """Have the fake kubelet fail a pod."""
        await self.kube.patch(
            "v1",
            "Pod",
            pod["metadata"]["name"],
            self.namespace,
            uid=pod["metadata"]["uid"],
            patch={"metadata": {"annotations": {"holdfast.dev/kwok-exit-code": "137", "holdfast.dev/kwok-fail": "0s"}}},
        )

    async def fail_one(self, workload: str) -> datetime:
        """Fail a running pod; return when the cluster said so."""
        pod = next(one for one in await self.pods(workload) if one["status"].get("phase") == "Running")
        await self.fail(pod)
        end = asyncio.get_running_loop().time() + 60
        while asyncio.get_running_loop().time() < end:
            found = await self.kube.get("v1", "Pod", pod["metadata"]["name"], self.namespace)
            if found["status"]["phase"] == "Failed":
                return datetime.now().astimezone()
            await asyncio.sleep(0.01)
        raise AssertionError("the pod did not fail")

    # Temporal.

    def workflow_id(self, workload: str) -> str:
        return names.workflow_id(self.cluster, self.namespace, workload)

    async def record(self, workload: str) -> WorkflowHandle[Any, Any]:
        return await self.client.start_workflow(Recorder.run, id=self.workflow_id(workload), task_queue=RECORDER_QUEUE)

    async def told(self, handle: WorkflowHandle[Any, Any]) -> list[Observation]:
        return [observation for _, observation in await handle.query(Recorder.told)]

    async def wait_told(self, handle: WorkflowHandle[Any, Any], what: Any, seconds: float = 60) -> Observation:
        """Wait until the workflow has been told something; return the first such snapshot."""
        end = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < end:
            for observation in await self.told(handle):
                if what(observation):
                    return observation
            await asyncio.sleep(0.02)
        raise AssertionError(f"not told in {seconds} s: {await self.told(handle)}")

    async def signals(self, handle: WorkflowHandle[Any, Any]) -> int:
        return len(await self.told(handle))

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[WatchActivities]:
        """A worker with the watch, through the proxy, with the worker's own rights."""
        connector = Connector(self.settings, Metrics())
        watch = WatchActivities(
            self.client,
            connector,
            cluster_uid=self.cluster_uid,
            installation=self.cluster,
            metrics=Metrics(),
        )
        worker = Worker(self.client, task_queue=names.queue_watch(self.cluster), activities=[watch.watch])
        async with worker:
            for _ in range(1000):
                if watch.running and all(feeds.settled for feeds in watch.running.values()):
                    break
                await asyncio.sleep(0.02)
            else:
                raise AssertionError("the watch did not begin")
            yield watch


@asynccontextmanager
async def opened(stack: Stack, directory: Path, more: Sequence[type] = ()) -> AsyncIterator[Ground]:
    """Open a ground of its own on the shared stack; `more` workflows are run beside the cluster's watch."""
    cluster = f"watch-{secrets.token_hex(3)}"
    kube = await Kube.connect(str(stack.kubeconfig))
    await register(stack.temporal_address, cluster)
    client = await Client.connect(stack.temporal_address, namespace=cluster, data_converter=pydantic_data_converter)
    document: dict[str, Any] = yaml.safe_load(worker_kubeconfig(stack).read_text())
    server = document["clusters"][0]["cluster"]["server"]
    host, _, port = server.removeprefix("https://").rpartition(":")
    proxy = Proxy(host, int(port))
    await proxy.start()
    document["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{proxy.port}"
    path = directory / "kubeconfig"
    path.write_text(yaml.safe_dump(document))
    await kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": cluster}})
    uid = (await kube.get("v1", "Namespace", "kube-system"))["metadata"]["uid"]
    ground = Ground(
        kube=kube,
        client=client,
        proxy=proxy,
        settings=Settings(cluster=cluster, kubeconfig=str(path)),
        cluster=cluster,
        cluster_uid=uid,
        namespace=cluster,
    )
    try:
        async with (
            Worker(client, task_queue=RECORDER_QUEUE, workflows=[Recorder]),
            Worker(
                client,
                task_queue=names.QUEUE_WORKFLOWS,
                workflows=[ClusterWatch, *more],
                workflow_runner=with_passthrough(None),
            ) as ground.deciding,
        ):
            handle = await client.start_workflow(
                ClusterWatch.run,
                ClusterWatchInput(cluster=cluster, cluster_uid=uid),
                id=names.watch_workflow_id(cluster),
                task_queue=names.QUEUE_WORKFLOWS,
            )
            yield ground
            await handle.terminate()
    finally:
        await proxy.cut()
        await _clear(kube, cluster)
        await kube.close()


async def register(address: str, namespace: str) -> None:
    """Make a Temporal namespace."""
    client = await Client.connect(address)
    await client.workflow_service.register_namespace(
        RegisterNamespaceRequest(namespace=namespace, workflow_execution_retention_period=Duration(seconds=24 * 3600))
    )


async def _clear(kube: Kube, namespace: str) -> None:
    for anchor in (await kube.list(names.API_VERSION, names.ANCHOR_KIND, namespace))["items"]:
        with contextlib.suppress(NotFound):
            await kube.patch(
                names.API_VERSION,
                names.ANCHOR_KIND,
                anchor["metadata"]["name"],
                namespace,
                uid=anchor["metadata"]["uid"],
                patch={"metadata": {"finalizers": None}},
            )
    found = await kube.get("v1", "Namespace", namespace)
    await kube.delete("v1", "Namespace", namespace, uid=found["metadata"]["uid"])
