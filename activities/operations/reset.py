"""The reset: a live look that goes on to the removal if the decision is still the promised one (record 0074)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from holdfast.activities.kube.client import Conflict, NotFound
from holdfast.activities.operations.observe import look
from holdfast.activities.operations.remove import remove
from holdfast.activities.operations.report import unlist, write_over, written
from holdfast.activities.site.anchor import is_ours, key_of, sequence_of
from holdfast.activities.site.site import Pulse, Site, as_retryable_errors, is_broken_off, persist, tries
from holdfast.model import Observation, Report
from holdfast.model.calls.cluster import Reset, ResetInput
from holdfast.policy.loop.promise import is_repeated


async def reset(site: Site, given: ResetInput) -> Reset:
    """Look, and remove the attempt if the look repeats the promised decision; else report, and return what was seen.

    Raises:
        ApplicationError: as `observe` and `remove` do.
    """
    site.check(given.removal.target)
    attempted = _Attempted(begun=tries() > 1)
    try:
        async with as_retryable_errors(), Pulse() as pulse:
            confirmed = await _is_confirmed(site, given, pulse, attempted)
        if not confirmed:
            return Reset(seen=attempted.seen)
        attempted.confirmed = True
        removed = await remove(site, given.removal, reported=True)
        return Reset(confirmed=True, seen=attempted.seen, removed=removed)
    except asyncio.CancelledError:
        # If it is unknown whether the removal has begun, the workflow learns just that: it was broken off.
        if not is_broken_off() or (attempted.begun and not attempted.confirmed):
            raise
        return Reset(confirmed=attempted.confirmed, seen=attempted.seen if attempted.confirmed else None)


class _Attempted:
    """How far a reset has come."""

    def __init__(self, *, begun: bool) -> None:
        self.begun = begun
        """Whether the removal's report may be on the anchor."""
        self.confirmed = False
        """Whether it is."""
        self.seen: Observation | None = None


async def _is_confirmed(site: Site, given: ResetInput, pulse: Pulse, attempted: _Attempted) -> bool:
    """Look and decide; return whether the removal has begun: its report is on the anchor.

    The anchor decides between two tries that look at the same time, one of which nobody may be waiting for any more:
    the first of them to report is right, and the other follows.
    """
    if attempted.begun:
        anchor = await persist(pulse, "reading the anchor", lambda: site.kube.find(*key_of(given.removal.target)))
        if _begun_on(given, anchor):
            return True
    with site.precedence.looking():
        seen = await persist(pulse, "looking at the cluster", lambda: look(site, given.look))
    attempted.seen = seen.model_copy(update={"blind": site.blind(pulse.blind)})
    now = datetime.now(UTC)
    repeated = is_repeated(given.workload, given.memory, given.promise, attempted.seen, given.since, now)
    attempted.begun = attempted.begun or repeated
    report = given.removal.report if repeated else given.look.report
    begun = await persist(pulse, "reporting", lambda: _report(site, given, report))
    if begun and not repeated:
        attempted.seen = None  # An earlier try has confirmed it, and its removal has changed what is there.
    return begun


def _begun_on(given: ResetInput, anchor: Mapping[str, Any] | None) -> bool:
    """Whether an anchor shows that an earlier try has begun the removal."""
    target = given.removal.target
    if tries() == 1 or anchor is None or not is_ours(target, anchor):
        return False  # Without an earlier try, such a sequence is from before the workflow was restored.
    return given.removal.report.sequence <= sequence_of(target, anchor) < given.look.report.sequence


async def _report(site: Site, given: ResetInput, report: Report) -> bool:
    """Write a report unless another try has decided; return whether the removal has begun."""
    target = given.removal.target
    while True:
        remembered = site.known.take(target)
        anchor = remembered or await site.kube.find(*key_of(target))
        if anchor is None or not is_ours(target, anchor):
            return False
        if sequence_of(target, anchor) >= given.removal.report.sequence:
            if remembered is not None:
                continue  # Memory does not prove what is written: read the anchor.
            report = given.removal.report if _begun_on(given, anchor) else given.look.report
            break
        try:
            anchor = await write_over(site, target, anchor, report)
            break
        except Conflict:
            continue
        except NotFound:
            if remembered is None:
                return False
    await unlist(site, target, report)
    await written(site, target, report, anchor)
    return report is given.removal.report
