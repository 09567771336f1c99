"""Reads the script of a simulation's events from YAML; errors name the field's path."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from holdfast.errors import InvalidWorkload, Problem, problems_of, truths
from holdfast.formats.text import one_document
from holdfast.model import Bounded, Duration, Model, ProbeKind, Workload, format_duration
from holdfast.simulation.script.events import (
    Asked,
    Blind,
    ComponentFailed,
    Delete,
    Extend,
    Fail,
    Happening,
    LaunchFails,
    NodeBroken,
    NodeLost,
    PodsRefused,
    Preempt,
    ProbeFails,
    Refuse,
    Requeue,
    RollOut,
    Scale,
    Stuck,
    Succeed,
    Unschedulable,
    count_or,
)

EVENTS_MAXIMUM = 1_000
TIMES_MAXIMUM = 10_000
SCALED = ("Deployment", "ReplicaSet", "StatefulSet")
"""The kinds that a script can scale."""
UNTIL = timedelta(days=30)
"""When a simulation ends that does not come to rest and has no end of its own."""


class Latencies(Model):
    """How long things take in the simulated cluster."""

    schedule: Duration = timedelta(seconds=2)
    """From a pod's creation until it has a node."""
    start: Duration = timedelta(seconds=8)
    """From a pod's scheduling until it runs."""
    stop: Duration = timedelta(seconds=5)
    """From a running pod's deletion until it is gone."""
    run: Duration | None = None
    """How long a pod runs until it succeeds; none: forever. A pod with restartPolicy Always never succeeds."""
    save: Duration | None = timedelta(seconds=30)
    """From the moment a running pod is asked to save its state until it has; none: it does not answer."""
    evict: Duration = timedelta(minutes=5, seconds=40)
    """From a node's silence until its pods are deleted: Kubernetes waits 40 s, then the usual toleration of 5 m."""


class Event(Model):
    """One event and its time; exactly one of the last twenty-three fields names the event."""

    at: Duration | None = None
    """The time of the event, since the start or since the mark."""
    every: Duration | None = None
    """In place of `at`: the interval of a repeated event, the first one after one interval."""
    times: Annotated[int, Field(ge=1, le=TIMES_MAXIMUM)] | None = None
    attempt: Annotated[int | Literal["each"] | None, count_or("each")] = None
    """The mark is this attempt; `each`: every attempt."""
    since: Literal["running", "created", "gone"] | None = None
    """The mark within the attempt: its pods run (the default), its creation begins, or it is proven gone."""

    fail: Fail | None = None
    succeed: Succeed | None = None
    node_lost: NodeLost | None = None
    node_broken: NodeBroken | None = None
    unschedulable: Unschedulable | None = None
    launch_fails: LaunchFails | None = None
    pods_refused: PodsRefused | None = None
    refuse: Refuse | None = None
    scale: Scale | None = None
    roll_out: RollOut | None = None
    delete: Delete | None = None
    component_failed: ComponentFailed | None = None
    probe_fails: ProbeFails | None = None
    blind: Blind | None = None
    stuck: Stuck | None = None
    suspend: Asked | None = None
    resume: Asked | None = None
    preempt: Preempt | None = None
    checkpoint: Asked | None = None
    cancel: Asked | None = None
    retry: Asked | None = None
    extend: Extend | None = None
    requeue: Requeue | None = None

    @field_validator("suspend", "resume", "preempt", "checkpoint", "cancel", "retry", "requeue", mode="before")
    @classmethod
    def _nothing_to_say(cls, value: Any) -> Any:
        # `suspend:` without a value means the same as `suspend: {}`.
        return {} if value is None else value

    @model_validator(mode="after")
    def _one_thing_at_one_time(self) -> Self:
        given = [name for name, _ in self._given()]
        if len(given) != 1:
            found = ", ".join(given) or "none"
            raise ValueError(f"expected exactly one of {', '.join(HAPPENINGS)}; found {found}")
        if (self.at is None) == (self.every is None):
            raise ValueError("expected either at or every, as in `at: 10m`")
        if self.every is not None and self.every <= timedelta(0):
            raise ValueError("every: expected more than 0s")
        if (self.times is None) != (self.every is None):
            raise ValueError("every and times belong together, as in `every: 30m, times: 5`")
        if self.since is not None and self.attempt is None:
            raise ValueError("since: says what of an attempt is meant: give attempt too")
        return self

    def _given(self) -> Iterator[tuple[str, Happening]]:
        for name, field in HAPPENINGS.items():
            value = getattr(self, field)
            if value is not None:
                yield name, value

    @property
    def what(self) -> tuple[str, Happening]:
        """The event: its name as written, and its value."""
        return next(self._given())


HAPPENINGS: dict[str, str] = {
    info.alias or name: name
    for name, info in Event.model_fields.items()
    if name not in {"at", "every", "times", "attempt", "since"}
}
"""The events: their names as written, and their field names."""


class Script(Model):
    """The events of a simulation, and its simulated cluster."""

    pods: Latencies = Latencies()
    nodes: Annotated[int, Field(ge=1, le=10_000)] = 8
    """The number of nodes, named from `node-1` on; pods are spread over them."""
    events: Annotated[tuple[Event, ...], Field(max_length=EVENTS_MAXIMUM)] = ()
    until: Duration | None = None
    """When the simulation ends at the latest; none: when nothing more can happen, or after 30 days."""

    def problems(self, spec: Workload) -> list[Problem]:
        """Return the parts of this script that do not fit the workload."""
        known = names_of(spec)
        found: list[Problem] = []
        for index, event in enumerate(self.events):
            name, what = event.what
            path = f"events[{index}].{name}"
            component = getattr(what, "component", None)
            if component is not None and component not in known:
                message = f"names no component of {spec.name}"
                found.append(Problem(f"{path}.component", message, component, tuple(dict.fromkeys(known))))
            node = what.node if isinstance(what, NodeLost | NodeBroken | LaunchFails | Requeue) else ""
            if node and node not in {f"node-{number}" for number in range(1, self.nodes + 1)}:
                found.append(Problem(f"{path}.node", f"expected one of node-1 to node-{self.nodes}", node))
            found += _unfit(path, what, spec)
        return found


def _unfit(path: str, what: Happening, spec: Workload) -> list[Problem]:
    """Return the problems of an event that can never happen to this workload."""
    match what:
        case ProbeFails():
            if spec.probe is None:
                return [Problem(path, f"expected only where the workload has a probe, and {spec.name} has none")]
            asked = spec.probe.components or tuple(one.name for one in spec.components if one.pod_sets)
            known = names_of(spec)
            if what.component in known and known[what.component] not in asked:
                return [Problem(f"{path}.component", "is not asked by the probe", what.component, asked)]
            if what.status is not None and spec.probe.kind is not ProbeKind.HTTP:
                return [Problem(f"{path}.status", "expected none, since the probe is TCP", what.status)]
        case Scale() | RollOut():
            kinds = SCALED if isinstance(what, Scale) else ("Deployment",)
            named = names_of(spec).get(what.component)
            found = next((one for one in spec.components if one.name == named), None)
            if found is not None and (found.template["apiVersion"], found.template["kind"]) not in {
                ("apps/v1", kind) for kind in kinds
            }:
                expected = f"expected a {' or a '.join(kinds)} of apps/v1"
                return [Problem(f"{path}.component", expected, what.component)]
        case Extend():
            life = spec.lifecycle
            if not isinstance(life, Bounded) or not life.walltime:
                return [Problem(path, f"expected only where the workload has a walltime, and {spec.name} has none")]
            most = life.extendable_to
            if most is None or life.walltime + what.by > most:
                bound = f"at most {format_duration(most - life.walltime)}" if most is not None else "none"
                message = f"expected {bound}, as the workload's lifecycle.extendableTo has it"
                return [Problem(f"{path}.by", message, format_duration(what.by))]
        case _:
            pass
    return []


def names_of(spec: Workload) -> dict[str, str]:
    """Return the components by every name that a script may use: their own names, and those of their objects."""
    found = {component.name: component.name for component in spec.components}
    objects = [(component.template["metadata"].get("name", ""), component.name) for component in spec.components]
    for name, component in objects:
        if name and [one for one, _ in objects].count(name) == 1:
            found.setdefault(name, component)
    return found


def read_script(text: str, source: str = "the script") -> Script:
    """Read a script from YAML or JSON.

    Args:
        text: One document.
        source: The name of the document in errors, for example `script failures.yaml`.

    Raises:
        InvalidWorkload: with every problem: the field's path, the value found and the values allowed.
    """
    content = one_document(text, source) or {}
    try:
        script = Script.model_validate(content)
    except ValidationError as error:
        raise InvalidWorkload(problems_of(error, Script), source) from None
    if wrong := tuple(truths(content, script)):
        raise InvalidWorkload(wrong, source)
    return script
