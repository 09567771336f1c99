"""A simulation's script done for real: pods fail on their nodes, quotas refuse, people signal, all times scaled alike.

What a script counts from an attempt's mark is counted here from when the workflow itself wrote that mark down.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from temporalio.client import WorkflowUpdateFailedError
from temporalio.service import RPCError

from holdfast import names
from holdfast.formats.pods import pod_template
from holdfast.model import Bounded, Policy, Reason, Status, Timings, Workload, format_duration
from holdfast.policy.verdicts.walltime import WalltimeExtension
from holdfast.simulation import Script
from holdfast.simulation.requests import request
from holdfast.simulation.script.events import (
    Asked,
    Blind,
    Delete,
    Extend,
    Fail,
    Happening,
    LaunchFails,
    PodsRefused,
    Preempt,
    Refuse,
    Requeue,
    Stuck,
    Succeed,
    Unschedulable,
)
from holdfast.simulation.script.read import Event as Scripted
from tests.e2e.ground.kubelets import init_exits, kubelets
from tests.e2e.ground.proxy import Proxy
from tests.e2e.ground.space import FOREIGN_FINALIZER, PENDING, STUBBORN, Handle, Space
from tests.quotas import limited
from tests.simulation.cases import in_store

TTL_FACTOR = 20.0 * 4_000
"""The success TTL, the only wait of days, has its own: seven days are eight seconds."""
OWN_NODE = "holdfast.dev/simulated-node"


def scaled(policy: Policy, factor: float) -> Policy:
    """Return the policy with all its waits divided."""
    waits = {name: getattr(policy.timings, name) for name in Timings.model_fields}
    divided = {
        name: span / (TTL_FACTOR if name == "success_ttl" else factor)
        for name, span in waits.items()
        if span is not None
    }
    return policy.model_copy(update={"timings": Timings(**{**waits, **divided})})


@dataclass
class Enactment:
    """One script under way."""

    space: Space
    workload: Workload
    script: Script
    factor: float
    """All grace and pause periods, and all times of the script, are divided by it."""
    proxy: Proxy | None = None
    begun: datetime = field(default_factory=lambda: datetime.now(UTC))
    submitted: bool = False
    done: set[tuple[int, int, int]] = field(default_factory=set[tuple[int, int, int]])
    lifted: list[tuple[datetime | timedelta, Callable[[], Awaitable[None]]]] = field(default_factory=list[Any])
    """What is to be put right again, and when; or how long after the submission, which takes time here alone."""

    async def play(self, seconds: float) -> Status:
        """Submit the workload, let the script happen to it, and return the status it ended with."""
        for index, event in enumerate(self.script.events):
            if event.attempt is None and event.at == timedelta(0):
                await self._happens(event, (index, 0, 0))
        self.begun, self.submitted = datetime.now(UTC), True
        handle = await self.space.submit(self.workload)
        playing = asyncio.create_task(self._play(handle))
        ending = asyncio.create_task(self.space.ended(handle, seconds))
        try:
            await asyncio.wait({playing, ending}, return_when=asyncio.FIRST_COMPLETED)
            if not ending.done():
                playing.result()  # What could not be done is why there is no end.
            return await ending
        finally:
            for task in (playing, ending):
                task.cancel()
            await asyncio.gather(playing, ending, return_exceptions=True)

    async def _play(self, handle: Handle) -> None:
        while True:
            try:
                status = await self.space.site.status(handle)
            except RPCError:
                await asyncio.sleep(0.1)
                continue
            now = datetime.now(UTC)
            for due, key, event in in_store(self.script, status.causes, self.begun, self.factor):
                if due <= now and key not in self.done:
                    await self._happens(event, key, handle)
            for due, lift in list(self.lifted):
                if self._is_over(due, status, now):
                    self.lifted.remove((due, lift))
                    await lift()
            await asyncio.sleep(0.1)

    @staticmethod
    def _is_over(due: datetime | timedelta, status: Status, now: datetime) -> bool:
        if isinstance(due, datetime):
            return due <= now
        submitted = [cause.time for cause in status.causes if cause.reason is Reason.SUBMISSION_SUCCEEDED]
        return bool(submitted) and submitted[0] + due <= now

    # --- what happens

    async def _happens(self, event: Scripted, key: tuple[int, int, int], handle: Handle | None = None) -> None:
        self.done.add(key)
        name, what = event.what
        if isinstance(what, Asked):
            assert handle is not None
            await self._asks(handle, name, what)
        else:
            await self._cluster(what)

    async def _asks(self, handle: Handle, name: str, what: Asked) -> None:
        match what:
            case Extend(by=by):
                change = WalltimeExtension(by=format_duration(by / self.factor), note=what.note)
                with contextlib.suppress(WorkflowUpdateFailedError):  # A refusal is part of the script.
                    await handle.execute_update(names.UPDATE_EXTEND, change)
            case Requeue():
                status = await self.space.site.status(handle)
                await handle.signal(names.SIGNAL_REQUEUE, request(what, status.requeues))
            case Preempt(within=within) if within is not None:
                await handle.signal(names.SIGNAL_PREEMPT, args=[what.note, within.total_seconds() / self.factor])
            case _:
                await handle.signal(name, what.note)

    async def _cluster(self, what: Happening) -> None:
        match what:
            case Fail():
                for pod in (await self._running(what.component))[: self._count(what.pods)]:
                    more = {"kwok_pod_reason": what.pod_reason} if what.pod_reason else {}
                    await self._annotate(
                        pod, kwok_exit_code=str(what.exit_code), kwok_reason=what.reason, kwok_fail="0s", **more
                    )
            case Succeed():
                for pod in (await self._running(what.component))[: self._count(what.pods)]:
                    await self._annotate(pod, kwok_complete="0s")
            case Delete(component=component, pods=None):
                (found,) = [one for one in self.workload.components if self._is(one.name, component)]
                template = found.template
                await self.space.delete(template["apiVersion"], template["kind"], template["metadata"]["name"])
            case PodsRefused():
                await self._quota("pods", what.lasts)
            case Refuse():
                await self._quota("count/jobs.batch", what.lasts)
            case Stuck():
                await self._stuck(what)
            case LaunchFails(reason="InitError", lasts=None):
                pass  # From the beginning, by kubelets of the test's own.
            case Unschedulable():
                assert what.lasts is not None
                self._lift(what.lasts, self._open_node)
            case Blind():
                assert self.proxy is not None
                await self.proxy.refuse()
                self._lift(what.lasts, self.proxy.heal)
            case _:
                raise AssertionError(f"not a fault of the cluster: {what}")

    def _lift(self, lasts: timedelta | None, action: Callable[[], Awaitable[None]]) -> None:
        if lasts is not None:
            span = lasts / self.factor
            self.lifted.append((datetime.now(UTC) + span if self.submitted else span, action))

    @staticmethod
    def _count(pods: int | str) -> int | None:
        return pods if isinstance(pods, int) else None

    def _is(self, component: str, named: str | None) -> bool:
        (found,) = [one for one in self.workload.components if one.name == component]
        return named in {None, found.name, found.template["metadata"].get("name")}

    async def _pods(self, component: str | None) -> list[dict[str, Any]]:
        pods = sorted(await self.space.pods(self.workload.name), key=lambda pod: pod["metadata"]["name"])
        return [pod for pod in pods if self._is(pod["metadata"]["labels"][names.LABEL_COMPONENT], component)]

    async def _running(self, component: str | None) -> list[dict[str, Any]]:
        return [
            pod
            for pod in await self._pods(component)
            if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
        ]

    async def _annotate(self, pod: dict[str, Any], **annotations: str) -> None:
        await self.space.site.annotate("Pod", pod["metadata"]["name"], self.space.namespace, **annotations)

    async def _quota(self, resource: str, lasts: timedelta | None) -> None:
        await limited(self.space.site.kube, self.space.namespace, {resource: "0"}, name="none")
        self._lift(lasts, lambda: self.space.delete("v1", "ResourceQuota", "none"))

    async def _stuck(self, what: Stuck) -> None:
        pods = (await self._pods(what.component))[: self._count(what.pods)]
        for pod in pods:
            name = pod["metadata"]["name"]
            if not what.finalizer:
                await self.space.patch("v1", "Pod", name, {"metadata": {"labels": STUBBORN}})
                continue
            await self.space.finalize("v1", "Pod", name, FOREIGN_FINALIZER)
            self._lift(what.lasts, lambda name=name: self.space.finalize("v1", "Pod", name))

    # --- a node of its own

    async def _open_node(self) -> None:
        kube, name = self.space.site.kube, self.space.namespace
        found = await kube.get("v1", "Node", name)
        await kube.patch("v1", "Node", name, uid=found["metadata"]["uid"], patch={"spec": {"unschedulable": None}})


@asynccontextmanager
async def enacted(
    space: Space, workload: Workload, script: Script, factor: float, proxy: Proxy | None
) -> AsyncIterator[Enactment]:
    """Make ready what a script needs: a node of the workload's own, closed, where none is to be found for its pods."""
    workload = workload.model_copy(
        update={"policy": scaled(workload.policy, factor), "lifecycle": _shortened(workload, factor)}
    )
    failing = [event.launch_fails for event in script.events if event.launch_fails is not None]
    if failing:
        (one,) = failing
        async with kubelets(space, lambda pod: init_exits(pod, one.exit_code or 1)):
            yield Enactment(space, _pending(workload), script, factor, proxy)
        return
    if not any(isinstance(event.what[1], Unschedulable) for event in script.events):
        yield Enactment(space, workload, script, factor, proxy)
        return
    kube, name = space.site.kube, space.namespace
    labels = {OWN_NODE: name}
    taint = {"key": OWN_NODE, "value": name, "effect": "NoSchedule"}
    capacity = {"cpu": "8", "memory": "16Gi", "pods": "110"}
    await kube.create(
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels, "annotations": {"kwok.x-k8s.io/node": "fake"}},
            "spec": {"unschedulable": True, "taints": [taint]},
            "status": {"capacity": capacity, "allocatable": capacity},
        }
    )
    try:
        yield Enactment(space, _placed(workload, labels, taint), script, factor, proxy)
    finally:
        found = await kube.get("v1", "Node", name)
        await kube.delete("v1", "Node", name, uid=found["metadata"]["uid"])


def _shortened(workload: Workload, factor: float) -> Any:
    """Return how long the workload is to live, divided as its waits are."""
    life = workload.lifecycle
    if not isinstance(life, Bounded) or not life.walltime:
        return life
    most = life.extendable_to
    return Bounded(walltime=life.walltime / factor, extendable_to=most / factor if most is not None else None)


def _pending(workload: Workload) -> Workload:
    """Return the workload with pods that no fake kubelet starts."""
    copied = workload.model_copy(deep=True)
    for component in copied.components:
        for pod_set in component.pod_sets:
            metadata = pod_template(component.template, pod_set.path).setdefault("metadata", {})
            metadata.setdefault("labels", {}).update(PENDING)
    return copied


def _placed(workload: Workload, labels: dict[str, str], taint: dict[str, str]) -> Workload:
    """Return the workload of bare pods with one node alone for them."""
    components = [
        one.model_copy(
            update={
                "template": {
                    **one.template,
                    "spec": {
                        **one.template["spec"],
                        "nodeSelector": labels,
                        "tolerations": [{**taint, "operator": "Equal"}],
                    },
                }
            }
        )
        for one in workload.components
    ]
    return workload.with_components(components)
