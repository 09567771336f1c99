"""Scaling by other clients: pods that an object's own spec does not ask for now, and pods beyond those declared."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.model import ComponentView, Observation, Phase, Reason, State, Workload
from holdfast.model.words import counted
from holdfast.policy.attempt.health import current


def at_nothing(spec: Workload, state: State, seen: Observation | None) -> str:
    """Return a message on which components are scaled to 0, if no other pod of the workload is to run; else empty.

    That is neither a failure nor the end: the client that scaled it down may scale it up again (rows D14, F11).
    """
    if seen is None or (state.attempt is not None and state.attempt.later):
        return ""
    views = {name: view for name, view in seen.components.items() if view.found and not view.complete}
    idle = [one.name for one in spec.components if one.name in views and views[one.name].released]
    # Runs of earlier releases go on as they began: there, what was submitted so is complete.
    if not idle and state.shows_waits and not _works_without_pods(spec, views):
        found = {name for name, view in seen.components.items() if view.found and not view.overrun}
        idle = [one.name for one in spec.components if one.is_empty and one.name in found]
    if not idle or any(view.pods.expected for view in views.values()):
        return ""
    return f"{spec.titles(idle)} {'is' if len(idle) == 1 else 'are'} scaled to 0: no pod of the workload is to run"


def _works_without_pods(spec: Workload, views: Mapping[str, ComponentView]) -> bool:
    """Whether a component that declares no pods has yet to complete, by its own status."""
    return any(one.name in views and one.status.tells_completion and not one.pod_sets for one in spec.components)


def is_at_nothing(state: State) -> bool:
    """Whether a workload is Held because it was scaled to 0, and not because a user has to decide."""
    return state.held is None and state.phase is Phase.PENDING and state.reason is Reason.HELD


def overrun(spec: Workload, state: State) -> str:
    """Return a message on components whose objects ask for more pods than declared, and so exceed their quota."""
    seen = current(state)
    # A gang's Job is left out: it has as many pods as its largest round and its spares.
    gang = spec.members.name if spec.members is not None else None
    over = {name: view for name, view in seen.components.items() if view.overrun and name != gang} if seen else {}
    return "; ".join(
        f"{one.title} asks for {counted(view.declared + view.overrun, 'pod')}, {view.overrun} more than the declared "
        f"{view.declared} that its quota was reserved for"
        for one in spec.components
        if (view := over.get(one.name)) is not None
    )
