"""Suspension in place on a real cluster: Jobs stay, their pods go, proven, and they go on with what is new (J14)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import names
from holdfast.activities.facts.objects import launch_of
from holdfast.activities.kube.client import Object
from holdfast.model import Component, PodSet, SchedulingGate, Toleration
from holdfast.model.calls.plan import CopyLaunch
from tests.activities.bench import Bench, config, eventually, job
from tests.activities.operations.test_clear import copied, end, pod_of, uids
from tests.activities.operations.test_replace import changes, finalize, said

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

HOLD = "example.com/hold"


@pytest.fixture
async def copies(bench: Bench) -> Bench:
    """Three copies of which the first has ended, a Job that runs on, and a ConfigMap."""
    bench.components = (config(), copied(), job("driver", 1))
    await bench.launch()
    await end(bench, "w-0")
    return bench


async def job_of(bench: Bench, name: str) -> Object:
    return await bench.admin.get("batch/v1", "Job", name, bench.namespace)


async def going(bench: Bench) -> list[str]:
    pods = [one for one in await bench.pods() if one["status"].get("phase") not in {"Succeeded", "Failed"}]
    return sorted(one["metadata"]["ownerReferences"][0]["name"] for one in pods)


@pytest.mark.row("J14", level="e2e")
async def test_J14_jobs_are_suspended_where_they_are_and_their_pods_are_gone(copies: Bench):
    bench, before = copies, await uids(copies)
    made = changes(bench.kube)
    parked = await bench.park()
    assert (parked.done, parked.refused) == (True, "")
    assert await uids(bench) == before
    assert await going(bench) == []
    patched = {what: body for method, what, body in made if method == "PATCH" and what.startswith("jobs/")}
    assert sorted(patched) == ["jobs/driver", "jobs/w-1", "jobs/w-2"], "what has ended is left as it is"
    assert all({"uid", "resourceVersion"} <= set(body["metadata"]) for body in patched.values())
    assert [method for method, *_ in made if method == "DELETE"] == [], "the Job controller takes the pods away"
    assert parked.seen is not None
    counts = parked.seen.components["w"].copies
    assert counts is not None
    assert (counts.suspended, counts.succeeded, counts.active, counts.ready) == (2, 1, 0, 0)
    seen = parked.seen
    assert (seen.missing, seen.failures, seen.occupies, seen.parked) == ((), (), False, True)


@pytest.mark.row("J14", level="e2e")
async def test_J14_what_is_resumed_is_the_same_and_has_what_admission_gave(copies: Bench):
    bench, before = copies, await uids(copies)
    assert (await bench.park()).done
    placed = PodSet(
        path="template.spec.template",
        replicas=1,
        labels={"queue": "night"},
        annotations={"admitted-by": "night"},
        node_selector={"kubernetes.io/os": "linux"},
        tolerations=(Toleration(key="night", operator="Exists"),),
    )
    bench.components = tuple(
        one.model_copy(update={"pod_sets": (placed,)}) if one.expected_pods else one for one in bench.components
    )
    resumed = await bench.unpark(config_hashes={"w": "new", "driver": "new"})
    assert (resumed.done, resumed.refused) == (True, "")
    assert await uids(bench) == before
    for name in ("driver", "w-1", "w-2"):
        found = await job_of(bench, name)
        template = found["spec"]["template"]
        assert found["spec"]["suspend"] is False
        assert template["metadata"]["labels"]["queue"] == "night"
        assert template["metadata"]["labels"]["team"] == "blue", "what was there stays"
        assert template["metadata"]["annotations"]["admitted-by"] == "night"
        assert template["metadata"]["annotations"][names.ANNOTATION_CONFIG_HASH] == "new"
        assert template["spec"]["nodeSelector"]["kubernetes.io/os"] == "linux"
        assert template["spec"]["tolerations"] == [{"key": "night", "operator": "Exists"}]

    async def again() -> bool:
        return await going(bench) == ["driver", "w-1", "w-2"]

    await eventually(again, 30)
    ended = await job_of(bench, "w-0")
    assert "queue" not in ended["spec"]["template"]["metadata"]["labels"]


@pytest.mark.row("J11", level="e2e")
@pytest.mark.parametrize(
    ("launches", "copies_alone", "asleep"),
    [({"w": 1, "driver": 0}, {}, {"w-1", "w-2"}), ({}, {"w": {1: CopyLaunch(launch=1, restarts=1)}}, {"w-1"})],
)
async def test_J11_what_is_to_be_made_again_is_not_resumed_as_what_follows_it(
    copies: Bench, launches: dict[str, int], copies_alone: dict[str, dict[int, CopyLaunch]], asleep: set[str]
):
    """A replacement was broken off by the suspension before all old Jobs were deleted; it goes on after this."""
    bench = copies
    assert (await bench.park()).done
    assert (await bench.unpark(launches=launches, copy_launches=copies_alone)).done
    for name in ("driver", "w-1", "w-2"):
        found = await job_of(bench, name)
        assert found["spec"]["suspend"] is (name in asleep)
        assert found["spec"]["template"]["metadata"]["labels"][names.LABEL_LAUNCH] == "0"
    awake = sorted({"driver", "w-1", "w-2"} - asleep)

    async def again() -> bool:
        return await going(bench) == awake

    await eventually(again, 30)
    only = {name: tuple(known) for name, known in copies_alone.items()}
    replaced = await bench.replace(launches={"w": launches.get("w", 0)}, copies=only, copy_launches=copies_alone)
    assert (replaced.failure, replaced.left) == (None, ())
    made = {name: await job_of(bench, name) for name in asleep}
    assert {name: launch_of(one["spec"]["template"]) for name, one in made.items()} == dict.fromkeys(asleep, 1)


async def test_scheduling_gates_can_be_given_as_it_is_resumed(bench: Bench):
    bench.components = (job("driver", 1),)
    await bench.launch()
    assert (await bench.park()).done
    gated = PodSet(path="template.spec.template", replicas=1, scheduling_gates=(SchedulingGate(name="example.com/q"),))
    bench.components = (bench.components[0].model_copy(update={"pod_sets": (gated,)}),)
    assert (await bench.unpark()).done

    async def waits() -> bool:
        pods = [one for one in await bench.pods() if "deletionTimestamp" not in one["metadata"]]
        return any(one["spec"].get("schedulingGates") for one in pods)

    await eventually(waits, 30)


async def test_a_second_try_changes_nothing_that_is_done(copies: Bench):
    assert (await copies.park()).done
    made = changes(copies.kube)
    assert (await copies.park(tries=2)).done
    assert [what for _, what, _ in made if what.startswith("jobs/")] == []
    assert (await copies.unpark()).done
    made.clear()
    assert (await copies.unpark(tries=2)).done
    assert [what for _, what, _ in made if what.startswith("jobs/")] == []


@pytest.mark.parametrize("turn", [1, 3])
async def test_one_that_comes_late_from_an_earlier_turn_changes_nothing(copies: Bench, turn: int):
    """A worker that was taken over from: what it wanted has been done, and undone, by another."""
    bench = copies
    assert (await bench.park(turn=1)).done
    assert (await bench.unpark(turn=2)).done
    if turn == 3:
        assert (await bench.park(turn=3)).done
    made = changes(bench.kube)
    if turn == 1:
        late = await bench.park(turn=1)
        assert (late.done, late.turn) == (False, 2)
    else:
        back = await bench.unpark(turn=2)
        assert (back.done, back.turn) == (False, 3)
    assert [what for _, what, _ in made if what.startswith("jobs/")] == []


async def test_a_pod_that_does_not_end_is_deleted_by_force_after_its_grace(copies: Bench):
    bench = copies
    stubborn = (await pod_of(bench, "driver"))["metadata"]
    labels = {"metadata": {"labels": {"holdfast.dev/kwok-stubborn": "true"}}}
    await bench.admin.patch("v1", "Pod", stubborn["name"], bench.namespace, uid=stubborn["uid"], patch=labels)
    parked = await bench.park(grace=1.0)
    assert parked.done
    assert await going(bench) == []


async def test_a_foreign_finalizer_on_a_pod_is_named_while_it_is_waited_for(copies: Bench):
    bench = copies
    held = (await pod_of(bench, "w-1"))["metadata"]["name"]
    await finalize(bench, held, HOLD, "batch.kubernetes.io/job-tracking")
    task = asyncio.create_task(bench.park(grace=0.5))
    await eventually(lambda: said(bench, "suspending it in place"))
    await asyncio.sleep(2)
    assert not task.done()
    assert any(HOLD in line for one in bench.heartbeats for line in one["remaining"])
    await finalize(bench, held)
    assert (await task).done


async def test_what_may_not_be_patched_is_told_so_that_it_is_deleted_instead(copies: Bench):
    bench = copies
    await bench.may_not("patch", "batch/v1", "Job")
    parked = await bench.park()
    assert not parked.done
    assert "cannot patch" in parked.refused


@pytest.mark.parametrize("how", ["park", "unpark"])
async def test_without_its_owner_nothing_is_changed_any_more(copies: Bench, how: str):
    bench = copies
    if how == "unpark":
        assert (await bench.park()).done
    owner = await bench.owner()
    assert owner is not None
    metadata = owner["metadata"]
    where = (names.API_VERSION, names.ATTEMPT_KIND, metadata["name"], bench.namespace)
    await bench.admin.delete(*where, uid=metadata["uid"], propagation="Foreground")
    refused = (await bench.park()).refused if how == "park" else (await bench.unpark()).refused
    assert refused == "the attempt's owner is gone or being deleted"


async def test_a_job_that_another_hand_deleted_meanwhile_is_not_missed_before_it_is_resumed(copies: Bench):
    bench = copies
    assert (await bench.park()).done
    metadata = (await job_of(bench, "driver"))["metadata"]
    await bench.admin.delete("batch/v1", "Job", "driver", bench.namespace, uid=metadata["uid"])

    async def gone() -> bool:
        return "driver" not in await uids(bench)

    await eventually(gone)
    assert (await bench.observe()).missing == ()
    assert (await bench.unpark()).done
    assert (await bench.observe()).missing == ("driver",)


async def test_a_job_that_somebody_resumes_is_seen_and_suspended_again(copies: Bench):
    bench = copies
    assert (await bench.park()).done
    metadata = (await job_of(bench, "driver"))["metadata"]
    patch: dict[str, Any] = {"spec": {"suspend": False}}
    await bench.admin.patch("batch/v1", "Job", "driver", bench.namespace, uid=metadata["uid"], patch=patch)

    async def awake() -> bool:
        seen = await bench.observe()
        return seen.parked and seen.occupies

    await eventually(awake, 30)
    assert (await bench.park()).done
    assert await going(bench) == []


def test_components_that_are_jobs_alone_can_be_suspended_in_place():
    def kind(component: Component) -> bool:
        return component.parks

    assert kind(job())
    assert not kind(config())
