"""A real Temporal server, the real workflow, and a scripted cluster."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHandle
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from holdfast import names
from holdfast.local import Stack
from holdfast.model import Policy, Status, Timings, Workload
from holdfast.plugin import HoldfastPlugin
from holdfast.policy.loop.change import ComponentsChange
from holdfast.profiles.streams import POLICY
from holdfast.stale import AsksAgain
from holdfast.worker.roles import HEARTBEAT_THROTTLE
from holdfast.workflows.start import memo, search_attributes
from tests.e2e.ground.site import asked
from tests.fakes import activities_of
from tests.fakes.scripted import ScriptedCluster
from tests.policy.lives.life import workload

CACHED = int(os.environ.get("TEST_MAX_CACHED_WORKFLOWS", "1000"))
SCALED = Timings(
    admission_grace_period=timedelta(seconds=20),
    warmup_grace_period=timedelta(seconds=30),
    failure_grace_period=timedelta(seconds=0.3),
    retry_pause_period=timedelta(seconds=0.2),
    forceful_deletion_grace_period=timedelta(seconds=0.5),
    success_ttl=timedelta(0),
)


STREAMS = POLICY.model_copy(update={"timings": SCALED})


@dataclass
class Run:
    """A workload under way on a scripted cluster."""

    client: Client
    cluster: ScriptedCluster
    name: str

    async def start(
        self, spec: Workload | None = None, policy: Policy | None = None, *, client: bool = False, **timings: Any
    ) -> WorkflowHandle[Any, Status]:
        """Start a workload; `client` says whether as our client does, with its columns and memo."""
        spec = spec or workload(policy=policy, timings={**SCALED.model_dump(by_alias=False), **timings})
        spec = Workload.model_validate({**spec.model_dump(mode="json"), "cluster": self.name})
        return await self.client.start_workflow(
            names.WORKLOAD_WORKFLOW,
            spec.model_dump(mode="json"),
            id=spec.workflow_id,
            task_queue=names.QUEUE_WORKFLOWS,
            result_type=Status,
            search_attributes=search_attributes(spec) if client else None,
            memo=memo(spec) if client else None,
        )

    async def reconfigure(self, handle: WorkflowHandle[Any, Any], text: str) -> list[str]:
        """Change what the one component is made of; return what is made again for it."""
        template = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"}, "spec": {"text": text}}
        component = workload().components[0].model_copy(update={"template": template})
        change = ComponentsChange(components=(component,), note="a newer one")
        return await handle.execute_update(
            names.UPDATE_COMPONENTS, change.model_dump(mode="json"), result_type=list[str]
        )

    async def status(self, handle: WorkflowHandle[Any, Any]) -> Status:
        return await asked(lambda: handle.query(names.QUERY_STATUS, result_type=Status))

    async def reach(self, handle: WorkflowHandle[Any, Any], phase: str, attempt: int | None = None) -> Status:
        status = await self.status(handle)
        for _ in range(3000):
            if status.phase == phase and attempt in {None, status.attempt}:
                return status
            await asyncio.sleep(0.02)
            status = await self.status(handle)
        raise AssertionError(f"{handle.id} is not {phase}: {status.model_dump_json(indent=1)}")

    async def entered(self, name: str, times: int = 1) -> None:
        for _ in range(3000):
            if self.cluster.entered.count(name) >= times:
                return
            await asyncio.sleep(0.02)
        raise AssertionError(f"{name} was not entered {times} times: {self.cluster.entered}")

    async def submitted(self, handle: WorkflowHandle[Any, Any], attempt: int = 1) -> None:
        status = await self.status(handle)
        for _ in range(3000):
            if status.attempt == attempt and any(c.type == "Submitted" and c.status for c in status.conditions):
                return
            await asyncio.sleep(0.02)
            status = await self.status(handle)
        raise AssertionError(f"attempt {attempt} is not submitted: {status.model_dump_json(indent=1)}")

    async def running(self, handle: WorkflowHandle[Any, Any], attempt: int = 1) -> Status:
        await self.submitted(handle, attempt)
        await self.cluster.sees(handle, attempt, running=self.cluster.pods)
        return await self.reach(handle, "Running", attempt)


def opener(stack: Stack, identity: str = "test") -> Callable[..., Any]:
    """Open runs on Temporal dev servers of their own; `suggest` makes continue-as-new come early."""

    @asynccontextmanager
    async def opened(suggest: int = 0, cached: int = CACHED) -> AsyncIterator[Run]:
        extra = ["--dynamic-config-value", f"limit.historyCount.suggestContinueAsNew={suggest}"] if suggest else []
        for attribute, kind in names.SEARCH_ATTRIBUTES.items():
            extra += ["--search-attribute", f"{attribute}={kind}"]
        async with await WorkflowEnvironment.start_local(
            dev_server_existing_path=str(stack.binary("temporal")),
            dev_server_startup_timeout=timedelta(minutes=2),
            data_converter=pydantic_data_converter,
            interceptors=[AsksAgain()],
            dev_server_extra_args=extra,
            identity=identity,
        ) as env:
            cluster, name = ScriptedCluster(), "recorded" if identity != "test" else f"t-{secrets.token_hex(3)}"
            client = await Client.connect(
                env.client.service_client.config.target_host,
                plugins=[HoldfastPlugin(roles=["workflows"])],
                identity=identity,
            )
            plain = env.client
            async with (
                Worker(client, task_queue=names.QUEUE_WORKFLOWS, max_cached_workflows=cached),
                Worker(plain, task_queue=names.queue_cluster(name), activities=activities_of(cluster)),
                Worker(plain, task_queue=names.queue_wait(name), activities=activities_of(cluster)),
                Worker(
                    plain,
                    task_queue=names.queue_probe(name),
                    activities=[cluster.probe, cluster.follow_progress],
                    max_heartbeat_throttle_interval=HEARTBEAT_THROTTLE,  # As a worker has it: else a probe hears late.
                ),
            ):
                yield Run(plain, cluster, name)

    return opened


@pytest.fixture
def environment(stack: Stack) -> Callable[..., Any]:
    return opener(stack)
