"""Record the histories that must go on replaying: `python -m tests.replay.record` writes tests/replay/histories/*.json.

Recorded on a real Temporal server with a scripted cluster. Recorded again only for a new scenario: a history that no
longer replays is a bug of the change, which needs a patch, and not a reason to record anew.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from temporalio.client import WorkflowHandle, WorkflowUpdateFailedError

from holdfast import names
from holdfast.model import (
    Action,
    ActionKind,
    After,
    AtEnd,
    Component,
    ComponentView,
    CopyCounts,
    Deletion,
    Match,
    PodCounts,
    Policy,
    Rule,
    Scope,
    StartStatus,
    Status,
    Success,
    SuspendMode,
)
from holdfast.model.calls.stage import Staged
from holdfast.model.spec.mount import Mount
from holdfast.policy.verdicts.strip import StripRequest
from tests.policy.lives.elements import job, jobs
from tests.policy.lives.life import workload
from tests.replay.admission import ADMISSION
from tests.replay.gangs import GANGS
from tests.replay.machines import MACHINES
from tests.replay.recovery import RECOVERY
from tests.shared_stack import shared_stack
from tests.workflows.conftest import SCALED, STREAMS, Run, opener

HISTORIES = Path(__file__).parent / "histories"
ROOT = Path(__file__).parents[2]
GATES = ("prepare", "create", "observe", "remove", "report")
Handle = WorkflowHandle[Any, Status]
CLEARED = Policy(
    default=Action(kind=ActionKind.FAIL, charge=None, grace=False),
    deletion=Deletion(at_end=AtEnd.ACTIVE),
    timings=SCALED.model_copy(update={"deletion_on_failure_grace_period": timedelta(seconds=2)}),
)
PARKED = Policy(deletion=Deletion(suspend=SuspendMode.IN_PLACE), timings=SCALED)


async def happy_path(run: Run) -> Handle:
    handle = await run.start()
    await run.running(handle)
    await run.cluster.sees(handle, 1, succeeded=2, complete=True)
    return handle


async def created_at_once(run: Run) -> Handle:
    """Start it as a client does, and reset it: each preparation creates, and since `reset-at-once` a look removes."""
    run.cluster.at_once = True
    handle = await run.start(client=True)
    await run.running(handle)
    await run.cluster.sees(handle, 1, running=1, failed=1)
    await run.running(handle, 2)
    await run.cluster.sees(handle, 2, succeeded=2, complete=True)
    return handle


async def reset(run: Run) -> Handle:
    handle = await run.start()
    await run.running(handle)
    await run.cluster.sees(handle, 1, running=1, failed=1)
    await run.running(handle, 2)
    await run.cluster.sees(handle, 2, succeeded=2, complete=True)
    return handle


async def healed(run: Run) -> Handle:
    handle = await run.start()
    await run.running(handle)
    await run.cluster.sees(handle, 1, running=1, failed=1)
    await run.cluster.sees(handle, 1, running=2)
    await run.cluster.sees(handle, 1, succeeded=2, complete=True)
    return handle


async def failed(run: Run) -> Handle:
    handle = await run.start()
    for attempt in (1, 2, 3, 4):
        await run.running(handle, attempt)
        await run.cluster.sees(handle, attempt, failed=1, job_failed=True)
    return handle


async def forced_deletion(run: Run) -> Handle:
    run.cluster.stubborn = True
    handle = await run.start()
    await run.running(handle)
    await run.cluster.sees(handle, 1, failed=1, job_failed=True)
    await run.running(handle, 2)
    await handle.signal(names.SIGNAL_CANCEL, "enough")
    return handle


async def native_cancellation(run: Run) -> Handle:
    handle = await run.start()
    await run.running(handle)
    await handle.cancel()
    return handle


def suspended_in(gate: str) -> Callable[[Run], Awaitable[Handle]]:
    async def scenario(run: Run) -> Handle:
        run.cluster.close(gate)
        handle = await run.start()
        if gate in {"observe", "remove"}:
            await run.running(handle)
            await run.cluster.sees(handle, 1, failed=1, job_failed=True)
        elif gate == "report":
            await run.running(handle)
        await run.entered(gate)
        await handle.signal(names.SIGNAL_SUSPEND, "make room")
        if gate == "remove":
            run.cluster.open(gate)
        await run.reach(handle, "Suspended")
        run.cluster.gates.clear()
        await handle.signal(names.SIGNAL_RESUME)
        await run.running(handle, 2)
        await handle.signal(names.SIGNAL_CANCEL)
        return handle

    return scenario


async def suspended_while_running(run: Run) -> Handle:
    handle = await run.start()
    await run.running(handle)
    await handle.signal(names.SIGNAL_PREEMPT, "a larger job needs the nodes")
    await run.reach(handle, "Suspended")
    await handle.signal(names.SIGNAL_RESUME)
    await run.running(handle, 2)
    await run.cluster.sees(handle, 2, succeeded=2, complete=True)
    return handle


async def continued_as_new(run: Run) -> Handle:
    handle = await run.start()
    await run.running(handle)
    for attempt in (1, 2):
        await run.cluster.sees(handle, attempt, running=1, failed=1)
        await run.running(handle, attempt + 1)
    await run.cluster.sees(handle, 3, succeeded=2, complete=True)
    return handle


async def interrupted(run: Run) -> Handle:
    run.cluster.interruptions = 2
    handle = await run.start(policy=STREAMS)
    await run.running(handle, 3)
    await run.cluster.sees(handle, 3, succeeded=2, complete=True)
    return handle


async def replaced(run: Run) -> Handle:
    handle = await run.start(policy=STREAMS)
    await run.running(handle)
    await run.cluster.sees(handle, 1, found=False)
    await run.entered("replace")
    await run.submitted(handle)
    await run.cluster.sees(handle, 1, running=2)
    await run.reconfigure(handle, "train:2")
    await run.entered("replace", 2)
    await run.cluster.sees(handle, 1, succeeded=2, complete=True)
    return handle


async def rehearsed(run: Run) -> Handle:
    handle = await run.start(policy=STREAMS)
    await run.running(handle)
    run.cluster.refusal = "spec.components[0].template.spec.text: is not valid (found 'train:2')"
    with suppress(WorkflowUpdateFailedError):
        await run.reconfigure(handle, "train:2")
    run.cluster.refusal = ""
    run.cluster.close("rehearse")
    first = asyncio.create_task(run.reconfigure(handle, "train:3"))
    await run.entered("rehearse", 2)
    second = asyncio.create_task(run.reconfigure(handle, "train:4"))
    await run.cluster.sees(handle, 1, running=1, pending=1)
    await asyncio.sleep(0.5)
    run.cluster.open("rehearse")
    await asyncio.gather(first, second)
    await run.submitted(handle)
    await run.cluster.sees(handle, 1, running=2)
    await run.reach(handle, "Running")
    await run.cluster.sees(handle, 1, succeeded=2, complete=True)
    return handle


async def held(run: Run) -> Handle:
    handle = await run.start()
    await run.running(handle)
    run.cluster.foreign = 4
    await handle.signal(names.SIGNAL_SUSPEND, "make room")
    await run.reach(handle, "Pending")
    await handle.signal(names.SIGNAL_RESUME)
    await handle.signal(names.SIGNAL_RETRY, "what is there may go")
    await run.running(handle, 5)
    await run.cluster.sees(handle, 5, succeeded=2, complete=True)
    return handle


async def stripped(run: Run) -> Handle:
    run.cluster.finalizers = ("example.com/hold",)
    handle = await run.start()
    await run.running(handle)
    await handle.signal(names.SIGNAL_CANCEL, "enough")
    await run.entered("force_remove")
    await handle.execute_update(names.UPDATE_STRIP, StripRequest(note="their operator is gone for good"))
    return handle


async def in_order(run: Run) -> Handle:
    """Start two copies once their driver is ready, make them again alone when one fails, succeed by the driver."""
    alone = Rule(
        name="alone",
        match=Match(scopes=(Scope.COMPONENT,), components=("workers",)),
        action=Action(unit=Scope.COMPONENT, grace=False),
    )
    policy = Policy(rules=(alone,), timings=SCALED, success=Success(components=("driver",)))
    after = (After(component="driver", status=StartStatus.READY),)
    driver, workers = job("driver", 1), job("workers", 1, copies=2, after=after)
    handle = await run.start(jobs(driver, workers, policy=policy))

    def view(component: Component, **fields: Any) -> ComponentView:
        pods, copies = PodCounts(expected=component.expected_pods, running=component.expected_pods), component.copies
        counts = CopyCounts(expected=copies, ready=copies) if copies is not None else None
        return ComponentView(pods=pods, copies=counts, **fields)

    await run.submitted(handle)
    await run.cluster.sees_all(handle, 1, driver=view(driver))
    await run.entered("replace")
    await run.entered("observe")
    await run.cluster.sees_all(handle, 1, workers=view(workers))
    await run.reach(handle, "Running")
    await run.cluster.sees_all(handle, 1, workers=view(workers, failed=True))
    await run.entered("replace", 2)
    await run.cluster.sees_all(handle, 1, workers=view(workers))
    await run.cluster.sees_all(handle, 1, driver=view(driver, complete=True))
    return handle


async def cleared(run: Run) -> Handle:
    handle = await run.start(policy=CLEARED)
    await run.running(handle)
    await run.cluster.sees(handle, 1, running=1, failed=1)
    await run.entered("clear")
    return handle


async def parked(run: Run) -> Handle:
    """Suspend in place, resume, suspend again before it runs, resume, and succeed: one attempt."""
    handle = await run.start(policy=PARKED)
    await run.running(handle)
    await handle.signal(names.SIGNAL_PREEMPT, "a larger job needs the nodes")
    await run.reach(handle, "Suspended")
    await handle.signal(names.SIGNAL_RESUME)
    await run.reach(handle, "Resuming")
    await handle.signal(names.SIGNAL_SUSPEND, "not yet")
    await run.reach(handle, "Suspended")
    await handle.signal(names.SIGNAL_RESUME)
    await run.reach(handle, "Resuming")
    await run.cluster.sees(handle, 1, running=2)
    await run.reach(handle, "Running")
    await run.cluster.sees(handle, 1, succeeded=2, complete=True)
    return handle


async def staged(run: Run) -> Handle:
    """Find the store away, skip the pause, run, reset, and begin again with what lies in the cache."""
    run.cluster.staging = [Staged(away="mount corpus (s3://datasets/corpus): the store does not answer")]
    mount = Mount(name="corpus", source="s3://datasets/corpus", path="/data/corpus")
    handle = await run.start(workload(timings=SCALED.model_dump(by_alias=False), mounts=(mount,)))
    await run.reach(handle, "Pending")
    await run.entered("stage")
    await asyncio.sleep(0.5)
    await handle.signal(names.SIGNAL_RETRY, "the store is back")
    await run.running(handle)
    await run.cluster.sees(handle, 1, running=1, failed=1)
    await run.running(handle, 2)
    await run.cluster.sees(handle, 2, succeeded=2, complete=True)
    return handle


SCENARIOS: dict[str, tuple[Callable[[Run], Awaitable[Handle]], int]] = {
    "happy-path": (happy_path, 0),
    "reset": (reset, 0),
    "created-at-once": (created_at_once, 0),
    "reset-at-once": (created_at_once, 0),
    "reset-settled": (suspended_in("observe"), 0),
    "healed": (healed, 0),
    "failed": (failed, 0),
    "forced-deletion": (forced_deletion, 0),
    "native-cancellation": (native_cancellation, 0),
    "preempted-while-running": (suspended_while_running, 0),
    "continue-as-new": (continued_as_new, 20),
    "interrupted-submission": (interrupted, 0),
    "made-again": (replaced, 0),
    "rehearsed": (rehearsed, 0),
    "held": (held, 0),
    "stripped": (stripped, 0),
    "in-order": (in_order, 0),
    "cleared": (cleared, 0),
    "parked": (parked, 0),
    "staged": (staged, 0),
    **{
        f"suspended-in-{gate}": (suspended_in(gate), 0) for gate in ("prepare", "create", "observe", "remove", "report")
    },
    **RECOVERY,
    **ADMISSION,
    **GANGS,
    **MACHINES,
}


async def main(wanted: list[str]) -> None:
    stack = shared_stack()
    opened = opener(stack, identity="recorder")
    for name, (scenario, suggest) in SCENARIOS.items():
        if wanted and name not in wanted:
            continue
        async with opened(suggest=suggest) as run:
            handle = await scenario(run)
            try:
                await handle.result()
            except Exception as error:
                print(f"{name}: ended with {type(error.__cause__ or error).__name__}")
            runs = [each async for each in run.client.list_workflows(f'WorkflowId = "{handle.id}"')]
            runs.sort(key=lambda each: each.start_time)
            for index, execution in enumerate(runs):
                one = run.client.get_workflow_handle(execution.id, run_id=execution.run_id)
                history = await one.fetch_history()
                suffix = f"-{index + 1}" if len(runs) > 1 else ""
                path = HISTORIES / f"{name}{suffix}.json"
                text = json.dumps(json.loads(history.to_json()), indent=1, sort_keys=True) + "\n"
                path.write_text(text.replace(str(ROOT), "."))
                print(f"{path.name}: {len(history.events)} events")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
