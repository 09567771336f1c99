"""Exit codes decide at once whether a retry is worth it (row A15), on fake nodes; real ones: test_real_node.py."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import pytest

from holdfast import names
from tests.e2e.ground.site import appwrapper, job
from tests.e2e.ground.space import Space, pod

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]
ROW = pytest.mark.row


class Case(NamedTuple):
    """A pod's exit code, the lists that a user gave, and what decides."""

    name: str
    kind: str
    code: int
    lists: dict[str, str]
    rule: str
    """The rule that ends the workload; empty where it is reset as ever."""


TERMINAL, RETRYABLE = "terminalExitCodes", "retryableExitCodes"
CASES = (
    Case("terminal", "pod", 4, {TERMINAL: "3, 4"}, "terminal-exit-codes"),
    Case("terminal-job", "job", 3, {TERMINAL: " 3 ,4 "}, "terminal-exit-codes"),
    Case("not-terminal", "pod", 5, {TERMINAL: "3, 4"}, ""),
    Case("retryable", "pod", 137, {RETRYABLE: "137, 143"}, ""),
    Case("retryable-job", "job", 143, {RETRYABLE: "137, 143"}, ""),
    Case("not-retryable", "pod", 1, {RETRYABLE: "137 , 143"}, "retryable-exit-codes"),
    Case("both", "pod", 3, {TERMINAL: "3", RETRYABLE: "3, 137"}, "terminal-exit-codes"),
)


async def lives(space: Space, case: Case) -> None:
    """Let a workload's pod exit with the code, and check what comes of it."""
    grace = "300s" if case.rule else "1s"
    component = pod(case.name) if case.kind == "pod" else job(case.name, pods=1)
    handle = await space.submit(appwrapper(case.name, component, failureGracePeriodDuration=grace, **case.lists))
    await space.reach(handle, "Running", 1)
    await space.fail_pod(case.name, exit_code=case.code)
    if case.rule:
        status = await space.ended(handle)  # Long before the failure grace is over.
        assert (status.phase, status.restarts, status.executions) == ("Failed", 0, 1), case
        assert status.failure is not None
        assert status.failure.exit_code == case.code
        assert f"rule {case.rule}" in status.message
        assert [each.used for each in status.budgets] == [0]
    else:
        status = await space.reach(handle, "Running", 2)
        assert (status.restarts, [each.used for each in status.budgets]) == (1, [1]), case
        (why,) = [each.message for each in status.causes if each.reason == "Resetting"]
        # A Job that gives up says so itself, and need not be waited for.
        assert (f"exited {case.code}" if case.kind == "pod" else "BackoffLimitExceeded") in why
        await handle.signal(names.SIGNAL_CANCEL)
        await space.ended(handle)


@ROW("A15", level="e2e")
async def test_A15_the_lists_of_exit_codes_decide_at_once(space: Space):
    await asyncio.gather(*(lives(space, case) for case in CASES))
