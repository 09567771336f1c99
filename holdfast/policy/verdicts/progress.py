"""Decides whether a workload that runs still makes progress: what its steps teach, and when it has stalled (P1, P2).

The clock of a stall counts only time in sight: from one reading of the pods to the next one that is on time. So an API
server that is away, or a worker that died, pauses the clock.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence, Set
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import median
from typing import Any, Final

from holdfast.model import Failure, FailureClass, Progress, Reason, Scope, format_duration
from holdfast.model.life.progress import PodStep, StepRecord
from holdfast.policy.values.edit import edit

ENOUGH: Final = 32
"""How many step times must be known before a bound is learned from them."""
KEPT: Final = 64
"""How many step times are kept."""
OF_LONGEST: Final = 3
"""A learned bound is at least this many times the longest step ever seen ..."""
MOST: Final = 100
"""... but that term is at most this many times the median step."""
LATE: Final = timedelta(seconds=10)
"""How late a reading may be, beyond two periods, to count as on time."""
TOLD_EVERY: Final = timedelta(minutes=5)
"""How often new steps alone are told to the workflow: its history grows by a constant number of events an hour."""
TOLD_AT_MOST: Final = timedelta(minutes=1)
STALLED_AGAIN: Final = 2 * TOLD_AT_MOST
"""How long after a stall another one of the attempt is told, since its end may have been told at once."""


@dataclass(frozen=True, slots=True)
class Bound:
    """How long a workload may stand still now, and where that comes from."""

    span: timedelta
    source: str

    def sentence(self) -> str:
        """Say it in a few words: `bound 3m (12 × median 15s)`."""
        return f"bound {format_duration(self.span)} ({self.source})"


def read(known: StepRecord | None, attempt: int, pods: Sequence[PodStep], rules: Progress, now: datetime) -> StepRecord:
    """Return the record after a reading of all running pods that were asked.

    Args:
        known: the record before; None: nothing is known.
        attempt: the attempt that the pods belong to.
        pods: the pods; an empty sequence teaches nothing, and neither do pods whose teller is hidden.
        rules: how steps are followed.
        now: the time of the reading.
    """
    record = known if known is not None and known.attempt == attempt else _begun(known, attempt, now)
    elapsed = now - record.at
    on_time = timedelta(0) <= elapsed <= 2 * rules.period + LATE
    quiet = record.quiet + (elapsed.total_seconds() if on_time and record.pods else 0.0)
    unseen = record.unseen or not on_time
    digest = hashlib.sha256(",".join(sorted(pod.program for pod in pods)).encode()).hexdigest()[:12]
    new, before = digest != record.pods or _has_forgotten(record, pods), record.step
    told, hidden = {pod.uid for pod in pods if pod.told is not None}, {pod.uid for pod in pods if pod.hidden}
    step, leader = _best(pods)
    if not pods or (step is None and _is_unknown(record, hidden, new=new)):
        return edit(record, at=now, unseen=True)
    if not new and before is not None and (step is None or (step < before and record.leader not in {"", *told})):
        # A program that hangs may not answer either. Pods behind one that is silent have not begun again.
        step, leader = before, record.leader
    phase, phase_pod = _phase(pods)
    stays = not new and step == before and (not told or record.phase_pod not in {"", *told})
    if stays:
        phase, phase_pod = record.phase, record.phase_pod
    changes: dict[str, Any] = {"at": now, "pods": digest, "step": step, "leader": leader}
    changes["mute"] = record.mute if leader in hidden else leader not in {"", *told}
    changes |= _words(record, pods, phase) if new or told else {}
    changes |= {"phase": phase, "phase_pod": phase_pod} | ({"phase_bound": record.phase_bound} if stays else {})
    if new or (before is not None and step is not None and step < before):
        # New pods, or pods that began again from a checkpoint: their first step takes longer than the others.
        changes |= {"quiet": 0.0, "unseen": True, "fresh": True}
    elif step is not None and (before is None or step > before):
        if before is not None and not unseen and not record.phase and not phase:
            changes |= _learned(record, quiet, quiet / (step - before))
        changes |= {"quiet": 0.0, "unseen": bool(phase), "fresh": before is None}
    elif phase != record.phase:
        changes |= {"quiet": 0.0, "unseen": True}
    else:
        changes |= {"quiet": quiet, "unseen": unseen}
    return edit(record, **changes)


def bound_of(record: StepRecord, rules: Progress) -> Bound:
    """Return how long the workload may stand still now."""
    if record.phase:
        own = record.phase_bound
        return Bound(timedelta(seconds=own) if own is not None else rules.phase_bound, f"phase {record.phase}")
    if record.fresh:
        return Bound(max(rules.first_step, rules.bound or timedelta(0)), "first steps of new pods")
    if rules.bound is not None:
        return Bound(rules.bound, "as declared")
    if len(record.samples) < ENOUGH:
        return Bound(rules.first_step, f"{len(record.samples)} of {ENOUGH} steps are known to learn from")
    usual = median(record.samples)
    terms = [
        (rules.minimum.total_seconds(), "the minimum"),
        (rules.multiple * usual, f"{rules.multiple} × median {_short(usual)}"),
        (min(OF_LONGEST * record.longest, MOST * usual), f"{OF_LONGEST} × longest {_short(record.longest)}"),
    ]
    seconds, source = max(terms)
    return Bound(timedelta(seconds=round(seconds, 1)), source)


def stalled(record: StepRecord, rules: Progress) -> Failure | None:
    """Return the failure of a workload that stood still for longer than its bound; None if it did not."""
    if record.quiet <= _least(record, rules):
        return None  # The usual case, and this runs at every reading.
    bound = bound_of(record, rules)
    if record.quiet <= bound.span.total_seconds():
        return None
    return stall(
        record.attempt,
        record.at - timedelta(seconds=record.quiet),
        record.behind,
        record.behind_node,
        f"{standing(record)}; {bound.sentence()}",
    )


def stall(attempt: int, since: datetime, subject: str = "", node: str = "", message: str = "") -> Failure:
    """Return the failure of class NoProgress, from the time of the last step on."""
    return Failure(
        cls=FailureClass.NO_PROGRESS,
        scope=Scope.WORKLOAD,
        reason=Reason.NO_PROGRESS,
        time=since,
        subject=subject,
        node=node,
        message=message,
        attempt=attempt,
    )


def standing(record: StepRecord, later: timedelta = timedelta(0)) -> str:
    """Say where the workload stands: `step 1,234 of 10,000, no new step for 5m`.

    Args:
        record: the record.
        later: the time since the record, if the workload is known to stand still since.
    """
    step = _step(record)
    span = format_duration(timedelta(seconds=round(record.quiet + later.total_seconds())))
    if record.phase:
        return f"{step}, in phase {record.phase} for {span}"
    if record.step is None:
        return f"{step} for {span}"
    return f"{step}, no new step for {span}"


def where(rules: Progress | None, record: StepRecord | None, attempt: int, at: datetime) -> str:
    """Say where an attempt stands and its bound, as last told; empty if that is not known.

    Args:
        rules: how steps are followed.
        record: what is known.
        attempt: the attempt.
        at: the time now.
    """
    if rules is None or record is None or record.attempt != attempt:
        return ""
    bound = bound_of(record, rules).sentence()
    if is_slow(record, rules) or record.phase or record.step is None:
        return f"{standing(record, max(at - record.at, timedelta(0)))}; {bound}"
    claimed = f", says that {record.saved:,} is saved" if record.saved is not None else ""
    return f"{_step(record)} at {record.at:%H:%M:%S} UTC{claimed}; {bound}"


def is_slow(record: StepRecord, rules: Progress) -> bool:
    """Whether half of the bound has passed without a new step."""
    return record.quiet > bound_of(record, rules).span.total_seconds() / 2


def is_news(told: StepRecord | None, told_at: datetime, record: StepRecord, rules: Progress) -> bool:
    """Whether the workflow is to hear of a record: at most once a minute; of new steps alone, every five.

    Args:
        told: what the workflow knows; None: nothing.
        told_at: since when it has known that.
        record: the record now.
        rules: how steps are followed.
    """
    known = told.step if told is not None and told.attempt == record.attempt else None
    # What is known of the step must not be more than what a save under way can hold (row P4).
    fell = known is not None and (record.step is None or record.step < known)
    if record.step is None and record.phase == "" and not is_slow(record, rules) and not fell:
        return False
    if told is None or told.attempt != record.attempt or (told.step is None and record.step is not None):
        return True
    since = record.at - told_at
    # After no step, the next one is told at once.
    if since < (2 * TOLD_AT_MOST if fell and record.step is None else TOLD_AT_MOST) or is_too_soon(record, told_at):
        return False
    slow = is_slow(record, rules)
    return fell or slow != is_slow(told, rules) or (since >= TOLD_EVERY and record.step != told.step)


def is_too_soon(record: StepRecord, told_at: datetime) -> bool:
    """Whether the attempt has stood still before so recently that neither another stall nor a slow step is told yet.

    A stall and its end are told at once. So both together, with what else is told, come at most once a minute.
    """
    last = record.stall_told
    return last is not None and (record.at - last < STALLED_AGAIN or record.at - told_at < TOLD_AT_MOST)


def _is_unknown(record: StepRecord, hidden: Set[str], *, new: bool) -> bool:
    """Whether the pod that told the step is hidden, so that nobody knows whether it goes on.

    A pod that was there and told nothing hangs: connections that it does not accept fill its queue, which hides it. For
    the same reason, a pod that has never told a step counts as silent.
    """
    return not new and record.leader in hidden and not record.mute


def _has_forgotten(record: StepRecord, pods: Sequence[PodStep]) -> bool:
    """Whether the pod that told the step tells none now: in a gang, agents start programs again without the kubelet."""
    words = [pod.told for pod in pods if pod.uid == record.leader and pod.told is not None]
    return any(word.step is None and not word.phase for word in words)


def _begun(known: StepRecord | None, attempt: int, now: datetime) -> StepRecord:
    """Return the record of a new attempt: it knows the step times of those before."""
    return known.begun(attempt, now) if known is not None else StepRecord(attempt=attempt, at=now)


def _words(record: StepRecord, pods: Sequence[PodStep], phase: str) -> dict[str, Any]:
    """Return what the pods tell beside their steps, as fields of the record."""
    words = [pod.told for pod in pods if pod.told is not None]
    totals = [word.total for word in words if word.total is not None]
    saves = [word.saved for word in (*words, record) if word.saved is not None]
    bounds = [word.bound for word in words if phase and word.phase == phase and word.bound is not None]
    behind = _behind(pods)
    return {
        "total": max(totals, default=record.total),
        "saved": max(saves, default=None),
        "phase_bound": max(bounds, default=None),
        "behind": behind.name if behind is not None else "",
        "behind_node": behind.node if behind is not None else "",
    }


def _step(record: StepRecord) -> str:
    of = f" of {record.total:,}" if record.total is not None else ""
    return f"step {record.step:,}{of}" if record.step is not None else "no step yet"


def _best(pods: Sequence[PodStep]) -> tuple[int | None, str]:
    """Return the highest step of the pods, and the uid of one that tells it; None if none tells a step."""
    steps = [(-pod.told.step, pod.uid) for pod in pods if pod.told is not None and pod.told.step is not None]
    if not steps:
        return None, ""
    step, uid = min(steps)
    return -step, uid


def _phase(pods: Sequence[PodStep]) -> tuple[str, str]:
    """Return the phase of the pods, and the uid of one that is in it: of several the first; empty if none is in one."""
    return min(((pod.told.phase, pod.uid) for pod in pods if pod.told is not None and pod.told.phase), default=("", ""))


def _behind(pods: Sequence[PodStep]) -> PodStep | None:
    """Return the only pod whose step is below that of all the others that tell one; None if there is no such pod."""
    steps = sorted((pod.told.step, pod.name) for pod in pods if pod.told is not None and pod.told.step is not None)
    if len(steps) < 2 or steps[0][0] == steps[1][0]:
        return None
    return next(pod for pod in pods if pod.name == steps[0][1])


def _learned(record: StepRecord, gap: float, per_step: float) -> dict[str, Any]:
    samples = (*record.samples, float(f"{per_step:.4g}"))[-KEPT:]
    return {"samples": samples, "longest": max(record.longest, round(gap, 1))}


def _least(record: StepRecord, rules: Progress) -> float:
    """Return the shortest bound that can be in force, in seconds."""
    spans = [one.total_seconds() for one in (rules.bound or rules.minimum, rules.first_step, rules.phase_bound)]
    return min(*spans, record.phase_bound or spans[-1])


def _short(seconds: float) -> str:
    return format_duration(timedelta(seconds=float(f"{seconds:.3g}")))
