"""Changes to a workload that is under way, of its policy or of what it is made of: checked before they are taken."""

from __future__ import annotations

from pydantic import ValidationError

from holdfast.model import Component, Model, Phase, Policy, State, Timings, Workload
from holdfast.policy.health import LIVE


class PolicyChange(Model):
    """Which waits and which budgets are to differ from now on; what is not named stays."""

    timings: dict[str, str | None] = {}
    """By name, for example `{"failureGracePeriod": "30s"}`; null, for one that may be: never."""
    budgets: dict[str, int] = {}
    """New limits by budget name, for example `{"restart": 5}`."""
    reset_after: dict[str, str | None] = {}
    """By budget name, how long health must last for what was used to be forgiven, for example `{"restart": "24h"}`;
    null: never."""
    note: str = ""


def changed(policy: Policy, change: PolicyChange) -> Policy:
    """Return the policy with the change made.

    Raises:
        ValueError: if a name is unknown or a value is out of range, naming what is allowed.
    """
    document = policy.model_dump(mode="json")
    allowed = sorted(field.alias or name for name, field in Timings.model_fields.items())
    for name, value in change.timings.items():
        if name not in allowed:
            raise ValueError(f"timings.{name}: expected one of {', '.join(allowed)}")
        document["timings"][name] = value
    known = [budget["name"] for budget in document["budgets"]]
    for name, limit in change.budgets.items():
        if name not in known:
            raise ValueError(f"budgets.{name}: expected one of {', '.join(known)}")
        document["budgets"][known.index(name)]["limit"] = limit
    for name, span in change.reset_after.items():
        if name not in known:
            raise ValueError(f"resetAfter.{name}: expected one of {', '.join(known)}")
        document["budgets"][known.index(name)]["resetAfter"] = span
    return Policy.model_validate(document)


class ComponentsChange(Model):
    """What some components are to be made of from now on; those that are not named stay as they are (row S8)."""

    components: tuple[Component, ...]
    note: str = ""


def check_changeable(state: State) -> None:
    """Check that something may still be made of what a change brings.

    Raises:
        ValueError: if not, saying why and what to do.
    """
    attempt = state.attempt
    if state.intent.cancel and state.outcome is None:
        raise ValueError("it is being deleted, and nothing more is made of it: submit it anew instead")
    # A failed one that is still held can be begun anew, by `retry`, and then of what was changed meanwhile.
    held = state.outcome is Phase.FAILED and attempt is not None and attempt.stage in LIVE and not state.intent.cancel
    if state.outcome is not None and not held:
        raise ValueError(f"it is {state.outcome.value}, and nothing more is made of it: submit it anew instead")


def differing(before: Workload, after: Workload) -> tuple[str, ...]:
    """Return the names of the components that are to be made again: what they are made of, or read, has changed."""
    return tuple(name for name, hash_ in after.config_hashes.items() if before.config_hashes[name] != hash_)


def reconfigured(spec: Workload, change: ComponentsChange) -> Workload:
    """Return the workload with the change made.

    Raises:
        ValueError: if a component is unknown, would become another object, or would bring other pods.
    """
    known = {component.name: component for component in spec.components}
    for one in change.components:
        if one.name not in known:
            raise ValueError(f"components.{one.name}: expected one of {', '.join(known)}")
        old = known[one.name]
        for field in ("apiVersion", "kind"):
            if one.template[field] != old.template[field]:
                raise ValueError(f"components.{one.name}.template.{field}: expected {old.template[field]!r} as before")
        for field in ("name", "generateName", "namespace"):
            there, given = old.template["metadata"].get(field), one.template["metadata"].get(field)
            if there != given:
                raise ValueError(f"components.{one.name}.template.metadata.{field}: expected {there!r} as before")
        if one.copies != old.copies:
            raise ValueError(f"components.{one.name}.copies: expected {old.copies} as before: submit it anew instead")
        if [(each.path, each.replicas) for each in one.pod_sets] != [
            (each.path, each.replicas) for each in old.pod_sets
        ]:
            raise ValueError(f"components.{one.name}.podSets: expected the same pods as before: submit it anew instead")
        known[one.name] = one
    try:
        return spec.with_components(known.values())
    except ValidationError as error:
        raise ValueError("; ".join(each["msg"] for each in error.errors())) from None
