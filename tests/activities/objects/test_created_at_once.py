"""A preparation that also creates: at its first try only, and never beside what an earlier try may have left."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from temporalio.activity import ActivityCancellationDetails

from holdfast import names
from holdfast.activities.cluster import ClusterActivities
from holdfast.activities.kube.client import Object, Unreachable
from holdfast.model import Condition, ConditionType, Event, Limits, Reason
from holdfast.model.calls.cluster import Prepared
from tests.activities.bench import INSTALLATION, RENDEZVOUS, Bench, config, deployment, eventually, job, pod
from tests.activities.operations.test_crashes import BEFORE_OR_AFTER, Crash, Crashing
from tests.activities.operations.test_submission import let_jobs, said, submitted
from tests.quotas import limited

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]
ROW = pytest.mark.row
ATTEMPTS = "/attempts"


def reports(bench: Bench) -> dict[str, Any]:
    """Return the two reports of one operation, as each of its tries has them."""
    said = Event(reason=Reason.SUBMISSION_SUCCEEDED, message=f"submission {names.SUBMISSION}: all of it exists")
    all_of_it = Condition(type=ConditionType.SUBMITTED, status=True, reason=Reason.SUBMITTED)
    return {"report": bench.report(), "report_submitted": bench.report(events=(said,), conditions=(all_of_it,))}


async def uid_of_owner(bench: Bench) -> str:
    owner = await bench.owner()
    assert owner is not None
    return owner["metadata"]["uid"]


async def lose(bench: Bench, how: str = "gone") -> None:
    """Delete the attempt's owner: it is gone at once, before its pods, or dies as the collector comes to its pods."""
    name = names.attempt_name(bench.target.name, bench.attempt)
    key = (names.API_VERSION, names.ATTEMPT_KIND, name, bench.namespace)
    foreground = "Foreground" if how == "dying" else "Background"
    await bench.admin.delete(*key, uid=await uid_of_owner(bench), propagation=foreground)

    async def gone() -> bool:
        return await bench.owner() is None

    if how == "gone":
        await eventually(gone)


class Gate:
    """Holds the first change that matches, until it is opened."""

    def __init__(self, bench: Bench, matches: Callable[[str, str], bool]) -> None:
        self._send, self._matches = bench.kube.mutate, matches
        self.reached, self.opened = asyncio.Event(), asyncio.Event()
        bench.kube.mutate = self._mutate  # type: ignore[method-assign]

    async def _mutate(self, method: str, path: str, **options: Any) -> Object:
        if self._matches(method, path) and not self.reached.is_set():
            self.reached.set()
            await self.opened.wait()
        return await self._send(method, path, **options)


def makes_owner(method: str, path: str) -> bool:
    return method == "POST" and path.endswith(ATTEMPTS)


async def held(bench: Bench) -> None:
    """Have a pod that a finalizer keeps, so that it outlives its owner."""
    (made,) = await bench.pods()
    finalizers = {"metadata": {"finalizers": ["example.com/hold"]}}
    metadata = made["metadata"]
    await bench.admin.patch("v1", "Pod", metadata["name"], bench.namespace, uid=metadata["uid"], patch=finalizers)


async def let_go(bench: Bench) -> None:
    for one in await bench.pods():
        metadata, finalizers = one["metadata"], {"metadata": {"finalizers": None}}
        await bench.admin.patch("v1", "Pod", metadata["name"], bench.namespace, uid=metadata["uid"], patch=finalizers)


async def test_S12_one_activity_makes_the_attempt_and_tells_of_it(bench: Bench):
    bench.components = (config(), job())
    send, changes = bench.kube.mutate, list[str]()

    async def mutate(method: str, path: str, **options: Any) -> Object:
        changes.append(path.rpartition("/")[2])
        return await send(method, path, **options)

    bench.kube.mutate = mutate  # type: ignore[method-assign]
    prepared = await bench.begin(**reports(bench))
    assert changes[:4] == ["anchors", "status", "attempts", bench.target.name], "the anchor never denies what exists"
    assert prepared.created is not None
    assert (prepared.created.failure, len(prepared.created.objects)) == (None, 2)
    owner, anchor = await bench.owner(), await bench.anchor()
    assert owner is not None
    assert anchor is not None
    assert owner["metadata"]["uid"] == prepared.owner_uid
    assert owner["status"] == {"submitted": True}
    assert anchor["status"]["sequence"] == 2
    (event,) = await bench.events()
    assert event["message"] == f"submission {prepared.owner_uid}: all of it exists"


@ROW("A19", level="e2e")
@BEFORE_OR_AFTER
async def test_A19_a_worker_that_dies_at_any_change_leaves_the_rest_to_creation(bench: Bench, after: bool):
    bench.components = (config(), job(), deployment(), pod())
    crashing, given, later, tries = Crashing(bench.kube), reports(bench), reports(bench), 0
    prepared: Prepared | None = None

    async def work() -> None:
        nonlocal tries, prepared
        tries += 1
        if prepared is None:
            prepared = await bench.begin(tries, **given)
            assert prepared.created is None
        assert (await bench.create(patience=5.0, **later)).failure is None

    assert await crashing.survive(work, after) >= 8
    owners = await bench.admin.list(names.API_VERSION, names.ATTEMPT_KIND, bench.namespace)
    assert len(owners["items"]) == 1

    async def all_run() -> bool:
        return (await bench.observe()).pods.running == 5

    await eventually(all_run)
    assert len(await bench.pods()) == 5


async def dies_after(bench: Bench, changes: int, given: dict[str, Any]) -> None:
    """Let the worker die at its first try, once so many changes have been made."""
    made, send = 0, bench.kube.mutate

    async def mutate(method: str, path: str, **options: Any) -> Object:
        nonlocal made
        if made == changes:
            raise Crash
        made += 1
        return await send(method, path, **options)

    bench.kube.mutate = mutate  # type: ignore[method-assign]
    with pytest.raises(Crash):
        await bench.begin(1, **given)
    bench.kube.mutate = send  # type: ignore[method-assign]


@pytest.mark.parametrize("died_after", range(9))
async def test_A19_wherever_the_first_try_dies_the_second_finds_it_whole_or_makes_it(bench: Bench, died_after: int):
    """Nine changes: anchor, status, owner, mark, three components, the owner's status, and the status of the end."""
    bench.components = (config(), job(), pod())
    given = reports(bench)
    await dies_after(bench, died_after, given)
    prepared = await bench.begin(2, **given)
    assert prepared.created is None
    assert prepared.owner_uid
    assert (await bench.create()).failure is None
    assert await submitted(bench)
    owners = await bench.admin.list(names.API_VERSION, names.ATTEMPT_KIND, bench.namespace)
    assert len(owners["items"]) == 1


@ROW("L13", level="e2e")
async def test_nothing_is_created_under_an_owner_that_was_made_after_its_removal(bench: Bench):
    """The worker stalls before it makes the owner; meanwhile another makes the attempt, which is then removed."""
    bench.components = (pod(),)
    report, done = bench.report(), bench.report()
    gate = Gate(bench, makes_owner)
    late = asyncio.ensure_future(bench.begin(1, report=report, report_submitted=done))
    await gate.reached.wait()
    taken_over = await bench.begin(2, report=report, report_submitted=done)
    assert taken_over.owner_uid
    assert (await bench.create()).failure is None
    assert (await bench.remove()).gone
    gate.opened.set()
    prepared = await late
    assert (prepared.created, await bench.pods()) == (None, [])
    assert await uid_of_owner(bench) not in {"", taken_over.owner_uid}, "it came late, and nothing is under it"


@ROW("L13", level="e2e")
async def test_one_that_stalled_before_it_made_the_anchor_creates_nothing_though_no_report_could_stop_it(bench: Bench):
    """The life ended meanwhile: without an anchor, its removal had nothing to report on."""
    # The removal takes longer than half of this timeout, so another try may have begun by then.
    bench.components, bench.heartbeat_timeout = (pod(),), timedelta(milliseconds=2)
    gate = Gate(bench, lambda method, path: method == "POST" and path.endswith("/anchors"))
    late = asyncio.ensure_future(bench.begin(1, **reports(bench)))
    await gate.reached.wait()
    assert (await bench.remove(owner_uid="", release_anchor=True)).gone
    gate.opened.set()
    assert ((await late).created, await bench.pods()) == (None, [])


@ROW("L13", level="e2e")
@pytest.mark.parametrize(("late", "creates"), [(1, True), (5, False)])
async def test_one_that_temporal_has_waited_for_may_have_been_given_up(bench: Bench, late: int, creates: bool):
    bench.heartbeat_timeout, bench.late = timedelta(seconds=8), timedelta(seconds=late)
    prepared = await bench.begin(1, **reports(bench))
    assert (prepared.created is not None, prepared.owner_uid != "") == (creates, True)


@ROW("L13", level="e2e")
async def test_two_first_tries_create_under_one_owner(bench: Bench):
    """A person resets the activity while its worker stalls; then somebody deletes the owner of the second."""
    bench.components = (pod(),)
    given = reports(bench)
    gate = Gate(bench, makes_owner)
    late = asyncio.ensure_future(bench.begin(1, **given))
    await gate.reached.wait()
    made = (await bench.begin(1, **given)).owner_uid
    await eventually(bench.pods)
    await held(bench)
    await lose(bench)
    gate.opened.set()
    assert (await late).created is None
    lost = (await bench.begin(2, **given)).created
    assert lost is not None
    assert lost.failure is not None
    assert {one["metadata"]["ownerReferences"][0]["uid"] for one in await bench.pods()} == {made}
    await let_go(bench)


@ROW("L13", level="e2e")
async def test_what_is_made_before_a_removals_report_is_answered_is_removed_too(bench: Bench):
    bench.components = (pod(),)
    first, begun, gone = reports(bench), bench.report(), bench.report()
    gate = Gate(bench, makes_owner)
    late = asyncio.ensure_future(bench.begin(1, **first))
    await gate.reached.wait()
    removing, dark = await Bench.make(bench.admin, bench.admin, bench.namespace), asyncio.Event()
    removing.components, removing.target = bench.components, bench.target
    send, unanswered = removing.kube.mutate, 0

    async def mutate(method: str, path: str, **options: Any) -> Object:
        nonlocal unanswered
        if path.endswith("/status") and not dark.is_set():
            unanswered += 1
            raise Unreachable(429, "TooManyRequests", "it is overloaded")
        return await send(method, path, **options)

    removing.kube.mutate = mutate  # type: ignore[method-assign]
    removed = asyncio.ensure_future(removing.remove(owner_uid="", report=begun, report_gone=gone))

    async def has_looked() -> bool:
        return unanswered > 3

    await eventually(has_looked)
    gate.opened.set()
    assert (await late).created is not None
    dark.set()
    assert (await removed).gone
    assert (await bench.owner(), await bench.pods()) == (None, [])


async def test_a_removal_proves_an_owner_of_another_uid_gone_too(bench: Bench):
    await bench.begin(**reports(bench))
    assert (await bench.owner()) is not None
    assert (await bench.remove(owner_uid="an-earlier-one")).gone
    assert (await bench.owner(), await bench.pods()) == (None, [])


@ROW("L13", level="e2e")
async def test_who_takes_over_stops_the_one_before(bench: Bench):
    """Its owner could be deleted and made again by the one before, beside pods that are still ending."""
    bench.components = (pod(),)
    given = reports(bench)
    assert (await bench.begin(2, **given)).created is None
    await lose(bench)
    prepared = await bench.begin(1, **given)
    assert (prepared.created, prepared.owner_uid, await bench.owner(), await bench.pods()) == (None, "", None, [])
    assert prepared.sequence == given["report_submitted"].sequence, "so that the next report is above it"


@pytest.mark.parametrize("when", ["in the middle", "at the end"])
@pytest.mark.parametrize("how", ["gone", "dying"])
async def test_nothing_is_made_beside_the_pods_of_a_lost_owner(bench: Bench, how: str, when: str):
    bench.components = (pod(),)
    given = reports(bench)
    if when == "in the middle":
        await dies_after(bench, 5, given)
    else:
        await bench.begin(1, **given)
    await eventually(bench.pods)
    await held(bench)
    made = await uid_of_owner(bench)
    await lose(bench, how)
    for tries in (2, 3):
        prepared = await bench.begin(tries, **given)
        assert prepared.owner_uid == made
        assert prepared.created is not None
        assert prepared.created.failure is not None
        assert prepared.created.failure.reason == "OwnerGone"
    removal = asyncio.ensure_future(bench.remove())
    await let_go(bench)
    assert (await removal).gone
    assert await bench.pods() == []


async def test_what_was_allowed_when_it_began_is_left_to_its_creation(bench: Bench):
    """A refusal here would end the workload, and leave what the first try has made."""
    bench.components = (config(), job())
    given = reports(bench)
    await bench.begin(1, **given)
    await let_jobs(bench, False)
    prepared = await bench.begin(2, **given)
    assert (prepared.created, prepared.owner_uid != "") == (None, True)


async def test_a_grace_beyond_the_limit_of_the_operator_is_cut(bench: Bench):
    limits, cluster = Limits(grace_period_maximum=timedelta(seconds=1)), bench.target.cluster_uid
    bench.activities = ClusterActivities(bench.kube, "test", cluster, INSTALLATION, limits, rendezvous=RENDEZVOUS)
    await limited(bench.admin, bench.namespace, {"count/jobs.batch": "0"}, name="none")
    begun = asyncio.get_running_loop().time()
    prepared = await bench.begin(patience=60.0, **reports(bench))
    assert asyncio.get_running_loop().time() - begun < 20
    assert prepared.created is not None
    assert prepared.created.failure is not None
    assert prepared.created.failure.reason == "QuotaExceeded"


async def test_S10_what_was_made_is_handed_over_when_it_is_broken_off(bench: Bench):
    bench.components = (config(), job())
    await limited(bench.admin, bench.namespace, {"count/jobs.batch": "0"}, name="none")
    task = asyncio.ensure_future(bench.begin(patience=60.0, **reports(bench)))
    await eventually(lambda: said(bench, "creating Job"))
    assert bench.environment is not None
    bench.environment.cancel(ActivityCancellationDetails(cancel_requested=True))
    prepared = await task
    assert prepared.broken_off
    assert prepared.created is not None
    assert [one.kind for one in prepared.created.objects] == ["ConfigMap"]
    assert (await bench.remove(owner_uid="")).gone
    assert await bench.owner() is None


@ROW("L13", level="e2e")
async def test_a_first_try_that_comes_again_takes_over(bench: Bench):
    """Temporal counts the tries of an activity anew when a person resets it."""
    given = reports(bench)
    made = (await bench.begin(1, **given)).owner_uid
    again = await bench.begin(1, **given)
    assert (again.created, again.owner_uid) == (None, made)
    await lose(bench)
    lost = (await bench.begin(1, **given)).created
    assert lost is not None
    assert lost.failure is not None


@ROW("L13", level="e2e")
async def test_who_takes_over_too_late_makes_no_owner(bench: Bench):
    """Temporal may give a try to a worker that it cannot reach; meanwhile the attempt is removed and proven gone."""
    given = reports(bench)
    await bench.begin(1, **given)
    assert (await bench.remove()).gone
    prepared = await bench.begin(2, **given)
    assert prepared.created is not None
    assert "replaced whole" in prepared.created.interrupted
    assert await bench.owner() is None
