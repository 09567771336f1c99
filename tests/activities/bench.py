"""A workload on a test's bench: its inputs, and its activities run in Temporal's activity environment."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Self, TypeVar

from temporalio.testing import ActivityEnvironment

from holdfast import names
from holdfast.activities.cluster import ClusterActivities
from holdfast.activities.kube.client import Kube, Object
from holdfast.model import Component, Limits, Phase, PodSet, Reason, Report, StatusRule
from holdfast.model.calls.cluster import (
    Cleared,
    ClearInput,
    Created,
    CreateInput,
    Observation,
    ObserveInput,
    Parked,
    ParkInput,
    Prepared,
    PrepareInput,
    RehearseInput,
    Removed,
    RemoveInput,
    Replaced,
    ReplaceInput,
    ReportInput,
    Target,
    Unparked,
    UnparkInput,
    planned,
)

T = TypeVar("T")
INSTALLATION = "tests"
RENDEZVOUS = "http://rendezvous.example:8086"
"""Where pods of gangs would find theirs."""
MANAGED_BY = "holdfast.dev/nobody"
"""What the bench's custom resources say in `managedBy`: no front door begins them."""
ROLE = ("rbac.authorization.k8s.io/v1", "Role", names.RUN_AS_DEFAULT)
"""What the account has that workloads run as."""
AMPLE = 45.0
"""Seconds to wait for what must come; on a stack whose controllers have just begun it takes the longest."""


class Bench:
    """One workload of one namespace."""

    def __init__(
        self,
        kube: Kube,
        admin: Kube,
        namespace: str,
        cluster_uid: str,
        name: str = "train",
        served: tuple[str, ...] = (),
    ) -> None:
        self.kube = kube
        self.admin = admin
        self.namespace = namespace
        self.served = served
        """The setting `namespaces` of the worker."""
        self.activities = ClusterActivities(
            kube,
            "test",
            cluster_uid,
            INSTALLATION,
            Limits(),
            rendezvous=RENDEZVOUS,
            namespaces=served,
            managed_by=MANAGED_BY,
        )
        self.target = Target(
            cluster="test",
            cluster_uid=cluster_uid,
            namespace=namespace,
            name=name,
            workload_uid=f"uid-of-{name}",
            workflow_id=f"workload/test/{namespace}/{name}",
            shard=3,
            run_as=names.RUN_AS_DEFAULT,
            source_kind="List",
        )
        self.attempt = 1
        self.owner_uid = ""
        self.objects: tuple[Any, ...] = ()
        self.components: tuple[Component, ...] = (job(),)
        self.heartbeats: list[dict[str, Any]] = []
        self.heartbeat_timeout: timedelta | None = None
        self.late = timedelta(0)
        """How long Temporal has waited for the worker to begin an activity."""
        self.environment: ActivityEnvironment | None = None
        self._sequence = 0

    @classmethod
    async def make(cls, kube: Kube, admin: Kube, namespace: str, served: tuple[str, ...] = ()) -> Self:
        system = await admin.get("v1", "Namespace", "kube-system")
        return cls(kube, admin, namespace, system["metadata"]["uid"], served=served)

    def report(self, **changes: Any) -> Report:
        self._sequence += 1
        given = {"sequence": self._sequence, "phase": Phase.RUNNING, "reason": Reason.SUBMITTED}
        return Report(**(given | changes))

    @property
    def plan(self) -> tuple[Any, ...]:
        return tuple(planned(one, self.target.workload_uid, self.attempt) for one in self.components)

    async def run(
        self,
        function: Callable[..., Awaitable[T]],
        given: Any,
        earlier: Sequence[dict[str, Any]] = (),
        tries: int = 1,
    ) -> T:
        environment = ActivityEnvironment()
        environment.info = dataclasses.replace(
            environment.info,
            heartbeat_details=list(earlier),
            heartbeat_timeout=self.heartbeat_timeout,
            started_time=datetime.now(UTC) - self.late,
            attempt=tries,
        )
        environment.on_heartbeat = lambda *details: self.heartbeats.append(details[0])
        self.environment = environment
        return await environment.run(function, given)

    async def prepare(self, tries: int = 1, **changes: Any) -> Prepared:
        given: dict[str, Any] = {
            "target": self.target,
            "attempt": self.attempt,
            "plan": self.plan,
            "spec_hash": "hash",
            "report": self.report(),
        }
        prepared = await self.run(self.activities.prepare, PrepareInput(**(given | changes)), tries=tries)
        self.owner_uid = prepared.owner_uid
        return prepared

    def creation(self, **changes: Any) -> CreateInput:
        given: dict[str, Any] = {
            "target": self.target,
            "attempt": self.attempt,
            "owner_uid": self.owner_uid,
            "components": self.components,
            "labels": {"team": "blue"},
            "patience": 2.0,
            "report": self.report(),
            "report_submitted": self.report(),
        }
        return CreateInput(**(given | changes))

    async def create(self, earlier: Sequence[dict[str, Any]] = (), tries: int = 1, **changes: Any) -> Created:
        created = await self.run(self.activities.create, self.creation(**changes), earlier, tries)
        self.objects = created.objects
        return created

    async def begin(self, tries: int = 1, **changes: Any) -> Prepared:
        """Prepare and create in one activity, which is given the components once, as by the workflow."""
        report = changes.pop("report", None) or self.report()
        to_check: dict[str, Any] = {}
        if self.attempt == 1:
            to_check = {"components": self.components, "labels": {"team": "blue"}}
            changes["components"] = ()
        create = self.creation(owner_uid="", report=report.model_copy(update={"repeats": True}), **changes)
        prepared = await self.prepare(tries, report=report, create=create, hands_over=True, **to_check)
        if prepared.created is not None:
            self.objects = prepared.created.objects
        return prepared

    async def replace(self, tries: int = 1, **changes: Any) -> Replaced:
        """Make the components again that `launches` names; without it all of them, for the first time."""
        launches: dict[str, int] = changes.pop("launches", {one.name: 1 for one in self.components})
        given: dict[str, Any] = {
            "target": self.target,
            "attempt": self.attempt,
            "owner_uid": self.owner_uid,
            "components": tuple(one for one in self.components if one.name in launches),
            "launches": launches,
            "labels": {"team": "blue"},
            "patience": 2.0,
            "grace": 20.0,
            "report": self.report(),
            "report_done": self.report(),
        }
        return await self.run(self.activities.replace, ReplaceInput(**(given | changes)), tries=tries)

    async def clear(self, tries: int = 1, **changes: Any) -> Cleared:
        given: dict[str, Any] = {
            "target": self.target,
            "attempt": self.attempt,
            "owner_uid": self.owner_uid,
            "plan": self.plan,
            "grace": 20.0,
            "report": self.report(),
            "report_done": self.report(),
        }
        return await self.run(self.activities.clear, ClearInput(**(given | changes)), tries=tries)

    async def park(self, turn: int = 1, tries: int = 1, **changes: Any) -> Parked:
        given: dict[str, Any] = {
            "target": self.target,
            "attempt": self.attempt,
            "owner_uid": self.owner_uid,
            "plan": self.plan,
            "turn": turn,
            "grace": 20.0,
            "report": self.report(),
            "report_done": self.report(),
        }
        return await self.run(self.activities.park, ParkInput(**(given | changes)), tries=tries)

    async def unpark(self, turn: int = 2, tries: int = 1, **changes: Any) -> Unparked:
        given: dict[str, Any] = {
            "target": self.target,
            "attempt": self.attempt,
            "owner_uid": self.owner_uid,
            "components": tuple(one for one in self.components if one.expected_pods),
            "labels": {"team": "blue"},
            "turn": turn,
            "report": self.report(),
            "report_done": self.report(),
        }
        return await self.run(self.activities.unpark, UnparkInput(**(given | changes)), tries=tries)

    async def rehearse(self, *components: Component, **changes: Any) -> str:
        """Ask whether these could be made again, all others being there; return why not."""
        given: dict[str, Any] = {
            "target": self.target,
            "attempt": self.attempt,
            "plan": self.plan,
            "components": components,
            "standing": True,
            "labels": {"team": "blue"},
        }
        return (await self.run(self.activities.rehearse, RehearseInput(**(given | changes)))).refusal

    async def observe(self, **changes: Any) -> Observation:
        given: dict[str, Any] = {
            "target": self.target,
            "attempt": self.attempt,
            "owner_uid": self.owner_uid,
            "plan": self.plan,
            "report": self.report(),
        }
        return await self.run(self.activities.observe, ObserveInput(**(given | changes)))

    def removal(self, seconds: float = AMPLE, **changes: Any) -> RemoveInput:
        given: dict[str, Any] = {
            "target": self.target,
            "attempt": self.attempt,
            "owner_uid": self.owner_uid,
            "plan": self.plan,
            "objects": self.objects,
            "until": datetime.now(UTC) + timedelta(seconds=seconds),
            "report": self.report(reason=Reason.RESETTING),
            "report_gone": self.report(reason=Reason.DELETION_COMPLETE),
        }
        return RemoveInput(**(given | changes))

    async def remove(self, seconds: float = AMPLE, **changes: Any) -> Removed:
        return await self.run(self.activities.remove, self.removal(seconds, **changes))

    async def force_remove(self, seconds: float = AMPLE, **changes: Any) -> Removed:
        return await self.run(self.activities.force_remove, self.removal(seconds, **changes))

    async def send_report(self, report: Report) -> None:
        await self.run(self.activities.report, ReportInput(target=self.target, report=report))

    async def launch(self) -> None:
        """Prepare and create, and wait until the pods run."""
        await self.prepare()
        created = await self.create()
        assert created.failure is None
        expected = sum(one.expected_pods for one in self.components)
        await eventually(lambda: self._ready(expected))

    async def _ready(self, expected: int) -> bool:
        seen = await self.observe()
        return seen.pods.running + seen.pods.succeeded >= expected

    async def pods(self) -> list[Object]:
        labels = f"{names.LABEL_WORKLOAD_UID}={self.target.workload_uid}"
        return (await self.admin.list("v1", "Pod", self.namespace, labels=labels))["items"]

    async def anchor(self) -> Object | None:
        return await self.admin.find(names.API_VERSION, names.ANCHOR_KIND, self.target.name, self.namespace)

    async def owner(self) -> Object | None:
        name = names.attempt_name(self.target.name, self.attempt)
        return await self.admin.find(names.API_VERSION, names.ATTEMPT_KIND, name, self.namespace)

    async def may_not(self, verb: str, api_version: str, kind: str) -> Object:
        """Take a verb away from the workload's account, wait until that is so, and return its role as it was."""
        account = f"system:serviceaccount:{self.namespace}:{names.RUN_AS_DEFAULT}"
        role = await self.admin.get(*ROLE, self.namespace)
        rules = [{**one, "verbs": [each for each in one["verbs"] if each != verb]} for one in role["rules"]]
        await self.admin.patch(*ROLE, self.namespace, uid=role["metadata"]["uid"], patch={"rules": rules})
        resource = await self.kube.resource(api_version, kind)

        async def taken() -> bool:
            return not (await self.kube.allowed(verb, resource, self.namespace, impersonate=account))[0]

        await eventually(taken)  # The authorizer reads it a moment later.
        return role

    async def events(self) -> list[Object]:
        items = (await self.admin.list("v1", "Event", self.namespace))["items"]
        return [one for one in items if one["involvedObject"]["kind"] == names.ANCHOR_KIND]


def asked_of(bench: Bench) -> list[str]:
    """Record what the worker asks of the API server from now on: the verb, and the last part of the path."""
    send, asked = bench.kube._request, list[str]()

    async def request(method: str, path: str, **options: Any) -> Object:
        dry = "dry " if (options.get("query") or {}).get("dryRun") else ""
        asked.append(f"{dry}{method} {path.rpartition('/')[2]}")
        return await send(method, path, **options)

    bench.kube._request = request  # type: ignore[method-assign]
    return asked


async def eventually(probe: Callable[[], Awaitable[Any]], seconds: float = AMPLE) -> Any:
    """Return the first answer that is true."""
    deadline = asyncio.get_running_loop().time() + seconds
    while True:
        answer = await probe()
        if answer:
            return answer
        assert asyncio.get_running_loop().time() < deadline, f"not within {seconds} s: {answer!r}"
        await asyncio.sleep(0.05)


def pod_spec(**more: Any) -> dict[str, Any]:
    return {
        "containers": [{"name": "main", "image": "busybox", "command": ["sleep", "1"]}],
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        **more,
    }


def job(name: str = "work", pods: int = 2, metadata: dict[str, Any] | None = None, **of_pods: Any) -> Component:
    template = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, **(metadata or {})},
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "backoffLimit": 3,
            "template": {"metadata": of_pods, "spec": pod_spec()},
        },
    }
    return Component(
        name=name,
        template=template,
        pod_sets=(PodSet(path="template.spec.template", replicas=pods),),
        status=StatusRule(complete=("Complete",), failed=("Failed",)),
    )


def pod(name: str = "solo", **metadata: Any) -> Component:
    template = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **metadata}, "spec": pod_spec()}
    return Component(name=name, template=template, pod_sets=(PodSet(path="template"),))


def deployment(name: str = "serve", pods: int = 2, **of_pods: Any) -> Component:
    labels = {"app": name, **of_pods.pop("labels", {})}
    template = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": pods,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": labels, **of_pods},
                "spec": {**pod_spec(), "restartPolicy": "Always"},
            },
        },
    }
    return Component(name=name, template=template, pod_sets=(PodSet(path="template.spec.template", replicas=pods),))


def config(name: str = "settings", metadata: dict[str, Any] | None = None) -> Component:
    template = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, **(metadata or {})},
        "data": {"a": "1"},
    }
    return Component(name=name, template=template)


def spoiled(component: Component, **spec: Any) -> Component:
    """Return a component whose `spec` has other fields."""
    template = component.model_dump()["template"]
    template["spec"].update(spec)
    return component.model_copy(update={"template": template})


def service(name: str = "front") -> Component:
    template = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"selector": {"app": "serve"}, "ports": [{"port": 80}]},
    }
    return Component(name=name, template=template)
