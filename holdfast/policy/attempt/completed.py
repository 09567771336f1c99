"""Components that were complete: whoever deletes one of them changes nothing (row D23)."""

from __future__ import annotations

from holdfast.model import Attempt, Observation, State, Workload
from holdfast.policy.attempt.order import without
from holdfast.policy.values.edit import edit


def seen_complete(spec: Workload, state: State, attempt: Attempt, seen: Observation) -> tuple[str, ...]:
    """Return the components that were seen complete since they were last made.

    Nothing is concluded from a snapshot that may be of an object before. What is complete as soon as it exists has done
    no work, so it still goes missing. What is made again once it is complete or deleted goes by that (rows S7, S9).
    Copies are told as counts: which of them were complete is not known.
    """
    if not state.shows_waits or state.in_doubt:  # Runs of earlier releases go on as they began.
        return attempt.completed
    new = [
        one.name
        for one in spec.components
        if one.copies is None and one.name not in attempt.making and (one.expected_pods or one.status.tells_completion)
        if not ((rule := one.replacement or state.policy.replacement).completed or rule.deleted)
        if (view := seen.components.get(one.name)) is not None and view.complete and view.uid
    ]
    return tuple(dict.fromkeys((*attempt.completed, *new)))


def with_completed(seen: Observation, attempt: Attempt) -> Observation:
    """Return the snapshot with components complete that were so before somebody deleted them (row D23)."""
    views = seen.components
    gone = [name for name in attempt.completed if name in views and not views[name].found]
    if not gone:
        return seen
    complete = {name: edit(views[name], found=True, complete=True) for name in gone}
    return edit(without(seen, gone), components={**views, **complete})
