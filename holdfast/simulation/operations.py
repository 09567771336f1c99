"""Simulates the operations of a workload's worker on virtual time, as `holdfast/model/calls/cluster.py` promises.

An operation itself takes no time: only its waits take time. The simulation calls `go_on` whenever something may have
changed; the call returns the result once the operation is done.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from holdfast.activities.facts.pods import PodState
from holdfast.model import (
    Answers,
    Component,
    Failure,
    FailureClass,
    Limits,
    ObjectRef,
    Observation,
    Operation,
    OperationKind,
    RefusedCreate,
    Scope,
    State,
    Workload,
)
from holdfast.model.calls.barrier import Lifted
from holdfast.model.calls.cluster import (
    Checkpointed,
    Cleared,
    Created,
    Parked,
    Prepared,
    Removed,
    Replaced,
    Reported,
    Unparked,
    copies_ref,
    planned,
)
from holdfast.model.calls.stage import Staged
from holdfast.model.life.data import DataSet
from holdfast.model.life.state import STANDSTILL
from holdfast.model.words import counted
from holdfast.policy.attempt.barrier import absent
from holdfast.policy.attempt.health import grace_left, timings
from holdfast.policy.values.edit import edit
from holdfast.policy.values.events import OperationEnd, OperationInterrupted
from holdfast.simulation.cluster.objects import Pod, Thing
from holdfast.simulation.cluster.outages import EVER
from holdfast.simulation.cluster.saving import Followed, saved
from holdfast.simulation.cluster.views import observe, remnants
from holdfast.simulation.cluster.world import World

Ended = OperationEnd | Observation


class Activity:
    """One operation under way."""

    def __init__(self, spec: Workload, state: State, operation: Operation, world: World, limits: Limits) -> None:
        self._spec = spec
        self._world = world
        self._limits = limits
        self._operation = operation
        self._number = operation.attempt
        self._waits = timings(state)
        waiting = state.attempt.waiting if state.attempt is not None else ()
        self._first = [one for one in spec.components if one.name not in waiting]
        self._absent = absent(state)
        self._request = state.checkpoint
        self._followed = Followed(self._request.number if self._request is not None else 0)
        self._resuming = state.attempt.resuming if state.attempt is not None else ()
        self._avoided = state.attempt.avoided if state.attempt is not None else ()
        self._replacing = state.attempt.replacing if state.attempt is not None else ()
        self._alone = {
            name: {index: one.launches_in(self._number) for index, one in known.items()}
            for name, known in state.copy_restarts.items()
        }
        waits = state.policy.refused_create is RefusedCreate.WAIT
        self._patience = self._waits.submission_timeout if waits else self._waits.admission_grace_period
        self._waits_for_rights = waits
        self._made: list[ObjectRef] = []
        now, again = (
            world.clock.now,
            (name for name in self._replacing if operation.launches.get(name) or name in operation.copies),
        )
        self._graces = {name: timedelta(seconds=grace_left(state, name, now)) for name in again}
        borne = state.attempt.borne_again if state.attempt is not None else 0.0
        if operation.kind is OperationKind.REPLACE and self._patience is not None:
            self._patience = max(timedelta(0), self._patience - timedelta(seconds=borne))
        self._again: dict[str, ObjectRef] = {}
        self._moved: datetime | None = None
        self._borne = timedelta(0)
        self._refused_at: datetime | None = None
        self._begun: datetime | None = None

    @property
    def kind(self) -> OperationKind:
        """The kind of the operation."""
        return self._operation.kind

    def go_on(self, *, interrupted: bool) -> Ended | None:
        """Do what can be done now; return the result, or None while the operation goes on."""
        if interrupted:
            # Hand over the created objects, and how long refusals were tolerated.
            made = (*self._made, *self._again.values())
            return OperationInterrupted(self._borne_by_now().total_seconds(), made)
        if self._world.dark:
            return None
        match self.kind:
            case OperationKind.PREPARE:
                return self._prepare()
            case OperationKind.CREATE:
                return self._create()
            case OperationKind.STAGE:
                return Staged(sets=self._staged())
            case OperationKind.REPLACE:
                return self._replace()
            case OperationKind.CLEAR:
                return self._clear()
            case OperationKind.BARRIER:
                return self._barrier()
            case OperationKind.PARK:
                return self._park()
            case OperationKind.UNPARK:
                return self._unpark()
            case OperationKind.CHECKPOINT:
                return self._checkpoint()
            case OperationKind.OBSERVE:
                return observe(self._world, self._number, live=True)
            case OperationKind.RESET:
                raise AssertionError("a simulated life looks and removes in two operations")
            case OperationKind.REMOVE:
                return self._remove()
            case OperationKind.FORCE_REMOVE:
                return self._force_remove()
            case OperationKind.REPORT:
                return Reported()

    # --- creating

    def _prepare(self) -> Prepared | None:
        owner = self._world.own(self._number).uid
        prepared = Prepared(cluster_uid="cluster", owner_uid=owner, limits=self._limits)
        if not self._operation.creates:
            return prepared
        created = self._create()
        return edit(prepared, created=created) if created is not None else None

    def _staged(self) -> tuple[DataSet, ...]:
        """Return data sets as if they were in the cache: a simulation does not know their contents."""
        return tuple(DataSet(mount=one.name, digest="0" * 64, files=0, bytes=0) for one in self._spec.mounts)

    def _create(self) -> Created | None:
        for component in self._first[len(self._made) :]:
            refusal = self._refusal(component)
            if refusal is not None:
                return Created(objects=tuple(self._made), failure=refusal, exhausted=not self._is_final(refusal.reason))
            if self._refused_at is not None:
                return None
            self._made.append(self._make(component, 0))
        self._world.submitted(self._number)
        return Created(objects=tuple(self._made))

    def _make(self, component: Component, launch: int, only: Collection[int] | None = None) -> ObjectRef:
        shuns = [node.name for node in self._avoided if node.required]
        dislikes = [node.name for node in self._avoided if not node.required]
        alone = self._alone.get(component.name, {})
        things = self._world.create(component, self._number, launch, shuns, dislikes, alone, only)
        return self._ref(component, things)

    def _ref(self, component: Component, things: Sequence[Thing]) -> ObjectRef:
        if component.copies is not None:
            return copies_ref(component)
        (thing,) = things
        return ObjectRef(api_version=thing.plan.api_version, kind=thing.plan.kind, name=thing.name, uid=thing.uid)

    def _borne_by_now(self) -> timedelta:
        since = self._refused_at
        return self._borne + (self._world.seen(since) if since is not None else timedelta(0))

    def _is_final(self, reason: str) -> bool:
        return reason == "Invalid" or (reason == "Forbidden" and not self._waits_for_rights)

    def _refusal(self, component: Component) -> Failure | None:
        """Return why a component cannot be created, once the refusal is final or was tolerated for long enough."""
        world = self._world
        if self._refused_at is not None:
            self._borne += world.seen(self._refused_at)
            self._refused_at = None
        trouble = world.trouble(world.refused, component.name)
        if trouble is None:
            return None
        patience = self._patience
        if not self._is_final(trouble.reason) and (patience is None or self._borne < patience):
            self._refused_at = world.clock.now
            until = trouble.until
            if patience is not None:
                until = min(until, world.clock.now + patience - self._borne)
            if until < EVER:
                world.clock.wake(until)
            return None
        return Failure(
            cls=FailureClass.LAUNCH,
            scope=Scope.COMPONENT,
            reason=trouble.reason,
            time=world.clock.now,
            component=component.name,
            subject=planned(component, "", self._number).object_names[0] if component.copies else "",
            message=f"the API server refuses to create {component.title}",
            attempt=self._number,
        )

    def _replace(self) -> Replaced | None:
        """Replace components one by one; what pods read is deleted after those pods and created before them."""
        world = self._world
        self._begun = self._begun or world.clock.now
        again = [one for one in self._spec.components if one.name in self._replacing]
        went = self._went(again)
        refused = False
        for component in sorted(again, key=lambda one: bool(one.expected_pods)):
            reads = [one.name for one in again if one.name in component.config]
            if component.name in self._again or component.name not in went or not self._again.keys() >= set(reads):
                continue
            refusal = self._refusal(component)
            if refusal is not None:
                return Replaced(objects=tuple(self._again.values()), failure=refusal)
            if self._refused_at is not None:
                refused = True
                continue
            self._again[component.name] = self._make_again(component)
            self._moved = world.clock.now
        self._refused_at = world.clock.now if refused else None
        left = tuple(one.name for one in again if one.name not in self._again)
        if not left:
            return Replaced(objects=tuple(self._again.values()))
        if self._moved is not None:
            still = self._moved + STANDSTILL
            if world.clock.now >= still:
                return Replaced(
                    objects=tuple(self._again.values()), left=left, borne=self._borne_by_now().total_seconds()
                )
            world.clock.wake(still)
        return None

    def _went(self, again: Sequence[Component]) -> set[str]:
        """Delete old objects of components that no old pod still reads; return the components with none left."""
        went: set[str] = set()
        for component in sorted(again, key=lambda one: not one.expected_pods):
            readers = {one.name for one in again if component.name in one.config}
            there = any(one.component.name == component.name and self._is_old(one) for one in self._world.things)
            if (readers <= went or not there) and self._is_gone(component):
                went.add(component.name)
        return went

    def _is_gone(self, component: Component) -> bool:
        """Delete old objects of a component, by force once their grace is over; return whether none are left."""
        world, begun = self._world, self._begun or self._world.clock.now
        name = component.name

        def old() -> tuple[list[Thing], list[Pod]]:
            things = [one for one in world.things if one.component.name == name and self._is_old(one)]
            return things, [pod for pod in world.pods if pod.thing.component.name == name and self._is_old(pod.thing)]

        things, pods = old()
        for thing in things:
            if thing.deleting is None:
                world.delete(thing, foreground=True)
        left = self._graces.get(name, self._waits.forceful_deletion_grace_period) - world.seen(begun)
        if left <= timedelta(0):
            for pod in pods:
                world.delete_pod(pod, forced=True)
        if old() == ([], []):
            return True
        if left > timedelta(0):
            world.clock.wake(world.clock.now + left)
        return False

    def _make_again(self, component: Component) -> ObjectRef:
        """Create a component's launch, or that of some copies, unless an interrupted operation has created it."""
        name = component.name
        launch, only = self._operation.launches.get(name, 0), self._operation.copies.get(name)
        ours = [one for one in self._world.things if one.attempt == self._number and one.component.name == name]
        there = [one for one in ours if one.launch == self._launch(one)]
        if only is not None:
            made = {one.index for one in there}
            return self._make(component, launch, [index for index in only if index not in made])
        return self._ref(component, there) if there else self._make(component, launch)

    def _launch(self, thing: Thing) -> int:
        """Return which launch of an object is made."""
        name = thing.component.name
        alone = self._alone.get(name, {}).get(thing.index, 0) if thing.index is not None else 0
        return self._operation.launches.get(name, 0) + alone

    def _is_old(self, thing: Thing) -> bool:
        name = thing.component.name
        only = self._operation.copies.get(name)
        ours = thing.attempt == self._number and name in self._replacing and (only is None or thing.index in only)
        return ours and thing.launch < self._launch(thing)

    # --- removing

    def _clear(self) -> Cleared | None:
        """Delete components that have not ended; keep the others as they are."""
        world = self._world
        world.ended(self._number)
        self._begun = self._begun or world.clock.now
        left = self._waits.forceful_deletion_grace_period - world.seen(self._begun)
        ours = [one for one in world.things if one.attempt == self._number and not world.has_ended(one)]
        for thing in ours:
            if thing.deleting is None:
                world.delete(thing, foreground=True)
        pods = [pod for pod in world.pods if pod.thing in ours]
        if left <= timedelta(0):
            for pod in pods:
                world.delete_pod(pod, forced=True)
        if not any(one in world.things for one in ours) and not any(pod.thing in ours for pod in world.pods):
            return Cleared(done=True)
        until = self._operation.until
        if until is not None and world.clock.now >= until:
            return Cleared(done=False)
        due = [each for each in (until, world.clock.now + left if left > timedelta(0) else None) if each is not None]
        if due:
            world.clock.wake(min(due))
        return None

    def _barrier(self) -> Lifted | None:
        """Wait until all pods run; the containers of a simulated pod restart at once, and wait for no others."""
        of_attempt = [pod for pod in self._world.pods if pod.thing.attempt == self._number]
        pods = [pod for pod in of_attempt if not pod.finished and pod.thing.component.name not in self._absent]
        ended = Counter(pod.thing.component.name for pod in of_attempt if pod.state is PodState.SUCCEEDED)
        there = [one for one in self._spec.components if one.name not in self._absent]
        expected = sum(max(0, one.expected_pods - ended[one.name]) for one in there)
        if sum(pod.state is PodState.RUNNING for pod in pods) >= expected:
            return Lifted(done=True)
        if self._operation.until is not None and len(pods) < expected:
            return Lifted(done=False, refused=f"{counted(expected - len(pods), 'pod is', 'pods are')} gone")
        return None

    def _park(self) -> Parked | None:
        """Suspend the attempt in place, and wait until no pod is left that has not ended."""
        world = self._world
        self._begun = self._begun or world.clock.now
        world.suspend(self._number)
        going = [pod for pod in world.pods if pod.thing.attempt == self._number and not pod.finished]
        left = self._waits.forceful_deletion_grace_period - world.seen(self._begun)
        if left <= timedelta(0):
            for pod in going:
                world.delete_pod(pod, forced=True)
            going = [pod for pod in going if pod in world.pods]
        if not going:
            world.parked(self._number)
            return Parked(done=True)
        if left > timedelta(0):
            world.clock.wake(world.clock.now + left)
        return None

    def _unpark(self) -> Unparked:
        """Resume what was suspended in place."""
        owner = self._world.owners.get(self._number)
        if owner is None or owner.deleting is not None:
            return Unparked(done=False, refused="the attempt's owner is gone or being deleted")
        self._world.resume(self._number, self._resuming)
        return Unparked(done=True)

    def _checkpoint(self) -> Checkpointed | None:
        """Ask the running pods to save, and wait until they have, or the time is over."""
        world, request = self._world, self._request
        assert request is not None
        until = self._operation.until or world.clock.now
        before = (request.running, request.finished)
        answers = saved(world, self._number, self._spec.savers, request.number, before, until)
        return Checkpointed(answers=answers, blind=world.blindness()) if answers is not None else None

    def _remove(self) -> Removed | None:
        world = self._world
        self._follow()
        world.delete_attempt(self._number)
        left, total = remnants(world, self._number)
        if not total:
            return self._gone()
        owner = world.owners.get(self._number)
        dying = owner.deleting if owner is not None else None
        until = self._operation.until or world.clock.now
        # A removal that starts late still gives its pods their full grace.
        grace = self._waits.forceful_deletion_grace_period
        if world.clock.now >= until and (dying is None or world.seen(dying) >= grace):
            return Removed(
                gone=False, remnants=left, remnants_total=total, blind=world.blindness(), answers=self._saved()
            )
        world.clock.wake(max(until, world.clock.now + grace - world.seen(dying)) if dying is not None else until)
        return None

    def _force_remove(self) -> Removed | None:
        world = self._world
        world.delete_attempt(self._number)
        for pod in [one for one in world.pods if one.thing.attempt == self._number]:
            world.delete_pod(pod, forced=True)
        left, total = remnants(world, self._number)
        if not total:
            return self._gone()
        until = self._operation.until or world.clock.now
        if world.clock.now >= until:
            return Removed(gone=False, remnants=left, remnants_total=total, blind=world.blindness())
        world.clock.wake(until)
        return None

    def _gone(self) -> Removed:
        return Removed(gone=True, blind=self._world.blindness(), answers=self._saved())

    def _follow(self) -> None:
        """Record which pods save in their termination grace, if a walltime ended while they saved."""
        if self._follows:
            self._followed.look(self._world, self._number, self._spec.savers)

    @property
    def _follows(self) -> bool:
        request = self._request
        return request is not None and request.conflict is not None and request.ended_at is None

    def _saved(self) -> Answers | None:
        return self._followed.answers(self._world.clock.now) if self._follows else None
