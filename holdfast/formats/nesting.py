"""One engine for what is under an attempt: its kind, budget and retries are not run a second time (row F10)."""

from __future__ import annotations

from typing import Any, cast

from holdfast import names
from holdfast.errors import Problem
from holdfast.formats.appwrapper.document import GROUP_KIND as APPWRAPPER
from holdfast.formats.jobset.document import GROUP_KIND as JOBSET
from holdfast.formats.native_resource import KIND
from holdfast.formats.pods import group_kind
from holdfast.formats.text import Json, inside

WORKLOAD = (names.GROUP, KIND)
PATH = "template"


def nested(template: Json, owner: str, limit: str) -> list[Problem]:
    """Return the problems of a component that is a workload itself, or restarts by itself, under `template`.

    Args:
        template: The component.
        owner: What it is a component of: `AppWrapper`.
        limit: The owner's field that bounds restarts.
    """
    kind = group_kind(template)
    if kind in {APPWRAPPER, WORKLOAD}:
        what = "an AppWrapper" if kind == APPWRAPPER else "a Workload"
        both = "they" if kind[1] == owner else "AppWrappers and Workloads"
        return [Problem(PATH, f"is {what}: {both} cannot be nested")]
    return _restarts(template, owner, limit) if kind == JOBSET else []


def _restarts(template: Json, owner: str, limit: str) -> list[Problem]:
    """Refuse a JobSet that restarts itself, or is Holdfast's: only its owner controls its lifecycle."""
    problems: list[Problem] = []
    manager = inside(template, "spec", "managedBy")
    if names.is_own_manager(str(manager)):
        says = f"expected none, or another controller's: Holdfast runs the {owner}, and not what is in it once more"
        problems.append(Problem(f"{PATH}.spec.managedBy", says, manager))
    where, says = f"{PATH}.spec.failurePolicy", f"the {owner} restarts it, as often as its own {limit} says"
    restarts = inside(template, "spec", "failurePolicy", "maxRestarts")
    if restarts not in (None, 0):
        problems.append(Problem(f"{where}.maxRestarts", f"expected 0, or none: {says}", restarts))
    rules = inside(template, "spec", "failurePolicy", "rules")
    for index, rule in enumerate(cast("list[Any]", rules) if isinstance(rules, list) else ()):
        action = inside(rule, "action")
        if str(action).startswith("Restart"):
            problems.append(Problem(f"{where}.rules[{index}].action", f"expected FailJobSet: {says}", action))
    return problems
