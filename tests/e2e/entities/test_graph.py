"""Graphs of workloads as typed, on real controllers: edges, a cascade, a mutex, the worker killed meanwhile (L31)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from holdfast import names
from holdfast.model import OperationKind, Phase, Status
from holdfast.model.entities.graph import GraphStatus
from tests.e2e.ground.site import until
from tests.e2e.ground.space import Handle, Space, example
from tests.e2e.ground.terminal import command

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(300),
    pytest.mark.row("L31", level="e2e"),
    pytest.mark.asyncio(loop_scope="session"),
]
FAST = {
    "holdfast.dev/failureGracePeriod": "0s",
    "holdfast.dev/retryLimit": "0",
    "holdfast.dev/successTTL": "0s",
}


def node(name: str, *after: str, tasks: int = 0, **annotations: str) -> dict[str, Any]:
    """A node whose Job has one pod on a fake node; what it comes after is written `extract:Failure`."""
    edges = [one.partition(":") for one in after]
    pod = {
        "restartPolicy": "Never",
        "nodeSelector": {"holdfast.dev/node": "fake"},
        "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "main", "image": "example.com/train:1"}],
    }
    marks = {f"holdfast.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    made: dict[str, Any] = {
        "name": name,
        "after": [{"node": one, "on": on or "Success"} for one, _, on in edges],
        "template": {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"annotations": FAST},
            "spec": {"backoffLimit": 0, "template": {"metadata": {"annotations": marks}, "spec": pod}},
        },
    }
    return made | ({"tasks": tasks} if tasks else {})


class Typed:
    """A graph as its user sees it: a file, and the command line."""

    def __init__(self, space: Space, path: Path, *nodes: dict[str, Any], name: str = "etl") -> None:
        self.space, self.path, self.name = space, path / "graph.yaml", name
        document = {"apiVersion": names.API_VERSION, "kind": "Graph", "metadata": {"name": name}}
        self.path.write_text(yaml.safe_dump({**document, "spec": {"nodes": list(nodes)}}))

    @property
    def full(self) -> str:
        return f"{self.space.namespace}/{self.name}"

    async def submit(self, *more: str) -> str:
        return await command(self.space.site, "submit", str(self.path), "-n", self.space.namespace, *more)

    async def status(self) -> GraphStatus:
        return GraphStatus.model_validate(json.loads(await command(self.space.site, "graph", self.full, "-o", "json")))

    async def reaches(self, seconds: float = 60, **phases: str) -> GraphStatus:
        """Wait until these workloads are in these phases."""
        found = list[GraphStatus]()

        async def check() -> bool:
            found[:] = [await self.status()]
            items = found[0].items
            return all(items[item.replace("_", "-")].phase == phase for item, phase in phases.items())

        await until(check, seconds, lambda: f"{phases}: {found}", pause=0.3)
        return found[0]

    async def parted(self, *items: str) -> tuple[str, str]:
        """Return two that exclude each other, the one that was let in first: it is the one that was heard of first."""
        found = dict[str, str]()

        async def check() -> bool:
            status = await self.status()
            found.update({item: status.items[item].phase for item in items})
            return sorted(found.values()) == ["Admitted", "Blocked"]

        await until(check, 60, lambda: f"one is let in, the other waits: {found}", pause=0.3)
        first, second = sorted(items, key=lambda item: found[item] != "Admitted")
        return first, second

    async def ends(self, expect: int = 0) -> GraphStatus:
        said = await command(self.space.site, "graph", self.full, "--wait", "-o", "json", expect=expect)
        return GraphStatus.model_validate(json.loads(said))

    async def lives(self, item: str, how: str) -> None:
        """Let the pod of a workload come to its end: `complete` or `fail`."""
        workload = f"{self.name}-{item}"
        await self.running(item)
        await (self.space.complete(workload) if how == "complete" else self.space.fail_pod(workload))

    async def running(self, item: str) -> None:
        """Wait until the pod of a workload runs."""

        async def runs() -> bool:
            pods = await self.space.pods(f"{self.name}-{item}")
            return any(one["status"].get("phase") == "Running" for one in pods)

        await until(runs, 60, f"{item} runs")

    def handle(self, item: str) -> Handle:
        """Return the workflow of a workload."""
        site = self.space.site
        place = names.workflow_id(site.cluster, self.space.namespace, f"{self.name}-{item}")
        return site.client.get_workflow_handle(place, result_type=Status)

    async def made(self) -> set[str]:
        return {
            one["metadata"]["name"] for one in await self.space.site.objects("batch/v1", "Job", self.space.namespace)
        }


async def test_L31_the_published_example_as_typed(space: Space, tmp_path: Path):
    typed = Typed(space, tmp_path)
    typed.path.write_text(example("graph/etl.yaml"))
    assert "graph etl" in await typed.submit()
    drawn = await command(space.site, "graph", typed.full)
    assert "train [3 tasks]" in drawn
    assert "train to succeed, task by task" in drawn
    assert "never beside train" in drawn
    status = await typed.ends()
    assert (status.phase, status.counts) == (Phase.SUCCEEDED, {"Succeeded": 9, "Cancelled": 1})
    assert status.items["alarm"].why == "extract has not failed"
    created = {name: space.created("jobs", f"etl-{name}") for name in status.items if name != "alarm"}
    assert created["extract"] < min(created[f"train-{one}"] for one in range(3))
    assert all(created[f"train-{one}"] < created[f"check-{one}"] < created["report"] for one in range(3))
    assert created["report"] < created["tidy"]
    shard = await space.site.kube.get("batch/v1", "Job", "etl-train-2", space.namespace)
    (container,) = shard["spec"]["template"]["spec"]["containers"]
    assert container["command"][-1].startswith("echo shard 2;")
    assert shard["spec"]["template"]["metadata"]["labels"][names.LABEL_GRAPH_TASK] == "2"


async def test_L31_a_failure_cancels_what_waits_for_success_and_begins_what_waits_for_it(space: Space, tmp_path: Path):
    nodes = (node("a"), node("b", "a"), node("c", "b"), node("mend", "a:Failure"), node("tidy", "c:Any"))
    typed = Typed(space, tmp_path, *nodes)
    await typed.submit()
    await typed.reaches(b="Blocked", c="Blocked", mend="Blocked", tidy="Blocked")
    assert await typed.made() <= {"etl-a"}
    explained = await command(space.site, "explain", "etl-b", "-n", space.namespace)
    assert "it waits for its graph, etl" in explained
    await typed.lives("a", "fail")
    status = await typed.reaches(a="Failed", b="Cancelled", c="Cancelled", mend="Admitted", tidy="Admitted")
    assert (status.items["b"].why, status.items["c"].why) == ("a has not succeeded", "b has not succeeded")
    await typed.lives("mend", "complete")
    await typed.lives("tidy", "complete")
    # What failed was followed upon: the graph has done what it was written to do.
    assert (await typed.ends()).phase is Phase.SUCCEEDED
    # Nothing was ever made of what was cancelled.
    made = {one.name for one in space.truth.requests() if (one.verb, one.resource) == ("create", "jobs")}
    assert {one for one in made if one} <= {"etl-a", "etl-mend", "etl-tidy"}


async def test_L31_of_two_that_exclude_each_other_the_second_begins_once_the_first_is_proven_gone(
    space: Space, tmp_path: Path
):
    typed = Typed(space, tmp_path, node("a"), node("b", "a:Mutex"))
    await typed.submit()
    first, second = await typed.parted("a", "b")
    assert (await typed.status()).waits == {second: f"{first} to be gone"}
    await typed.running(first)
    assert await typed.made() == {f"etl-{first}"}
    await typed.lives(first, "fail")
    await typed.lives(second, "complete")
    assert (await typed.ends(expect=1)).phase is Phase.FAILED
    proofs = [
        act.ended
        for act in await space.acts(typed.handle(first), OperationKind.REMOVE, OperationKind.FORCE_REMOVE)
        if act.ended and act.result and act.result["gone"]
    ]
    assert space.created("jobs", f"etl-{second}") > min(proofs), "the second began before the first was proven gone"


async def test_L31_the_worker_is_killed_between_two_and_nothing_is_lost_or_done_twice(alone: Space, tmp_path: Path):
    typed = Typed(alone, tmp_path, node("a"), node("b", "a", tasks=2), node("c", "b"))
    await typed.submit()
    await typed.reaches(a="Admitted", b_0="Blocked", b_1="Blocked", c="Blocked")
    await typed.lives("a", "complete")
    alone.site.workers[-1].kill()
    await alone.site.start_worker()
    await typed.running("b-1")
    await typed.lives("b-0", "complete")
    alone.site.workers[-1].kill()
    await typed.lives("b-1", "complete")
    await alone.site.start_worker()
    await typed.lives("c", "complete")
    status = await typed.ends()
    assert (status.phase, status.counts) == (Phase.SUCCEEDED, {"Succeeded": 4})
    made = [one.name for one in alone.truth.requests() if (one.verb, one.resource) == ("create", "attempts")]
    assert len(made) == len(set(made)) == 4


async def test_L31_what_was_broken_off_while_it_was_submitted_is_submitted_again(space: Space, tmp_path: Path):
    typed = Typed(space, tmp_path, node("a"), node("b", "a"))
    await typed.submit()
    await typed.submit()  # As it stands, nothing is begun twice.
    await typed.lives("a", "complete")
    await typed.reaches(a="Succeeded", b="Admitted")
    await typed.submit()
    await typed.lives("b", "complete")
    assert (await typed.ends()).phase is Phase.SUCCEEDED
    refused = await command(space.site, "submit", str(typed.path), "-n", space.namespace, expect=2)
    assert refused == ""
    await typed.submit("--again")
    await typed.reaches(a="Admitted", b="Blocked")
    status = await _cancelled(typed)
    assert status.phase is Phase.CANCELLED
    assert not await typed.made()


async def _cancelled(typed: Typed) -> GraphStatus:
    await command(typed.space.site, "graph", typed.full, "--cancel", "--reason", "no time")
    return await asyncio.wait_for(typed.ends(), 90)


async def test_L31_what_is_no_graph_is_refused_before_anything_begins(space: Space, tmp_path: Path):
    broken = node("b", "a:Mutex", "c")
    broken["template"]["spec"]["nonsense"] = []
    typed = Typed(space, tmp_path, node("a", "b"), broken, node("c", "a"))
    await command(space.site, "submit", str(typed.path), "-n", space.namespace, expect=2)
    handle = space.site.client.get_workflow_handle(names.graph_id(space.site.cluster, space.namespace, "etl"))
    with pytest.raises(Exception, match="not found"):
        await handle.describe()
