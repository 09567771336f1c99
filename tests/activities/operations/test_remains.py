"""What is said of what is left, and what is done about it: with thousands left, a few things at a time."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast import names
from holdfast.activities.kube.client import Object, Unreachable
from holdfast.activities.kube.trim import trace
from holdfast.activities.operations import remove
from holdfast.activities.operations.remains import REMNANTS_TOLD, Remains, find_between, remnants_of
from holdfast.activities.site.site import Site
from holdfast.model.calls.cluster import PlannedComponent, RemoveInput, Target

STATEFUL = ("apps/v1", "StatefulSet")
NO_SITE = cast("Site", None)
"""Pods without a node: no node is asked for."""
PLAN = PlannedComponent(name="a", api_version="v1", kind="Pod", object_name="train-0")


def left(name: str, *finalizers: str) -> Mapping[str, Any]:
    return trace({"metadata": {"name": name, "uid": f"{name}-uid", "finalizers": list(finalizers)}})


@pytest.mark.row("A8", level="pure")
async def test_what_a_foreign_finalizer_holds_is_told_first_then_in_order_and_the_owner_last():
    pods = [left(f"train-{number}") for number in range(3)]
    pods.append(left("held", "example.com/hold"))
    between: Object = {"kind": "Job", **left("between", "foregroundDeletion")}
    components = ((PLAN, pods[0]), (PLAN.model_copy(update={"kind": "Job"}), left("job", "example.com/job")))
    told = await remnants_of(NO_SITE, Remains(dict(left("owner")), components, (between,), tuple(pods)))
    assert [(one.kind, one.name) for one in told] == [
        ("Pod", "held"),
        ("Job", "job"),
        ("Pod", "train-0"),
        ("Pod", "train-1"),
        ("Pod", "train-2"),
        ("Job", "between"),
        (names.ATTEMPT_KIND, "owner"),
    ]
    assert told[0].finalizers == ("example.com/hold",)


@pytest.mark.row("D27", level="pure")
async def test_D27_a_kind_in_between_is_looked_for_also_where_a_component_has_it():
    """A LeaderWorkerSet makes StatefulSets, and the workload has one of its own."""
    plan = tuple(
        PlannedComponent(name=name, api_version=version, kind=kind, object_name=name)
        for name, version, kind in (("l", "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"), ("db", *STATEFUL))
    )
    labels = {names.LABEL_WORKLOAD_UID: "w"}
    own = {"metadata": {"name": "db", "uid": "uid-db", "labels": labels}}
    made = {"metadata": {"name": "l-0", "uid": "uid-l-0", "labels": labels, "ownerReferences": [{"uid": "uid-l"}]}}

    class Listed:
        async def list(self, api_version: str, kind: str, *_: Any, keep: Any, **__: Any) -> Object:
            assert (api_version, kind) == STATEFUL
            return {"items": [found for one in (own, made) if (found := keep(one)) is not None]}

    site = cast("Site", SimpleNamespace(kube=Listed()))
    target = Target.model_construct(cluster="dev", namespace="ns", name="train", workload_uid="w", run_as="default")
    given = cast("RemoveInput", SimpleNamespace(target=target, objects=(), plan=plan))
    components = ((plan[0], trace({"metadata": {"name": "l", "uid": "uid-l"}})), (plan[1], trace(own)))
    between = await find_between(site, given, components, frozenset({STATEFUL}))
    assert [(one["kind"], one["metadata"]["name"]) for one in between] == [("StatefulSet", "l-0")]


async def test_of_thousands_left_only_those_that_are_told_are_made_up():
    pods = tuple(left(f"train-{number}", "example.com/hold") for number in range(5000))
    remains = Remains(dict(left("owner")), (), (), pods)
    assert len(await remnants_of(NO_SITE, remains)) == REMNANTS_TOLD
    gc.collect()
    tracemalloc.start()
    try:
        told = await remnants_of(NO_SITE, remains)
        most = tracemalloc.get_traced_memory()[1] / len(pods)
    finally:
        tracemalloc.stop()
    assert {one.name for one in told} == {f"train-{number}" for number in range(REMNANTS_TOLD)}
    assert most < 400, f"{most:.0f} bytes a pod"


async def test_thousands_of_deletions_are_made_a_few_at_a_time_and_one_that_fails_keeps_none_back():
    begun: list[int] = []
    ended: list[int] = []
    most = 0

    async def delete(number: int) -> None:
        nonlocal most
        most = max(most, len(begun) - len(ended))
        await asyncio.sleep(0)
        ended.append(number)
        if number in {3, 500}:
            raise Unreachable(0, "Unreachable", f"pod {number}")

    def deletions() -> Iterator[int]:
        for number in range(1000):
            begun.append(number)
            yield number

    with pytest.raises(Unreachable, match="pod 3"):
        await remove._all(delete(number) for number in deletions())
    assert sorted(ended) == list(range(1000))
    assert 1 < most <= 16
