"""A preparation that also creates: at its first try only, and never beside what an earlier try may have left."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from temporalio.activity import ActivityCancellationDetails
from temporalio.exceptions import ApplicationError

from holdfast import names
from holdfast.activities.cluster import ClusterActivities
from holdfast.activities.kube.client import Object, Unreachable
from holdfast.model import Component, Condition, ConditionType, Event, Limits, Reason
from holdfast.model.calls.cluster import Prepared
from tests.activities.bench import (
    INSTALLATION,
    RENDEZVOUS,
    Bench,
    asked_of,
    config,
    deployment,
    eventually,
    job,
    pod,
    spoiled,
)
from tests.activities.operations.test_crashes import BEFORE_OR_AFTER, Crash, Crashing
from tests.activities.operations.test_submission import let_jobs, said, submitted
from tests.quotas import limited

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]
ROW = pytest.mark.row
ATTEMPTS = "/attempts"


def reports(bench: Bench) -> dict[str, Any]:
    """Return the two reports of one operation, as each of its tries has them."""
    said = Event(reason=Reason.STARTING, message="all of it exists")
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


CHECKS = ["GET kube-system", "GET {namespace}", "GET holdfast-runner", *["POST selfsubjectaccessreviews"] * 6]
MADE = ["POST anchors", "POST attempts", "PATCH status", "POST jobs", "PATCH status", "PATCH status"]


async def test_one_job_is_submitted_with_six_changes_alone_once_its_rights_are_known(bench: Bench):
    asked = asked_of(bench)
    assert (await bench.begin(**reports(bench))).created is not None
    checks = [one.format(namespace=bench.namespace) for one in CHECKS]
    assert [one for one in asked if not one.startswith("GET v1")] == [*checks, *MADE, "POST events"]
    other = await Bench.make(bench.kube, bench.admin, bench.namespace)
    other.activities, other.components = bench.activities, (job("other"),)
    other.target = other.target.model_copy(update={"name": "second", "workload_uid": "uid-of-second"})
    del asked[:]
    assert (await other.begin()).created is not None
    assert asked == [*MADE]


class TestRefusedAtOnce:
    """One object is sent without a rehearsal: what is refused for good leaves nothing, and names each field."""

    async def refused(self, bench: Bench, component: Component) -> str:
        bench.components = (component,)
        with pytest.raises(ApplicationError) as caught:
            await bench.begin(**reports(bench))
        assert (caught.value.type, caught.value.non_retryable) == (names.ERROR_REFUSED, True)
        assert (await bench.anchor(), await bench.owner()) == (None, None)
        return caught.value.message

    @ROW("U14", level="e2e")
    async def test_U14_a_field_of_a_value_that_is_not_allowed(self, bench: Bench):
        message = await self.refused(bench, spoiled(pod(), restartPolicy="Odd"))
        assert message.endswith(
            "spec.restartPolicy: is not one of the allowed values; allowed: Always, OnFailure, Never (found 'Odd')"
        )
        assert await bench.pods() == []

    @ROW("U14", level="e2e")
    async def test_U14_a_field_that_the_server_does_not_know(self, bench: Bench):
        message = await self.refused(bench, spoiled(job(), parallelims=3))
        assert message.endswith("spec.parallelims: is no field that the API server knows")
        assert await bench.admin.find("batch/v1", "Job", "work", bench.namespace) is None

    async def test_what_injection_cannot_add(self, bench: Bench):
        message = await self.refused(bench, job(metadata={"labels": {names.LABEL_ATTEMPT: "7"}}))
        assert f"labels[{names.LABEL_ATTEMPT}]: the template sets" in message

    async def test_a_name_that_is_taken(self, bench: Bench):
        body: Object = {**job().template, "metadata": {"name": "work", "namespace": bench.namespace}}
        there = await bench.admin.create(body)
        message = await self.refused(bench, job())
        assert f"Job {bench.namespace}/work is there already and is not ours" in message
        found = await bench.admin.get("batch/v1", "Job", "work", bench.namespace)
        assert found["metadata"]["uid"] == there["metadata"]["uid"]

    async def test_what_a_quota_refuses_is_no_refusal_for_good(self, bench: Bench):
        await limited(bench.admin, bench.namespace, {"count/jobs.batch": "0"}, name="none")
        prepared = await bench.begin(**reports(bench))
        assert prepared.created is not None
        assert prepared.created.failure is not None
        assert (prepared.created.failure.reason, prepared.created.exhausted) == ("QuotaExceeded", True)
        anchor = await bench.anchor()
        assert anchor is not None
        assert anchor["status"]["sequence"] == 1, "what its workflow knows to be told is told"

    @BEFORE_OR_AFTER
    async def test_U14_a_worker_that_dies_as_it_is_refused_leaves_a_refusal(self, bench: Bench, after: bool):
        """Its owner exists: creation asks again, as strictly, and its refusal fails the attempt."""
        bench.components = (spoiled(job(), parallelims=3),)
        given = reports(bench)
        await dies_after(bench, 4 if after else 3, given)
        prepared = await bench.begin(2, **given)
        assert (prepared.created, prepared.owner_uid != "") == (None, True)
        failure = (await bench.create()).failure
        assert failure is not None
        assert failure.reason in {"BadRequest", "Invalid"}
        assert 'unknown field "spec.parallelims"' in failure.message


async def test_S12_one_activity_makes_the_attempt_and_tells_of_it(bench: Bench):
    bench.components = (config(), job())
    asked = asked_of(bench)
    prepared = await bench.begin(**reports(bench))
    changes = [one for one in asked if one.startswith(("POST", "PATCH")) and "review" not in one]
    assert changes[:3] == ["POST anchors", "POST attempts", "PATCH status"], "a new anchor denies nothing"
    assert len([one for one in asked if one.startswith("dry ")]) == 2, "of several objects some would exist"
    assert prepared.created is not None
    assert (prepared.created.failure, len(prepared.created.objects)) == (None, 2)
    owner, anchor = await bench.owner(), await bench.anchor()
    assert owner is not None
    assert anchor is not None
    assert owner["metadata"]["uid"] == prepared.owner_uid
    assert owner["status"] == {"submitted": True}
    assert anchor["status"]["sequence"] == 2
    (event,) = await bench.events()
    assert event["message"] == "all of it exists"


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
    """Nine changes: anchor, owner, mark, three components, the owner's status, the status of the end, and its Event."""
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
