"""A real Temporal server, a client of it, and a workload to submit."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from uuid import uuid4

import pytest
from temporalio.client import Client

from holdfast import Holdfast, HoldfastPlugin
from holdfast.model import Component, PodSet, Policy, Source, Timings, Workload
from tests.client.server import temporal_server


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    with temporal_server() as address:
        yield address


@pytest.fixture
async def client(address: str) -> Client:
    return await Client.connect(address, plugins=[HoldfastPlugin()])


@pytest.fixture
async def holdfast(address: str) -> AsyncGenerator[Holdfast]:
    async with Holdfast.connect(address, "default", "dev") as session:
        yield session


@pytest.fixture
def workload() -> Workload:
    return a_workload()


def a_workload(**changes: object) -> Workload:
    """A Job of two pods under a name of its own."""
    template = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "main"},
        "spec": {"template": {"spec": {"containers": [{"name": "c", "image": "busybox"}]}}},
    }
    waits = {"failure_grace_period": "0s", "retry_pause_period": "0s", "success_ttl": "1h"}
    fields: dict[str, object] = {
        "name": f"train-{uuid4().hex[:8]}",
        "namespace": "research",
        "cluster": "dev",
        "components": (
            Component(name="main", template=template, pod_sets=(PodSet(path="template.spec.template", replicas=2),)),
        ),
        "policy": Policy(profile="appwrapper", timings=Timings.model_validate(waits)),
        "source": Source(api_version="workload.codeflare.dev/v1beta2", kind="AppWrapper"),
    }
    return Workload.model_validate({**fields, **changes})
