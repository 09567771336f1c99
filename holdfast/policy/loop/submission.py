"""The state and the memo of a workload when it is submitted, and what an earlier release could not go on with."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

from holdfast import names
from holdfast.model import CopyWord, Scope, State, Workload
from holdfast.model.observation import Asked
from holdfast.policy.status.blocked import waiting
from holdfast.policy.status.queued import first_turn
from holdfast.policy.values.edit import edit

_WORDS_OF_0_2: Final = {CopyWord.RESTARTS, CopyWord.NAMESPACED_NAME, CopyWord.PRIORITY}


def submitted(spec: Workload, now: datetime) -> State:
    """Return the initial state: nothing is created yet, and a workload submitted suspended stays suspended."""
    state = State(since=now, policy=spec.policy, blocked=waiting(spec), turn=first_turn(spec))
    if spec.source.generation is not None:
        # Its custom resource exists already, and receives the status from the start.
        asked = Asked(kind=spec.source.kind, generation=spec.source.generation, suspend=spec.suspend)
        state = edit(state, asked=asked, anchored=True, kueue_admits=spec.kueue_admits)
    if spec.suspend:
        state = edit(state, intent=edit(state.intent, suspend=True, note="submitted suspended"))
    return state


def identity(spec: Workload, uid: str) -> dict[str, Any]:
    """Return the entries of the memo by which lists, queues and the broker know a workload. They never change."""
    told: dict[str, Any] = {names.MEMO_UID: uid, names.MEMO_KIND: spec.source.kind}
    if spec.listed_labels:
        told[names.MEMO_LABELS] = spec.listed_labels
    if spec.checkpoint is not None:
        told[names.MEMO_SAVES] = True
    if spec.queued:
        told[names.MEMO_QUEUED] = True
    if spec.graph is not None:
        told[names.MEMO_GRAPH] = spec.graph.graph
    return told


def unknown_to_0_1(spec: Workload) -> str:
    """Return the first field that a worker of release 0.1 would refuse, or drop as it acts; empty: none (row O4)."""
    return next(_unknown_to_0_1(spec), "")


def _unknown_to_0_1(spec: Workload) -> Iterator[str]:
    if spec.volume_claims:
        yield "volumeClaims"
    for at, component in enumerate(spec.components):
        if component.copy_selectors:
            yield f"components[{at}].copySelectors"
        yield from (
            f"components[{at}].copyLabels[{key}].word: {one.word.value}"
            for key, one in component.copy_labels.items()
            if one.word in _WORDS_OF_0_2
        )
    in_copies = {one.name for one in spec.components if one.copies is not None}
    for rule in spec.policy.rules:
        meant = in_copies.intersection(rule.match.components) if rule.match.components else in_copies
        if rule.action.alone and rule.action.unit is Scope.MEMBER and meant:
            yield f"policy.rules[{rule.name}].action.unit: Member"
