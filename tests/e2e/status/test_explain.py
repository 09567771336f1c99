"""`explain` in each phase of a life: what it says is compared with what is true in the cluster then (row U11)."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from holdfast import names
from holdfast.client.pending import activities_of
from holdfast.model import Explanation, OperationKind
from holdfast.policy.status.explain import CAUSES_SHOWN
from tests.e2e.ground.site import appwrapper, job, until
from tests.e2e.ground.space import FOREIGN_FINALIZER, STUBBORN, Handle, Space, pod
from tests.e2e.lives.phases import hold
from tests.e2e.lives.streams import let_pods, pes, streams

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]
ROW = pytest.mark.row


@dataclass(frozen=True)
class Says:
    """What an explanation must say: patterns, which are searched for."""

    phase: str
    why: str
    now: str
    next: tuple[str, ...] = ()
    unblock: str = ""
    next_attempt: int | None = None
    used: int = 0


async def assert_says(space: Space, handle: Handle, name: str, says: Says) -> Explanation:
    """Wait until a workload is where it is wanted, then hold every line against it and against the cluster."""

    async def there() -> bool:
        told = await space.explain(handle)
        return told.phase == says.phase and bool(re.search(says.now, told.now) and re.search(says.why, told.why))

    try:
        await until(there, 60, f"{name}: {says.phase}, {says.why!r}, {says.now!r}")
    except AssertionError as error:
        raise AssertionError(f"{error}; it says {await space.explain(handle)}") from None
    asked = datetime.now(UTC)
    told, status = await space.explain(handle), await space.site.status(handle)
    print(f"{name}\n  {told.phase} ({told.reason}) attempt {told.attempt} -> {told.next_attempt}\n  why {told.why}")
    print(f"  now {told.now}\n  " + "\n  ".join(f"next {each.at:%H:%M:%S} {each.what}" for each in told.next))
    print(f"  unblock {told.unblock}\n  causes {[each.reason.value for each in told.causes]}")
    assert "Pending" not in {told.reason, told.why, told.now}, "Pending is never a reason"
    assert told.reason not in {"Queued", "Blocked"}
    assert told.since <= asked
    owners = [
        one
        for one in await space.site.objects(names.API_VERSION, names.ATTEMPT_KIND, space.namespace)
        if (one["metadata"].get("annotations") or {}).get(names.ANNOTATION_WORKLOAD) == name
    ]
    assert all(one["spec"]["attempt"] == told.attempt for one in owners), "the attempt that is there"
    assert told.next_attempt == says.next_attempt
    assert [each.used for each in told.budgets if each.name == "restart"] in ([says.used], [])
    assert len(told.next) == len(says.next), told.next
    for deadline, pattern in zip(told.next, says.next, strict=True):
        assert re.search(pattern, deadline.what), (deadline.what, pattern)
        assert deadline.at >= asked - timedelta(seconds=2), "what comes next has not passed"
    assert re.search(says.unblock, told.unblock) if says.unblock else not told.unblock, told.unblock
    assert told.causes == status.causes[-CAUSES_SHOWN:]
    return told


GRACE = ("failure grace: {} exited 1", r"if it is not healthy by then: reset \(restart 1 of 3\), then attempt 2")
WAYS = {
    "starting": Says(
        "Resuming",
        "their pods are starting",
        "0 of 2 pods running",
        ("(warm-up|admission) grace", "if nothing has changed by then: failure grace .*, then reset"),
    ),
    "running": Says("Running", "all expected pods run", "2 of 2 pods run"),
    "unhealthy": Says(
        "Running",
        r"unhealthy exited 1 on \S+ \(rule failed-pods\)",
        "0 of 1 pod running",
        tuple(each.format("unhealthy") for each in GRACE),
    ),
    "pausing": Says(
        "Resetting",
        r"pausing exited 1 on \S+ \(rule failed-pods\)",
        "pausing before the next attempt; its quota is kept",
        ("retry pause", r"attempt 2( \(.*\))? is created"),
        r"`holdfast retry \S+/pausing` skips the pause",
        next_attempt=2,
        used=1,
    ),
    "forcing": Says(
        "Resetting",
        "forcing exited 1",
        rf"forcing out what is left of attempt 1: .* left: .*Pod forcing-held \(finalizer {FOREIGN_FINALIZER}\)",
        ("forces its deletion again", "once all is gone: retry pause 1s, then attempt 2"),
        rf"whoever owns the finalizer {FOREIGN_FINALIZER} must finish",
        next_attempt=2,
        used=1,
    ),
    "suspended": Says(
        "Suspended",
        "suspended: for now",
        "nothing of it is in the cluster",
        unblock=r"`holdfast resume \S+/suspended`",
    ),
    "succeeded": Says(
        "Succeeded",
        "all components are complete",
        "it has succeeded; its resources are kept",
        ("success TTL ends, then its resources are removed",),
        "`holdfast cancel .*` removes its resources now",
    ),
    "preparing": Says(
        "Resuming",
        "creating attempt 1",
        r"checking rights and creating 1 component of attempt 1 \(bears refusals that may pass for .*\)",
    ),
}


@ROW("U11", level="e2e")
async def test_U11_explain_is_true_in_each_phase(space: Space):
    held = dict(zip(WAYS, await asyncio.gather(*(hold(space, each, each) for each in WAYS)), strict=True))
    told = {each: await assert_says(space, held[each].handle, each, WAYS[each]) for each in WAYS}
    (lost,) = await space.pods("unhealthy")
    assert f"on {lost['spec']['nodeName']}" in told["unhealthy"].why, "the node it was on"
    failed = datetime.fromisoformat(lost["status"]["containerStatuses"][0]["state"]["terminated"]["finishedAt"])
    assert abs((told["unhealthy"].next[0].at - failed).total_seconds() - 300) < 30, "300 s from when it was seen"
    (gone,) = [each.time for each in told["pausing"].causes if each.reason == "DeletionComplete"]
    assert told["pausing"].next[0].at == gone + timedelta(seconds=300), "the pause counts from the proof"
    (done,) = [each.time for each in told["succeeded"].causes if each.reason == "Completed"]
    assert told["succeeded"].since == done
    assert told["succeeded"].next[0].at == done + timedelta(hours=1)
    assert {each["status"]["phase"] for each in await space.pods("starting")} == {"Pending"}
    assert {each["status"]["phase"] for each in await space.pods("running")} == {"Running"}
    assert not await space.pods("suspended")
    assert not await space.pods("pausing")
    assert [each["metadata"]["name"] for each in await space.pods("forcing")] == ["forcing-held"]
    for each in held.values():
        await each.release()


@ROW("U11", level="e2e")
async def test_U11_explain_is_true_on_the_ways_out(space: Space):
    async def stubborn(name: str, **annotations: str) -> Handle:
        waits = {"forcefulDeletionGracePeriodDuration": "300s", "failureGracePeriodDuration": "0s", **annotations}
        components = [pod(name), pod(f"{name}-stubborn", labels=STUBBORN)]
        handle = await space.submit(appwrapper(name, *components, **waits))
        await space.reach(handle, "Running", 1)
        return handle

    names_ = ["resetting", "suspending", "terminating", "failed"]
    more = {"failed": {"retryLimit": "0", "deletionOnFailureGracePeriodDuration": "1h"}}
    handles = dict(
        zip(names_, await asyncio.gather(*(stubborn(one, **more.get(one, {})) for one in names_)), strict=True)
    )
    for name in ("resetting", "failed"):
        await space.site.annotate("Pod", name, space.namespace, kwok_fail="0s")
    await handles["suspending"].signal(names.SIGNAL_SUSPEND, "room is needed")
    await handles["terminating"].signal(names.SIGNAL_CANCEL, "enough")
    forced = "forceful deletion, unless all is gone by then"
    ways = {
        "resetting": Says(
            "Resetting",
            r"resetting exited 1 on \S+ \(rule failed-pods\)",
            "deleting attempt 1",
            (forced, "once all is gone: (retry pause 1s, then )?attempt 2"),
            next_attempt=2,  # The restart counts once the reset has ended (record 0086).
        ),
        "suspending": Says(
            "Suspending",
            "suspended: room is needed",
            "deleting attempt 1",
            (forced, "once all is gone: the workload's quota is released, and the workload waits for resume"),
        ),
        "terminating": Says(
            "Terminating",
            "its deletion was asked for: enough",
            "deleting attempt 1",
            (forced, "once all is gone: the workload's quota is released, and the workload ends as Cancelled"),
        ),
        "failed": Says(
            "Failed",
            r"restart budget is used up \(0 of 0\): failed exited 1",
            "it has failed; its resources are kept",
            ("deletion-on-failure grace ends, then its resources are removed",),
            "`holdfast retry .*` begins anew with its budgets renewed; `holdfast cancel .*` removes what is held",
        ),
    }
    for name, says in ways.items():
        told = await assert_says(space, handles[name], name, says)
        left = [each["metadata"]["name"] for each in await space.pods(name)]
        assert f"{name}-stubborn" in left
        if name != "failed":
            acts = await space.acts(handles[name], OperationKind.REMOVE, OperationKind.RESET)
            begun = [one.scheduled for one in acts]
            assert told.next[0].at - begun[0] <= timedelta(seconds=301), "five minutes from when its removal began"


@ROW("U11", level="e2e")
async def test_U11_explain_is_true_of_what_waits_for_the_cluster(space: Space):
    await let_pods(space, 0)
    waits = {"admissionGracePeriodDuration": "3s", "failureGracePeriodDuration": "300s"}
    blocked = await space.submit(appwrapper("blocked", job("blocked"), **waits))
    refused = await space.submit(appwrapper("refused", pod("refused"), admissionGracePeriodDuration="300s"))
    waiting = await space.submit(streams(*pes(2), submissionTimeout="1h"))
    await assert_says(
        space,
        blocked,
        "blocked",
        Says(
            "Resuming",
            r"2 of 2 pods were not created in time \(rule late-pods\)",
            "0 of 2 pods running",
            ("failure grace: ", r"reset \(restart 1 of 3\), then attempt 2"),
            "quota, webhook or right",
        ),
    )
    await assert_says(
        space,
        refused,
        "refused",
        Says(
            "Resuming",
            "creating attempt 1",
            r"creating 1 component of attempt 1 \(bears refusals that may pass for 5m\)",
        ),
    )
    await assert_says(
        space,
        waiting,
        "pe-0",
        Says("Resuming", "creating attempt 1", r"creating the 2 components .* \(gives up after 1h of refusals\)"),
    )
    for handle in (refused, waiting):

        async def told(handle: Handle = handle) -> bool:
            found = await activities_of(await handle.describe())
            return any("exceeded quota" in each.sentence(datetime.now(UTC)) for each in found)

        await until(told, 60, "whoever asks is told what it is refused")


@ROW("U11", level="e2e")
async def test_U11_what_is_held_says_what_contradicts_what(space: Space):
    handle = await space.submit(appwrapper("held", job("held")))
    await space.reach(handle, "Running", 1)
    await space.patch(names.API_VERSION, names.ANCHOR_KIND, "held", {"metadata": {"finalizers": None}})
    await space.delete("batch/v1", "Job", "held")
    says = Says(
        "Pending",
        "its anchor is gone or was let go of by another hand",
        "nothing is done to it until a person says what",
        unblock="`holdfast retry .*` removes all that is there .*; `holdfast cancel .*` removes it and ends",
    )
    told = await assert_says(space, handle, "held", says)
    assert told.reason == "Held", "the phase is Pending, and that is no reason"


@ROW("U11", level="e2e")
async def test_U11_a_dead_worker_has_the_last_word_on_nothing(alone: Space):
    space, site = alone, alone.site
    held = await hold(space, "creating", "creating")

    async def said(words: str) -> bool:
        found = await activities_of(await held.handle.describe())
        return any(words in each.sentence(datetime.now(UTC)) for each in found)

    await until(lambda: said("exceeded quota"), 60, "its worker says what it is refused")
    site.workers[0].kill()
    await until(lambda: said("the worker that had it was lost"), 60, "it is told that the worker was lost")
    assert not await said("exceeded quota"), "what the dead worker said last is not what is"
    await until(lambda: said("no worker of this cluster has taken it"), 60, "and that no other has come")
    await site.start_worker()
    await until(lambda: said("exceeded quota"), 60, "another worker says it again")
    assert not await said("no worker of this cluster")
    await held.release()
