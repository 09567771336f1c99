"""The same JobSets, given to the published controller and to Holdfast: the same Jobs, pods and Service come of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from holdfast import names
from holdfast.formats.jobset import reader
from holdfast.local import Stack
from tests.e2e.ground.site import until
from tests.e2e.ground.space import Space
from tests.e2e.peers.jobset_peer import Peer, open_peer
from tests.e2e.peers.jobsets import CASES, ENDS, P, job_names, pod_count, told

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]
Json = dict[str, Any]


@pytest_asyncio.fixture(loop_scope="session")
async def peer(stack: Stack, space: Space, tmp_path: Path) -> AsyncIterator[Peer]:
    async with open_peer(stack, tmp_path) as opened:
        yield opened


async def objects(space: Space, namespace: str, kind: str, name: str) -> list[Json]:
    """Return what of a kind is a JobSet's; its Service is the one that selects its pods."""
    api_version = "batch/v1" if kind == "Job" else "v1"
    if kind == "Service":
        found = await space.site.objects(api_version, kind, namespace)
        return [each for each in found if each["spec"].get("selector", {}).get(f"{P}jobset-name") == name]
    return await space.site.objects(api_version, kind, namespace, labels=f"{P}jobset-name={name}")


async def whole(space: Space, namespace: str, document: Json) -> bool:
    """Whether all Jobs and pods of a JobSet have been made."""
    name = document["metadata"]["name"]
    jobs = {each["metadata"]["name"] for each in await objects(space, namespace, "Job", name)}
    return jobs == job_names(document) and len(await objects(space, namespace, "Pod", name)) >= pod_count(document)


async def compared(
    space: Space, namespace: str, document: Json, uid: str, keyed: dict[str, str]
) -> dict[str, list[str]]:
    """Return what is compared of each kind, in an order of its own; keys of Jobs are told by the Jobs' names."""
    name = document["metadata"]["name"]
    found: dict[str, list[str]] = {}
    for kind in ("Job", "Pod", "Service"):
        texts = [
            json.dumps(told(kind, each, uid), sort_keys=True, indent=1)
            for each in await objects(space, namespace, kind, name)
        ]
        for key, job in keyed.items():
            texts = [text.replace(key, f"the key of {job}") for text in texts]
        found[kind] = sorted(texts)
    return found


def keys(jobs: list[Json], namespace: str) -> dict[str, str]:
    """Return the keys that Jobs must have, which hold their namespace, and the Jobs' names."""
    return {
        hashlib.sha1(f"{namespace}/{each['metadata']['name']}".encode()).hexdigest(): each["metadata"]["name"]
        for each in jobs
    }


@pytest.mark.timeout(900)
async def test_the_same_objects_come_of_the_same_jobsets(space: Space, peer: Peer) -> None:
    uids: dict[str, str] = {}
    for document in CASES:
        name = document["metadata"]["name"]
        uids[name] = (await peer.create(document))["metadata"]["uid"]
        workload = reader.read(document, cluster=space.site.cluster, namespace=space.namespace)
        await space.submit(workload)
    differ: list[str] = []
    for document in CASES:
        name = document["metadata"]["name"]
        for namespace in (peer.namespace, space.namespace):
            await until(lambda n=namespace, d=document: whole(space, n, d), 120, f"{namespace}/{name} is made")
        jobs = await objects(space, space.namespace, "Job", name)
        uid = jobs[0]["metadata"]["labels"][names.LABEL_WORKLOAD_UID]
        theirs = await compared(space, peer.namespace, document, uids[name], keys(jobs, peer.namespace))
        ours = await compared(space, space.namespace, document, uid, keys(jobs, space.namespace))
        differ += [
            f"{name}: {kind}\npublished: {a}\nhere: {b}"
            for kind in theirs
            for a, b in zip_longest(theirs[kind], ours[kind])
            if a != b
        ]
    assert not differ, "\n".join(differ)


def ended(status: Json) -> Json:
    """Return what of a JobSet's status is compared: all of it but times."""
    conditions = [{key: each[key] for key in ("type", "status", "reason", "message")} for each in status["conditions"]]
    jobs = sorted(status["replicatedJobsStatus"], key=lambda each: each["name"])
    return {**status, "conditions": conditions, "replicatedJobsStatus": jobs}


@pytest.mark.timeout(900)
@pytest.mark.row("J1", level="e2e")
@pytest.mark.row("J2", level="e2e")
@pytest.mark.row("J3", level="e2e")
@pytest.mark.row("J17", level="e2e")
async def test_J1_J2_J3_J17_the_same_status_is_told_of_the_same_end(space: Space, peer: Peer) -> None:
    handles = {}
    for document in ENDS:
        await peer.create(document)
        workload = reader.read(document, cluster=space.site.cluster, namespace=space.namespace)
        handles[workload.name] = (workload, await space.submit(workload))
    differ: list[str] = []
    for name, (workload, handle) in handles.items():

        async def over(name: str = name) -> bool:
            return bool((await peer.get(name)).get("status", {}).get("terminalState"))

        await until(over, 120, f"{name} has ended")
        theirs = ended((await peer.get(name))["status"])
        status = await space.reach(handle, "Succeeded" if name == "done" else "Failed")
        ours = ended(reader.status(workload, status))
        if theirs != ours:
            differ.append(f"{name}\npublished: {theirs}\nhere: {ours}")
    assert not differ, "\n".join(differ)
