"""A JobSet of exclusive topologies, until all its pods run: JobSet with its webhook for pods, and Holdfast.

Each Job has a node to itself, the topology being the node's name. From the first request until all pods run. Moved are
pods that were deleted before that, to be made anew elsewhere; refused are creations of pods, which the published
webhook refuses until a Job's first pod is scheduled. Wrong are Jobs that do not have one node, or not to themselves.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus

from bench.audit import Mark
from bench.ground import Ground, every
from bench.seeing import Json, Seen, in_phase, seeing
from bench.systems.holdfast import open_holdfast
from bench.systems.jobset import open_jobset
from bench.work import delete
from holdfast.formats.jobset import reader
from tests.e2e.peers.jobset_peer import API_VERSION
from tests.e2e.peers.jobsets import P, jobset, replicated

NAME = "exclusive"
JOBS = (100,)
EACH = 10
NODES = 110
TOPOLOGY = "kubernetes.io/hostname"
ANNOTATION = "alpha.jobset.sigs.k8s.io/exclusive-topology"
PUBLISHED, OURS = "JobSet", "Holdfast"


@dataclass
class Runner:
    """One of the two systems, and the namespace of its work."""

    namespace: str
    submit: Callable[[Json], Awaitable[object]]
    remove: Callable[[str], Awaitable[None]]


async def measure(ground: Ground, jobs: tuple[int, ...] = JOBS, each: int = EACH) -> None:
    """Start JobSets of these numbers of Jobs under both systems."""

    async def one(count: int, system: str) -> None:
        async with _published(ground, count) if system == PUBLISHED else _holdfast(ground) as runner:
            for repeat in range(ground.options.repeats):
                await _started(ground, system, runner, count, each, repeat)

    systems = [system for system in (PUBLISHED, OURS) if ground.wants(system)]
    await every(ground.options, [partial(one, count, system) for count in jobs for system in systems])


@asynccontextmanager
async def _published(ground: Ground, jobs: int) -> AsyncIterator[Runner]:
    async with open_jobset(ground, f"{NAME}-{jobs}", places_pods=True) as peer:

        async def remove(name: str) -> None:
            await delete(ground.kube, API_VERSION, "JobSet", name, peer.namespace, "Background")

        yield Runner(peer.namespace, peer.create, remove)


@asynccontextmanager
async def _holdfast(ground: Ground) -> AsyncIterator[Runner]:
    async with open_holdfast(ground) as system:
        await system.warm()

        async def submit(document: Json) -> None:
            await system.client.submit(reader.read(document, cluster=system.site.cluster, namespace=system.namespace))

        yield Runner(system.namespace, submit, system.remove)
        await system.removed()


async def _started(ground: Ground, system: str, runner: Runner, jobs: int, each: int, repeat: int) -> None:
    name = f"train-{repeat}"
    mark = ground.audit.mark()
    async with seeing(ground.kube, "v1", "Pod", runner.namespace, running=in_phase("Running")) as pods:
        begun = time.monotonic()
        await runner.submit(document(name, jobs, each))
        running = await pods.now_reach("running", jobs * each) - begun
        values = {
            "running_s": running,
            "first_s": min(life.reached["running"] for life in pods.present) - begun,
            "moved": sum(life.gone is not None for life in pods.lives.values()),
            "wrong": len(misplaced(pods)),
            "refused": _refused(ground, mark, runner.namespace),
        }
        ground.record(system, values, size={"pods": jobs * each}, repeat=repeat)
        await runner.remove(name)
        await pods.all_gone()


def _refused(ground: Ground, mark: Mark, namespace: str) -> int:
    """Return how many creations of pods were refused, by whoever refused them."""
    found = 0
    for entry in ground.audit.since(mark, namespace):
        about = entry.get("objectRef") or {}
        if (entry["verb"], about.get("resource"), about.get("namespace")) == ("create", "pods", namespace):
            found += "subresource" not in about and entry["responseStatus"]["code"] >= HTTPStatus.BAD_REQUEST
    return found


def document(name: str, jobs: int, each: int) -> Json:
    """Return the JobSet: so many Jobs of so many pods, each Job alone in its domain."""
    made = jobset(name, replicated("workers", replicas=jobs, pods=each))
    made["metadata"]["annotations"] = {ANNOTATION: TOPOLOGY}
    return made


def misplaced(pods: Seen) -> set[str]:
    """Return the Jobs whose pods are not on one node that no other Job's pods are on."""
    places, jobs = defaultdict[str, set[str]](set), defaultdict[str, set[str]](set)
    for life in pods.present:
        job, node = life.last["metadata"]["labels"][f"{P}job-key"], life.last["spec"]["nodeName"]
        places[job].add(node)
        jobs[node].add(job)
    return {job for job, nodes in places.items() if len(nodes) > 1 or any(len(jobs[node]) > 1 for node in nodes)}
