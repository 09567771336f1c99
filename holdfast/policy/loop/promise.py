"""The restart that a live look may confirm: what is promised, and whether what the look found repeats it (record 0086).

Pure: the workflow calls `promised` before the look, the activity calls `is_repeated` right after it.
"""

from __future__ import annotations

from datetime import datetime

from holdfast.model import Failure, Observation, RestartMode, Stage, State, Workload
from holdfast.model.life.state import PromisedRestart
from holdfast.policy.attempt.checkpoint import checkpoint_request
from holdfast.policy.attempt.health import assess, current
from holdfast.policy.attempt.settle import settle
from holdfast.policy.failures.avoided_nodes import down_in
from holdfast.policy.loop.fold import observed
from holdfast.policy.status.blocked import told_why
from holdfast.policy.status.queued import follow as queue_followed
from holdfast.policy.values.decision import Decision, Restart
from holdfast.policy.values.edit import edit
from holdfast.policy.verdicts.budgets import follow
from holdfast.policy.verdicts.decide import decide
from holdfast.policy.verdicts.walltime import clocked

WORKLOAD_MAXIMUM = 16 * 1024
"""The largest workload, in characters of JSON, whose document is sent along; a larger one is only looked at first."""


def assessed(spec: Workload, state: State, now: datetime) -> State:
    """Return the state that a decision is taken in."""
    ready = settle(spec, clocked(spec, follow(spec, assess(spec, state, now), now), now), now)
    return queue_followed(spec, told_why(ready, now), now)


def promised(spec: Workload, state: State, now: datetime) -> PromisedRestart | None:
    """Return the restart that follows if a live look finds what the watch has seen.

    None if another decision follows, or if the workflow must act between look and removal: on its rendezvous, its
    probe, its steps, its queue, the audit, pods that save their state, or nodes that are lost; or
    if a custom resource, whose annotations are its author's, stands for the workload.
    """
    attempt = state.attempt
    if not state.resets_at_once or attempt is None or attempt.stage is not Stage.SUBMITTED or attempt.replacing:
        return None
    if spec.gang is not None or spec.probe is not None or spec.progress is not None or spec.sensitive:
        return None
    if spec.source.generation is not None:
        return None
    if checkpoint_request(state) is not None or state.owed is not None or down_in(current(state)):
        return None
    if attempt.suspended or attempt.parking is not None or state.policy.restart_mode is not RestartMode.RECREATE:
        return None
    restart = _restart(decide(spec, edit(state, looked_at=now, in_doubt=False), now), now)
    if restart is None or len(spec.model_dump_json(exclude_defaults=True)) > WORKLOAD_MAXIMUM:
        return None
    return restart


def memory_of(state: State) -> State:
    """Return what `is_repeated` reads of a state: bounded, whatever the number of pods and restarts."""
    return edit(
        state, observation=None, operation=None, unsettled=None, told=None, owed=None, causes=(), graph_told=None
    )


def is_repeated(
    spec: Workload, memory: State, promise: PromisedRestart, seen: Observation, since: datetime, now: datetime
) -> bool:
    """Whether the decision after a live look is the promised restart.

    Args:
        spec: the workload.
        memory: the state when the look was requested (`memory_of`).
        promise: what the state then led to.
        seen: what the look found.
        since: when the look was requested.
        now: the time of the decision.
    """
    state = assessed(spec, observed(memory, seen, since, now), now)
    if state.observation is None or down_in(current(state)):
        return False
    found = _restart(decide(spec, state, now), now)
    return found is not None and is_same(found, promise)


def is_same(one: PromisedRestart, other: PromisedRestart) -> bool:
    """Whether two restarts have the same cause and the same effect; texts and times may differ."""
    nodes = [[node.name for node in each.exclude] for each in (one, other)]
    effects = [(each.rule, each.charge, each.limited, each.pause) for each in (one, other)]
    return nodes[0] == nodes[1] and effects[0] == effects[1] and _identity(one.failure) == _identity(other.failure)


def _identity(failure: Failure) -> tuple[object, ...]:
    return (failure.cls, failure.scope, failure.reason, failure.component, failure.subject, failure.node, failure.codes)


def _restart(decision: Decision, now: datetime) -> PromisedRestart | None:
    """Return a decision as a promise; None if it is no restart, or one that goes back to the queue."""
    if not isinstance(decision, Restart) or decision.requeue:
        return None
    return PromisedRestart(
        at=now,
        failure=decision.failure,
        rule=decision.rule,
        charge=decision.charge,
        exclude=decision.exclude,
        limited=decision.limited,
        pause=decision.pause,
    )
