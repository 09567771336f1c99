"""Random Jobs, what befalls their pods, and what the simulated Job controller makes of it (row D50).

A script is played in the simulation first. Each step waits until the Job is at rest, so that on a real cluster no step
depends on how fast it was. A script ends before the Job's back-off would take longer than `PATIENCE`.
"""

from __future__ import annotations

import copy
import json
import random
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from holdfast.formats import read
from holdfast.simulation.cluster.objects import Pod, Thing
from holdfast.simulation.cluster.world import World
from holdfast.simulation.script.clock import Clock
from holdfast.simulation.script.events import Fail
from holdfast.simulation.script.read import Latencies
from tests.e2e.ground.site import job

PATIENCE = timedelta(seconds=31)
"""Two failures in a row and what comes after: 10 and 20 s."""
STEPS = 7
NOW = timedelta(0)
CODES = (1, 3, 42)
DISRUPTION = "EvictionByEvictionAPI"
Json = dict[str, Any]


@dataclass(frozen=True)
class Step:
    """One thing that befalls a pod: `fail:42`, `disrupt`, `succeed`, `restart`; or, last, the Job's `deadline`."""

    what: str
    pod: str = ""
    """By its name in the simulation."""
    index: int | None = None
    after: Json = field(default_factory=dict[str, Any])
    """How the Job stands once it is at rest, by the simulation."""


class Model:
    """A Job under the simulated controller."""

    def __init__(self, template: Json) -> None:
        (spec,) = read(json.dumps(template), cluster="simulated", namespace="simulated")
        self.world = World(spec, Clock(), Latencies(schedule=NOW, start=NOW, stop=NOW), 8)
        self.world.own(1)
        (component,) = spec.components
        (self.thing,) = self.world.create(component, 1)
        self.rest()

    def rest(self) -> timedelta:
        """Let it all come to rest, and return how long that took."""
        clock = self.world.clock
        begun = clock.now
        while clock.next is not None:
            clock.now = max(clock.now, clock.next)
            while (action := clock.take()) is not None:
                action()
        return clock.now - begun

    @property
    def running(self) -> list[Pod]:
        """Its pods that run."""
        return [pod for pod in self.world.pods_of(self.thing) if pod.active]

    def happens(self, step: Step) -> None:
        """Let a step happen."""
        if step.what == "deadline":
            self.thing.spec["activeDeadlineSeconds"] = 1
            self.world.sync()
            return
        (pod,) = [one for one in self.running if one.name == step.pod]
        what, _, code = step.what.partition(":")
        if what == "succeed":
            self.world.end(pod)
        elif what == "restart":
            pod.restarts += 1
            self.world.sync()
        else:
            self.world.end(pod, Fail(disruption=DISRUPTION) if what == "disrupt" else Fail(exit_code=int(code)))

    def stands(self) -> Json:
        """Return how the Job stands, in what can be compared with a real one."""
        thing = self.thing
        (end,) = thing.conditions or (None,)
        return {
            "end": [end.type, end.reason, tail(end.message) if end.type == "Failed" else ""] if end else None,
            "succeeded": len(thing.job.done),
            "failed": None if end else thing.failures,
            "failedIndexes": sorted(thing.job.failed_indexes),
            "active": [] if end else _active(thing, self.running),
        }


def _active(thing: Thing, pods: list[Pod]) -> list[int]:
    """Return the indexes of a Job's active pods, 0 for each where it has none."""
    return sorted(pod.index or 0 for pod in pods)


def tail(message: str) -> str:
    """Return what a condition's message says without the names in it."""
    for word in (" failed with ", " has condition "):
        if word in message:
            return word.strip() + " " + message.partition(word)[2]
    return message


def script(seed: int) -> tuple[Json, list[Step]]:
    """Return a Job's manifest, and what befalls it."""
    rnd = random.Random(seed)
    template = _job(rnd, seed)
    model = Model(copy.deepcopy(template))
    steps: list[Step] = [Step("begin", after=model.stands())]
    spent = NOW
    in_place = template["spec"]["template"]["spec"]["restartPolicy"] == "OnFailure"
    for _ in range(rnd.randint(2, STEPS)):
        if not model.running:
            break
        pod = rnd.choice(model.running)
        bad = ["restart"] * 3 if in_place else [f"fail:{code}" for code in CODES]
        step = Step(rnd.choice([*bad, "disrupt", "succeed"]), pod.name, pod.index)
        trial = Model(copy.deepcopy(template))
        for before in steps[1:]:
            trial.happens(before)
            trial.rest()
        trial.happens(step)
        if spent + trial.rest() > PATIENCE:
            continue
        model.happens(step)
        spent += model.rest()
        steps.append(Step(step.what, step.pod, step.index, model.stands()))
    if model.stands()["end"] is None and rnd.random() < 0.4:
        model.happens(Step("deadline"))
        model.rest()
        steps.append(Step("deadline", after=model.stands()))
    return template, steps


def _job(rnd: random.Random, seed: int) -> Json:
    pods = rnd.randint(1, 3)
    template = job(f"job-{seed}", pods=pods)["template"]
    spec: Json = template["spec"]
    spec["completions"] = pods + rnd.randint(0, 2)
    indexed = rnd.random() < 0.5
    if indexed:
        spec["completionMode"] = "Indexed"
    elif rnd.random() < 0.3:
        del spec["completions"]
    spec["backoffLimit"] = rnd.choice([0, 1, 2, 2, 6, 6])
    if rnd.random() < 0.2:
        spec["template"]["spec"]["restartPolicy"] = "OnFailure"
        return template
    per_index = indexed and rnd.random() < 0.6
    if per_index:
        spec["backoffLimitPerIndex"] = rnd.choice([0, 0, 1, 1, 2])
        if rnd.random() < 0.4:
            spec["maxFailedIndexes"] = rnd.randint(0, spec["completions"])
        if rnd.random() < 0.7:
            del spec["backoffLimit"]
    if rnd.random() < 0.6:
        spec["podFailurePolicy"] = {"rules": [_rule(rnd, per_index) for _ in range(rnd.randint(1, 3))]}
    elif rnd.random() < 0.3:
        spec["podReplacementPolicy"] = rnd.choice(["Failed", "TerminatingOrFailed"])
    return template


def _rule(rnd: random.Random, per_index: bool) -> Json:
    action = rnd.choice(["FailJob", "Ignore", "Count", *(["FailIndex"] * 2 if per_index else [])])
    if rnd.random() < 0.3:
        return {"action": action, "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    values = sorted(rnd.sample(CODES, rnd.randint(1, 2)))
    codes: Json = {"operator": rnd.choice(["In", "In", "NotIn"]), "values": values}
    if rnd.random() < 0.4:
        codes["containerName"] = "main"
    return {"action": action, "onExitCodes": codes}
