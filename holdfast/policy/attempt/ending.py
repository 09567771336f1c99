"""Deletes the components of an ended workload that are still active, while the rest is kept (row J12)."""

from __future__ import annotations

from holdfast.model import AtEnd, Component, ComponentView, Observation, Phase, State, Workload
from holdfast.policy.attempt.health import LIVE, current
from holdfast.policy.values.decision import Clear
from holdfast.policy.values.edit import edit


def is_clearing(state: State) -> bool:
    """Whether the active components of a settled workload are being deleted, and nothing else."""
    attempt = state.attempt
    return state.outcome is not None and attempt is not None and attempt.stage in LIVE and is_unproven(state)


def is_unproven(state: State) -> bool:
    """Whether the deletion of active components began and was not proven complete, whatever has followed."""
    attempt = state.attempt
    return attempt is not None and attempt.clearing_at is not None and not attempt.cleared


def clearing(spec: Workload, state: State) -> Clear | None:
    """Return the deletion of active components, if the policy wants it; None once there is nothing to decide.

    A component that is not known to have ended counts as active: the operation checks for itself. After all of them
    were proven gone, only a component that is seen active again counts: a late create request has made it.
    """
    attempt = state.attempt
    if state.policy.deletion.at_end is not AtEnd.ACTIVE or state.outcome not in {Phase.SUCCEEDED, Phase.FAILED}:
        return None
    if attempt is None or attempt.stage not in LIVE or is_clearing(state):
        return None
    if attempt.cleared:
        again = revived(spec, state)
        return Clear(again, f"{spec.titles(again)}: made too late, and deleted") if again else None
    active = active_in(spec, state) if attempt.owner_uid else ()
    what = f"deleting what is still active of {spec.titles(active)}" if active else "nothing of it is active any more"
    return Clear(active, f"{what}; what has ended is kept")


def active_in(spec: Workload, state: State) -> tuple[str, ...]:
    """Return the components of this attempt that were created and are not known to have ended."""
    views, waiting = _views(state), state.attempt.waiting if state.attempt is not None else ()
    made = [one for one in spec.components if one.name not in waiting]
    return tuple(one.name for one in made if not _has_ended(one, views.get(one.name)))


def revived(spec: Workload, state: State) -> tuple[str, ...]:
    """Return the components that are seen active."""
    views = _views(state)
    return tuple(one.name for one in spec.components if _is_active(one, views.get(one.name)))


def idle(seen: Observation) -> Observation:
    """Return the snapshot as it will look once nothing is active any more."""
    views: dict[str, ComponentView] = {}
    for name, view in seen.components.items():
        pods = edit(view.pods, pending=0, running=0, terminating=0)
        if view.copies is not None:
            views[name] = edit(view, pods=pods, copies=edit(view.copies, ready=0, active=0, suspended=0))
        else:
            views[name] = view if view.complete or view.failed else edit(view, pods=pods, uid="")
    return edit(seen, components=views)


def _views(state: State) -> dict[str, ComponentView]:
    seen = current(state)
    return dict(seen.components) if seen is not None else {}


def _has_ended(component: Component, view: ComponentView | None) -> bool:
    if view is None or not view.found:
        return False
    if view.copies is not None:
        return view.copies.succeeded + view.copies.failed >= view.copies.expected
    return view.complete or view.failed or (component.bare and view.pods.failed > 0)


def _is_active(component: Component, view: ComponentView | None) -> bool:
    if view is None:
        return False
    if view.copies is not None:
        return bool(view.copies.ready or view.copies.active or view.copies.suspended)
    return bool(view.uid) and not _has_ended(component, view)
