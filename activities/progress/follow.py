"""Follows the steps of an attempt for as long as it runs, and returns when there is something to tell (rows P1, P2)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError
from temporalio import activity

from holdfast.activities.kube.client import KubeError
from holdfast.activities.operations.probe import Beats
from holdfast.activities.progress.read import pod_steps
from holdfast.activities.site.site import Site, is_broken_off
from holdfast.model.calls.progress import Followed, FollowInput
from holdfast.model.life.progress import PodStep, StepRecord
from holdfast.policy.values.edit import edit
from holdfast.policy.verdicts.progress import is_news, is_too_soon, read, stalled


async def follow(site: Site, given: FollowInput) -> Followed:
    """Read the steps of the attempt's pods in rounds, until they stand still or the workflow is to hear of them.

    If the workflow knows that they stand still, the only news is that they no longer do. That is told at once, or
    the workload would be restarted. If they stand still again soon after, that is told later.
    A round in which the pods cannot be read teaches nothing, and the clock of a stall does not run meanwhile.
    """
    site.check(given.target)
    rules, beats, told_at = given.progress, Beats(), datetime.now(UTC)
    record = _earlier(given)
    try:
        while True:
            begun = asyncio.get_running_loop().time()
            with suppress(KubeError):
                pods = await _beating(pod_steps(site, given), record, beats)
                record = read(record, given.attempt, pods, rules, datetime.now(UTC))
                failure = stalled(record, rules)
                if given.stalled:
                    if failure is None:
                        return Followed(record=record)
                elif failure is not None and not is_too_soon(record, told_at):
                    return Followed(record=edit(record, stall_told=record.at), failure=failure)
                elif is_news(given.known, told_at, record, rules):
                    return Followed(record=record)
            await _until(begun + rules.period.total_seconds(), record, beats)
    except asyncio.CancelledError:
        if not is_broken_off():
            raise
        still = stalled(record, rules) if given.stalled and record is not None else None
        return Followed(record=record, failure=still)


async def _until(due: float, record: StepRecord | None, beats: Beats) -> None:
    """Wait until a time of the event loop's clock, with heartbeats."""
    loop = asyncio.get_running_loop()
    while (rest := due - loop.time()) > 0:
        if not beats.left:
            beats.send(_details(record))
        await asyncio.sleep(min(rest, beats.left))


async def _beating(reading: Awaitable[list[PodStep]], record: StepRecord | None, beats: Beats) -> list[PodStep]:
    """Wait for a round, with heartbeats; a worker that takes over meanwhile repeats the round."""
    task = asyncio.ensure_future(reading)
    try:
        while True:
            done, _ = await asyncio.wait({task}, timeout=beats.left)
            if done:
                return task.result()
            beats.send(_details(record))
    finally:
        task.cancel()


def _details(record: StepRecord | None) -> dict[str, Any]:
    return record.model_dump(mode="json", by_alias=True) if record is not None else {}


def _earlier(given: FollowInput) -> StepRecord | None:
    """Return what an earlier try has learned, or else what the workflow knows."""
    details: tuple[Any, ...] = tuple(activity.info().heartbeat_details) if activity.in_activity() else ()
    if details and details[0]:
        with suppress(ValidationError):
            return StepRecord.model_validate(details[0])
    return given.known
