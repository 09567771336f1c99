"""A program of a JobSet is killed, until all its programs run again: restarted in their pods, and in new pods.

Real containers on the real kubelet of this machine, seen as the kernel has them. In place, each pod has the in-place
restart agent; the pods that are recreated have none, and run nothing but the program. Beside them, JobSet's own
controller restarts the same pods in place, by its own agents.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial

from bench.ground import Ground, every
from bench.seeing import Json
from bench.systems.jobset import open_in_place, with_published_agent
from holdfast import names
from tests.e2e.figures.in_place import Processes, in_place, pod_of, token, with_agent
from tests.e2e.ground.held import open_real
from tests.e2e.ground.site import Site, open_site, until
from tests.e2e.ground.space import Space
from tests.e2e.peers.jobset_peer import Peer

NAME = "inplace"
SIZES = (64,)
PATIENCE = 1200.0
IN_PLACE, RECREATED, PUBLISHED = "Holdfast", "Holdfast, recreated", "JobSet"


async def measure(ground: Ground, sizes: tuple[int, ...] = SIZES) -> None:
    """Restart JobSets of these numbers of pods: in place, by recreation, and in place by the published controller."""
    cases = [
        partial(_case, ground, system, size)
        for size in sizes
        for system in (IN_PLACE, RECREATED, PUBLISHED)
        if ground.wants(system)
    ]
    await every(ground.options, cases)


async def _case(ground: Ground, system: str, pods: int) -> None:
    life = _published if system == PUBLISHED else partial(_holdfast, system=system)
    for repeat, values in enumerate(await life(ground, f"{NAME}-{system}-{pods}", pods=pods)):
        ground.record(system, values, size={"pods": pods}, repeat=repeat)


async def _holdfast(ground: Ground, folder: str, *, system: str, pods: int) -> list[dict[str, float]]:
    directory = ground.directory / folder
    directory.mkdir()
    async with open_site(ground.stack, directory, prefix="i", judge=False) as site:
        await site.ready(site.launch(kubeconfig=None, **ground.options.worker), PATIENCE)
        if ground.options.warm:
            await _life(site, system, 2, 1)
        return await _life(site, system, pods, ground.options.repeats)


async def _published(ground: Ground, folder: str, *, pods: int) -> list[dict[str, float]]:
    """As `_life`, by JobSet's controller: its programs do not know their attempt, but each restart renews them all."""
    number, found = token(), list[dict[str, float]]()
    programs = Processes(number)
    async with open_in_place(ground, folder) as peer:
        document = with_published_agent(in_place("train", number, pods, maxRestarts=ground.options.repeats), "train")
        (program,) = pod_of(document)["containers"]
        program["command"] = ["sh", "-c", f"exec sleep {number}0"]
        begun = time.monotonic()
        await peer.create(document)
        await programs.run(0, pods, PATIENCE)
        started = time.monotonic() - begun
        for restart in range(1, ground.options.repeats + 1):
            await _until_restarts(peer, restart - 1)
            kept = {pod["metadata"]["uid"] for pod in await peer.listed("v1", "Pod", "train")}
            old = set(programs.pids())
            killed = time.monotonic()
            await asyncio.to_thread(programs.kill)
            await programs.run(0, pods, PATIENCE, without=old)
            whole = time.monotonic() - killed
            same = len(kept & {pod["metadata"]["uid"] for pod in await peer.listed("v1", "Pod", "train")})
            found.append(
                {"start_s": started, "whole_s": whole, "pods_kept": float(same), "missing": float(pods - same)}
            )
    return found


async def _until_restarts(peer: Peer, restarts: int) -> None:
    """Wait until the published controller has written down that all pods are at an in-place restart attempt."""

    async def is_there() -> bool:
        return (await peer.get("train")).get("status", {}).get("currentInPlaceRestartAttempt") == restarts

    await until(is_there, PATIENCE, f"JobSet says that its pods are at in-place restart attempt {restarts}")


async def _life(site: Site, system: str, pods: int, restarts: int) -> list[dict[str, float]]:
    """Start a JobSet, and restart it so often; return what each restart took."""
    number, found = token(), list[dict[str, float]]()
    programs = Processes(number)
    async with open_real(site) as space:
        await with_agent(space)
        # The number of a program's first attempt: in place it counts from 0, and that of new pods from 1.
        first = 0 if system == IN_PLACE else 1
        begun = time.monotonic()
        handle = await space.submit(_document(system, number, pods, restarts))
        await programs.run(first, pods, PATIENCE)
        started = time.monotonic() - begun
        await space.reach(handle, "Running", 1, PATIENCE)
        for restart in range(1, restarts + 1):
            kept = await _uids(space)
            killed = time.monotonic()
            await asyncio.to_thread(programs.kill)
            await programs.run(first + restart, pods, PATIENCE)
            whole = time.monotonic() - killed
            await space.reach(handle, "Running", 1 if system == IN_PLACE else 1 + restart, PATIENCE)
            same = len(kept & await _uids(space))
            # A restart in place that fell back to new pods is no figure of it.
            missing = pods - same if system == IN_PLACE else same
            found.append({"start_s": started, "whole_s": whole, "pods_kept": float(same), "missing": float(missing)})
    return found


def _document(system: str, number: int, pods: int, restarts: int) -> Json:
    document = in_place("train", number, pods, maxRestarts=restarts)
    if system == IN_PLACE:
        return document
    document["spec"]["failurePolicy"]["restartStrategy"] = "Recreate"
    job = document["spec"]["replicatedJobs"][0]["template"]["spec"]
    job.update(backoffLimit=0)
    job.pop("podReplacementPolicy")
    spec = pod_of(document)
    del spec["initContainers"], spec["volumes"]
    spec["restartPolicy"] = "Never"
    (program,) = spec["containers"]
    program.pop("restartPolicyRules")
    program["command"] = ["sh", "-c", f'exec sleep {number}"${names.ENV_ATTEMPT}"']
    return document


async def _uids(space: Space) -> set[str]:
    return {pod["metadata"]["uid"] for pod in await space.pods("train")}
