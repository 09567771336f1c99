"""Holds what the watch has seen, by workload: anchors, attempts, components, pods and marked nodes. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import datetime

from holdfast.activities.facts.components import UNSEEN, failures_said, says_complete
from holdfast.activities.facts.nodes import NodeMark
from holdfast.activities.facts.objects import ObjectFacts
from holdfast.activities.facts.pods import PodFacts, PodState
from holdfast.activities.facts.snapshot import summarize
from holdfast.activities.facts.workload_key import WorkloadKey
from holdfast.activities.kube.owners import named, of_another
from holdfast.model import Interval, Observation
from holdfast.model.calls.cluster import PlannedComponent
from holdfast.policy.values.edit import edit
from holdfast.worker.watch.seen import POD, AnchorSeen, AttemptSeen, KindKey, NodeSeen, Place, PodSeen


def _still_in_foreground(known: AnchorSeen | None, seen: AnchorSeen) -> AnchorSeen:
    """Return a custom resource that keeps its foreground deletion: the collector removes that finalizer once done."""
    if known is None or known.asked is None or seen.asked is None or known.facts.uid != seen.facts.uid:
        return seen
    return replace(seen, asked=edit(seen.asked, foreground=True)) if known.asked.foreground else seen


class Cache:
    """Holds everything the watch has seen. Each change returns the workloads it touches."""

    def __init__(self) -> None:
        """Begin empty."""
        self._anchors: dict[WorkloadKey, AnchorSeen] = {}
        self._last: dict[WorkloadKey, AnchorSeen] = {}
        """Deleted anchors, until they are forgotten."""
        self._confirmed: set[str] = set()
        """Uids of the anchors whose deletion a live look has confirmed."""
        self._attempts: dict[WorkloadKey, dict[str, AttemptSeen]] = {}
        """By workload and by their own uid, as pods are."""
        self._pods: dict[WorkloadKey, dict[str, PodSeen]] = {}
        self._objects: dict[Place, ObjectFacts] = {}
        self._planned: dict[Place, set[WorkloadKey]] = {}
        self._gone: dict[tuple[str, Place], str] = {}
        """Attempts' components that are known to be gone, with the uid of the lost object; empty if it was not seen."""
        self._ended: dict[tuple[str, Place], ObjectFacts] = {}
        """Attempts' components that are gone, but had reported their end before."""
        self._revisions: dict[WorkloadKey, int] = {}
        self._marks: dict[str, NodeMark] = {}
        self._marked: dict[str, str] = {}
        """The uids of the marked nodes, by name."""
        """The marked nodes."""
        self._refused: dict[WorkloadKey, dict[str, str]] = {}
        """Why pods of a workload are not created, by component, as far as Events say."""
        self.pod_count = 0

    @property
    def workloads(self) -> set[WorkloadKey]:
        """Every workload that has an anchor or an attempt."""
        return {*self._anchors, *self._attempts}

    @property
    def attempt_count(self) -> int:
        """The number of attempts' owners."""
        return sum(len(each) for each in self._attempts.values())

    def anchor(self, workload: WorkloadKey) -> AnchorSeen | None:
        """Return a workload's anchor; its deletion shows only once it is confirmed."""
        unconfirmed = self.unconfirmed(workload)
        return unconfirmed.undeleted if unconfirmed is not None else self._anchors.get(workload)

    def unconfirmed(self, workload: WorkloadKey) -> AnchorSeen | None:
        """Return a workload's anchor if it is seen as being deleted, and no live look has confirmed that."""
        known = self._anchors.get(workload)
        if known is None or not known.facts.deleting or known.facts.uid in self._confirmed:
            return None
        return known

    def last_anchor(self, workload: WorkloadKey) -> AnchorSeen | None:
        """Return the last seen anchor of a workload that has neither anchor nor attempt any more."""
        return self._last.get(workload) if workload not in self._attempts else None

    def forget(self, workload: WorkloadKey) -> None:
        """Forget a workload's deleted anchor."""
        self._last.pop(workload, None)

    def newest(self, workload: WorkloadKey) -> AttemptSeen | None:
        """Return a workload's attempt with the highest number, live or not."""
        return max(self._attempts.get(workload, {}).values(), key=lambda one: one.number, default=None)

    def pods_of(self, workload: WorkloadKey) -> int:
        """Return the number of a workload's pods."""
        return len(self._pods.get(workload, ()))

    # Changes.

    def put_anchor(self, seen: AnchorSeen) -> set[WorkloadKey]:
        """Store an anchor."""
        known = self._anchors.get(seen.key)
        # A workload cannot have two anchors: the newer object counts.
        if known is None or known.facts.uid == seen.facts.uid or seen.facts.revision > known.facts.revision:
            self._anchors[seen.key] = _still_in_foreground(known, seen)
            self._last.pop(seen.key, None)
        return self._touched(seen.key, seen.facts.revision)

    def drop_anchor(self, seen: AnchorSeen, revision: int) -> set[WorkloadKey]:
        """Forget an anchor."""
        known = self._anchors.get(seen.key)
        if known is not None and known.facts.uid == seen.facts.uid:
            del self._anchors[seen.key]
            if revision:  # Without a revision it may still exist and only be unreadable.
                self._last[seen.key] = seen
        self._confirmed.discard(seen.facts.uid)
        return self._touched(seen.key, revision)

    def confirm_deleting(self, workload: WorkloadKey, anchor_uid: str) -> None:
        """Store that a live look has found a workload's anchor being deleted; meanwhile it may be gone."""
        unconfirmed = self.unconfirmed(workload)
        if unconfirmed is not None and unconfirmed.facts.uid == anchor_uid:
            self._confirmed.add(anchor_uid)

    def put_attempt(self, seen: AttemptSeen) -> set[WorkloadKey]:
        """Store an attempt's owner."""
        self._attempts.setdefault(seen.key, {})[seen.facts.uid] = seen
        for _, place in seen.places():
            self._planned.setdefault(place, set()).add(seen.key)
        return self._touched(seen.key, seen.facts.revision)

    def drop_attempt(self, seen: AttemptSeen, revision: int) -> set[WorkloadKey]:
        """Forget an attempt's owner."""
        attempts = self._attempts.get(seen.key, {})
        attempts.pop(seen.facts.uid, None)
        if not attempts:
            self._attempts.pop(seen.key, None)
        still = {place for one in attempts.values() for _, place in one.places()}
        for _, place in seen.places():
            self._gone.pop((seen.facts.uid, place), None)
            self._ended.pop((seen.facts.uid, place), None)
            if place not in still and place in self._planned:
                self._planned[place].discard(seen.key)
                if not self._planned[place]:
                    del self._planned[place]
        return self._touched(seen.key, revision)

    def put_pod(self, seen: PodSeen) -> set[WorkloadKey]:
        """Store a pod."""
        facts, workload = seen.facts, seen.key
        pods = self._pods.setdefault(workload, {})
        self.pod_count += facts.uid not in pods
        pods[facts.uid] = seen
        touched = self._touched(workload, facts.revision)
        if seen.component is not None:
            touched |= self.put_object((*POD, facts.namespace, facts.name), seen.component)
        return touched

    def drop_pod(self, seen: PodSeen, revision: int) -> set[WorkloadKey]:
        """Forget a pod."""
        facts, workload = seen.facts, seen.key
        pods = self._pods.get(workload, {})
        self.pod_count -= pods.pop(facts.uid, None) is not None
        if not pods:
            self._pods.pop(workload, None)
        touched = self._touched(workload, revision)
        if seen.component is not None:
            touched |= self.drop_object((*POD, facts.namespace, facts.name), seen.component, revision)
        return touched

    def put_node(self, seen: NodeSeen) -> set[WorkloadKey]:
        """Store whether a node is marked."""
        before = self._marks.pop(seen.name, None)
        self._marked.pop(seen.name, None)
        if seen.mark is not None:
            self._marks[seen.name], self._marked[seen.name] = seen.mark, seen.uid
        return self._on_node(seen.name, seen.revision) if before != seen.mark else set()

    def drop_node(self, seen: NodeSeen, revision: int) -> set[WorkloadKey]:
        """Forget a node, unless another has its name since: it is gone, or cannot be read any more."""
        if self._marked.get(seen.name) != seen.uid:
            return set()
        del self._marks[seen.name], self._marked[seen.name]
        return self._on_node(seen.name, revision)

    def put_refused(self, workload: WorkloadKey, refused: dict[str, str]) -> set[WorkloadKey]:
        """Store why pods of a workload are not created, by component; an empty mapping forgets it."""
        if self._refused.get(workload, {}) == refused:
            return set()
        if refused:
            self._refused[workload] = refused
        else:
            del self._refused[workload]
        return {workload}

    def put_object(self, place: Place, facts: ObjectFacts) -> set[WorkloadKey]:
        """Store a component's object."""
        self._objects[place] = facts
        for owner in facts.owner_uids:
            self._gone.pop((owner, place), None)
            self._ended.pop((owner, place), None)
        return self._planners(place, facts.revision)

    def drop_object(self, place: Place, facts: ObjectFacts, revision: int) -> set[WorkloadKey]:
        """Forget a component's object; if `revision` is set, it is gone for the attempt that owned it."""
        known = self._objects.get(place)
        if known is not None and known.uid == facts.uid:
            del self._objects[place]
        for owner in facts.owner_uids if revision else ():  # Without a revision it is only unreadable.
            self.confirm_gone(owner, place, facts.uid)
            if self._terminal(owner, place, facts):
                self._ended[owner, place] = facts
        return self._planners(place, revision)

    def confirm_gone(self, attempt_uid: str, place: Place, uid: str = "") -> None:
        """Store that an attempt's component is gone, not just unseen so far; with its uid, if that is known."""
        if any(attempt_uid in self._attempts.get(one, {}) for one in self._planned.get(place, ())):
            self._gone[attempt_uid, place] = uid or self._gone.get((attempt_uid, place), "")

    # Reading.

    def doubtful(self, attempt: AttemptSeen, unseen: Collection[KindKey] = ()) -> list[tuple[PlannedComponent, Place]]:
        """Return the submitted components that are neither in the cache nor known to be gone.

        The streams of two kinds have no common order: an attempt may appear as submitted before its components appear.
        """
        if not attempt.facts.submitted or attempt.facts.ended:
            return []
        attempt = self._begun(attempt)
        return [
            (component, place)
            for component, place in attempt.places()
            if (component.api_version, component.kind) not in unseen
            and (attempt.facts.uid, place) not in self._gone
            and ((known := self._objects.get(place)) is None or attempt.facts.uid not in known.owner_uids)
        ]

    def observe(
        self,
        attempt: AttemptSeen,
        at: datetime,
        unseen: Collection[KindKey],
        blind: tuple[Interval, ...],
        version: int = 0,
        unserved: Collection[KindKey] = (),
    ) -> Observation:
        """Return the snapshot of an attempt; `version` is the version up to which everything it depends on is known.

        An absent object has no version of its own. An object deleted while nobody watched left none here either.
        """
        attempt, uid = self._begun(attempt), attempt.facts.uid
        doubtful = {place for _, place in self.doubtful(attempt, unseen)}
        hidden = {one.name for one in attempt.plan if (one.api_version, one.kind) in unseen}
        anchor = self.anchor(attempt.key)
        single = {one.name: attempt.places_of(one)[0] for one in attempt.plan if one.copies is None}
        objects = {name: self._object(uid, place) for name, place in single.items()}
        copies = {
            one.name: [UNSEEN if place in doubtful else self._object(uid, place) for place in attempt.places_of(one)]
            for one in attempt.plan
            if one.copies is not None
        }
        pods, foreign = self._own_pods(attempt)
        known = [one for one in objects.values() if one is not None]
        known += [one for several in copies.values() for one in several if isinstance(one, ObjectFacts)]
        seen = summarize(
            workload_uid=attempt.workload_uid,
            attempt=attempt.number,
            owner_uid=attempt.facts.uid,
            plan=attempt.plan,
            anchor=anchor.facts if anchor is not None else None,
            asked=anchor.asked if anchor is not None else None,
            owner=attempt.facts,
            objects=objects,
            copies=copies,
            pods=pods,
            at=at,
            # A component may have been seen before the plan that names it.
            revision=max(
                version,
                self.revision(attempt.key),
                *(one.revision for one in known),
                attempt.facts.revision,
            ),
            blind=blind,
            unseen=hidden | {name for name, place in single.items() if place in doubtful},
            unserved={one.name for one in attempt.plan if (one.api_version, one.kind) in unserved},
            marks=self._marks,
            refused=self._refused.get(attempt.key, {}),
            selection=attempt.selection,
        )
        if foreign:
            seen = seen.model_copy(update={"foreign": foreign})
        if not seen.missing:
            return seen
        # The lost object's uid is part of the news: the next object of that name may go before its creation was told.
        lost = {
            one.name: seen.components[one.name].model_copy(update={"uid": self._went(attempt, one)})
            for one in attempt.plan
            if not seen.components[one.name].found
        }
        return seen.model_copy(update={"components": {**seen.components, **lost}})

    def _own_pods(self, attempt: AttemptSeen) -> tuple[list[PodFacts], tuple[str, ...]]:
        """Return a workload's pods without those of a copy of one of its components, and the owners of the latter.

        Only a live look follows a longer chain of owners (row D26).
        """
        every = [pod.facts for pod in self._pods.get(attempt.key, {}).values()]
        standing = {place: self._objects.get(place) for _, place in attempt.places()}
        ours = {facts.uid for facts in standing.values() if facts is not None}
        # An absent component may have been created again: its pods are not another owner's.
        kinds = {(place[0].rpartition("/")[0], place[1]) for place in standing}
        kinds -= {(place[0].rpartition("/")[0], place[1]) for place, facts in standing.items() if facts is None}
        # A terminating pod may belong to the previous object in that place.
        there = [pod for pod in every if pod.state is not PodState.TERMINATING]
        others = [pod for pod in there if of_another(pod.controller, kinds, ours)]
        if not others:
            return every, ()
        away = {pod.uid for pod in others}
        return [pod for pod in every if pod.uid not in away], named(pod.controller for pod in others)

    def stuck_next(self, attempt: AttemptSeen, at: datetime) -> datetime | None:
        """Return when the next of its pods will have waited too long for its node, which no event reports."""
        pods = self._pods.get(attempt.key, {}).values()
        times = (time for pod in pods for time in (pod.facts.stuck_from, pod.facts.waits_from))
        return min((time for time in times if time is not None and time > at), default=None)

    def revision(self, workload: WorkloadKey) -> int:
        """Return the highest version seen of any object of a workload, deletions included."""
        return self._revisions.get(workload, 0)

    def made_since(self, attempt: AttemptSeen) -> list[str]:
        """Return the components with objects created after the attempt began: in their turn, or again."""
        return [
            one.name
            for one in self._begun(attempt).plan
            if one.later or any(self._launch(attempt, place) for place in attempt.places_of(one))
        ]

    def _launch(self, attempt: AttemptSeen, place: Place) -> int:
        there = self._objects.get(place)
        return there.launch if there is not None and attempt.facts.uid in there.owner_uids else 0

    def _begun(self, attempt: AttemptSeen) -> AttemptSeen:
        """Return the attempt without the later components never seen so far: their turn may not have come."""
        if not any(one.later for one in attempt.plan):
            return attempt
        begun = [one for one in attempt.plan if not one.later or any(map(self._known(attempt), attempt.places_of(one)))]
        return replace(attempt, plan=tuple(begun))

    def _known(self, attempt: AttemptSeen) -> Callable[[Place], bool]:
        """Return a test whether an object of the attempt is, or was, in a place."""
        uid = attempt.facts.uid

        def known(place: Place) -> bool:
            there = self._objects.get(place)
            ours = there is not None and uid in there.owner_uids
            return ours or (uid, place) in self._gone or (uid, place) in self._ended

        return known

    def _went(self, attempt: AttemptSeen, component: PlannedComponent) -> str:
        """Return the uid of a component's lost object; for copies, a digest of the lost ones."""
        gone = {place: self._gone.get((attempt.facts.uid, place)) for place in attempt.places_of(component)}
        if component.copies is None:
            return next(iter(gone.values())) or ""
        which = [f"{place[3]}/{uid}" for place, uid in gone.items() if uid is not None]
        return hashlib.sha256(" ".join(which).encode()).hexdigest()[:16] if which else ""

    def _object(self, attempt_uid: str, place: Place) -> ObjectFacts | None:
        """Return the object in a place, or else the one that ended there: deleted after its end, it is not missing."""
        known = self._objects.get(place)
        if known is not None and attempt_uid in known.owner_uids:
            return known
        return self._ended.get((attempt_uid, place), known)

    def _terminal(self, attempt_uid: str, place: Place, facts: ObjectFacts) -> bool:
        """Whether an attempt's component reports that it is complete or has failed."""
        attempts = (self._attempts.get(one, {}).get(attempt_uid) for one in self._planned.get(place, ()))
        planned = [attempt.planned_at(place) for attempt in attempts if attempt is not None]
        rules = [one.status for one in planned if one is not None]
        return any(says_complete(rule, facts) or failures_said(rule, facts) for rule in rules)

    def _on_node(self, node: str, revision: int) -> set[WorkloadKey]:
        """Return the workloads with a pod on a node. Marks change rarely, so no index is kept for this."""
        there = [one for one, pods in self._pods.items() if any(pod.facts.node == node for pod in pods.values())]
        return {touched for one in there for touched in self._touched(one, revision)}

    def _planners(self, place: Place, revision: int) -> set[WorkloadKey]:
        touched: set[WorkloadKey] = set()
        for workload in self._planned.get(place, ()):
            touched |= self._touched(workload, revision)
        return touched

    def _touched(self, workload: WorkloadKey, revision: int) -> set[WorkloadKey]:
        if not any(workload in held for held in (self._anchors, self._attempts, self._pods)):
            self._revisions.pop(workload, None)  # No object of it is left.
            self._refused.pop(workload, None)
            return {workload}
        self._revisions[workload] = max(self._revisions.get(workload, 0), revision)
        return {workload}
