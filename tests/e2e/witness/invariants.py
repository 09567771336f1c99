"""What must hold of a workload's whole life, whoever died meanwhile: judged by audit log, history and what is left.

Nothing here believes what Holdfast says of itself, but for the budgets it says it has charged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from temporalio.api.enums.v1 import EventType, WorkflowTaskFailedCause
from temporalio.client import Client, WorkflowHandle
from temporalio.worker import Replayer

from holdfast import names
from holdfast.model import Status
from holdfast.plugin import HoldfastPlugin
from tests.e2e.ground.space import Space
from tests.e2e.lives.scenarios import NAME, Scenario
from tests.e2e.witness import ledger
from tests.e2e.witness.audit import check_history
from tests.e2e.witness.law import WORKER, judge
from tests.e2e.witness.ledger import Ledger


def ledger_of(space: Space) -> Ledger:
    """Return what the audit log tells of a namespace."""
    return ledger.within(space.truth.log(), space.namespace)


async def check(
    space: Space, scenario: Scenario, handle: WorkflowHandle[Any, Any], status: Status, crashes: Sequence[datetime]
) -> None:
    """Check everything; the first thing that does not hold is raised as an AssertionError.

    Args:
        space: where the workload lived.
        scenario: what it lived.
        handle: its workflow.
        status: what the workflow ended with.
        crashes: when the worker died.
    """
    known = ledger_of(space)
    check_nothing_twice(known)
    check_the_law(known)
    check_deletions(known)
    if scenario.replaces:
        check_nothing_filled_up(known, crashes)
    attempts = len({life.attempt for life in known.lives.values()})
    check_charges(scenario, status, attempts)
    await check_nothing_left(space, known)
    await check_decisions(handle)
    await space.truth.settle()
    space.truth.assert_one_attempt_at_a_time(NAME)


def check_nothing_twice(known: Ledger) -> None:
    """Within an attempt the worker has made its owner, and each copy of each launch of each component, once."""
    ours = [one for one in known.lives.values() if one.user == WORKER]
    made = Counter((one.workload, one.attempt, one.place[1], one.component, one.launch, one.copy) for one in ours)
    twice = [key for key, count in made.items() if count > 1]
    assert not twice, f"created twice within one attempt: {twice}"


def check_the_law(known: Ledger) -> None:
    """There was a reset, and nothing of an attempt was asked for before all of the last was gone."""
    verdict = judge(known)
    assert verdict.resets, "no reset is in the audit log: this shows nothing"
    assert not verdict.broken, "\n".join(verdict.broken)
    assert not verdict.unseen, f"attempts without their predecessor: {verdict.unseen}"


def check_deletions(known: Ledger) -> None:
    """The worker named the uid of all that it deleted, and had attempts deleted in the foreground."""
    ours = [one for one in known.deletions if one.user == WORKER]
    for one in ours:
        assert (one.options.get("preconditions") or {}).get("uid"), f"deleted without a uid: {one}"
    attempts = [one for one in ours if one.place[1] == names.ATTEMPT_PLURAL]
    assert attempts, "no deletion of an attempt is in the audit log"
    first = {one.place: one for one in sorted(attempts, key=lambda one: one.received, reverse=True)}
    for one in first.values():
        # Once all else is gone, a forced removal deletes an owner at once.
        assert one.options.get("propagationPolicy") == "Foreground", f"deleted in the background: {one}"


def check_nothing_filled_up(known: Ledger, crashes: Sequence[datetime]) -> None:
    """What a crash left half-made was neither gone on with nor taken for whole (row S4)."""
    owners = {one.attempt: one.place for one in known.lives.values() if one.place[1] == names.ATTEMPT_PLURAL}
    for crash in crashes:
        for attempt, owner in owners.items():
            made = [one for one in known.lives.values() if one.attempt == attempt and one.component and not one.launch]
            submitted = known.submitted.get(owner)
            if not any(one.received < crash for one in made) or (submitted is not None and submitted < crash):
                continue
            added = [str(one) for one in made if one.received > crash and one.user == WORKER]
            assert not added, f"half-made when the worker died at {crash:%H:%M:%S.%f}, and filled up: {added}"
            assert submitted is None, f"attempt {attempt} was half-made at {crash:%H:%M:%S.%f}, and marked submitted"
            assert max(owners) > attempt, f"attempt {attempt} was half-made, and not made anew"


def check_charges(scenario: Scenario, status: Status, attempts: int) -> None:
    """It ended as it would have without a crash, and no budget was charged for one."""
    used = {budget.name: budget.used for budget in status.budgets if budget.used}
    restarts = scenario.charged.get("restart", 0) if scenario.restarts is None else scenario.restarts
    expected = (scenario.phase, dict(scenario.charged), restarts)
    assert (status.phase, used, status.restarts) == expected, status.model_dump_json(indent=1)
    if scenario.replaces:
        assert attempts >= scenario.attempts, f"{attempts} attempts, expected at least {scenario.attempts}"
    else:
        assert attempts == scenario.attempts, f"{attempts} attempts, expected {scenario.attempts}"


async def check_nothing_left(space: Space, known: Ledger) -> None:
    """By the log and by a look, nothing of the workload is there; its anchor, if it stays, is let go."""
    left = [str(life) for life in known.lives.values() if life.gone is None]
    assert not left, f"the log does not show that these are gone: {left}"
    for api_version, kind in space.truth.kinds:
        found = await space.site.objects(api_version, kind, space.namespace, labels=names.LABEL_WORKLOAD_UID)
        for one in found:
            assert kind == names.ANCHOR_KIND, f"left behind: {kind} {one['metadata']['name']}"
            assert names.FINALIZER not in (one["metadata"].get("finalizers") or ()), "its anchor is not let go"


async def check_entity(space: Space) -> None:
    """Check what holds of each life of an entity, and of each workload that had to do with it.

    Nothing is there twice, no attempt beside another, nothing deleted without a uid, nothing left; and each workflow
    that ran here, of whichever run, can be replayed by any worker and has failed no task.
    """
    known = ledger_of(space)
    check_nothing_twice(known)
    broken = judge(known).broken
    assert not broken, "\n".join(broken)
    if known.lives:
        check_deletions(known)
    await check_nothing_left(space, known)
    await check_replays(space.site.client)


async def check_replays(client: Client) -> None:
    """Each run of each workflow of a Temporal namespace has failed no task, and replays."""
    replayer = Replayer(workflows=[], plugins=[HoldfastPlugin(["workflows"])])
    count = 0
    async for run in client.list_workflows():
        handle = client.get_workflow_handle(run.id, run_id=run.run_id)
        await check_decisions(handle)
        result = await replayer.replay_workflow(await handle.fetch_history(), raise_on_replay_failure=False)
        assert result.replay_failure is None, f"{run.id} cannot be replayed: {str(result.replay_failure)[:400]}"
        count += 1
    assert count, "no workflow has run here: this shows nothing"


async def check_decisions(handle: WorkflowHandle[Any, Any]) -> None:
    """No decision failed or came out otherwise when it was replayed, and history can be read.

    That a run may not end yet, since something has come meanwhile, is the server's word, and no decision failed by it.
    """
    events = await check_history(handle)
    failed = [
        event.workflow_task_failed_event_attributes
        for event in events
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED
    ]
    late = WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_COMMAND
    assert all(one.cause == late for one in failed), [one.failure.message for one in failed]
