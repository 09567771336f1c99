"""The component whose pods are the members of a workload's gang, and which gangs are refused (rows T6, T8, T9, T13)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from holdfast.model.gang.state import Gang
from holdfast.model.spec.component import Component
from holdfast.model.spec.lifecycle import Lifecycle, Reactive
from holdfast.model.vocabulary import SuspendMode

_SIZES: Final = ("parallelism", "completions")
"""Fields of a Job that set its number of pods: a gang's own size changes while it runs."""
_INDEXED: Final = "Indexed"


def members_of(components: Sequence[Component]) -> Component | None:
    """Return the one component whose pods are the members of the gang; None if there is not exactly one."""
    bring = [one for one in components if one.expected_pods]
    return bring[0] if len(bring) == 1 else None


def check_gang(gang: Gang, components: Sequence[Component], lifecycle: Lifecycle, suspend: SuspendMode) -> None:
    """Refuse a gang whose members are not the pods of exactly one Job, or whose Job sets its own size.

    Raises:
        ValueError: naming the field, what was found, what is expected.
    """
    bring = [one.title for one in components if one.expected_pods]
    part = members_of(components)
    if part is None:
        found = ", ".join(bring) or "none"
        raise ValueError(
            f"gang: its members are the pods of one component: expected exactly one with pods, found {found}"
        )
    if isinstance(lifecycle, Reactive):
        raise ValueError(
            "lifecycle.kind: 'Reactive': a gang's size is its own to change: expected Bounded or Unbounded, and "
            "gang.min and gang.max instead"
        )
    if suspend is not SuspendMode.DELETE:
        raise ValueError(
            f"policy.deletion.suspend: {suspend.value!r}: expected Delete: the rendezvous of a gang lives as long as "
            "an attempt of it, and what is resumed is the next one"
        )
    where = f"components[{list(components).index(part)}]"
    if not part.parks:
        kind = f"{part.template['apiVersion']} {part.template['kind']}"
        raise ValueError(
            f"{where}.template.kind: {kind!r}: expected a batch/v1 Job, which replaces members that are lost"
        )
    if part.copies is not None:
        raise ValueError(f"{where}.copies: {part.copies}: expected none: the members of a gang are the pods of one Job")
    _check_job(_spec(part), f"{where}.template.spec")
    if part.expected_pods != gang.min:
        found, least = part.expected_pods, gang.min
        raise ValueError(
            f"{where}.podSets[0].replicas: {found}: expected gang.min, {least}: with fewer it does not run"
        )


def _check_job(spec: Mapping[str, Any], where: str) -> None:
    for field in _SIZES:
        if spec.get(field) is not None:
            given = f"{where}.{field}: {spec[field]!r}"
            raise ValueError(f"{given}: expected none: gang.max and gang.spares say how many pods there are")
    mode = spec.get("completionMode")
    if mode not in {None, _INDEXED}:
        raise ValueError(f"{where}.completionMode: {mode!r}: expected {_INDEXED}, or none: only that can be resized")


def _spec(component: Component) -> Mapping[str, Any]:
    found = component.template.get("spec")
    return cast("Mapping[str, Any]", found) if isinstance(found, dict) else {}
