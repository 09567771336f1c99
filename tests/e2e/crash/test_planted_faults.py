"""The laws can fail on a real cluster too: a worker with one fault in it breaks the law that the fault is against."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from holdfast import names
from holdfast.activities.kube.client import Conflict, NotFound
from holdfast.local import Stack
from tests.e2e.crash.scene import pod
from tests.e2e.ground.site import appwrapper, open_site, until
from tests.e2e.ground.space import Handle, Space, open_space
from tests.e2e.witness import law
from tests.e2e.witness.invariants import ledger_of
from tests.e2e.witness.oracle import Broken, broken_by
from tests.policy.laws.laws import Law

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

NAME = "train"


@asynccontextmanager
async def faulty(stack: Stack, directory: Path, fault: str, patch: pytest.MonkeyPatch) -> AsyncIterator[Space]:
    """Open a space whose worker has a fault; the suite's own law sets its namespace aside."""
    patch.setattr("tests.e2e.ground.site.executable", lambda: [sys.executable, "-m", "tests.e2e.lives.faults", fault])
    prefix = law.PLANTED.rstrip("-")
    async with open_site(stack, directory, prefix=prefix) as site:
        site.forks = False  # It is another program.
        await site.start_worker()
        async with open_space(site) as space:
            yield space


async def _suspend_slowly(space: Space) -> Handle:
    """Have a workload suspended whose pod takes its time to go."""
    slow = pod(kwok_delete_delay="20s")
    handle = await space.submit(appwrapper(NAME, slow, forcefulDeletionGracePeriodDuration="60s"))
    await space.reach(handle, "Running", 1)
    await handle.signal(names.SIGNAL_SUSPEND, "making room")
    return handle


async def _again(space: Space, handle: Handle) -> Broken:
    """Have it run again, then end; return what laws all that has broken."""
    await space.reach(handle, "Suspended")
    await handle.signal(names.SIGNAL_RESUME, "room again")
    await space.reach(handle, "Running", 2)
    await handle.signal(names.SIGNAL_CANCEL, "the test is over")
    await space.ended(handle)
    return await broken_by(space, NAME)


async def _let_go_of_the_owner(space: Space) -> None:
    """Take the collector's finalizer off the dying owner, as a collector does that knows of nothing under it."""
    place = (names.API_VERSION, names.ATTEMPT_KIND, names.attempt_name(NAME, 1), space.namespace)

    async def done() -> bool:
        found = await space.site.kube.find(*place)
        if found is None or "deletionTimestamp" not in found["metadata"]:
            return found is None
        with contextlib.suppress(NotFound, Conflict):
            await space.site.kube.patch(*place, uid=found["metadata"]["uid"], patch={"metadata": {"finalizers": None}})
        return False

    await until(done, 30, "the owner of attempt 1 is gone")


@pytest.mark.row("S5", level="e2e")
@pytest.mark.parametrize(
    ("fault", "broken"),
    [("none", set[Law]()), ("background", {Law.EXCLUSIVE}), ("by-name", {Law.IDENTITY})],
    ids=("none", "background", "by-name"),
)
async def test_a_fault_of_deletion_is_noticed_as_what_it_is(
    stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, broken: set[Law]
):
    async with faulty(stack, tmp_path, fault, monkeypatch) as space:
        found = await _again(space, await _suspend_slowly(space))
        print(f"MEASURED {fault}: {found}")
        assert set(found) == broken, found


@pytest.mark.parametrize(
    ("fault", "broken"),
    [("none", set[Law]()), ("collectors-word", {Law.EXCLUSIVE, Law.RELEASE})],
    ids=("none", "collectors-word"),
)
async def test_the_collectors_word_is_noticed_where_it_is_wrong(
    stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, broken: set[Law]
):
    async with faulty(stack, tmp_path, fault, monkeypatch) as space:
        handle = await _suspend_slowly(space)
        await _let_go_of_the_owner(space)
        found = await _again(space, handle)
        # Here the collector was wrong by another's doing, so that the owner went first whatever the worker did.
        outlived = [text for text in found.pop(Law.EXCLUSIVE, []) if "outlived" not in text]
        found |= {Law.EXCLUSIVE: outlived} if outlived else {}
        print(f"MEASURED {fault}: {found}")
        assert set(found) == broken, found
        # The law of the whole suite, which sets these namespaces aside, says the same of this one.
        monkeypatch.setattr(law, "SET_ASIDE", {})
        verdict = law.judge(ledger_of(space))
        assert verdict.resets
        assert bool(verdict.broken) == (Law.EXCLUSIVE in broken), verdict.sentence()
