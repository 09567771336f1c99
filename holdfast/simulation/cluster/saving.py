"""Simulates pods that save their state on request, on virtual time (row L32)."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from holdfast.activities.facts.pods import PodState
from holdfast.model import Answers
from holdfast.policy.attempt.checkpoint import is_over
from holdfast.simulation.cluster.world import World


def saved(
    world: World, attempt: int, savers: Collection[str], number: int, before: tuple[int, int], until: datetime
) -> Answers | None:
    """Ask the running pods to save; return their answers once no more are expected, or the time is over.

    Args:
        world: The cluster.
        attempt: The attempt of the pods.
        savers: The components whose pods save.
        number: The number of the request.
        before: How many pods ran when the request was decided, and how many had succeeded.
        until: When the time to save is over.
    """
    pods = [one for one in world.pods if one.thing.attempt == attempt and one.thing.component.name in savers]
    running = [one for one in pods if one.state is PodState.RUNNING and one.deleting is None]
    times = {one.name: world.saves(one, number) for one in running}
    late = [at for at in times.values() if at is not None and at > world.clock.now]
    done = sum(at is not None and at <= world.clock.now for at in times.values())
    answers = Answers(
        at=world.clock.now,
        running=len(running),
        done=done,
        silent=len(running) - done,
        finished=sum(one.state is PodState.SUCCEEDED for one in pods),
        uri=f"checkpoint-{number}" if done else "",
        left=tuple(f"{name} has not answered" for name, at in times.items() if at is None)[:4],
    )
    if is_over(answers, *before) or world.clock.now >= until:
        return answers
    for at in (*late, until):
        world.clock.wake(at)
    return None


class Followed:
    """Tracks pods that still save in their termination grace, after a walltime ended while they saved (row L19)."""

    def __init__(self, number: int) -> None:
        """Start with no pods; `number` is the number of the request."""
        self._number = number
        self._done: dict[str, bool] = {}
        self._succeeded: set[str] = set()

    def look(self, world: World, attempt: int, savers: Collection[str]) -> None:
        """Record which running pods have saved, and which pods have succeeded."""
        for pod in world.pods:
            ours = pod.thing.attempt == attempt and pod.thing.component.name in savers
            if ours and pod.state is PodState.SUCCEEDED:
                self._succeeded.add(pod.name)
            if ours and pod.state is PodState.RUNNING:
                at = world.saves(pod, self._number)
                self._done[pod.name] = at is not None and at <= world.clock.now
                if at is not None and at > world.clock.now:
                    world.clock.wake(at)

    def answers(self, at: datetime) -> Answers:
        """Return the recorded answers of all pods."""
        done = sum(self._done.values())
        uri = f"checkpoint-{self._number}" if done else ""
        finished = len(self._succeeded - self._done.keys())
        silent = len(self._done) - done
        return Answers(at=at, running=len(self._done), done=done, silent=silent, finished=finished, uri=uri)
