"""A cluster on virtual time, in which objects are created, scheduled, started, ended and deleted.

This module knows nothing of Holdfast's decisions. Controllers are in `controllers.py`, nodes are in `nodes.py`, and
observations are in `views.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from holdfast.activities.facts.components import has_ended
from holdfast.activities.facts.nodes import NodeMark
from holdfast.activities.facts.pods import PodState
from holdfast.activities.kube.raw import mapping
from holdfast.activities.objects.inject_gang import shaped
from holdfast.model import Component, Interval, Workload
from holdfast.model.calls.cluster import planned
from holdfast.simulation.cluster import controllers, jobs, nodes
from holdfast.simulation.cluster.objects import UID, Owner, Pod, Thing
from holdfast.simulation.cluster.outages import Trouble
from holdfast.simulation.script.clock import Clock
from holdfast.simulation.script.events import Fail
from holdfast.simulation.script.read import Latencies


@dataclass(slots=True)
class World:
    """The API server, its controllers and its nodes."""

    spec: Workload
    clock: Clock
    latencies: Latencies
    node_count: int
    say: Callable[[str], None] = lambda _: None
    """Receives a sentence about each event in the cluster that users should see."""
    owners: dict[int, Owner] = field(default_factory=dict[int, Owner])
    things: list[Thing] = field(default_factory=list[Thing])
    pods: list[Pod] = field(default_factory=list[Pod])
    begun: set[tuple[int, str]] = field(default_factory=set[tuple[int, str]])
    """The (attempt, component) pairs created so far: a component that was never created is not missing."""
    changed: bool = False
    """Whether anything changed since the last observation."""
    lost: dict[str, datetime] = field(default_factory=dict[str, datetime])
    """Silent nodes, and when each responds again."""
    down: dict[str, NodeMark] = field(default_factory=dict[str, NodeMark])
    """Silent nodes that have been found Down."""
    broken: dict[str, NodeMark] = field(default_factory=dict[str, NodeMark])
    """Nodes whose hardware is marked as broken."""
    mended: dict[str, datetime] = field(default_factory=dict[str, datetime])
    """When the mark of each broken node is removed."""
    heard: dict[str, datetime] = field(default_factory=dict[str, datetime])
    """When each silent node last responded."""
    launches: list[Trouble] = field(default_factory=list[Trouble])
    unschedulable: list[Trouble] = field(default_factory=list[Trouble])
    pods_refused: list[Trouble] = field(default_factory=list[Trouble])
    refused: list[Trouble] = field(default_factory=list[Trouble])
    blind: list[Interval] = field(default_factory=list[Interval])
    """Past and future intervals in which the API server cannot be reached."""
    revision: int = 1
    """The revision of the last observation."""
    _uids: int = 0
    placed: int = 0

    @property
    def size(self) -> int:
        """How much there is to look at when something happens."""
        return len(self.pods) + len(self.blind) + sum(one.made for one in self.things)

    # --- troubles

    def trouble(self, found: list[Trouble], component: str) -> Trouble | None:
        """Return the trouble that blocks a component now, the longest of several."""
        here = [one for one in found if one.component in {None, component} and one.until > self.clock.now]
        return max(here, key=lambda one: one.until, default=None)

    @property
    def dark(self) -> bool:
        """Whether the API server cannot be reached now."""
        return any(one.begin <= self.clock.now < one.end for one in self.blind)

    def blindness(self) -> tuple[Interval, ...]:
        """Return the past part of the intervals without an API server, all that an observer can know of them."""
        now = self.clock.now
        return tuple(Interval(begin=one.begin, end=min(one.end, now)) for one in self.blind if one.begin < now)

    def seen(self, since: datetime) -> timedelta:
        """Return how much of the time since then the API server could be reached."""
        now = self.clock.now
        spans = (max(timedelta(0), one.end - max(one.begin, since)) for one in self.blindness())
        return now - since - sum(spans, timedelta(0))

    # --- requests

    def own(self, attempt: int) -> Owner:
        """Return an attempt's owner; create it if there is none."""
        if attempt not in self.owners:
            self.owners[attempt] = Owner(attempt, f"owner-{attempt}", self.clock.now)
        return self.owners[attempt]

    def create(
        self,
        component: Component,
        attempt: int,
        launch: int = 0,
        shuns: Collection[str] = (),
        dislikes: Collection[str] = (),
        alone: Mapping[int, int] | None = None,
        only: Collection[int] | None = None,
    ) -> list[Thing]:
        """Create a component's object, or its copies; their controller syncs at once.

        Args:
            component: The component to create.
            attempt: The attempt that it belongs to.
            launch: How often it was created before in that attempt.
            shuns: Nodes that its pods must not be placed on.
            dislikes: Nodes to use only if no other is free.
            alone: How often each copy was created before without the others, by index; None: never.
            only: The copies to create; None: all.
        """
        self.begun.add((attempt, component.name))
        component = self._sent(component)
        plan = planned(component, UID, attempt)
        made: list[Thing] = []
        for index, name in enumerate(plan.object_names):
            if only is not None and index not in only:
                continue
            self._uids += 1
            one = plan.model_copy(update={"object_name": name, "expected_pods": plan.pods_each, "copies": None})
            copy = index if plan.copies is not None else None
            number = launch + (alone or {}).get(index, 0)
            thing = Thing(component, one, attempt, f"uid-{self._uids}", self.clock.now, number, copy)
            thing.shuns, thing.dislikes = frozenset(shuns), frozenset(dislikes)
            made.append(thing)
        self.things.extend(made)
        self.sync()
        return made

    def _sent(self, component: Component) -> Component:
        """Return a component as it is created: a gang's Job gets its size and fields."""
        gang, members = self.spec.gang, self.spec.members
        if gang is None or members is None or component.name != members.name:
            return component
        spec = shaped(mapping(component.template.get("spec")), gang.pods)
        return component.model_copy(update={"template": {**component.template, "spec": spec}})

    def submitted(self, attempt: int) -> None:
        """Mark an attempt as submitted: all its objects were created."""
        self.owners[attempt].submitted = True
        self.changed = True

    def ended(self, attempt: int) -> None:
        """Mark an attempt as ended: an object that is gone is then not missing."""
        owner = self.owners.get(attempt)
        if owner is not None:
            owner.ended = True

    def suspend(self, attempt: int) -> None:
        """Suspend an attempt's Jobs: their controller deletes their pods, and no pod counts as missing meanwhile."""
        owner = self.owners.get(attempt)
        if owner is not None:
            owner.suspended = True
        for thing in self.things:
            thing.suspended = thing.suspended or (thing.attempt == attempt and thing.component.parks)
        self.sync()

    def parked(self, attempt: int) -> None:
        """Mark a suspended attempt as parked: no pod of it is left."""
        owner = self.owners.get(attempt)
        if owner is not None:
            owner.parked = True
        self.changed = True

    def saves(self, pod: Pod, request: int) -> datetime | None:
        """Return when a pod has saved its state, and send the request now if it was not sent before; None: never.

        A pod on a lost node receives no request.
        """
        if pod.node in self.lost:
            return None
        if pod.asked != request:
            pod.asked, pod.asked_at = request, self.clock.now
        span = self.latencies.save
        return pod.asked_at + span if pod.asked_at is not None and span is not None else None

    def resume(self, attempt: int, components: Collection[str]) -> None:
        """Resume some of an attempt's Jobs: their controller creates their pods again."""
        self.owners[attempt].suspended = self.owners[attempt].parked = False
        for thing in self.things:
            if thing.attempt == attempt and thing.component.name in components:
                thing.suspended = False
                thing.failed.clear()
                thing.job.started = self.clock.now
        self.sync()
        self.changed = True

    def has_ended(self, thing: Thing) -> bool:
        """Whether a component's object, or copy, has ended and is not being deleted."""
        pods = [pod.facts(self.revision) for pod in self.pods_of(thing)]
        return thing.deleting is None and has_ended(thing.plan, thing.facts("", self.revision), pods)

    def delete_attempt(self, attempt: int) -> None:
        """Delete all objects of an attempt, as a foreground deletion of its owner does."""
        owner = self.owners.get(attempt)
        if owner is None or owner.deleting is not None:
            return
        owner.deleting = self.clock.now
        for thing in [one for one in self.things if one.attempt == attempt]:
            self.delete(thing, foreground=True)
        self._collect()

    def delete(self, thing: Thing, *, foreground: bool = False) -> None:
        """Delete a component; with a foreground deletion it stays until its pods are gone."""
        thing.deleting = thing.deleting or self.clock.now
        for pod in self.pods_of(thing):
            self.delete_pod(pod)
        if not foreground and not thing.component.bare:
            self._forget(thing)
        self._collect()

    def delete_pod(self, pod: Pod, *, forced: bool = False) -> None:
        """Delete a pod: it disappears once its processes have ended and nothing holds it."""
        self.changed = True
        if pod.deleting is None:
            pod.deleting = self.clock.now
            span = timedelta(0) if pod.finished or not pod.node else self.latencies.stop
            if not forced:
                self.clock.after(span, lambda: self.let_go(pod))
        elif pod.node in self.down:
            self.clock.after(timedelta(0), lambda: self.let_go(pod))
        if forced:
            pod.forced = True
            self.let_go(pod)

    def let_go(self, pod: Pod) -> None:
        """Remove a deleted pod, unless something holds it."""
        if pod.deleting is None or pod not in self.pods or pod.finalizer:
            return
        if not pod.forced and ((pod.stubborn and not pod.finished) or nodes.is_stuck(self, pod)):
            return
        if not pod.forced and pod.node and not pod.finished and self.clock.now < pod.deleting + self.latencies.stop:
            return
        self.pods.remove(pod)
        jobs.gone(self, pod)
        self.changed = True
        self._collect()
        self.sync()

    def release(self, pod: Pod) -> None:
        """Release a pod that a finalizer held or that ignored its deletion."""
        pod.finalizer, pod.stubborn = "", False
        self.let_go(pod)

    # --- controllers and nodes

    def sync(self) -> None:
        """Run one sync of every controller."""
        for thing in list(self.things):
            if not thing.settled:
                controllers.sync(self, thing)

    def make_pod(self, thing: Thing, name: str, index: int | None = None) -> Pod:
        """Create a pod, as a controller does; it is scheduled and started after its latencies."""
        pod = Pod(name, thing, self.clock.now, index=index, template=thing.template)
        thing.made += 1
        self.pods.append(pod)
        self.changed = True
        self.clock.after(self.latencies.schedule, lambda: nodes.schedule(self, pod))
        return pod

    def end(self, pod: Pod, fail: Fail | None = None) -> None:
        """End a pod's processes."""
        if pod.state is not PodState.RUNNING or pod.deleting is not None or (pod.node in self.lost and fail is None):
            return
        if fail is not None and nodes.starts_again(self, pod, fail):
            return
        pod.state = PodState.FAILED if fail is not None else PodState.SUCCEEDED
        pod.ended, pod.fail = self.clock.now, fail
        if fail is not None and fail.node:
            pod.node = fail.node
        self.changed = True
        self.sync()

    def _forget(self, thing: Thing) -> None:
        if not thing.gone:
            thing.gone = True
            self.things.remove(thing)
            self.changed = True

    def _collect(self) -> None:
        """Remove deleted components and owners whose dependents are gone, as the garbage collector does."""
        for thing in [one for one in self.things if one.deleting is not None]:
            if not self.pods_of(thing):
                self._forget(thing)
        for number, owner in list(self.owners.items()):
            left = [*self.things, *(pod.thing for pod in self.pods)]
            if owner.deleting is not None and not any(one.attempt == number for one in left):
                del self.owners[number]
                self.changed = True

    # --- lookups

    def pods_of(self, thing: Thing) -> list[Pod]:
        """Return a component's pods."""
        return [pod for pod in self.pods if pod.thing is thing]

    def of(self, attempt: int, component: str, index: int | None = None) -> Thing | None:
        """Return a component's object, or one copy of it, if it exists."""
        found = [
            one
            for one in self.things
            if one.attempt == attempt and one.component.name == component and one.index == index
        ]
        return found[-1] if found else None
