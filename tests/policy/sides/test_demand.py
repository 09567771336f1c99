"""What a workload asks of its queue: the requests of its pods, as the scheduler counts them (row L9)."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.model import Component, State, Workload
from holdfast.model.entities.queue import Turn
from holdfast.model.spec.lifecycle import Reactive
from holdfast.policy.sides.demand import demand, of_pod
from holdfast.policy.status.queued import owed
from tests.policy.lives.life import START

pytestmark = pytest.mark.row("L9", level="pure")
MEBI = 1024**2 * 1000


def container(cpu: str = "", memory: str = "", **fields: Any) -> dict[str, Any]:
    requests = {key: value for key, value in (("cpu", cpu), ("memory", memory)) if value}
    return {"name": "c", "resources": {"requests": requests}, **fields}


def pod(*containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {"spec": {"containers": list(containers), **spec}}


def component(name: str, template: dict[str, Any], pods: int, **fields: Any) -> Component:
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"template": template}}
    sets = [{"path": "template.spec.template", "replicas": pods}]
    return Component.model_validate({"name": name, "template": job, "podSets": sets, **fields})


def spec(*components: Component, **fields: Any) -> Workload:
    return Workload(name="w", cluster="dev", components=components, **fields)


def test_containers_run_together() -> None:
    assert of_pod(pod(container("500m", "1Mi"), container("1"))) == {"cpu": 1500, "memory": MEBI}


def test_init_containers_run_alone_and_the_largest_counts() -> None:
    starts = [container("3"), container("2", "4Mi")]
    assert of_pod(pod(container("1", "1Mi"), initContainers=starts)) == {"cpu": 3000, "memory": 4 * MEBI}


def test_what_is_restarted_always_runs_beside_all_that_comes_after_it() -> None:
    side = container("1", restartPolicy="Always")
    assert of_pod(pod(container("1"), initContainers=[container("5"), side])) == {"cpu": 5000}
    assert of_pod(pod(container("1"), initContainers=[side, container("5")])) == {"cpu": 6000}
    assert of_pod(pod(container("1"), initContainers=[side, container("500m")])) == {"cpu": 2000}


def test_a_limit_without_a_request_is_one_and_what_the_pod_runs_on_is_added() -> None:
    limited = {"name": "c", "resources": {"limits": {"nvidia.com/gpu": 8, "cpu": "4"}, "requests": {"cpu": "1"}}}
    assert of_pod(pod(limited, overhead={"cpu": "250m"})) == {"nvidia.com/gpu": 8000, "cpu": 1250}


def test_what_is_requested_of_the_whole_pod_stands_for_its_containers() -> None:
    assert of_pod(pod(container("1", "1Mi"), resources={"requests": {"cpu": "3"}})) == {"cpu": 3000, "memory": MEBI}


@pytest.mark.parametrize("template", [{}, {"spec": None}, {"spec": {"containers": "x"}}, pod(container("no"))])
def test_what_the_api_server_will_refuse_asks_for_nothing(template: dict[str, Any]) -> None:
    assert of_pod(template) == {}


def test_all_pods_of_all_copies_are_asked_for_together() -> None:
    one = component("a", pod(container("1")), 3, copies=2)
    other = component("b", pod(container("500m", "1Mi")), 2)
    assert demand(spec(one, other)) == {"pods": 8000, "cpu": 7000, "memory": 2 * MEBI}


def gang(**fields: Any) -> Workload:
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a"}}
    members = Component.model_validate(
        {
            "name": "a",
            "template": {**job, "spec": {"template": pod(container("2"))}},
            "podSets": [{"path": "template.spec.template", "replicas": 2}],
        }
    )
    return Workload.model_validate(
        {"name": "w", "cluster": "dev", "components": [members], "gang": {"min": 2, "max": 5, **fields}}
    )


def test_a_gang_asks_for_all_that_it_may_become() -> None:
    assert demand(gang()) == {"pods": 5000, "cpu": 10_000}


def test_the_spares_of_a_gang_are_asked_for_with_its_members() -> None:
    assert demand(gang(spares=3)) == {"pods": 8000, "cpu": 16_000}


@pytest.mark.parametrize(("shows", "pods"), [(True, 8000), (False, 5000)])
def test_a_run_of_an_earlier_release_keeps_the_demand_that_it_has_told(*, shows: bool, pods: int) -> None:
    asked = gang(spares=3)
    waits = Turn(number=1, asks=True)
    news = owed(asked, State(since=START, policy=asked.policy, turn=waits, shows_waits=shows), "uid")
    assert news is not None
    assert news.demand["pods"] == pods


@pytest.mark.parametrize(
    ("most", "asked"),
    [
        (3, {"pods": 3000, "cpu": 5000, "memory": MEBI}),
        (6, {"pods": 6000, "cpu": 11_000, "memory": 4 * MEBI}),
    ],
)
def test_what_an_autoscaler_may_add_is_as_large_as_its_largest_pod(most: int, asked: dict[str, int]) -> None:
    one, other = component("a", pod(container("2")), 2), component("b", pod(container("1", "1Mi")), 1)
    assert demand(spec(one, other, lifecycle=Reactive(min=3, max=most))) == asked


def test_what_brings_no_pods_asks_for_none() -> None:
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}
    assert demand(spec(Component(name="c", template=config))) == {"pods": 0}
