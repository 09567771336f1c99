"""What one turn of a life adds to the metrics: failures, how fast they were decided, removals. Pure.

Labels are bounded: no measure names a workload, a pod or a node.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from holdfast import names
from holdfast.model import Failure, Stage, State, Workload
from holdfast.policy.attempt.health import REMOVING
from holdfast.policy.failures.rules import Ruling, action_of, rule_on
from holdfast.policy.loop.advance import Taken
from holdfast.policy.loop.reset import carried_out
from holdfast.policy.status.ledger import Moment, Tally
from holdfast.policy.values.decision import Fail, Hold, Replace, Restart
from holdfast.policy.values.displayed import displayed
from holdfast.policy.verdicts.restart import due_at

OWN_RULE: Final = "own"
"""Stands for each rule that a document brings: their names have no bound."""
RULES: Final = frozenset(
    {
        "absent-pods",
        "create-failed",
        "deadline",
        "default",
        "displaced-pods",
        "failed-component",
        "failed-pods",
        "gang-failed",
        "hardware",
        "job-deadline",
        "job-failed",
        "late-pods",
        "marked-node",
        "member-lost",
        "missing-component",
        "missing-job",
        "no-failure-policy",
        "no-failure-policy-rule",
        "no-progress",
        "node-lost",
        "not-yet-created",
        "owner-deleted",
        "pod-restarted",
        "prologue",
        "retryable-exit-codes",
        "terminal-exit-codes",
        "unknown",
    }
)
"""The rules that profiles, settings and the engine bring. The engine knows no profile, so a test compares them."""


@dataclass(frozen=True, slots=True)
class Counted:
    """Adds one to a counter."""

    name: str
    about: str
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Lasted:
    """Adds a span of time to a histogram."""

    name: str
    about: str
    span: timedelta
    labels: Mapping[str, str]


def measures(
    spec: Workload, before: State, after: State, taken: Iterable[Taken], now: datetime
) -> Iterator[Counted | Lasted]:
    """Yield what one turn adds to the metrics.

    Args:
        spec: the workload.
        before: its state at the end of the previous turn.
        after: its state with all received events folded in.
        taken: the decisions of this turn.
        now: the time of the workflow task.
    """
    place = {"cluster": spec.cluster}
    yield from _removal(displayed(before), after, now, place)
    promise, reset = before.operation.restart if before.operation is not None else None, carried_out(before, after)
    if promise is not None and reset is not None:
        yield from _failure(spec, reset, promise.at, place)
    for one in taken:
        if one.before != one.after:
            yield from _failure(spec, one, now, place)
            if _forces(one.before, one.after):
                yield _forced(place)


def moments(spec: Workload, folded: State, taken: Iterable[Taken], after: State, now: datetime) -> Iterator[Moment]:
    """Yield the states of one turn for its ledger, oldest first: as found, around each decision, and at its end."""
    yield Moment(now, spec, folded)
    for one in taken:
        yield Moment(now, spec, one.before)
        yield Moment(now, spec, one.after)
    yield Moment(now, spec, after)


def spent(spec: Workload, tally: Tally, now: datetime) -> Iterator[Lasted]:
    """Yield what an attempt that is over, and the time before it, add to the metrics: a span for each bucket."""
    for bucket, milliseconds in tally.settled(now).items():
        labels = {"cluster": spec.cluster, "kind": spec.kind.value, "bucket": bucket.value}
        about = "What the time of workloads was spent on, by the buckets of the ledger, recorded as each attempt ends."
        yield Lasted(names.METRIC_SPENT, about, timedelta(milliseconds=milliseconds), labels)


def is_over(before: State, after: State) -> bool:
    """Whether an attempt was proven gone in a turn."""
    was, attempt = before.attempt, after.attempt
    gone = attempt is not None and attempt.stage is Stage.GONE
    return gone and was is not None and was.stage is not Stage.GONE


def _removal(before: State, after: State, now: datetime, place: Mapping[str, str]) -> Iterator[Counted | Lasted]:
    was, attempt = before.attempt, after.attempt
    if was is None or attempt is None or was.stage not in REMOVING:
        return
    if _forces(before, after):
        yield _forced(place)
    if attempt.stage is Stage.GONE and was.removing_at is not None:
        about = "From the beginning of an attempt's removal until all of it was proven gone."
        yield Lasted(names.METRIC_REMOVAL, about, max(timedelta(0), now - was.removing_at), place)


def _forces(before: State, after: State) -> bool:
    def is_forcing(state: State) -> bool:
        return state.attempt is not None and state.attempt.stage is Stage.FORCING

    return is_forcing(after) and not is_forcing(before)


def _forced(place: Mapping[str, str]) -> Counted:
    return Counted(names.METRIC_FORCED, "Removals that went on by force, since deletion alone took too long.", place)


def _failure(spec: Workload, taken: Taken, now: datetime, place: Mapping[str, str]) -> Iterator[Counted | Lasted]:
    """Yield a failure that was decided, and how long that took."""
    unhealthy = taken.before.unhealthy
    found: Failure | None = unhealthy.failure if unhealthy is not None else None
    rule = unhealthy.rule if unhealthy is not None else ""
    match taken.decision:
        case Restart(failure, name, requeue=requeue):
            found, rule, does = failure, name, "requeue" if requeue else "restart"
        case Replace(ruled=ruled) if ruled:
            does = "replace"
        case Fail(_, failure):
            found, does = failure, "fail"
        case Hold(rule=name) if name and taken.before.held is None:
            rule, does = name, "hold"
        case _:
            return
    if found is None:
        return
    rule = rule or rule_on(taken.before.policy, found).rule
    labels = {**place, "class": found.cls.value, "rule": rule if rule in RULES else OWN_RULE, "decision": does}
    yield Counted(names.METRIC_FAILURES, "Failures that were decided, by class, rule and decision.", labels)
    if unhealthy is None:
        return
    ruling = Ruling(found, rule, action_of(taken.before.policy, rule))
    noticed = max(timedelta(0), unhealthy.since - found.time)
    decided = max(timedelta(0), now - due_at(spec, taken.before, ruling, unhealthy.since))
    about = "From a failure until its decision, less the waits that its rule asks for."
    yield Lasted(names.METRIC_REACTION, about, noticed + decided, place)
