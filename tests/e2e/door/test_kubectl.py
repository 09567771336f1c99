"""`kubectl holdfast`, by the real kubectl, of a person who has a kubeconfig and nothing else (row F18)."""

from __future__ import annotations

import asyncio
import fcntl
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from holdfast import names
from tests.e2e.ground.site import appwrapper, job, until
from tests.e2e.ground.space import Space

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]
HELD = ("v1", "ConfigMap", names.CONNECTION, names.WORKER_NAMESPACE)


@dataclass
class Person:
    """Who may do nothing in the cluster but what all who log in may."""

    space: Space
    environment: dict[str, str]
    kubectl: str

    async def run(self, *argv: str, code: int = 0) -> str:
        """Run kubectl, and return what it printed on both streams."""
        done = await asyncio.to_thread(
            subprocess.run,
            [self.kubectl, *argv],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == code, f"{argv}: {done.returncode}\n{done.stdout}"
        return done.stdout


@pytest_asyncio.fixture(loop_scope="session")
async def person(space: Space, tmp_path: Path) -> AsyncIterator[Person]:
    """A person with a token, the two programs on PATH, and a cluster that says where this site's Temporal is."""
    site, stack = space.site, space.site.stack
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "ann", "namespace": space.namespace}}
    await site.kube.create(account)
    token = stack.kubectl("create", "token", "ann", "-n", space.namespace).strip()
    config = yaml.safe_load(stack.kubeconfig.read_text())
    server = config["clusters"][0]
    contexts = [
        {"name": name, "context": {"cluster": server["name"], "user": "ann", "namespace": namespace}}
        for name, namespace in (("mine", space.namespace), ("elsewhere", "default"))
    ]
    people = [{"name": "ann", "user": {"token": token}}]
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump({**config, "current-context": "mine", "contexts": contexts, "users": people}))
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, function in (("kubectl-holdfast", "plugin"), ("kubectl_complete-holdfast", "complete")):
        (programs / name).write_text(f"#!{sys.executable}\nfrom holdfast.cli import {function}\n{function}()\n")
        (programs / name).chmod(0o755)
    kubectl = Path(stack.binary("kubectl"))
    (programs / "kubectl").symlink_to(kubectl)
    own = {name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST_", "TEMPORAL_"))}
    path = f"{programs}:{os.environ['PATH']}"
    environment = {**own, "KUBECONFIG": str(file), "PATH": path, "HOME": str(tmp_path), "COLUMNS": "160"}

    data = {
        "HOLDFAST_CLUSTER": site.cluster,
        "TEMPORAL_ADDRESS": site.temporal_address,
        "TEMPORAL_NAMESPACE": site.cluster,
    }
    with (stack.kubeconfig.parent / "connection.lock").open("w") as alone:
        # A cluster has one such ConfigMap, and each process that tests has a Temporal namespace of its own.
        await asyncio.to_thread(fcntl.flock, alone, fcntl.LOCK_EX)
        before = await site.kube.find(*HELD)
        await _publish(space, data)
        try:
            yield Person(space, environment, str(programs / "kubectl"))
        finally:
            if before is not None:
                await _publish(space, before["data"])
            elif (left := await site.kube.find(*HELD)) is not None:
                await site.kube.delete(*HELD, uid=left["metadata"]["uid"])


async def _publish(space: Space, data: dict[str, str]) -> None:
    kube = space.site.kube
    if (there := await kube.find(*HELD)) is not None:
        await kube.patch(*HELD, uid=there["metadata"]["uid"], patch={"data": data})
        return
    metadata = {"name": names.CONNECTION, "namespace": names.WORKER_NAMESPACE}
    await kube.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})


@pytest.mark.row("F18", level="e2e")
async def test_F18_who_has_only_a_kubeconfig_reads_and_steers_workloads(person: Person, tmp_path: Path):
    space = person.space
    document: dict[str, Any] = appwrapper("train", job())
    document["metadata"].pop("namespace", None)
    file = tmp_path / "train.yaml"
    file.write_text(yaml.safe_dump(document))
    begun = await person.run("holdfast", "submit", str(file))
    assert f"{space.namespace}/train" in begun, "it is of the namespace of kubectl's context"
    handle = space.site.client.get_workflow_handle(names.workflow_id(space.site.cluster, space.namespace, "train"))
    space.handles.append(handle)
    await space.site.reach(handle, "Running")

    assert "train  Running" in await person.run("holdfast", "explain", "train")
    assert "Running" in await person.run("holdfast", "history", "train")
    elsewhere = await person.run("holdfast", "explain", "train", "--context", "elsewhere", code=2)
    assert "default/train" in elsewhere

    async def listed() -> bool:
        return "train" in await person.run("holdfast", "list")

    await until(listed, 30, "the list, which is a moment behind, has it")
    assert "train" not in await person.run("holdfast", "list", "--context", "elsewhere")
    assert "train" in await person.run("holdfast", "get", "-A", "--context", "elsewhere")

    await person.run("holdfast", "suspend", "train", "--wait")
    assert "train  Suspended" in await person.run("holdfast", "explain", "train", "-n", space.namespace)
    assert await space.pods("train") == []
    await person.run("holdfast", "cancel", "train", "--wait")
    assert "train  Cancelled" in await person.run("holdfast", "status", f"{space.namespace}/train")


@pytest.mark.row("F18", level="e2e")
async def test_F18_kubectl_completes_commands_and_workloads(person: Person):
    handle = await person.space.submit(appwrapper("train", job()))
    await person.space.site.reach(handle, "Running")
    assert "suspend" in (await person.run("__complete", "holdfast", "sus")).splitlines()

    async def offered() -> bool:
        # A machine that is busy may take longer than a prompt waits.
        return "train" in (await person.run("__complete", "holdfast", "explain", "tr")).splitlines()

    await until(offered, 60, "kubectl offers the workload of its namespace")


@pytest.mark.row("F18", level="e2e")
async def test_F18_all_who_log_in_read_that_one_config_map_and_no_other(person: Person):
    read = await person.run("get", "configmap", names.CONNECTION, "-n", names.WORKER_NAMESPACE, "-o", "yaml")
    assert person.space.site.temporal_address in read
    for verb, what in (
        ("list", "configmaps"),
        ("get", "configmap/holdfast"),
        ("update", f"configmap/{names.CONNECTION}"),
    ):
        assert "no" in (await person.run("auth", "can-i", verb, what, "-n", names.WORKER_NAMESPACE, code=1)).split()
