"""Random Jobs under Kubernetes' Job controller and under the simulated one: they stand alike after each step (D50).

`HOLDFAST_JOBS=100` plays so many (12), `HOLDFAST_JOB_SEED=7` begins with that seed. Each that differs is printed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import Counter
from typing import Any

import pytest

from holdfast.activities.kube.client import Conflict
from tests.e2e.ground.site import until
from tests.e2e.ground.space import Space
from tests.e2e.status.job_scripts import DISRUPTION, Step, script, tail

COUNT = int(os.environ.get("HOLDFAST_JOBS", "12"))
FIRST = int(os.environ.get("HOLDFAST_JOB_SEED", "1"))
AT_ONCE = 25
REST = 90.0
"""Seconds until a Job must stand as simulated: its longest back-off, and a machine that has other things to do."""

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900), pytest.mark.asyncio(loop_scope="session")]


class Real:
    """A Job under the real controller."""

    def __init__(self, space: Space, name: str) -> None:
        self.space, self.name = space, name
        self.pods: dict[str, str] = {}
        """By the pod's name in the simulation, its own."""

    async def active(self) -> list[dict[str, Any]]:
        found = await self.space.site.kube.list("v1", "Pod", self.space.namespace, labels=f"job-name={self.name}")
        return [
            one
            for one in found["items"]
            if one["status"].get("phase") == "Running" and "deletionTimestamp" not in one["metadata"]
        ]

    async def stands(self) -> dict[str, Any]:
        found = await self.space.site.kube.get("batch/v1", "Job", self.name, self.space.namespace)
        status = found.get("status", {})
        ends = [
            [one["type"], one["reason"], tail(one.get("message", "")) if one["type"] == "Failed" else ""]
            for one in status.get("conditions", ())
            if one["type"] in {"Failed", "Complete"} and one["status"] == "True"
        ]
        end = ends[0] if ends else None
        return {
            "end": end,
            "succeeded": status.get("succeeded", 0),
            "failed": None if end else status.get("failed", 0),
            "failedIndexes": numbers(status.get("failedIndexes", "")),
            "active": [] if end else sorted(index_of(one) or 0 for one in await self.active()),
        }

    async def comes_to(self, expected: dict[str, Any], ended: str = "") -> dict[str, Any]:
        """Wait until it stands as expected, and return how it stands then, or once that takes too long.

        A pod that was told to end has ended first: it may stand as before once another is in its place.
        """
        there: dict[str, Any] = {}

        async def stands_so() -> bool:
            nonlocal there
            there = await self.stands()
            return there == expected and ended not in {one["metadata"]["name"] for one in await self.active()}

        with contextlib.suppress(AssertionError):
            await until(stands_so, REST, "it stands as simulated", pause=0.5)
        return there

    async def happens(self, step: Step) -> str:
        """Let a step happen; return the name of the pod that was told to end, empty if none was."""
        if step.what == "begin":
            return ""
        if step.what == "deadline":
            await self.space.patch("batch/v1", "Job", self.name, {"spec": {"activeDeadlineSeconds": 1}})
            return ""
        pod = await self._pod(step)
        what, _, code = step.what.partition(":")
        if what == "restart":
            await self._restart(pod)
            return ""
        told = {"kwok_complete": "0s"} if what == "succeed" else {"kwok_fail": "0s", "kwok_exit_code": code or "1"}
        if what == "disrupt":
            told["kwok_disruption"] = DISRUPTION
        await self.space.site.annotate("Pod", pod["metadata"]["name"], self.space.namespace, **told)
        return str(pod["metadata"]["name"])

    async def _restart(self, pod: dict[str, Any]) -> None:
        """Count one more restart of a pod's container, as its kubelet would."""
        kube, name = self.space.site.kube, pod["metadata"]["name"]
        count = pod["status"]["containerStatuses"][0]["restartCount"] + 1
        while True:
            (container,) = pod["status"]["containerStatuses"]
            with contextlib.suppress(Conflict):
                await kube.patch(
                    "v1",
                    "Pod",
                    name,
                    self.space.namespace,
                    uid=pod["metadata"]["uid"],
                    patch={"status": {"containerStatuses": [{**container, "restartCount": count}]}},
                    resource_version=pod["metadata"]["resourceVersion"],
                    subresource="status",
                )
                return
            pod = await kube.get("v1", "Pod", name, self.space.namespace)

    async def _pod(self, step: Step) -> dict[str, Any]:
        """Return the real pod that stands for a simulated one: without an index any that none stands for yet."""
        there = await self.active()
        known = self.pods.get(step.pod)
        taken = set(self.pods.values()) - {known}
        fit = [one for one in there if one["metadata"]["name"] not in taken and index_of(one) == step.index]
        (pod, *_) = [one for one in fit if known in {None, one["metadata"]["name"]}]
        self.pods[step.pod] = pod["metadata"]["name"]
        return pod


def index_of(pod: dict[str, Any]) -> int | None:
    text = pod["metadata"].get("annotations", {}).get("batch.kubernetes.io/job-completion-index")
    return int(text) if text is not None else None


def numbers(text: str) -> list[int]:
    """Return the numbers of a list such as `0,2-4`."""
    found: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


async def played(space: Space, seed: int) -> list[str]:
    """Play a script on a real cluster, and say where the Job stands otherwise than simulated."""
    template, steps = script(seed)
    real = Real(space, template["metadata"]["name"])
    await space.make(template)
    for number, step in enumerate(steps):
        there = await real.comes_to(step.after, await real.happens(step))
        if there != step.after:
            done = ", ".join(one.what for one in steps[1 : number + 1])
            return [f"seed {seed}: {template['spec']}", f"  after {done}", f"  real {there}", f"  here {step.after}"]
    return []


@pytest.mark.sample
@pytest.mark.row("D50", level="e2e")
async def test_D50_simulated_jobs_stand_as_under_the_real_controller(space: Space):
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(seed: int) -> list[str]:
        async with slots:
            return await played(space, seed)

    seeds = range(FIRST, FIRST + COUNT)
    found = await asyncio.gather(*map(one, seeds))
    differs = [line for lines in found for line in lines]
    assert not differs, "\n".join(differs)
    ends = Counter(str(script(seed)[1][-1].after["end"]) for seed in seeds)
    assert len(ends) >= min(4, COUNT), f"scripts with too much of the same end: {ends}"
