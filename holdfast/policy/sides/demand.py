"""What a workload asks of its queue: the requests of all its pods together, as the scheduler counts them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from holdfast.model import Workload
from holdfast.model.entities.queue import PODS
from holdfast.model.quantity import parse_quantity
from holdfast.model.spec.lifecycle import Reactive

_WHOLE: Final = 1000
"""One of something, in thousandths."""


def demand(spec: Workload) -> dict[str, int]:
    """Return what a workload's pods request together, by resource, in thousandths; `pods` is how many they are.

    Of an elastic gang and of a Reactive workload it is what they may grow to, since nobody asks again for that.
    """
    total, largest = dict[str, int](), dict[str, int]()
    count, members = 0, spec.members
    for component in spec.components:
        copies = 1 if component.copies is None else component.copies
        for pod_set in component.pod_sets:
            pods = spec.gang.max if spec.gang is not None and component is members else pod_set.replicas
            each = of_pod(component.pod_template(pod_set))
            _add(total, each, pods * copies)
            _raise(largest, each)
            count += pods * copies
    if isinstance(spec.lifecycle, Reactive):
        more = max(0, spec.lifecycle.max - count)
        _add(total, largest, more)
        count += more
    return {PODS: count * _WHOLE, **total}


def of_pod(template: Mapping[str, Any]) -> dict[str, int]:
    """Return what one pod of a template requests, by resource, in thousandths, as the Kubernetes scheduler counts it.

    Containers run together, with init containers that are restarted always; other init containers run alone, beside
    those of that kind that came before. What is requested of the pod as a whole stands for all of them.
    """
    spec = _object(template.get("spec"))
    running = dict[str, int]()
    for one in _objects(spec.get("containers")):
        _add(running, _requests(one))
    starting, beside = dict[str, int](), dict[str, int]()
    for one in _objects(spec.get("initContainers")):
        given = _requests(one)
        if one.get("restartPolicy") == "Always":
            _add(beside, given)
            _raise(starting, beside)
        else:
            alone = dict(beside)
            _add(alone, given)
            _raise(starting, alone)
    _add(running, beside)
    _raise(running, starting)
    running.update(_requests(spec))
    _add(running, _amounts(spec.get("overhead")))
    return running


def _requests(one: Mapping[str, Any]) -> dict[str, int]:
    """Return what is requested; a limit without a request is a request, as the API server has it."""
    resources = _object(one.get("resources"))
    return {**_amounts(resources.get("limits")), **_amounts(resources.get("requests"))}


def _amounts(given: Any) -> dict[str, int]:
    found = dict[str, int]()
    for key, value in _object(given).items():
        try:
            found[key] = parse_quantity(value)
        except ValueError:
            continue  # The API server refuses it, with its place and what is allowed there.
    return found


def _add(total: dict[str, int], more: Mapping[str, int], times: int = 1) -> None:
    for key, value in more.items():
        total[key] = total.get(key, 0) + value * times


def _raise(least: dict[str, int], other: Mapping[str, int]) -> None:
    for key, value in other.items():
        least[key] = max(least.get(key, 0), value)


def _object(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


def _objects(value: Any) -> Iterable[Mapping[str, Any]]:
    return [_object(one) for one in cast("list[Any]", value)] if isinstance(value, list) else []
