"""What a submission waits for: pods are none of it, rights and quotas are, and for how long (Streams, S2 and S10)."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import names
from holdfast.model import OperationKind
from tests.e2e.ground.site import until
from tests.e2e.ground.space import PENDING, Handle, Space
from tests.e2e.lives.streams import (
    NAME,
    cancelled,
    conditions,
    config_map,
    creations,
    half_made,
    let_config_maps,
    let_pods,
    listed,
    pes,
    says,
    streams,
    submission_of,
    told,
    uids,
)

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300), pytest.mark.asyncio(loop_scope="session")]
ROW = pytest.mark.row


# --- S2: what Submitted means


@ROW("S2", level="e2e")
async def test_S2_submitted_is_that_all_exists_and_not_that_it_runs(space: Space):
    handle = await space.submit(streams(config_map(), *pes(3, labels=PENDING)))

    async def submitted() -> bool:
        return conditions(await space.site.status(handle))["Submitted"]

    await until(submitted, 60, "it is submitted")
    await listed(space, handle, submitted=True)
    status = await space.site.status(handle)
    assert (status.phase, status.reason) == ("Resuming", "Submitted")
    assert not conditions(status)["PodsReady"]
    explanation = await space.explain(handle)
    assert (explanation.phase, explanation.now) == ("Resuming", "0 of 3 pods running")

    await space.truth.settle()
    shown = space.truth.shown(NAME)[-1]
    assert (shown.phase, shown.conditions["Submitted"][0], shown.conditions["PodsReady"][0]) == (
        "Resuming",
        True,
        False,
    )
    ((_, message),) = await told(space, "SubmissionSucceeded", "SubmissionFailed")
    assert f"submission {await submission_of(space, 1)}" in message
    assert {one.phase for one in space.truth.shown(NAME)} == {"Resuming"}, "it never was Running"

    for name in await uids(space):
        await space.patch("v1", "Pod", name, {"metadata": {"labels": dict.fromkeys(PENDING)}})
    assert conditions(await space.reach(handle, "Running", 1))["PodsReady"]
    await cancelled(handle)


@ROW("S2", level="e2e")
async def test_S2_without_the_right_to_one_object_it_stays_in_submission_until_it_has_it(space: Space):
    await let_config_maps(space, False)
    handle = await space.submit(streams(config_map(), *pes(2)))
    text = await says(handle, "waiting for 3 components to be permitted")
    assert f"service account {space.namespace}/{names.RUN_AS_DEFAULT} may not create configmaps" in text
    await listed(space, handle, submitted=False)
    status = await space.site.status(handle)
    assert (status.phase, conditions(status)["Submitted"]) == ("Resuming", False)
    await space.truth.settle()
    assert not creations(space), "not even the pods, which it has the right to"

    await let_config_maps(space, True)
    status = await space.reach(handle, "Running")
    assert (status.attempt, conditions(status)["Submitted"]) == (1, True)
    await listed(space, handle, submitted=True)
    await cancelled(handle)


# --- S10: how long


@ROW("S10", level="e2e")
async def test_S10_a_submission_that_takes_too_long_fails(space: Space):
    await let_pods(space, 0)
    handle = await space.submit(streams(config_map(), *pes(2), submissionTimeout="6s"))
    status = await space.ended(handle)
    assert (status.phase, status.reason, status.executions) == ("Failed", "SubmissionTimeout", 1)
    assert status.failure is not None
    assert "exceeded quota" in status.failure.message
    failed = await told(space, "SubmissionFailed")
    assert len(failed) == 1
    assert "exceeded quota" in failed[0][1]
    (create,) = await space.acts(handle, OperationKind.CREATE)
    assert create.ended is not None
    assert (create.ended - create.scheduled).total_seconds() >= 6
    await space.truth.settle()
    assert not [life for life in space.truth.lives.values() if life.attempt and not life.died]


@ROW("S10", level="e2e")
async def test_S10_without_a_timeout_it_stays_insubmission_of(space: Space):
    handle = await half_made(space, 2, 0)
    await asyncio.sleep(10)
    text = await says(handle, "pe-0", "exceeded quota")
    assert "waiting for 2 of 2 Pod" in text
    status = await space.site.status(handle)
    assert (status.phase, status.attempt, conditions(status)["Submitted"]) == ("Resuming", 1, False)
    await let_pods(space, 2)
    assert (await space.reach(handle, "Running")).attempt == 1
    await cancelled(handle)


@ROW("S10", level="e2e")
async def test_S10_a_timeout_that_is_changed_reaches_a_submission_that_waits(space: Space):
    handle = await half_made(space, 2, 1)
    await says(handle, "pe-1", "exceeded quota")
    before = await uids(space)
    await handle.execute_update(names.UPDATE_POLICY, {"timings": {"submissionTimeout": "1h"}})
    await until(lambda: begun_again(space, handle), 60, "its creation has been begun anew")
    await says(handle, "pe-1", "exceeded quota")
    status = await space.site.status(handle)
    assert (status.phase, status.attempt, status.executions) == ("Resuming", 1, 1)
    assert await uids(space) == before, "what was made stays as it is"
    await handle.execute_update(names.UPDATE_POLICY, {"timings": {"submissionTimeout": "1s"}})
    status = await space.ended(handle)
    assert (status.phase, status.reason, status.executions) == ("Failed", "SubmissionTimeout", 1)


@ROW("S10", level="e2e")
async def test_S10_a_creation_that_was_begun_anew_ends_well_in_the_same_attempt(space: Space):
    handle = await half_made(space, 2, 1)
    await says(handle, "pe-1", "exceeded quota")
    before = await uids(space)
    await handle.execute_update(names.UPDATE_POLICY, {"timings": {"submissionTimeout": "1h"}})
    await until(lambda: begun_again(space, handle), 60, "its creation has been begun anew")
    await let_pods(space, 2)
    status = await space.reach(handle, "Running")
    assert (status.attempt, status.executions) == (1, 1)
    after = await uids(space)
    assert before.items() <= after.items()
    await cancelled(handle)


async def begun_again(space: Space, handle: Handle) -> bool:
    return len(await space.acts(handle, OperationKind.CREATE)) > 1
