"""Changes to the policy or the components of a running workload, checked before they are accepted."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import ConfigDict, Field, ValidationError

from holdfast.model import ActionKind, Component, Phase, Policy, State, Timings, Workload
from holdfast.model.spec.policy import DEFAULT_RULE
from holdfast.model.spec.sensitive import reruns_init
from holdfast.policy.attempt.health import LIVE
from holdfast.policy.sides.demand import check_growth
from holdfast.policy.values.addressee import Addressed


class PolicyChange(Addressed):
    """New values for timings, budgets, and rules' limits and pauses; whatever is not named stays as it is."""

    timings: dict[str, str | None] = {}
    """New timings by name, for example `{"failureGracePeriod": "30s"}`; null, if the timing allows it: never."""
    budgets: dict[str, int] = {}
    """New limits by budget name, for example `{"restart": 5}`."""
    reset_after: dict[str, str | None] = {}
    """How long the workload must be healthy until a budget's use is reset, by budget name, for example
    `{"restart": "24h"}`; null: never."""
    rule_limits: Annotated[dict[str, int | None], Field(exclude_if=lambda value: not value)] = {}
    """How often a rule may act, by rule name, for example `{"out-of-memory": 2}`; null: limited only by its budget.
    `default` names the default action. A rule that had no limit is counted from now on."""
    rule_pauses: Annotated[dict[str, str | None], Field(exclude_if=lambda value: not value)] = {}
    """The pause after a rule's next act, by rule name; null: the retry pause."""
    note: str = ""

    # Unknown fields are allowed here so that `changed` can refuse them with a message. A decoding error has none.
    model_config = ConfigDict(extra="allow")


def changed(policy: Policy, change: PolicyChange) -> Policy:
    """Return the policy with the change made.

    Raises:
        ValueError: if a name is unknown or a value is out of range, naming what is allowed.
    """
    known = ", ".join(info.alias or name for name, info in PolicyChange.model_fields.items() if name != "uid")
    fixed = {info.alias or name for name, info in Policy.model_fields.items()}
    for name in change.model_extra or ():
        why = "cannot be changed under way: submit it anew instead, or change" if name in fixed else "expected"
        raise ValueError(f"{name}: {why} one of {known}")
    document = policy.model_dump(mode="json")
    allowed = sorted(field.alias or name for name, field in Timings.model_fields.items())
    for name, value in change.timings.items():
        if name not in allowed:
            raise ValueError(f"timings.{name}: expected one of {', '.join(allowed)}")
        document["timings"][name] = value
        if name == "failureGracePeriod":
            document["ownFailureGrace"] = True
    budgets = [budget["name"] for budget in document["budgets"]]
    for name, limit in change.budgets.items():
        if name not in budgets:
            raise ValueError(f"budgets.{name}: expected one of {', '.join(budgets)}")
        document["budgets"][budgets.index(name)]["limit"] = limit
    for name, span in change.reset_after.items():
        if name not in budgets:
            raise ValueError(f"resetAfter.{name}: expected one of {', '.join(budgets)}")
        document["budgets"][budgets.index(name)]["resetAfter"] = span
    for field, key, values in (
        ("ruleLimits", "limit", change.rule_limits),
        ("rulePauses", "pause", change.rule_pauses),
    ):
        for name, value in values.items():
            _action(document, name, f"{field}.{name}")[key] = value
    return Policy.model_validate(document)


def _action(document: dict[str, Any], rule: str, path: str) -> dict[str, Any]:
    """Return the action of a rule that restarts.

    Raises:
        ValueError: if no such rule restarts, naming those that do.
    """
    actions = {DEFAULT_RULE: document["default"], **{one["name"]: one["action"] for one in document["rules"]}}
    restarts = [name for name, action in actions.items() if action["kind"] == ActionKind.RESTART]
    if rule not in restarts:
        raise ValueError(f"{path}: expected a rule that restarts: one of {', '.join(restarts) or 'none'}")
    return actions[rule]


class ComponentsChange(Addressed):
    """New definitions of some components; components that are not named stay as they are (row S8)."""

    components: tuple[Component, ...]
    note: str = ""


def check_changeable(state: State) -> None:
    """Check that the workload may still create objects, so that a change can take effect.

    Raises:
        ValueError: if not, saying why and what to do.
    """
    attempt = state.attempt
    if state.intent.cancel and state.outcome is None:
        raise ValueError("it is being deleted, and nothing more is made of it: submit it anew instead")
    # A failed workload whose resources are still kept can be retried, and then uses what was changed meanwhile.
    held = state.outcome is Phase.FAILED and attempt is not None and attempt.stage in LIVE and not state.intent.cancel
    if state.outcome is not None and not held:
        raise ValueError(f"it is {state.outcome.value}, and nothing more is made of it: submit it anew instead")


def differing(before: Workload, after: Workload) -> tuple[str, ...]:
    """Return the names of the components to recreate: their definition, or the data they read, has changed."""
    return tuple(name for name, hash_ in after.config_hashes.items() if before.config_hashes[name] != hash_)


def resizes(spec: Workload, change: ComponentsChange) -> bool:
    """Whether a change gives a gang another number of members than it has now (rows S8, T6)."""
    members = spec.members
    return any(
        members is not None and one.name == members.name and _sized(one, members) != one for one in change.components
    )


def _sized(new: Component, old: Component) -> Component:
    """Return a gang's members with as many pods as they have now."""
    if len(new.pod_sets) != len(old.pod_sets):
        return new
    sets = (
        one.model_copy(update={"replicas": now.replicas}) for one, now in zip(new.pod_sets, old.pod_sets, strict=True)
    )
    return new.model_copy(update={"pod_sets": tuple(sets)})


def reconfigured(spec: Workload, change: ComponentsChange) -> Workload:
    """Return the workload with the change made; a gang keeps its size, which only `scale` changes.

    Raises:
        ValueError: if a component is unknown, would become another object, or would bring other pods.
    """
    known = {component.name: component for component in spec.components}
    for one in change.components:
        if one.name not in known:
            raise ValueError(f"components.{one.name}: expected one of {', '.join(known)}")
        old = known[one.name]
        if old is spec.members:
            one = _sized(one, old)
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


def check_change(spec: Workload, state: State, change: ComponentsChange) -> None:
    """Check a change before it is accepted, as a submission is checked.

    It is stricter than `reconfigured`, which also reads what releases before 0.3 have accepted.

    Raises:
        ValueError: naming the field and what is allowed.
    """
    after = reconfigured(spec, change)
    check_growth("components", spec, after, state)
    for one in change.components if after.sensitive else ():
        for _, wrong in reruns_init([one]):
            raise ValueError(f"components.{one.name}.{wrong}")
