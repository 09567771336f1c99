"""Nodes that are bad, or held to be (rows A17, U9): left at once, avoided by the scheduler, and let back."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import names
from holdfast.model import Exclusion, OperationKind
from holdfast.profiles import appwrapper as profile
from tests.e2e.ground.nodes import Nodes, open_nodes
from tests.e2e.ground.site import appwrapper, job, until
from tests.e2e.ground.space import Handle, Space

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]
ROW = pytest.mark.row
EVICT = "autopilot.ibm.com/gpuhealth"
FATAL = "CperHardwareErrorFatal"
LONG = {"failureGracePeriodDuration": "10m"}
"""A grace that no test lives to see the end of: who resets, has not waited for it."""


def affinity(space: Space, attempt: int) -> dict[str, Any]:
    """Return the node affinity that the Job of an attempt was sent with, by the audit log."""
    sent = [
        one.body
        for one in space.truth.requests()
        if (one.verb, one.resource) == ("create", "jobs")
        and one.body["metadata"]["labels"][names.LABEL_ATTEMPT] == str(attempt)
    ]
    return sent[0]["spec"]["template"]["spec"].get("affinity", {}).get("nodeAffinity", {})


def fields(term: dict[str, Any]) -> set[str]:
    """Return the nodes that a term keeps off."""
    assert all((one["key"], one["operator"]) == ("metadata.name", "NotIn") for one in term.get("matchFields", ()))
    return {name for one in term.get("matchFields", ()) for name in one["values"]}


def required(space: Space, attempt: int) -> set[str]:
    selector = affinity(space, attempt).get("requiredDuringSchedulingIgnoredDuringExecution", {})
    return {name for term in selector.get("nodeSelectorTerms", ()) for name in fields(term)}


def preferred(space: Space, attempt: int) -> set[str]:
    terms = affinity(space, attempt).get("preferredDuringSchedulingIgnoredDuringExecution", ())
    return {name for term in terms for name in fields(term["preference"])}


async def places(space: Space, attempt: int) -> set[str]:
    """Return the nodes that the pods of an attempt are on."""
    return {
        pod["spec"]["nodeName"]
        for pod in await space.pods()
        if pod["metadata"]["labels"].get(names.LABEL_ATTEMPT) == str(attempt) and pod["spec"].get("nodeName")
    }


@asynccontextmanager
async def placements(space: Space) -> AsyncIterator[dict[int, set[str]]]:
    """Note where the pods of each attempt run, for as long as the block lasts."""
    seen: dict[int, set[str]] = {}

    async def follow() -> None:
        while True:
            for pod in await space.pods():
                attempt = pod["metadata"]["labels"].get(names.LABEL_ATTEMPT)
                if attempt and pod["spec"].get("nodeName"):
                    seen.setdefault(int(attempt), set()).add(pod["spec"]["nodeName"])
            await asyncio.sleep(0.1)

    task = asyncio.create_task(follow())
    try:
        yield seen
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def running(space: Space, nodes: Nodes, pods: int = 2, **annotations: str) -> Handle:
    handle = await space.submit(appwrapper("train", nodes.places(job(pods=pods)), **(LONG | annotations)))
    await space.reach(handle, "Running", 1)
    return handle


@ROW("A17", level="e2e")
@pytest.mark.parametrize("how", ["label", "condition"])
async def test_A17_a_marked_node_is_left_at_once_without_charge_and_not_chosen_again(space: Space, how: str):
    async with open_nodes(space.site.kube, 3) as nodes:
        handle = await running(space, nodes)
        bad = sorted(await places(space, 1))[0]
        if how == "label":
            await nodes.label(bad, EVICT, "EVICT")
        else:
            await nodes.condition(bad, FATAL, "True")
        status = await space.reach(handle, "Running", 2)
        assert (status.restarts, [each.used for each in status.budgets]) == (1, [0])
        assert required(space, 2) == {bad}
        assert bad not in await places(space, 2), "the scheduler's own choice"
        assert [(node.name, node.required) for node in status.avoided] == [(bad, True)]
        (reset,) = [cause for cause in status.causes if cause.reason == "Resetting"]
        word = "NodeMarkedForEviction" if how == "label" else FATAL
        assert f"{word} on {bad}" in reset.message
        assert reset.message.endswith(f"(rule marked-node); the next attempt must avoid {bad}")
        looks = await space.acts(handle, OperationKind.OBSERVE)
        assert [one["node"] for one in looks[-1].result["failures"]] == [bad], "confirmed live before anything goes"
        await space.truth.settle()
        space.truth.assert_one_attempt_at_a_time("train")
        space.truth.assert_told_truly("train")


@ROW("D21", level="e2e")
@pytest.mark.parametrize("how", ["label", "condition"])
async def test_D21_nodes_marked_before_an_attempt_are_avoided_by_it(space: Space, how: str):
    async with open_nodes(space.site.kube, 12) as nodes:
        *bad, good, other = nodes.names
        label = f"fault.holdfast.dev/{space.site.cluster}"
        for name in bad:
            if how == "label":
                await nodes.label(name, EVICT, "EVICT")
            else:
                await nodes.condition(name, FATAL, "True")
        if how == "condition":  # The monitor of nodes says it in a label within a few seconds, and in no taint.

            async def labelled() -> bool:
                found = await asyncio.gather(*(space.site.kube.get("v1", "Node", name) for name in bad))
                assert all(len(node["spec"]["taints"]) == 1 for node in found), "others' pods are free to go there"
                return all(label in node["metadata"]["labels"] for node in found)

            await until(labelled, 90, "marked nodes bear the label")
        handle = await running(space, nodes)
        assert await places(space, 1) <= {good, other}, "the scheduler's own choice"
        status = await space.reach(handle, "Running", 1)
        assert (status.restarts, status.avoided, required(space, 1)) == (0, (), set()), "by their marks, not by name"
        if how == "condition":
            await nodes.condition(bad[0], FATAL, "False")

            async def mended() -> bool:
                node = await space.site.kube.get("v1", "Node", bad[0])
                return label not in node["metadata"]["labels"]

            await until(mended, 60, "a mended node has lost the label")


@ROW("A17", level="e2e")
async def test_A17_a_mark_on_another_node_or_a_pass_concerns_nobody(space: Space):
    async with open_nodes(space.site.kube, 3) as nodes:
        handle = await running(space, nodes, pods=1)
        (mine,) = await places(space, 1)
        for name in nodes.names:
            await nodes.label(name, EVICT, "PASS" if name == mine else "EVICT")
        await space.complete("train")
        status = await space.ended(handle)
        assert (status.phase, status.restarts, status.executions) == ("Succeeded", 0, 1)


@ROW("U9", level="e2e")
async def test_U9_a_poison_pod_avoids_three_nodes_at_most_and_is_never_unschedulable(space: Space):
    async with open_nodes(space.site.kube, 5) as nodes:
        component = nodes.places(job(pods=1))
        component["template"]["spec"]["template"]["metadata"]["annotations"]["holdfast.dev/kwok-fail"] = "2s"
        handle = await space.submit(appwrapper("train", component, retryLimit="6"))
        status = await space.ended(handle, 300)
        assert (status.phase, status.restarts) == ("Failed", 6)
        await space.truth.settle()
        seen = {n: {one.object["spec"]["nodeName"] for one in space.truth.of(n, "Pod")} for n in range(1, 8)}
        for attempt in range(2, 8):
            last = [node for each in range(max(1, attempt - 3), attempt) for node in seen[each]]
            assert preferred(space, attempt) == set(last), "those that failed last"
            assert not seen[attempt] & preferred(space, attempt), "others had room"
            assert required(space, attempt) == set()


@ROW("U9", level="e2e")
async def test_U9_where_no_other_node_has_room_a_disliked_one_is_used_again(space: Space):
    async with open_nodes(space.site.kube, 1) as nodes:
        handle = await running(space, nodes, pods=1)
        await space.fail_pod("train")
        status = await space.reach(handle, "Running", 2)
        assert [each.used for each in status.budgets] == [1]
        assert preferred(space, 2) == await places(space, 2) == set(nodes.names)


@ROW("A17", level="e2e")
@ROW("U9", level="e2e")
async def test_U9_a_node_is_let_back_once_its_time_is_over(space: Space):
    """The only node there is: what keeps a pod from running says so, until its time is over."""
    policy = profile.POLICY.model_copy(update={"exclusion": Exclusion(expiry=timedelta(seconds=40))})
    async with open_nodes(space.site.kube, 1) as nodes:
        (only,) = nodes.names
        document = appwrapper("train", nodes.places(job(pods=1)), warmupGracePeriodDuration="10m", **LONG)
        handle = await space.submit(document, defaults=policy)
        await space.reach(handle, "Running", 1)
        await nodes.label(only, EVICT, "EVICT")
        status = await space.reach(handle, "Resuming", 2)

        async def waits() -> bool:
            found = await space.explain(handle)
            return f"0 of 1 pod running; must avoid {only} until " in found.now and only in found.unblock

        await until(waits, 30, "it says what it waits for")
        assert await places(space, 2) == set()
        await nodes.label(only, EVICT, None)
        (node,) = status.avoided
        await asyncio.sleep(max(0.0, (node.until - datetime.now(UTC)).total_seconds()) + 1)
        assert await places(space, 2) == set(), "its attempt is made alike to its end"
        await handle.signal(names.SIGNAL_SUSPEND)
        await space.reach(handle, "Suspended")
        await handle.signal(names.SIGNAL_RESUME)
        status = await space.reach(handle, "Running", 3)
        assert (await places(space, 3), required(space, 3), status.avoided) == ({only}, set(), ())
        assert [each.used for each in status.budgets] == [0]
