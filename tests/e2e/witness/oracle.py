"""The invariants, judged from what really happened in the cluster: every law of the design that a life there can break.

The laws are those of `tests/policy/laws/laws.py`. Judged are the audit log, every object's life, every status told.
"""

from __future__ import annotations

from itertools import pairwise

from holdfast import names
from tests.e2e.ground.space import Space
from tests.e2e.witness.invariants import ledger_of
from tests.e2e.witness.law import WORKER
from tests.e2e.witness.ledger import Ledger
from tests.policy.laws.laws import Law

Broken = dict[Law, list[str]]


async def broken_by(space: Space, workload: str) -> Broken:
    """Return the laws that a workload's life so far has broken, and how; empty if it has broken none."""
    await space.truth.settle()
    known = ledger_of(space)
    found = {
        Law.IDENTITY: _unnamed(known),
        Law.EXCLUSIVE: [*_beside(space, workload), *_outlived(space, workload, known)],
        Law.RELEASE: _told_wrongly(space, workload),
    }
    return {each: told for each, told in found.items() if told}


def _unnamed(known: Ledger) -> list[str]:
    """Return the deletions that said no uid."""
    ours = [one for one in known.deletions if one.user == WORKER]
    return [f"{one.place}: {one.options}" for one in ours if not (one.options.get("preconditions") or {}).get("uid")]


def _beside(space: Space, workload: str) -> list[str]:
    """Return what of an attempt was still there when the next began, by the cluster's own versions."""
    truth = space.truth
    told: list[str] = []
    for before, after in pairwise(truth.attempts(workload)):
        first = truth.of(after, workload=workload)[0]
        late = [life for life in truth.of(before, workload=workload) if life.died is None or life.died > first.born]
        told += [f"{life.kind} {life.name} of attempt {before} is there beside attempt {after}" for life in late]
    return told


def _outlived(space: Space, workload: str, known: Ledger) -> list[str]:
    """Return what was still there when its attempt's owner had gone: nothing vouched for it any more.

    Where force was used on any of an attempt, the collector no longer keeps that order.
    """
    truth = space.truth
    ours = [one for one in known.deletions if one.user == WORKER]
    forced = {one.place[3] for one in ours if one.options.get("gracePeriodSeconds") == 0}
    told: list[str] = []
    for attempt in truth.attempts(workload):
        lives = truth.of(attempt, workload=workload)
        ends = [one.died for one in lives if one.kind == names.ATTEMPT_KIND and one.died is not None]
        if not ends or forced & {one.name for one in lives}:
            continue
        late = [one for one in lives if one.died is None or one.died > max(ends)]
        told += [f"{one.kind} {one.name} outlived the owner of attempt {attempt}" for one in late]
    return told


def _told_wrongly(space: Space, workload: str) -> list[str]:
    """Return what an anchor's status denied."""
    try:
        space.truth.assert_told_truly(workload)
    except AssertionError as error:
        return [str(error)]
    return []
