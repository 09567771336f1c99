"""What differs between a workload in force and the one that is wanted, and how it gets there, if it can (row E3)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, cast

from pydantic import ValidationError

from holdfast.model import Component, Policy, Workload
from holdfast.model.spec.policy import DEFAULT_RULE
from holdfast.policy.loop.change import ComponentsChange, PolicyChange, changed, differing, reconfigured
from holdfast.policy.sides.gang import GangScale

ABSENT: Final = object()
"""Stands for a field that one of the two does not have."""
HIDDEN: Final = "(hidden)"
"""Stands for a value of a Secret."""
_REQUEST: Final = {"uid", "queued", "submittedAt"}
"""Fields of a submission, not of what is submitted."""


class Difference(NamedTuple):
    """One field that differs: its path in the workload's document, and both values."""

    path: str
    before: Any
    after: Any

    def hidden(self, secret: tuple[str, ...]) -> Difference:
        """Return it without its values, if it is below one of these paths."""
        return Difference(self.path, HIDDEN, HIDDEN) if self.path.startswith(secret) else self


@dataclass(frozen=True, slots=True)
class Changes:
    """The requests that turn a workload into the wanted one; what none of them can change is `fixed`."""

    differences: tuple[Difference, ...]
    """All that differs, in the document's order."""
    fixed: tuple[Difference, ...]
    """What cannot change while the workload exists."""
    policy: PolicyChange | None = None
    scale: GangScale | None = None
    components: ComponentsChange | None = None
    again: tuple[str, ...] = ()
    """The components that are made again."""


def changes(current: Workload, wanted: Workload) -> Changes:
    """Compare a workload in force with the one that is wanted.

    Args:
        current: The workload in force, with its policy in force.
        wanted: The workload as its document now says.
    """
    current, wanted = current.started_only(), wanted.started_only()
    differences = tuple(differing_fields(_document(current), _document(wanted)))
    if not differences:
        return Changes((), ())
    secret = tuple(
        f"components[{one.name}].template"
        for one in (*current.components, *wanted.components)
        if one.template["kind"] == "Secret"
    )
    policy, scale = _policy_change(current.policy, wanted.policy), _scale(current, wanted)
    sized = current.resized(scale.min or scale.max, scale.max) if scale is not None else current
    reached = sized
    defined: list[Component] = []
    known = {one.name: one for one in reached.components}
    for one in wanted.components:
        if one.name not in known or one == known[one.name]:
            continue
        try:
            reached = reconfigured(reached, ComponentsChange(components=(one,)))
        except ValueError:
            continue  # It is among what is fixed.
        defined.append(one)
    again = differing(sized, reached)
    if policy is not None:
        reached = reached.model_copy(update={"policy": changed(current.policy, policy)})
    return Changes(
        differences=tuple(one.hidden(secret) for one in differences),
        fixed=tuple(one.hidden(secret) for one in differing_fields(_document(reached), _document(wanted))),
        policy=policy,
        scale=scale,
        components=ComponentsChange(components=tuple(defined)) if defined else None,
        again=again,
    )


def differing_fields(before: Any, after: Any, path: str = "") -> Iterator[Difference]:
    """Yield the fields that differ between two JSON documents; named items of a list are compared by their names."""
    same = _same(before, after)
    if isinstance(before, dict) and isinstance(after, dict):
        one, other = cast("dict[str, Any]", before), cast("dict[str, Any]", after)
        for key in dict.fromkeys([*one, *other]):
            yield from differing_fields(one.get(key, ABSENT), other.get(key, ABSENT), _below(path, key))
    elif isinstance(before, list) and isinstance(after, list):
        one, other = _by_name(cast("list[Any]", before)), _by_name(cast("list[Any]", after))
        common = [key for key in one if key in other], [key for key in other if key in one]
        if common[0] != common[1]:
            yield Difference(path, *common)
        for key in dict.fromkeys([*one, *other]):
            yield from differing_fields(one.get(key, ABSENT), other.get(key, ABSENT), f"{path}[{key}]")
    elif not same:
        yield Difference(path, before, after)


def _same(before: object, after: object) -> bool:
    return type(before) is type(after) and before == after  # True is 1 to Python, and not to Kubernetes.


def _below(path: str, key: str) -> str:
    if not all(character.isalnum() or character in "_-" for character in key):
        return f"{path}[{key}]"
    return f"{path}.{key}" if path else key


def _by_name(items: list[Any]) -> dict[str, Any]:
    """Return the items of a list by their names, or by their places where they have none or share one."""
    named = [_name(item) for item in items]
    unique = all(named) and len(set(named)) == len(named)
    return {named[at] if unique else str(at): item for at, item in enumerate(items)}


def _name(item: Any) -> str:
    return str(cast("dict[str, Any]", item).get("name", "")) if isinstance(item, dict) else ""


def _document(workload: Workload) -> dict[str, Any]:
    """Return what a workload is, without what belongs to its submission alone."""
    document = workload.model_dump(mode="json", exclude={"policy": {"own_failure_grace"}, "source": {"generation"}})
    return {key: value for key, value in document.items() if key not in _REQUEST}


def _policy_change(current: Policy, wanted: Policy) -> PolicyChange | None:
    """Return the change that an update can make of a policy; None if nothing of it can be changed."""
    before, after = current.model_dump(mode="json"), wanted.model_dump(mode="json")
    timings = {
        name: after["timings"].get(name)
        for name in dict.fromkeys([*before["timings"], *after["timings"]])
        if before["timings"].get(name) != after["timings"].get(name)
    }
    known = {one["name"]: one for one in before["budgets"]}
    both = [(one["name"], known[one["name"]], one) for one in after["budgets"] if one["name"] in known]
    actions = {one["name"]: one["action"] for one in before["rules"]} | {DEFAULT_RULE: before["default"]}
    rules = {one["name"]: one["action"] for one in after["rules"]} | {DEFAULT_RULE: after["default"]}
    same = [(name, actions[name], rules[name]) for name in actions if name in rules]
    change = PolicyChange(
        timings=timings,
        budgets={
            name: new["limit"] for name, old, new in both if new["limit"] is not None and old["limit"] != new["limit"]
        },
        reset_after={name: new["resetAfter"] for name, old, new in both if old["resetAfter"] != new["resetAfter"]},
        rule_limits={name: new.get("limit") for name, old, new in same if old.get("limit") != new.get("limit")},
        rule_pauses={name: new.get("pause") for name, old, new in same if old.get("pause") != new.get("pause")},
    )
    if change == PolicyChange():
        return None
    try:
        changed(current, change)
    except ValueError:
        return None  # What it would have changed is among what is fixed.
    return change


def _scale(current: Workload, wanted: Workload) -> GangScale | None:
    """Return the new size of its gang; None if it has none, keeps its size, or cannot have the wanted one."""
    old, new = current.gang, wanted.gang
    if old is None or new is None or (old.min, old.max) == (new.min, new.max):
        return None
    try:
        current.resized(new.min, new.max)
    except ValidationError:
        return None
    return GangScale(min=new.min, max=new.max)
