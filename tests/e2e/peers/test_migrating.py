"""docs/migrating.md, lived: the published AppWrapper controller and Holdfast in one cluster, to it and back.

`make test-peers` runs this.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import names
from holdfast.activities.kube.client import Kube
from holdfast.deploy import FOLDER, door_files
from holdfast.local import Stack
from holdfast.local.programs.resolve import resolve
from tests.e2e.cleanup.test_uninstall import uninstall
from tests.e2e.door.front_door import KIND, appwrapper, conditions, in_phase, job, read, shows
from tests.e2e.ground.site import open_site, until
from tests.e2e.ground.space import Space, open_space
from tests.e2e.peers import appwrapper_peer as published
from tests.e2e.peers.jobset_peer import stop
from tests.shared_stack import own_stack

pytestmark = [pytest.mark.e2e, pytest.mark.kueue, pytest.mark.timeout(600)]


def asks(space: Space, name: str, manager: str | None = None) -> dict[str, Any]:
    document = appwrapper(space, job(f"{name}-work"), name=name)
    document["spec"] |= {"managedBy": manager} if manager else {}
    if not manager:
        del document["spec"]["managedBy"]
    return document


def is_ready(found: dict[str, Any]) -> bool:
    return found.get("status", {}).get("phase") == "Running" and conditions(found).get("PodsReady") == "True"


async def installed(stack: Stack) -> Callable[..., str]:
    """Install Holdfast beside the published definition, and return kubectl."""
    await asyncio.to_thread(stack.kubectl, "apply", "-k", str(FOLDER), seconds=60)
    for path in door_files("appwrapper"):
        if path.name != "crd.yaml":
            await asyncio.to_thread(stack.kubectl, "apply", "-f", str(path))
    return stack.kubectl


async def pods(space: Space) -> dict[str, dict[str, Any]]:
    """Return the metadata of each AppWrapper's pod."""
    found = [one["metadata"] for one in await space.pods()]
    return {one["labels"]["workload.codeflare.dev/appwrapper"]: one for one in found}


async def own_uids(space: Space) -> dict[str, str]:
    return {name: one["uid"] for name, one in (await pods(space)).items()}


async def complete(space: Space, name: str) -> None:
    """Have the pod of an AppWrapper succeed, whoever runs it."""
    pod = (await pods(space))[name]["name"]
    await space.site.annotate("Pod", pod, space.namespace, kwok_complete="0s")


@pytest.mark.row("F1", level="e2e")
async def test_F1_both_controllers_run_side_by_side_and_either_way_is_open(tmp_path: Path):
    (program,) = (await asyncio.to_thread(resolve, [published.PROGRAM], print)).values()
    with own_stack("both", tmp_path / "stack", nodes=2, apply=False) as stack:
        admin = await Kube.connect(str(stack.kubeconfig))
        await published.define(admin)
        home = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "appwrapper-system"}}
        await admin.create(home)
        log = tmp_path / "published.log"
        theirs = await published.start(admin, program, stack.kubeconfig, "appwrapper-system", log)
        try:
            await _lived(stack, tmp_path)
        finally:
            stop(theirs)
            await admin.close()


async def _lived(stack: Stack, directory: Path) -> None:
    kubectl = await installed(stack)
    default = str(FOLDER / "appwrapper" / "managed-by.yaml")
    async with open_site(stack, directory, prefix="b") as site, open_space(site, KIND) as space:
        worker = await site.start_worker(HOLDFAST_MANAGED_BY=names.MANAGED_BY)

        async def create(name: str, manager: str | None = None) -> dict[str, Any]:
            await site.kube.create(asks(space, name, manager))
            return await shows(space, is_ready, f"{name} runs", 90, name=name)

        # To Holdfast: what was there stays with its controller, before and after the default changes.
        old = await create("old")
        assert (await create("tried", names.MANAGED_BY))["spec"]["managedBy"] == names.MANAGED_BY
        await asyncio.to_thread(kubectl, "apply", "-f", default)
        await _in_force(space, names.MANAGED_BY)
        assert (await create("new"))["spec"]["managedBy"] == names.MANAGED_BY
        columns = "custom-columns=NAME:.metadata.name,BY:.spec.managedBy,PHASE:.status.phase"
        told = await asyncio.to_thread(kubectl, "get", "appwrappers", "-A", "-o", columns, "--no-headers")
        by = {line.split()[0]: line.split()[1:] for line in told.splitlines()}
        assert by == {
            "old": ["<none>", "Running"],
            "tried": [names.MANAGED_BY, "Running"],
            "new": [names.MANAGED_BY, "Running"],
        }
        found = await read(space, "old")
        assert found is not None
        assert found["metadata"]["uid"] == old["metadata"]["uid"]
        assert names.FINALIZER not in found["metadata"]["finalizers"]
        await complete(space, "old")
        await shows(space, in_phase("Succeeded"), "the published controller ends what it began", 60, name="old")

        # Back: new ones are the published controller's again, and Holdfast's pods run on where that is wanted.
        await asyncio.to_thread(kubectl, "delete", "-f", default)
        await _in_force(space, None)
        back = await create("back")
        assert "managedBy" not in back["spec"]
        assert names.FINALIZER not in back["metadata"]["finalizers"]
        before = await own_uids(space)
        assert before.keys() >= {"tried", "new", "back"}
        worker.kill()
        told = await uninstall(site, "--yes", "--workloads", "leave", managed_by=names.MANAGED_BY)
        assert "CustomResourceDefinition appwrappers.workload.codeflare.dev stays" in told
        assert await own_uids(space) == before, "no pod was touched"
        await complete(space, "back")
        await shows(space, in_phase("Succeeded"), "the published controller goes on", 60, name="back")
        for name in ("tried", "new", "back", "old"):
            await asyncio.to_thread(kubectl, "delete", "appwrapper", name, "-n", space.namespace, "--timeout=60s")


async def _in_force(space: Space, manager: str | None) -> None:
    """Wait until the API server knows a policy, or that it is gone."""

    async def known() -> bool:
        there = ("create", "--dry-run=server", "-o", "json", "-f", "-", "--namespace", space.namespace)
        made = await asyncio.to_thread(space.site.stack.kubectl, *there, stdin=json.dumps(asks(space, "asked")))
        return json.loads(made)["spec"].get("managedBy") == manager

    await until(known, 30, "the API server knows it", pause=0.2)
