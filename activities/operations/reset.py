"""The reset: a live look that goes on to the removal if the decision is still the promised one (record 0086)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from enum import Enum, auto
from typing import Any

from holdfast import names
from holdfast.activities.kube.client import Conflict, NotFound
from holdfast.activities.kube.raw import mapping
from holdfast.activities.operations.observe import look
from holdfast.activities.operations.remove import remove
from holdfast.activities.operations.report import apply_report, patch_status, write_over
from holdfast.activities.site.anchor import is_ours, key_of, sequence_of
from holdfast.activities.site.site import Pulse, Site, as_retryable_errors, is_broken_off, persist, tries
from holdfast.model import Observation
from holdfast.model.calls.cluster import Reset, ResetInput
from holdfast.policy.loop.promise import is_repeated


async def reset(site: Site, given: ResetInput) -> Reset:
    """Look, and remove the attempt if the look repeats the promised decision; else report, and return what was seen.

    If it is broken off before it is known whether the removal has begun, it returns nothing: the workflow settles that.

    Raises:
        ApplicationError: as `observe` and `remove` do.
    """
    site.check(given.target)
    async with as_retryable_errors(), Pulse() as pulse:
        begun, seen = await _decided(site, given, pulse)
    if not begun or given.settles:
        return Reset(confirmed=begun, seen=seen)
    try:
        # Whoever has looked has also marked, and so told, that it begins.
        removed = await remove(site, given.removal, is_told=seen is not None and _tells_at_once(given))
        return Reset(confirmed=True, seen=seen, removed=removed)
    except asyncio.CancelledError:
        if not is_broken_off():
            raise
        return Reset(confirmed=True, seen=seen)


async def _decided(site: Site, given: ResetInput, pulse: Pulse) -> tuple[bool, Observation | None]:
    """Return whether the removal has begun, and what the look found; None if an earlier try has looked.

    The anchor decides between two tries that look at the same time, one of which nobody may be waiting for any more:
    whichever writes first.
    """
    if given.settles or tries() > 1:
        anchor = await persist(pulse, "reading the anchor", lambda: site.kube.find(*key_of(given.target)))
        if _is_marked(site, given, anchor):
            return True, None
    seen = await _looked(site, given, pulse)
    if not given.settles and is_repeated(
        given.workload, given.memory, given.promise, seen, given.since, datetime.now(UTC)
    ):
        match await persist(pulse, "marking the anchor", lambda: _mark(site, given)):
            case _Mark.SET:
                return True, seen
            case _Mark.FOUND:
                return True, None  # What was seen may be the removal's own work.
            case _Mark.PREVENTED:
                return False, await _looked(site, given, pulse)  # The other try has seen what is newer.
    if await persist(pulse, "reporting", lambda: _fence(site, given)):
        return True, None  # What was seen is that try's work.
    await persist(pulse, "reporting", lambda: apply_report(site, given.target, given.look.report))
    return False, seen


class _Mark(Enum):
    """What became of the mark that a try wants to set."""

    SET = auto()
    FOUND = auto()
    """An earlier try has set it. Temporal counts the tries of a reset activity anew, so this may be the first."""
    PREVENTED = auto()
    """There is a later report on the anchor, or none of ours to mark."""


async def _looked(site: Site, given: ResetInput, pulse: Pulse) -> Observation:
    with site.precedence.looks.one():
        seen = await persist(pulse, "looking at the cluster", lambda: look(site, given.look))
    return seen.model_copy(update={"blind": site.blind(pulse.blind)})


def _is_marked(site: Site, given: ResetInput, anchor: Mapping[str, Any] | None) -> bool:
    """Whether an anchor, as just read, says that the removal of this very decision has begun."""
    if anchor is None or not is_ours(site, given.target, anchor):
        return False
    annotations = mapping(mapping(anchor["metadata"]).get("annotations"))
    return given.mark in {mapping(anchor.get("status")).get("removal"), annotations.get(names.ANNOTATION_REMOVAL)}


def _tells_at_once(given: ResetInput) -> bool:
    """Whether the mark comes with the report of the removal: that follows the Services, which go first (row L30)."""
    return not given.removal.report.unlist


async def _mark(site: Site, given: ResetInput) -> _Mark:
    """Mark the anchor that the removal begins, with its report if nothing goes before that.

    A later report on the anchor prevents it.
    """
    target = given.target
    while True:
        remembered = site.known.take(target)
        anchor = remembered or await site.kube.find(*key_of(target))
        if _is_marked(site, given, anchor):
            return _Mark.FOUND
        if anchor is None or not is_ours(site, target, anchor):
            return _Mark.PREVENTED
        if sequence_of(target, anchor) >= given.removal.report.sequence:
            if remembered is not None:
                continue  # Memory does not prove what is written: read the anchor.
            return _Mark.PREVENTED
        with suppress(Conflict, NotFound):
            mark = {"removal": given.mark}
            if _tells_at_once(given):
                marked = await write_over(site, target, anchor, given.removal.report, mark)
            else:
                marked = await patch_status(site.kube, key_of(target), anchor, mark)
            if not _is_marked(site, given, marked):  # The kind's definition is of before there was this field.
                marked = await site.kube.patch(
                    *key_of(target),
                    uid=marked["metadata"]["uid"],
                    resource_version=marked["metadata"]["resourceVersion"],
                    patch={"metadata": {"annotations": {names.ANNOTATION_REMOVAL: given.mark}}},
                )
            site.known.keep(target, marked)
            return _Mark.SET


async def _fence(site: Site, given: ResetInput) -> bool:
    """Keep late tries from beginning the removal, by the look's report; return whether one has begun it before."""
    target = given.target
    while True:
        anchor = await site.kube.find(*key_of(target))
        if _is_marked(site, given, anchor):
            return True
        if anchor is None or not is_ours(site, target, anchor):
            return False
        if sequence_of(target, anchor) >= given.look.report.sequence:
            return False
        with suppress(Conflict, NotFound):
            await write_over(site, target, anchor, given.look.report)
            return False
