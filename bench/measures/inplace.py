"""A program of a JobSet is killed, until all its programs run again: restarted in their pods, and in new pods.

Real containers on the real kubelet of this machine, seen as the kernel has them. In place, each pod has the in-place
restart agent; the pods that are recreated have none, and run nothing but the program. Beside them, JobSet's own
controller restarts the same pods in place, by its own agents. In a gang, each pod's agent runs the program itself, so
that no container is restarted.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from bench.ground import Ground, every
from bench.seeing import Json
from bench.systems.jobset import open_in_place, with_published_agent
from holdfast import names
from tests.e2e.entities import elastic
from tests.e2e.figures.in_place import Processes, in_place, pod_of, token
from tests.e2e.ground.held import open_real
from tests.e2e.ground.site import Site, open_site, until
from tests.e2e.peers.jobset_peer import Peer

NAME = "inplace"
SIZES = (64,)
PATIENCE = 1200.0
IN_PLACE, RECREATED, GANG, PUBLISHED = "Holdfast", "Holdfast, recreated", "Holdfast, gang", "JobSet"


async def measure(ground: Ground, sizes: tuple[int, ...] = SIZES) -> None:
    """Restart JobSets of these numbers of pods: in place, by recreation, as a gang, and by the published controller."""
    cases = [
        partial(_case, ground, system, size)
        for size in sizes
        for system in (IN_PLACE, RECREATED, GANG, PUBLISHED)
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
        door = await elastic.door(site) if system == GANG else {}
        await site.ready(site.launch(kubeconfig=None, **door, **ground.options.worker), PATIENCE)
        if ground.options.warm:
            await _life(site, system, 2, 1)
        return await _life(site, system, pods, ground.options.repeats)


async def _life(site: Site, system: str, pods: int, restarts: int) -> list[dict[str, float]]:
    """Start a workload, and restart it so often; return what each restart took."""
    number = token()
    async with open_real(site) as space:
        begun = time.monotonic()
        handle = await space.submit(_document(system, number, pods, restarts))

        async def settled(restart: int) -> None:
            await space.reach(handle, "Running", 1 + restart if system == RECREATED else 1, PATIENCE)

        # The number of a program's first attempt: in place it counts from 0, and that of new pods from 1.
        attempts = {IN_PLACE: range(restarts + 1), RECREATED: range(1, restarts + 2), GANG: [0] * (restarts + 1)}
        return await _restarted(
            number,
            pods,
            attempts[system],
            begun=begun,
            settled=settled,
            listed=lambda: site.objects("v1", "Pod", space.namespace),
            in_place=system != RECREATED,
        )


async def _published(ground: Ground, folder: str, *, pods: int) -> list[dict[str, float]]:
    """As `_life`, by JobSet's controller: its programs do not know their attempt, but each restart renews them all."""
    number, restarts = token(), ground.options.repeats
    async with open_in_place(ground, folder) as peer:
        document = with_published_agent(in_place("train", number, pods, maxRestarts=restarts), "train")
        (program,) = pod_of(document)["containers"]
        program["command"] = _sleep(number)
        begun = time.monotonic()
        await peer.create(document)
        return await _restarted(
            number,
            pods,
            [0] * (restarts + 1),
            begun=begun,
            settled=partial(_until_restarts, peer),
            listed=lambda: peer.listed("v1", "Pod", "train"),
        )


async def _until_restarts(peer: Peer, restarts: int) -> None:
    """Wait until the published controller has written down that all pods are at an in-place restart attempt."""

    async def is_there() -> bool:
        return (await peer.get("train")).get("status", {}).get("currentInPlaceRestartAttempt") == restarts

    await until(is_there, PATIENCE, f"JobSet says that its pods are at in-place restart attempt {restarts}")


async def _restarted(
    number: int,
    pods: int,
    attempts: Sequence[int],
    *,
    begun: float,
    settled: Callable[[int], Awaitable[None]],
    listed: Callable[[], Awaitable[list[Json]]],
    in_place: bool = True,
) -> list[dict[str, float]]:
    """Wait for the programs of a workload that was just submitted, then kill one of them as often as it may restart.

    Args:
        number: By which the programs are known.
        pods: How many there are.
        attempts: What the programs call their attempts, from the first.
        begun: When it was submitted.
        settled: Waits until the system says that so many restarts are over.
        listed: Returns the pods.
        in_place: Whether the pods are to be the same: one that was replaced is no figure of it.
    """
    programs, found = Processes(number), list[dict[str, float]]()
    await programs.run(attempts[0], pods, PATIENCE)
    started = time.monotonic() - begun
    await settled(0)
    for restart, attempt in enumerate(attempts[1:], start=1):
        old, kept = set(programs.pids()), await _uids(listed)
        killed = time.monotonic()
        await asyncio.to_thread(programs.kill)
        await programs.run(attempt, pods, PATIENCE, without=old)
        whole = time.monotonic() - killed
        await settled(restart)
        same = len(kept & await _uids(listed))
        missing = pods - same if in_place else same
        found.append({"start_s": started, "whole_s": whole, "pods_kept": float(same), "missing": float(missing)})
    return found


async def _uids(listed: Callable[[], Awaitable[list[Json]]]) -> set[str]:
    return {pod["metadata"]["uid"] for pod in await listed()}


def _document(system: str, number: int, pods: int, restarts: int) -> Json:
    if system == GANG:
        return _gang(number, pods, restarts)
    document = in_place("train", number, pods, maxRestarts=restarts)
    if system == IN_PLACE:
        _use_image(pod_of(document))
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


def _use_image(spec: Json) -> None:
    """Have an in-place restart agent be that of its image, which is as new as the bench's own stack."""
    (agent,) = spec["initContainers"]
    agent["command"] = ["holdfast", "agent", "in-place"]
    del agent["env"], agent["volumeMounts"], spec["volumes"]


def _gang(number: int, pods: int, restarts: int) -> Json:
    """Return a gang of the same programs, each started by the agent of its pod."""
    limits = {"min": pods, "max": pods, "maxRestarts": restarts, "joinTimeout": "20m"}
    document = elastic.document("", limits)
    spec = document["spec"]["components"][0]["template"]["spec"]["template"]["spec"]
    (agent,) = spec["containers"]
    agent["command"] = ["holdfast", "agent", "--", *_sleep(number)]
    return document


def _sleep(number: int) -> list[str]:
    """Return the command of a program that knows no attempt."""
    return ["sh", "-c", f"exec sleep {number}0"]
