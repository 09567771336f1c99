"""The barrier's call: which pods it waits for where some of them have already ended (row J24)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio.testing import ActivityEnvironment

from holdfast import names
from holdfast.activities.kube.batch import Gathered
from holdfast.activities.kube.client import Kube
from holdfast.activities.operations.barrier import _Refused, _until_begun
from holdfast.activities.site.site import Pulse, Site
from holdfast.model import Phase, Reason, Report
from holdfast.model.calls.barrier import BarrierInput
from holdfast.model.calls.cluster import PlannedComponent, Target
from tests.activities.facts.test_barrier import RUNNING, pod

ROW = pytest.mark.row("J24", level="pure")
TARGET = Target(
    cluster="c", namespace="ns", name="w", workload_uid="w", workflow_id="workload/c/ns/w", shard=0, run_as="runner"
)


@dataclass
class Pods:
    """The pods of one attempt; whose programs may start, starts them, and some of them end at once."""

    pods: dict[str, dict[str, Any]]
    brief: frozenset[str] = frozenset()
    """Those that succeed as soon as they have begun, before they are read again."""
    lifted: list[str] = field(default_factory=list)

    async def find(self, api_version: str, kind: str, name: str, namespace: str = "") -> dict[str, Any] | None:
        return {"metadata": {"name": name, "uid": "owner"}} if kind == names.ATTEMPT_KIND else None

    async def list(self, *_: Any, keep: Callable[[Any], Any], **__: Any) -> dict[str, Any]:
        return {"items": [kept for kept in map(keep, self.pods.values()) if kept is not None]}

    async def patch(self, _: str, __: str, name: str, ___: str, *, patch: dict[str, Any], **____: Any) -> None:
        one = self.pods[name]
        one["metadata"]["annotations"] |= patch["metadata"]["annotations"]
        if names.ANNOTATION_IN_PLACE_ATTEMPT in patch["metadata"]["annotations"]:
            self.lifted.append(name)
            one["status"]["initContainerStatuses"][0]["started"] = True
            one["status"]["phase"] = "Succeeded" if name in self.brief else "Running"


def named(component: str, index: int, **where: Any) -> dict[str, Any]:
    """Return a pod of a component; by default it is new, and waits at the barrier of attempt 0."""
    raw = pod(**{"request": 0, **where})
    raw["metadata"] |= {
        "name": f"{component}-{index}",
        "uid": f"{component}-{index}",
        "resourceVersion": "1",
        "labels": {names.LABEL_WORKLOAD_UID: "w", names.LABEL_ATTEMPT: "1", names.LABEL_COMPONENT: component},
    }
    return raw


def done(component: str, index: int, attempt: int = 0) -> dict[str, Any]:
    return named(component, index, request=attempt, attempt=attempt, seen=0, agent={}, worker={}, phase="Succeeded")


async def begun(cluster: Pods, grace: float | None = None, in_place: int = 0, **pods: int) -> list[str]:
    """Run the call for components with so many pods each; return those whose programs it let start, in order."""
    given = BarrierInput(
        target=TARGET,
        attempt=1,
        owner_uid="owner",
        plan=tuple(
            PlannedComponent(name=name, api_version="batch/v1", kind="Job", object_name=name, expected_pods=count)
            for name, count in pods.items()
        ),
        in_place=in_place,
        grace=grace,
        report=Report(sequence=1, phase=Phase.RUNNING, reason=Reason.SUBMITTED),
    )
    site = SimpleNamespace(
        kube=cluster,
        gathered=Gathered(cast("Kube", cluster)),
        installation="tests",
        data=None,
        namespaces=(),
        permits=SimpleNamespace(has=lambda *_: True),
        grace=lambda seconds: seconds,
        blind=lambda earlier=(): tuple(earlier),
    )

    async def run() -> None:
        await _until_begun(cast("Site", site), given, Pulse())

    await ActivityEnvironment().run(run)
    return cluster.lifted


def there(*pods: dict[str, Any], brief: frozenset[str] = frozenset()) -> Pods:
    return Pods({one["metadata"]["name"]: one for one in pods}, brief)


@ROW
@pytest.mark.timeout(20)
async def test_J24_a_pod_that_has_succeeded_is_not_awaited():
    cluster = there(done("worker", 0), named("worker", 1))
    assert await begun(cluster, worker=2) == ["worker-1"]


@ROW
@pytest.mark.timeout(20)
async def test_J24_pods_of_what_is_complete_do_not_stand_for_others():
    running = named("driver", 0, attempt=0, seen=0, worker=RUNNING, started=True, phase="Running")
    cluster = there(running, done("driver", 1), named("worker", 0), named("worker", 1))
    assert await begun(cluster, worker=2) == ["worker-0", "worker-1"]


@ROW
@pytest.mark.timeout(20)
@pytest.mark.parametrize("grace", [None, 30.0])
async def test_J24_a_program_that_ends_before_others_are_seen_to_have_begun_holds_up_none(grace: float | None):
    cluster = there(named("worker", 0), named("worker", 1), brief=frozenset({"worker-0"}))
    assert await begun(cluster, grace, worker=2) == ["worker-0", "worker-1"]


@ROW
@pytest.mark.timeout(20)
async def test_J24_once_all_have_succeeded_nothing_is_left_to_start():
    assert await begun(there(done("worker", 0), done("worker", 1)), worker=2) == []


@ROW
@pytest.mark.timeout(20)
@pytest.mark.parametrize("grace", [None, 30.0])
async def test_J24_others_do_not_restart_without_a_pod_that_succeeded_before(grace: float | None):
    back = named("worker", 1, request=1, attempt=0, seen=0, restarts=1)
    cluster = there(done("worker", 0), back)
    with pytest.raises(_Refused, match=r"^pod worker-0 succeeded before in-place restart attempt 1$"):
        await begun(cluster, grace, 1, worker=2)
    assert not cluster.lifted


@ROW
@pytest.mark.row("P2", level="pure")
@pytest.mark.timeout(20)
async def test_J24_the_step_of_dead_programs_is_gone_once_others_may_start():
    back = [named("worker", index, request=1, attempt=0, seen=0, restarts=1) for index in range(2)]
    for one in back:
        one["metadata"]["annotations"][names.ANNOTATION_STEP] = '{"step": 1000}'
    cluster = there(*back)
    assert await begun(cluster, 30.0, 1, worker=2) == ["worker-0", "worker-1"]
    assert [one["metadata"]["annotations"][names.ANNOTATION_STEP] for one in cluster.pods.values()] == [None, None]


@ROW
@pytest.mark.timeout(20)
async def test_J24_a_pod_that_is_gone_is_still_missed():
    with pytest.raises(_Refused, match=r"^1 pod is gone$"):
        await begun(there(done("worker", 0), named("worker", 1)), 30.0, worker=3)


@dataclass
class Replaced(Pods):
    """Of which one pod is deleted as soon as all programs may start; its Job makes another, if it has one."""

    remade: bool = True

    async def patch(self, *where: str, **options: Any) -> None:
        await super().patch(*where, **options)
        if len(self.lifted) == len(self.pods) and "worker-0" in self.pods:
            del self.pods["worker-0"]
            self.pods |= {"worker-9": named("worker", 9)} if self.remade else {}


@ROW
@pytest.mark.timeout(20)
@pytest.mark.parametrize("remade", [True, False])
async def test_J24_a_pod_that_is_made_again_does_not_start_beside_those_that_have_begun(remade: bool):
    pods = {f"worker-{index}": named("worker", index) for index in range(3)}
    assert await begun(Replaced(pods, remade=remade), worker=3) == ["worker-0", "worker-1", "worker-2"]
