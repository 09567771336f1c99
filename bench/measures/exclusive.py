"""A JobSet whose Jobs have a rack each, until all its pods run, and again after a failure (J21).

The published controller beside Holdfast, with the webhooks by which it places pods: they give the first pod of a Job
its affinities, and refuse the others until that one has a node. Pods that were made and deleted again before all ran
have moved; creations that were refused are counted in the API server's audit log.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final

from bench.audit import Mark
from bench.ground import Ground, every
from bench.measures.gang import EACH, Gang, by_holdfast, by_published, document, of_attempt, whole
from bench.seeing import Json, Life, in_phase, seeing
from bench.work import fail
from tests.e2e.peers.jobsets import P

NAME = "exclusive"
JOBS = (100,)
RACK: Final = "bench.holdfast.dev/rack"
NODES_PER_RACK: Final = 2
SPARE: Final = 10
"""Racks more than Jobs."""
NODES: Final = NODES_PER_RACK * (JOBS[0] + SPARE)
PUBLISHED, HOLDFAST = "JobSet", "Holdfast"


async def measure(ground: Ground, jobs: tuple[int, ...] = JOBS, each: int = EACH) -> None:
    """Start and restart a JobSet of so many Jobs, of so many pods each, under both."""
    racks = await _racked(ground, max(jobs) + SPARE)

    async def one(count: int, case: str) -> None:
        made = exclusive(count, each)
        folder = f"{NAME}-{count}"
        opened = by_holdfast(ground, made) if case == HOLDFAST else by_published(ground, folder, made, places_pods=True)
        async with opened as gang:
            await _lives(ground, case, gang, count * each, racks)

    cases = [case for case in (PUBLISHED, HOLDFAST) if ground.wants(case)]
    await every(ground.options, [partial(one, count, case) for count in jobs for case in cases])


def exclusive(jobs: int, each: int) -> Json:
    """Return the JobSet: so many Jobs of so many pods, each Job alone in its rack."""
    made = document(jobs, each, "Recreate")
    made["metadata"]["annotations"] = {f"alpha.{P}exclusive-topology": RACK}
    return made


async def _racked(ground: Ground, racks: int) -> dict[str, str]:
    """Give each fake node a rack, and return them by node."""
    found = dict[str, str]()
    nodes = (await ground.kube.list("v1", "Node", labels="holdfast.dev/node=fake"))["items"]
    for index, node in enumerate(nodes):
        name, rack = node["metadata"]["name"], f"rack-{index % racks}"
        labels = {"metadata": {"labels": {RACK: rack}}}
        await ground.kube.patch("v1", "Node", name, uid=node["metadata"]["uid"], patch=labels)
        found[name] = rack
    return found


async def _lives(ground: Ground, case: str, gang: Gang, count: int, racks: dict[str, str]) -> None:
    """Start the JobSet, and let it fail so often."""
    async with seeing(gang.kube, "v1", "Pod", gang.namespace, running=in_phase("Running")) as pods:
        for attempt in range(ground.options.repeats + 1):
            await ground.rest(3)
            mark, begun = ground.audit.mark(), time.monotonic()
            if attempt:
                await fail(gang.kube, of_attempt(pods, attempt - 1)[0])
            else:
                await gang.start()
            running = await whole(pods, attempt, count)
            await ground.rest(3)
            made = of_attempt(pods, attempt)
            values: dict[str, Any] = {
                "whole_s": running[-1] - begun,
                "moved": len(made) - count,
                "refused": _refused(ground, mark, gang.namespace),
                "misplaced": len(misplaced((pod for pod in made if pod.gone is None), racks)),
            }
            ground.record(case, values, size={"pods": count, "restart": min(attempt, 1)}, repeat=max(0, attempt - 1))


def _refused(ground: Ground, mark: Mark, namespace: str) -> int:
    """Return how many creations of pods were refused."""
    entries = ground.audit.since(mark, '"pods"')
    return sum(
        entry["verb"] == "create"
        and entry["objectRef"].get("resource") == "pods"
        and entry["objectRef"].get("namespace") == namespace
        and entry["responseStatus"]["code"] >= 400
        for entry in entries
    )


def misplaced(pods: Iterable[Life], racks: Mapping[str, str]) -> set[str]:
    """Return the Jobs that have not exactly one rack, or share it."""
    jobs, owners = defaultdict[str, set[str]](set), defaultdict[str, set[str]](set)
    for pod in pods:
        rack, job = racks[_node(pod.last)], pod.last["metadata"]["labels"]["batch.kubernetes.io/job-name"]
        jobs[job].add(rack)
        owners[rack].add(job)
    return {job for job, taken in jobs.items() if len(taken) != 1 or any(len(owners[rack]) > 1 for rack in taken)}


def _node(pod: Json) -> str:
    return str(pod["spec"]["nodeName"])
