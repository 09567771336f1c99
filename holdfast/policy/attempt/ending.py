"""What is deleted of a workload that has ended, while the rest of it is held: what is still active (row J12)."""

from __future__ import annotations

from holdfast.model import AtEnd, Component, ComponentView, Observation, Phase, State, Workload
from holdfast.policy.attempt.health import LIVE, current
from holdfast.policy.values.decision import Clear
from holdfast.policy.values.edit import edit


def is_clearing(state: State) -> bool:
    """Whether what is still active of a settled workload is being deleted, alone."""
    attempt = state.attempt
    return state.outcome is not None and attempt is not None and attempt.stage in LIVE and is_unproven(state)


def is_unproven(state: State) -> bool:
    """Whether the deletion of what was active had begun and was not proven, whatever has followed."""
    attempt = state.attempt
    return attempt is not None and attempt.clearing_at is not None and not attempt.cleared


def clearing(spec: Workload, state: State) -> Clear | None:
    """Return the deletion of what is still active, where the policy wants it; None once there is nothing to decide.

    What is not known to have ended is taken to be active: the operation sees for itself. Once it was all proven gone,
    only what is seen to live again counts, since a request that landed late has made it.
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
    """Return the components that are not known to have ended, of those that were made in this attempt."""
    views, waiting = _views(state), state.attempt.waiting if state.attempt is not None else ()
    made = [one for one in spec.components if one.name not in waiting]
    return tuple(one.name for one in made if not _has_ended(one, views.get(one.name)))


def revived(spec: Workload, state: State) -> tuple[str, ...]:
    """Return the components of which something active is seen."""
    views = _views(state)
    return tuple(one.name for one in spec.components if _is_active(one, views.get(one.name)))


def idle(seen: Observation) -> Observation:
    """Return a snapshot as it will be once nothing is active any more."""
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
