"""Probes the pods of a simulated service in rounds, as the activity does (row L28)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from holdfast.activities.facts.pods import PodState
from holdfast.model import Probe, State, Workload
from holdfast.policy.sides.probe import Answer, counted, failed, no_answer, probed, silent
from holdfast.policy.values.events import ProbeEnded
from holdfast.simulation.cluster.objects import Pod
from holdfast.simulation.cluster.world import World


class Asking:
    """The probe of a workload: the attempt it probes, failures in a row by pod, and the next round."""

    def __init__(self, spec: Workload, world: World, tell: Callable[[ProbeEnded], None]) -> None:
        self._spec = spec
        self._world = world
        self._tell = tell
        self._number: int | None = None
        self._failing: dict[str, int] = {}
        self._round = 0

    def follow(self, state: State) -> None:
        """Start or stop the probe, as the state of the workload requires."""
        self.ask(probed(self._spec, state))

    def ask(self, number: int | None) -> None:
        """Probe the pods of this attempt from now on, unless the probe already runs for it; None stops the probe."""
        rules = self._spec.probe
        if number == self._number or rules is None:
            return
        self._number, self._failing = number, {}
        self._round += 1
        if number is not None:
            self._world.clock.after(rules.initial_delay, self._turn(rules, number))

    def _turn(self, rules: Probe, number: int) -> Callable[[], None]:
        this = self._round

        def ask() -> None:
            if this == self._round:
                self._ask(rules, number)

        return ask

    def _ask(self, rules: Probe, number: int) -> None:
        world, now = self._world, self._world.clock.now
        if not world.dark:  # Pods that cannot be listed are not known to be silent.
            pods = {pod.name: pod for pod in world.pods if self._is_asked(rules, pod, number, now)}
            answers: dict[str, Answer] = {name: _answer(rules, pod) for name, pod in pods.items()}
            self._failing = counted(self._failing, answers)
            over = silent(answers, self._failing, rules.failure_threshold)
            if over:
                pod = pods[min(over)]
                answer = answers[pod.name] or ""
                failure = failed(rules, number, now, pod.thing.component.name, pod.name, pod.node, answer)
                self._number = None
                self._round += 1
                self._tell(ProbeEnded(number, failure, {}))
                return
        world.clock.after(rules.period, self._turn(rules, number))

    def _is_asked(self, rules: Probe, pod: Pod, number: int, now: datetime) -> bool:
        if pod.thing.attempt != number or pod.state is not PodState.RUNNING or pod.deleting is not None:
            return False
        chosen = not rules.components or pod.thing.component.name in rules.components
        return chosen and pod.runs_since is not None and pod.runs_since + rules.initial_delay <= now


def _answer(rules: Probe, pod: Pod) -> Answer:
    if pod.mute is None:
        return ""
    return f"HTTP {pod.mute.status}" if pod.mute.status is not None else no_answer(rules)
