"""A JobSet's case lived under a controller, whichever it is: Jobs and pods are touched, and its end is read."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from holdfast import names
from holdfast.activities.kube.client import Conflict, Kube, NotFound, Unreachable
from tests.e2e.peers.jobset_cases import CODE, CODE_EXIT, COMPLETES, DEADLINE, Case, Event, Step
from tests.e2e.peers.jobsets import P

Json = dict[str, Any]
ATTEMPT = f"{P}restart-attempt"
JOB_ATTEMPT = f"{P}job-restart-attempt"
SECONDS = 450.0
"""How long anything may take on a machine that others use too."""
NOTES = "holdfast.dev/kwok-"


class Differs(Exception):
    """It went another way than was written."""


@dataclass
class Sight:
    """All Jobs, pods and heads of one namespace, looked at again and again, once for all cases."""

    kube: Kube
    namespace: str
    head: tuple[str, str]
    """Version and kind of what has a JobSet's status."""
    heads: dict[str, Json] = field(default_factory=dict[str, Json])
    jobs: dict[str, Json] = field(default_factory=dict[str, Json])
    pods: dict[str, list[Json]] = field(default_factory=dict[str, list[Json]])
    """By the Job's name."""
    looked: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def look(self) -> None:
        found = [
            (await self.kube.list(*what, self.namespace))["items"] for what in (("v1", "Pod"), ("batch/v1", "Job"))
        ]
        self.pods = {}
        for pod in found[0]:
            self.pods.setdefault(pod["metadata"]["labels"].get("job-name", ""), []).append(pod)
        self.jobs = {one["metadata"]["name"]: one for one in found[1]}
        listed = (await self.kube.list(*self.head, self.namespace))["items"]
        self.heads = {one["metadata"]["name"]: one for one in listed}
        async with self.looked:
            self.looked.notify_all()

    async def until(self, check: Callable[[], bool], what: str) -> None:
        """Wait until a look shows something.

        Raises:
            Differs: if none does.
        """
        try:
            async with asyncio.timeout(SECONDS), self.looked:
                await self.looked.wait_for(check)
        except TimeoutError:
            raise Differs(f"not within {SECONDS:g} s: {what}") from None

    # --- what is read

    def over(self, name: str) -> bool:
        """Whether a JobSet has come to its end, by what its controller says."""
        status = self.heads.get(name, {}).get("status", {})
        return bool(status.get("terminalState")) or status.get("phase") in {"Succeeded", "Failed"}

    def ended(self, job: str) -> bool:
        """Whether a Job says that it has ended."""
        status = self.jobs.get(job, {}).get("status", {})
        return any(
            one["type"] in {"Complete", "Failed"} for one in status.get("conditions", ()) if one["status"] == "True"
        )

    def runs(self, case: Case, attempt: int) -> bool:
        """Whether all Jobs of an attempt run, and their controllers have taken note of it."""
        told = self.heads.get(case.name, {}).get("status", {}).get("conditions", ())
        if any(one["type"] == "StartupPolicyInProgress" and one["status"] == "True" for one in told):
            return False
        for job, pods in case.pods.items():
            found = self.jobs.get(f"{case.name}-{job}")
            if found is None or found["metadata"]["labels"].get(ATTEMPT) != str(attempt):
                return False
            if len(self.running(f"{case.name}-{job}", attempt)) < pods or found["status"].get("ready") != pods:
                return False
        return True

    def runs_again(self, case: Case, job: str, attempt: int, number: int) -> bool:
        """Whether a Job runs that was restarted alone so often."""
        name = f"{case.name}-{job}"
        found = self.jobs.get(name)
        if found is None or found["metadata"]["labels"].get(JOB_ATTEMPT) != str(number):
            return False
        running = len(self.running(name, attempt))
        return running >= case.pods[job] and found["status"].get("ready") == case.pods[job]

    def shown(self, case: Case) -> str:
        """Say how a case's Jobs stand, and what its controller says of it."""
        jobs = {
            name: (self.jobs[name]["metadata"]["labels"].get(ATTEMPT), self.jobs[name].get("status"))
            for name in (f"{case.name}-{job}" for job in case.pods)
            if name in self.jobs
        }
        return f"{self.heads.get(case.name, {}).get('status')}, {jobs}"

    def running(self, job: str, attempt: int) -> list[Json]:
        """Return the pods of a Job that run."""
        alone = self.jobs.get(job, {}).get("metadata", {}).get("labels", {}).get(JOB_ATTEMPT)
        return [
            pod
            for pod in self.pods.get(job, ())
            if pod["status"].get("phase") == "Running"
            and "deletionTimestamp" not in pod["metadata"]
            and pod["metadata"]["labels"].get(ATTEMPT) == str(attempt)
            and pod["metadata"]["labels"].get(JOB_ATTEMPT) == alone
        ]


@asynccontextmanager
async def looking(kube: Kube, namespace: str, head: tuple[str, str]) -> AsyncIterator[Sight]:
    """Look at a namespace for as long as cases are lived in it."""
    sight = Sight(kube, namespace, head)

    async def forever() -> None:
        while True:
            with contextlib.suppress(Unreachable):  # On a busy machine an answer may take too long.
                await sight.look()
            await asyncio.sleep(0.6)

    task = asyncio.create_task(forever())
    try:
        yield sight
        assert not task.done(), task.result()
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


PUBLISHED = ("jobset.x-k8s.io/v1alpha2", "JobSet")
OURS = (names.API_VERSION, names.ANCHOR_KIND)


async def live(sight: Sight, case: Case) -> None:
    """Live a case to its end.

    Raises:
        Differs: if it goes another way than was written.
    """
    begun, alone = -1, Counter[str]()
    for step in case.steps:
        if step.attempt != begun:
            begun = step.attempt
            try:
                await sight.until(lambda number=begun: sight.runs(case, number), f"all Jobs of attempt {begun} run")
            except Differs as late:
                raise Differs(f"{late}: {sight.shown(case)}") from None
        for event in step.events:
            await _befalls(sight, case, step, event)
        last = f"{case.name}-{step.events[-1].job}"
        if step.then == "ends":
            await sight.until(lambda: sight.over(case.name), f"it has ended after {step.events[0]}")
        elif step.then == "restarts the Job":
            (event,) = step.events
            alone[event.job] += 1
            number, attempt = alone[event.job], step.attempt
            try:
                await sight.until(
                    lambda job=event.job, attempt=attempt, number=number: sight.runs_again(case, job, attempt, number),
                    f"{last} runs again, for the {number}. time",
                )
            except Differs as late:
                raise Differs(f"{late}: {sight.shown(case)}") from None
        elif step.then == "goes on":
            await sight.until(lambda last=last: sight.ended(last), f"{last} has completed")
            if sight.over(case.name):
                raise Differs(f"it has ended after {step.events[0]}")


async def _befalls(sight: Sight, case: Case, step: Step, event: Event) -> None:
    name = f"{case.name}-{event.job}"
    # The first of two may already have begun the restart that takes this one with it.
    with contextlib.suppress(NotFound, Conflict):
        if event.fate == DEADLINE:
            await _patch(sight, "batch/v1", sight.jobs[name], {"spec": {"activeDeadlineSeconds": 1}})
            return
        pods = sight.running(name, step.attempt)
        exit_code = str(CODE_EXIT if event.fate == CODE else 1)
        notes = {"complete": "0s"} if event.fate == COMPLETES else {"exit-code": exit_code, "fail": "0s"}
        notes = {f"{NOTES}{key}": value for key, value in notes.items()}
        for pod in pods if event.fate == COMPLETES else pods[:1]:
            await _patch(sight, "v1", pod, {"metadata": {"annotations": notes}})


async def _patch(sight: Sight, api_version: str, found: Json, patch: Json) -> None:
    kind = "Job" if api_version == "batch/v1" else "Pod"
    metadata = found["metadata"]
    await sight.kube.patch(api_version, kind, metadata["name"], sight.namespace, uid=metadata["uid"], patch=patch)


def labels(sight: Sight, case: Case) -> dict[str, dict[str, str]]:
    """Return the published labels of the Jobs that ended by themselves, which stay; those of the owner's uid aside.

    So is the count of a Job's own restarts where no rule restarts single Jobs: Holdfast leaves it out (record 0077).
    """
    found: dict[str, dict[str, str]] = {}
    for job in case.finished:
        given = sight.jobs.get(f"{case.name}-{job}", {}).get("metadata", {}).get("labels", {"gone": "yes"})
        own = {f"{P}jobset-uid", f"{P}job-key", *(() if case.is_by_job else (JOB_ATTEMPT,))}
        found[job] = {key: value for key, value in given.items() if key.startswith(P) and key not in own}
    return found
