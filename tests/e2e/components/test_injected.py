"""What admission gives to a pod set reaches the pods of each kind, or the template they are made of (row A1)."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import names
from holdfast.formats.pods import resolve
from tests.e2e.components.test_kinds import APPWRAPPER
from tests.e2e.ground.definitions import serve
from tests.e2e.ground.site import appwrapper, until
from tests.e2e.ground.space import open_space
from tests.formats.corpus import INFO, KINDS
from tests.formats.documents import copy

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]


def check(pods: dict[str, Any], workload: str, uid: str) -> None:
    """All that was to be added is there, and what the template had is there still."""
    metadata, spec = pods["metadata"], pods["spec"]
    assert INFO["labels"].items() <= metadata["labels"].items()
    assert metadata["labels"][APPWRAPPER] == workload
    assert metadata["labels"][names.LABEL_WORKLOAD_UID] == uid
    assert INFO["annotations"].items() <= metadata["annotations"].items()
    assert spec["nodeSelector"] == {"holdfast.dev/node": "fake", **INFO["nodeSelector"]}
    keys = [each.get("key") for each in spec["tolerations"]]
    assert {"example.com/own", "example.com/spot"} <= set(keys)
    assert spec["schedulingGates"] == INFO["schedulingGates"]
    environment = {each["name"]: each.get("value") for each in spec["containers"][0]["env"]}
    assert environment[names.ENV_ATTEMPT] == "1"
    assert environment["EPOCHS"] == "3"


@pytest.mark.row("A1", level="e2e")
@pytest.mark.parametrize("kind", KINDS)
async def test_A1_pod_set_infos_reach_the_pods_of_each_kind(shared_site: Any, kind: str):
    defined = await serve(shared_site)
    async with open_space(shared_site, *defined) as space:
        component = copy(KINDS[kind])
        template = component["template"]
        handle = await space.submit(appwrapper("train", component))
        key = (template["apiVersion"], template["kind"], template["metadata"]["name"], space.namespace)

        async def made() -> bool:
            return await space.site.kube.find(*key) is not None

        await until(made, 60, f"{template['kind']} is created")
        status = await space.reach(handle, "Resuming")
        there = await space.site.kube.get(*key)
        assert there["metadata"]["labels"][APPWRAPPER] == "train"
        for pod_set in component["podSets"]:
            check(resolve(there, pod_set["path"]), "train", status.uid)
        if key[:2] in defined:
            return  # No controller of it runs here: its template is what pods would be made of.
        expected = sum(pod_set["replicas"] for pod_set in component["podSets"])
        # The pods of a StatefulSet come one after the other, each once the one before it runs.
        expected = 1 if kind == "statefulset" else expected

        async def gated() -> bool:
            return len(await space.pods("train")) >= expected

        await until(gated, 60, "its pods are there")
        for one in await space.pods("train"):
            check(one, "train", status.uid)
