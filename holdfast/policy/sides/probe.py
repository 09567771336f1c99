"""When a workload's pods are probed, and which failure a failed probe is (rows L28, L29)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from holdfast.model import ActionKind, Failure, FailureClass, Probe, Reason, Scope, Stage, State, Workload, words
from holdfast.policy.failures.rules import rule_on
from holdfast.policy.failures.told import is_decided
from holdfast.policy.values.edit import edit

Answer = str | None
"""Why a pod's probe failed; empty if the pod answered; None if that is not known."""


def probed(spec: Workload, state: State) -> int | None:
    """Return the number of the attempt whose pods are to be probed now; None if no pods are.

    No pods are probed before all of them run, while it is suspended, or once it is settled, held or known to have
    failed. Nor are they if the policy ignores failed probes: each would only have to be followed by another.
    """
    attempt = state.attempt
    if spec.probe is None or attempt is None or attempt.stage is not Stage.SUBMITTED or attempt.ready_at is None:
        return None
    if state.outcome is not None or state.held is not None or state.intent.cancel or state.intent.suspend:
        return None
    if attempt.parking is not None or is_decided(state):
        return None
    asked = rule_on(state.policy, silence(attempt.number, attempt.ready_at))
    return attempt.number if asked.action.kind is not ActionKind.IGNORE else None


def silence(
    attempt: int, time: datetime, component: str = "", subject: str = "", node: str = "", message: str = ""
) -> Failure:
    """Return the failure of a pod whose consecutive failed probes have reached the threshold."""
    return Failure(
        cls=FailureClass.PROBE,
        scope=Scope.MEMBER,
        reason=Reason.PROBE_FAILED,
        time=time,
        component=component,
        subject=subject,
        node=node,
        message=message,
        attempt=attempt,
    )


def failed(rules: Probe, attempt: int, time: datetime, component: str, subject: str, node: str, answer: str) -> Failure:
    """Return the failure of a pod whose failed probes have reached the threshold, with its last answer."""
    message = f"{rules.words} failed {words.counted(rules.failure_threshold, 'time')} in a row: {answer}"
    return silence(attempt, time, component, subject, node, message)


def no_answer(rules: Probe) -> str:
    """Return the message for a probe that got no answer in time."""
    return f"no answer within {rules.timeout.total_seconds():g} s"


def counted(failing: Mapping[str, int], answers: Mapping[str, Answer]) -> dict[str, int]:
    """Return each pod's consecutive failed probes after a round, by uid; pods that answered are left out."""
    counts = {
        uid: failing.get(uid, 0) if answer is None else failing.get(uid, 0) + 1 if answer else 0
        for uid, answer in answers.items()
    }
    return {uid: count for uid, count in counts.items() if count}


def silent(answers: Mapping[str, Answer], failing: Mapping[str, int], threshold: int) -> set[str]:
    """Return the pods, by uid, that failed the last probe and have reached the threshold."""
    return {uid for uid, answer in answers.items() if answer and failing.get(uid, 0) >= threshold}


def on_probe_ended(state: State, number: int, failure: Failure | None, failing: dict[str, int]) -> State:
    """Return the state after the probing ended: with a failure, or interrupted with the counts so far."""
    attempt = state.attempt
    if attempt is None or attempt.number != number or attempt.stage is not Stage.SUBMITTED:
        return state
    if failure is None or (state.shows_waits and attempt.suspended):
        return edit(state, attempt=edit(attempt, probe_failing=failing))
    return edit(state, attempt=edit(attempt, told=failure, probe_failing={}))
