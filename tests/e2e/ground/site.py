"""One test site: a cluster name, an installation and worker processes of its own, on the shared local stack.

Sites on one stack do not see each other: each has its own Temporal namespace, and its objects carry its own
installation's label. Workers run as processes, through the `holdfast worker` command, with the worker's own
kubeconfig: exactly the rights deploy/ grants.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import subprocess
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import yaml
from google.protobuf.duration_pb2 import Duration
from temporalio.api.workflowservice.v1 import RegisterNamespaceRequest
from temporalio.client import Client, WorkflowHandle, WorkflowQueryFailedError
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.service import RPCError, RPCStatusCode

from bench.audit import Mark, mark
from holdfast import errors, formats, names
from holdfast.activities.kube.client import Kube, NotFound, UnknownKind
from holdfast.client.connection import add_search_attributes
from holdfast.local import Stack, worker_kubeconfig
from holdfast.local.system.ports import choose
from holdfast.model import Explanation, Status, Workload
from holdfast.relay import relayed
from holdfast.stale import AsksAgain
from holdfast.worker.cleanup.namespace import enable
from tests.e2e.ground.hatchery import Forked
from tests.e2e.witness import goodput
from tests.e2e.witness.audit import since
from tests.plugins import ledgers, scene
from tests.plugins.spent import CLEAN_UP, CONDITION, NAMESPACE, TEMPORAL_NAMESPACE, WORKER, spent

FAST = {
    "admissionGracePeriodDuration": "20s",
    "warmupGracePeriodDuration": "40s",
    "failureGracePeriodDuration": "2s",
    "retryPausePeriodDuration": "1s",
    "forcefulDeletionGracePeriodDuration": "5s",
    "successTTLDuration": "0s",
}
PREFIX = "workload.codeflare.dev.appwrapper/"
T = TypeVar("T")
GROUPS = (
    "test.holdfast.dev",
    "examples.holdfast.dev",
    "example.com",
    "jobset.x-k8s.io",
    "kubeflow.org",
    "ray.io",
    "trainer.kubeflow.org",
    "leaderworkerset.x-k8s.io",
)
"""API groups whose kinds workloads of the tests may be made of."""


NOT_ANSWERING: type[Exception] = getattr(errors, "NotAnswering", TimeoutError)
"""A workflow does not answer. Older code, on which tests are tried too (tests/regressions.py), has no word for it."""

_cached = os.environ.get("TEST_MAX_CACHED_WORKFLOWS")
CACHED = {"HOLDFAST_MAX_CACHED_WORKFLOWS": _cached} if _cached else {}
"""`make test-uncached`: with nothing cached, each workflow task replays the whole history."""


def executable() -> list[str]:
    return [str(Path(sys.executable).parent / "holdfast")]


@dataclass
class Worker:
    """A worker process and its log."""

    process: subprocess.Popen[bytes] | Forked
    log: Path
    health: str
    plain: bool = True
    """Whether it was started with a worker's own settings: all of its requests reach the API server at once."""

    def ready_since(self) -> datetime:
        """When it said that it was ready."""
        lines = [line for line in self.log.read_text().splitlines() if '"event": "ready"' in line]
        return datetime.fromisoformat(json.loads(lines[0])["timestamp"])

    def kill(self) -> None:
        """Kill it with -9, as a crash would."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """Stop it as an operator would, and return its exit code."""
        self.process.terminate()
        try:
            return self.process.wait(90)
        except (subprocess.TimeoutExpired, TimeoutError):
            self.kill()
            raise


@dataclass
class Site:
    """What a test works with."""

    stack: Stack
    directory: Path
    kubeconfig: Path
    kube: Kube
    client: Client
    cluster: str
    temporal_address: str
    workers: list[Worker] = field(default_factory=list)
    namespaces: list[str] = field(default_factory=list)
    forks: bool = "PYTEST_VERSION" in os.environ and not os.environ.get("TEST_EXEC")
    """Whether its workers are forked from a process that has loaded Holdfast already."""
    log_begun: Mark = field(default_factory=Mark)
    """Where the audit log was as the site was opened."""
    judged: set[str] = field(default_factory=set[str])
    """The workflow runs whose ledgers have been judged."""
    judges: bool = True
    """Whether it judges the ledgers of its workloads, by an audit log that tells what was written."""

    # --- workers

    @property
    def managed_by(self) -> str:
        """What the custom resources say in `managedBy` that this site's workers run."""
        return f"{names.GROUP}/{self.cluster}"

    async def start_worker(self, *arguments: str, kubeconfig: Path | None = None, **environment: str) -> Worker:
        """Start a worker and wait until it is ready."""
        worker = self.launch(*arguments, kubeconfig=kubeconfig, **environment)
        await self.ready(worker)
        return worker

    def launch(
        self, *arguments: str, kubeconfig: Path | None = None, program: str | Path | None = None, **environment: str
    ) -> Worker:
        """Start a worker process without waiting for it; `program` is another release's `holdfast`."""
        log = self.directory / f"{self.cluster}-worker-{len(self.workers)}.log"
        health = f"127.0.0.1:{free_port()}"
        env = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")} | {
            "HOLDFAST_CLUSTER": self.cluster,
            "HOLDFAST_INSTALLATION": self.cluster,
            "HOLDFAST_MANAGED_BY": self.managed_by,
            "HOLDFAST_HEALTH_ADDRESS": health,
            "HOLDFAST_METRICS_ADDRESS": "127.0.0.1:0",
            "TEMPORAL_ADDRESS": self.temporal_address,
            "TEMPORAL_NAMESPACE": self.cluster,
            "KUBECONFIG": str(kubeconfig or self.kubeconfig),
            "HOLDFAST_ALLOW_FAILPOINTS": "1",
            "TMPDIR": str(self.directory),  # A worker that is killed leaves the files of its credentials behind.
            **CACHED,
            **environment,
        }
        plain = not (arguments or environment or kubeconfig or program)
        worker = Worker(self._started(["worker", *arguments], env, log, program), log, health, plain)
        self.workers.append(worker)
        return worker

    def _started(
        self, argv: list[str], env: dict[str, str], log: Path, program: str | Path | None
    ) -> subprocess.Popen[bytes] | Forked:
        if self.forks and program is None:
            return Forked(argv, env, log)
        with log.open("wb") as out:
            command = executable() if program is None else [str(program)]
            return subprocess.Popen([*command, *argv], env=env, stdout=out, stderr=out)

    async def ready(self, worker: Worker, seconds: float = 180) -> None:
        """Wait until a worker says it is ready: half a minute where a whole bench begins at once on two cores."""
        import aiohttp

        async def check() -> bool:
            if worker.process.poll() is not None:
                raise AssertionError(f"the worker ended: {worker.log.read_text()[-4000:]}")
            try:
                async with aiohttp.ClientSession() as session, session.get(f"http://{worker.health}/readyz") as answer:
                    return answer.status == 200 and '"event": "ready"' in worker.log.read_text()
            except aiohttp.ClientError:
                return False

        try:
            with spent(WORKER):
                await until(check, seconds, "the worker is ready")
        except AssertionError as error:
            raise AssertionError(f"{error}: {worker.log.read_text()[-4000:]}") from None

    # --- namespaces and objects

    async def namespace(self) -> str:
        """Make and enable a namespace of the test's own."""
        name = f"{self.cluster}-{secrets.token_hex(3)}"
        with spent(NAMESPACE):
            await enable(self.kube, name, extra_groups=GROUPS)
        self.namespaces.append(name)
        return name

    async def objects(self, api_version: str, kind: str, namespace: str, labels: str = "") -> list[dict[str, Any]]:
        return (await self.kube.list(api_version, kind, namespace, labels=labels))["items"]

    async def pods(self, namespace: str) -> list[dict[str, Any]]:
        return await self.objects("v1", "Pod", namespace)

    async def annotate(self, kind: str, name: str, namespace: str, api_version: str = "v1", **annotations: str) -> None:
        """Set annotations on an object; `_` stands for `-`, the prefix is holdfast.dev."""
        found = await self.kube.get(api_version, kind, name, namespace)
        patch = {
            "metadata": {"annotations": {f"holdfast.dev/{k.replace('_', '-')}": v for k, v in annotations.items()}}
        }
        await self.kube.patch(api_version, kind, name, namespace, uid=found["metadata"]["uid"], patch=patch)

    async def fail_pod(self, namespace: str, index: int = 0, exit_code: int = 1) -> str:
        """Make a running pod fail, and return its name."""
        running = [pod for pod in await self.pods(namespace) if pod["status"].get("phase") == "Running"]
        name = running[index]["metadata"]["name"]
        await self.annotate("Pod", name, namespace, kwok_exit_code=str(exit_code), kwok_fail="0s")
        return name

    # --- workloads

    async def submit(self, workload: Workload) -> WorkflowHandle[Any, Status]:
        """Start a workload's workflow with nothing but a JSON document."""
        return await self.client.start_workflow(
            names.WORKLOAD_WORKFLOW,
            workload.model_dump(mode="json", by_alias=True),
            id=workload.workflow_id,
            task_queue=names.QUEUE_WORKFLOWS,
            result_type=Status,
        )

    def read(self, document: str | dict[str, Any], namespace: str) -> Workload:
        """Read a published document into a workload of this site."""
        text = document if isinstance(document, str) else yaml.safe_dump(document)
        (workload,) = formats.read(text, cluster=self.cluster, namespace=namespace)
        return workload

    async def status(self, handle: WorkflowHandle[Any, Any]) -> Status:
        return await asked(lambda: handle.query(names.QUERY_STATUS, result_type=Status))

    async def explain(self, handle: WorkflowHandle[Any, Any]) -> Explanation:
        return await asked(lambda: handle.query(names.QUERY_EXPLAIN, result_type=Explanation))

    async def reach(
        self, handle: WorkflowHandle[Any, Any], phase: str, seconds: float = 120, attempt: int | None = None
    ) -> Status:
        """Wait until a workload is in a phase (of an attempt)."""
        last: list[Status] = []

        async def check() -> bool:
            try:
                last[:] = [await self.status(handle)]
            except RPCError:
                return False
            return last[0].phase == phase and (attempt is None or last[0].attempt == attempt)

        try:
            await until(check, seconds, f"{handle.id} is {phase}")
        except AssertionError as error:
            raise AssertionError(f"{error}; last: {last[0].model_dump_json(indent=1) if last else None}") from None
        return last[0]

    async def gone(self, namespace: str) -> bool:
        """Whether nothing of any workload is left in the namespace, its anchors aside."""
        for api_version, kind in (
            ("v1", "Pod"),
            ("batch/v1", "Job"),
            ("apps/v1", "Deployment"),
            ("apps/v1", "StatefulSet"),
            (names.API_VERSION, names.ATTEMPT_KIND),
        ):
            if await self.objects(api_version, kind, namespace):
                return False
        return True

    @property
    def audit_log(self) -> Path:
        """The API server's audit log."""
        return self.stack.audit_log

    def command(self) -> tuple[list[str], dict[str, str]]:
        """Return the `holdfast` command and the environment that `holdfast dev env` would give, for this site."""
        own = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
        environment = own | {
            "HOLDFAST_CLUSTER": self.cluster,
            "TEMPORAL_ADDRESS": self.temporal_address,
            "TEMPORAL_NAMESPACE": self.cluster,
            "KUBECONFIG": str(self.stack.kubeconfig),
            "COLUMNS": "160",
        }
        return executable(), environment

    async def judge_ledgers(self, query: str = "") -> None:
        """Judge the ledgers of its workloads, or of those that a query names, by their histories and the audit log.

        Raises:
            AssertionError: saying where a ledger is wrong.
        """
        if not self.judges:
            return
        plain = len(self.workers) == 1 and self.workers[0].plain and self.workers[0].process.poll() is None
        log = since(self.audit_log, self.log_begun)
        with spent(CLEAN_UP):
            verdict = await goodput.judged(
                self.client, self.temporal_address, query, log, timed=plain, done=self.judged
            )
        ledgers.VERDICTS.append(verdict)
        assert not verdict.broken, "\n".join(verdict.broken)

    async def close(self) -> None:
        """Stop the workers, remove the namespaces, end what still runs."""
        with spent(CLEAN_UP):
            await self._close()

    async def _close(self) -> None:
        for worker in self.workers:
            if worker.process.poll() is None:
                worker.kill()
        query = f'{names.SA_CLUSTER} = "{self.cluster}" AND ExecutionStatus = "Running"'
        with contextlib.suppress(RPCError):
            async for execution in self.client.list_workflows(query):
                with contextlib.suppress(RPCError):
                    await self.client.get_workflow_handle(execution.id).terminate("the test is over")
        with contextlib.suppress(RPCError):
            await self.client.get_workflow_handle(names.watch_workflow_id(self.cluster)).terminate("the test is over")
        for name in self.namespaces:
            await strip_finalizers(self.kube, name)
            with contextlib.suppress(NotFound):
                found = await self.kube.get("v1", "Namespace", name)
                await self.kube.delete("v1", "Namespace", name, uid=found["metadata"]["uid"])
        await self.kube.close()


async def strip_finalizers(kube: Kube, namespace: str) -> None:
    """Let a namespace go although nobody is left to end its workloads."""
    ours = (names.ANCHOR_KIND, names.ATTEMPT_KIND)
    for api_version, kind in [
        *((names.API_VERSION, one) for one in ours),
        ("workload.codeflare.dev/v1beta2", "AppWrapper"),
        ("jobset.x-k8s.io/v1alpha2", "JobSet"),
    ]:
        try:
            listed = (await kube.list(api_version, kind, namespace))["items"]
        except UnknownKind:
            continue
        for each in listed:
            if each["metadata"].get("finalizers"):
                with contextlib.suppress(NotFound):
                    await kube.patch(
                        api_version,
                        kind,
                        each["metadata"]["name"],
                        namespace,
                        uid=each["metadata"]["uid"],
                        patch={"metadata": {"finalizers": None}},
                    )


ANSWER = 4.0
"""Seconds for which a workflow's answer is waited for: one that a worker died with never comes."""
ASKED_AT_MOST = 8


async def asked(query: Callable[[], Awaitable[T]]) -> T:
    """Ask a workflow, and again as long as it says that something has come which it has not taken in yet.

    One that is not answered within `ANSWER` is asked again some times.
    """
    silent = 0
    while True:
        try:
            return await _answered(query)
        except WorkflowQueryFailedError as error:
            # Where failures are encrypted, the SDK passes on no more than that a query failed.
            if not any(words in str(error) for words in ("ask again", "Encoded failure")):
                raise
        except RPCError as error:
            silent += 1
            lost = error.status in {RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED}
            if not lost or silent >= ASKED_AT_MOST:
                raise
        await asyncio.sleep(0.2)


async def _answered(query: Callable[[], Awaitable[T]]) -> T:
    try:
        async with asyncio.timeout(ANSWER):
            return await query()
    except TimeoutError:
        raise RPCError(f"no answer within {ANSWER:g} s", RPCStatusCode.DEADLINE_EXCEEDED, b"") from None


_given: deque[int] = deque(maxlen=64)


def free_port() -> int:
    """Return a port that no outgoing connection will take before it is listened on; none of a stack's stopped part.

    Each process of a test run has a share of its own, and what it was given last is not given again: none is listened
    on yet as it is given.
    """
    share = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % 8
    port = choose(["port"], taken=_given, among=range(30_000 + share * 250, 30_250 + share * 250))["port"]
    _given.append(port)
    return port


async def until(
    check: Callable[[], Any], seconds: float, what: str | Callable[[], str], *, pause: float = 0.05
) -> None:
    """Wait until a check holds, looking often; real time, since real servers are waited for.

    A workflow that does not answer in time is asked again. What was waited for may be a function, which then says how
    things stood as the time was over.
    """
    deadline = time.monotonic() + seconds
    with spent(CONDITION):
        while time.monotonic() < deadline:
            with contextlib.suppress(NOT_ANSWERING):
                if await check():
                    return
            await asyncio.sleep(pause)
    raise AssertionError(f"not within {seconds:g} s: {what if isinstance(what, str) else what()}")


def appwrapper(name: str, *components: dict[str, Any], **annotations: str) -> dict[str, Any]:
    """Return an AppWrapper document with scaled durations; keyword arguments override them."""
    return {
        "apiVersion": "workload.codeflare.dev/v1beta2",
        "kind": "AppWrapper",
        "metadata": {"name": name, "annotations": {PREFIX + key: value for key, value in (FAST | annotations).items()}},
        "spec": {"components": list(components)},
    }


def job(name: str = "train", pods: int = 2, complete: str = "", **fields: Any) -> dict[str, Any]:
    """Return an AppWrapper component wrapping a Job whose pods run on fake nodes."""
    annotations = {"holdfast.dev/kwok-complete": complete} if complete else {}
    template = {
        "metadata": {"annotations": annotations, "labels": fields.pop("labels", {})},
        "spec": {
            "restartPolicy": "Never",
            "nodeSelector": {"holdfast.dev/node": "fake"},
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "image": "example.com/train:1", "command": ["train"]}],
        },
    }
    spec = {"parallelism": pods, "completions": pods, "backoffLimit": 0, "template": template, **fields}
    return {"template": {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}}


@asynccontextmanager
async def open_site(
    stack: Stack, directory: Path, *, temporal_address: str = "", prefix: str = "t", judge: bool = True
) -> AsyncIterator[Site]:
    """Open a site of its own on a stack; of several Temporal servers, any that answers is used."""
    address = temporal_address or stack.temporal_address
    async with relayed(address) as target:
        kube = await Kube.connect(str(stack.kubeconfig))
        cluster = f"{prefix}-{secrets.token_hex(3)}"
        with spent(TEMPORAL_NAMESPACE):
            await make_temporal_namespace(target, cluster)
        site = Site(
            stack=stack,
            directory=directory,
            kubeconfig=await asyncio.to_thread(worker_kubeconfig, stack),
            kube=kube,
            client=await Client.connect(
                target, namespace=cluster, data_converter=pydantic_data_converter, interceptors=[AsksAgain()]
            ),
            cluster=cluster,
            temporal_address=address,
            log_begun=mark(stack.audit_log),
            judges=judge,
        )
        scene.OPEN.append(site)
        try:
            yield site
        except BaseException:
            scene.GATHERED.append(await asyncio.to_thread(scene.gather, site))
            raise
        else:
            await site.judge_ledgers()
        finally:
            scene.OPEN.remove(site)
            await site.close()


async def make_temporal_namespace(address: str, name: str) -> None:
    """Make a Temporal namespace with Holdfast's search attributes."""
    client = await Client.connect(address)
    await client.workflow_service.register_namespace(
        RegisterNamespaceRequest(namespace=name, workflow_execution_retention_period=Duration(seconds=86400))
    )
    made = await Client.connect(address, namespace=name)

    async def added() -> bool:
        try:
            await add_search_attributes(made, dict(names.SEARCH_ATTRIBUTES))
        except RPCError:
            return False
        return True

    await until(added, 90, f"namespace {name} has search attributes")
