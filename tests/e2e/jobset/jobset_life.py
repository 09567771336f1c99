"""What the tests of JobSets' lives do to their Jobs and read of them: exit codes in, the Job controller's words out."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final

import yaml

from holdfast import formats
from holdfast.activities.kube.client import NotFound
from holdfast.model import Status
from tests.e2e.ground.site import until
from tests.e2e.ground.space import Handle, Space
from tests.e2e.peers.jobsets import P, replicated

Json = dict[str, Any]
STORIES: Final = Path(__file__).parents[3] / "examples" / "jobset"
JOB_CONTROLLER: Final = "system:serviceaccount:kube-system:job-controller"
INDEX: Final = "batch.kubernetes.io/job-completion-index"


def story(name: str) -> Json:
    """Return one of the published examples, as its file has it."""
    return yaml.safe_load((STORIES / f"{name}.yaml").read_text())


def once(name: str, pods: int = 1, **more: Any) -> Json:
    """Return a replicated job whose Jobs give up with their first failed pod."""
    found = replicated(name, pods=pods, job={"backoffLimit": 0}, **more)
    found["template"]["spec"]["template"]["spec"]["restartPolicy"] = "Never"
    return found


async def reach(space: Space, handle: Handle, phase: str, attempt: int | None = None) -> Status:
    """Wait until a workload is in a phase (of an attempt), however busy the machine is."""
    return await space.reach(handle, phase, attempt, seconds=300)


async def jobs(space: Space, jobset: str) -> dict[str, Json]:
    """Return the Jobs of a JobSet that are there, by name."""
    labels = f"{P}jobset-name={jobset}"
    return {
        one["metadata"]["name"]: one for one in await space.site.objects("batch/v1", "Job", space.namespace, labels)
    }


async def _running(space: Space, job: str, index: int) -> str:
    """Wait until the pod of a Job and an index runs, and return its name."""
    labels = f"batch.kubernetes.io/job-name={job},{INDEX}={index}"

    async def running() -> bool:
        found = await space.site.objects("v1", "Pod", space.namespace, labels)
        return [one["status"].get("phase") for one in found] == ["Running"]

    await until(running, 300, f"the pod of {job} with index {index} runs")
    (pod,) = await space.site.objects("v1", "Pod", space.namespace, labels)
    return pod["metadata"]["name"]


async def _end(space: Space, pod: str, code: int) -> None:
    steer = {"kwok_fail": "0s", "kwok_exit_code": str(code)} if code else {"kwok_complete": "0s"}
    await space.site.annotate("Pod", pod, space.namespace, **steer)


async def end_pod(space: Space, job: str, code: int, index: int = 0) -> None:
    """Have the running pod of a Job (and an index) end with an exit code."""
    await _end(space, await _running(space, job, index), code)


async def end_pods(space: Space, code: int, *ends: tuple[str, int]) -> None:
    """Have several pods end at once, each told by its Job and index; the first may have all others deleted."""
    pods = await asyncio.gather(*(_running(space, job, index) for job, index in ends))
    ended = await asyncio.gather(*(_end(space, pod, code) for pod in pods), return_exceptions=True)
    for one in ended:
        if isinstance(one, BaseException) and not isinstance(one, NotFound):
            raise one


async def has_failed(space: Space, job: str) -> None:
    """Wait until the Job controller has called a Job failed."""

    async def failed() -> bool:
        found = await space.site.kube.get("batch/v1", "Job", job, space.namespace)
        return bool(_reasons(found))

    await until(failed, 300, f"Job {job} has failed")


async def told(space: Space, handle: Handle, document: Json) -> Json:
    """Return the status as a user of JobSets is told it."""
    found = formats.source_form(space.site.read(document, space.namespace), await space.site.status(handle))
    assert found is not None
    return found["status"]


async def runs(space: Space, handle: Handle, document: Json, **ready: int) -> None:
    """Wait until so many Jobs of each replicated job are told ready."""

    async def all_ready() -> bool:
        status = await told(space, handle, document)
        return {one["name"]: one["ready"] for one in status["replicatedJobsStatus"]} == ready

    await until(all_ready, 300, f"{ready} are told ready")


def ended(status: Json) -> tuple[str, str]:
    """Return reason and message of the condition with which a JobSet ended."""
    (found,) = [one for one in status["conditions"] if one["type"] in {"Failed", "Completed"}]
    assert (found["status"], status["terminalState"]) == ("True", found["type"])
    return found["reason"], found["message"]


def counted(status: Json) -> tuple[int, int]:
    """Return how often a JobSet was restarted, and how many of those counted towards the maximum."""
    return status["restarts"], status.get("restartsCountTowardsMax", 0)


def why(status: Status) -> list[str]:
    """Return what each restart was told to be for."""
    return [one.message for one in status.causes if one.reason == "Resetting"]


async def reasons(space: Space, attempts: int) -> list[list[str]]:
    """Return for what reasons the Job controller, and nobody else, has called Jobs of each attempt failed."""
    await space.truth.settle()
    judges = {
        one.user
        for one in space.truth.requests()
        if (one.resource, one.subresource) == ("jobs", "status") and one.body.get("status", {}).get("conditions")
    }
    assert judges <= {JOB_CONTROLLER}, f"a Job's conditions were written by {judges}"
    lives = [space.truth.of(attempt, "Job") for attempt in range(1, attempts + 1)]
    return [sorted(reason for life in of_one for reason in _reasons(life.object)) for of_one in lives]


def _reasons(job: Json) -> list[str]:
    conditions = job.get("status", {}).get("conditions", ())
    return [one["reason"] for one in conditions if (one["type"], one["status"]) == ("Failed", "True")]
