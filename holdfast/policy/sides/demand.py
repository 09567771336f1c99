"""A workload's demand on its queue: the requests of all its pods together, as the scheduler counts them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from holdfast.model import State, Workload
from holdfast.model.entities.queue import PODS
from holdfast.model.quantity import format_quantity, parse_quantity
from holdfast.model.spec.lifecycle import Reactive
from holdfast.model.words import amount_of

_WHOLE: Final = 1000
"""One of something, in thousandths."""


def demand(spec: Workload, *, spares: bool = True) -> dict[str, int]:
    """Return the total requests of a workload's pods, by resource, in thousandths; `pods` is the number of pods.

    For an elastic gang and a Reactive workload it is the size they may grow to, since growth is not requested again.

    Args:
        spec: The workload.
        spares: Whether the spares of a gang count; they did not in releases before 0.3.
    """
    total, largest = dict[str, int](), dict[str, int]()
    count, members = 0, spec.members
    for component in spec.components:
        copies = 1 if component.copies is None else component.copies
        for pod_set in component.pod_sets:
            pods = pod_set.replicas
            if spec.gang is not None and component is members:
                pods = spec.gang.pods if spares else spec.gang.max
            each = of_pod(component.pod_template(pod_set))
            _add(total, each, pods * copies)
            _raise(largest, each)
            count += pods * copies
    if isinstance(spec.lifecycle, Reactive):
        more = max(0, spec.lifecycle.max - count)
        _add(total, largest, more)
        count += more
    return {PODS: count * _WHOLE, **total}


def check_growth(path: str, before: Workload, after: Workload, state: State) -> None:
    """Check that a change requests no more of what its queue counts than was admitted: growth is not requested again.

    Raises:
        ValueError: if it does, naming the path, the resource and both amounts, and saying what to do.
    """
    if state.turn is None or not state.turn.admitted:
        return
    admitted, wanted = (demand(each, spares=state.shows_waits) for each in (before, after))
    counts = (PODS,) if state.turn.counts is None else state.turn.counts
    for key, amount in wanted.items():
        if key in counts and amount > admitted.get(key, 0):
            asked, most = (amount_of(format_quantity(each), key) for each in (amount, admitted.get(key, 0)))
            remedy = "submit it anew" if state.outcome is not None else "suspend it, make the change, and resume it"
            raise ValueError(
                f"{path}: it would request {asked}: expected at most {most}, as admitted by its queue, {before.queue}: "
                f"{remedy}"
            )


def of_pod(template: Mapping[str, Any]) -> dict[str, int]:
    """Return the requests of one pod of a template, by resource, in thousandths, as the Kubernetes scheduler counts.

    Containers run together with the init containers whose restartPolicy is Always. Each other init container runs
    alone, beside the earlier ones of that kind. Pod-level requests replace the sum over containers.
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
    """Return the requests of a container or pod; a limit without a request is the request, as in the API server."""
    resources = _object(one.get("resources"))
    return {**_amounts(resources.get("limits")), **_amounts(resources.get("requests"))}


def _amounts(given: Any) -> dict[str, int]:
    found = dict[str, int]()
    for key, value in _object(given).items():
        try:
            found[key] = parse_quantity(value)
        except ValueError:
            continue  # The API server refuses it and names its field and the allowed values.
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
