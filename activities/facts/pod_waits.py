"""What the pods of an attempt wait for: one entry, with a count, per component and reason. Pure (row D34)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from holdfast.activities.facts.pods import PodFacts, PodState
from holdfast.model import Waiting
from holdfast.model.observation import FAILED_CREATE, WAITING_MAXIMUM


def groups(
    pods: Iterable[PodFacts], refused: Mapping[str, str], absent: Mapping[str, int], at: datetime
) -> tuple[Waiting, ...]:
    """Return what pods wait for, one entry per component and reason, so the result does not grow with the pods.

    Args:
        pods: of the attempt.
        refused: why pods of a component cannot even be created, by component.
        absent: how many pods of each component do not exist.
        at: now; pods that have waited only for a moment are left out.
    """
    waiting: dict[tuple[str, str], list[PodFacts]] = {}
    for pod in pods:
        since = pod.waits_from or pod.stuck_from
        if pod.state is PodState.PENDING and since is not None and since <= at:
            waiting.setdefault((pod.component, pod.reason), []).append(pod)
    found = [
        Waiting(reason=FAILED_CREATE, count=absent[name], message=why, component=name)
        for name, why in sorted(refused.items())
        if absent.get(name)
    ]
    found += [_group(*key, members) for key, members in sorted(waiting.items())]
    return tuple(sorted(found, key=lambda one: -one.count)[:WAITING_MAXIMUM])


def _group(component: str, reason: str, pods: Sequence[PodFacts]) -> Waiting:
    first = min(pods, key=lambda pod: pod.name)
    return Waiting(reason=reason, count=len(pods), message=first.message, component=component, subject=first.name)
