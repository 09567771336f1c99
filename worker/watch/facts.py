"""Extracts a snapshot's news for a workflow: a few facts, their digest, and the urgency of a change. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator
from dataclasses import astuple, dataclass
from enum import IntEnum
from typing import Final

from holdfast.model import ComponentView, FailureClass, Observation, PodCounts, Waiting
from holdfast.model.observation import FAILED_CREATE, SCHEDULING_GATED, UNSCHEDULABLE, Asked
from holdfast.policy.attempt.health import shortfall

DIGEST_BYTES: Final = 6
KEY_BYTES: Final = 8
EIGHTHS: Final = 8


class Urgency(IntEnum):
    """How soon a change is signalled. Lower is sooner."""

    URGENT = 0
    """A failure, something missing, the end, or the anchor's deletion."""
    SOON = 1
    """Healthy again, all pods ended, or the end of the last pod that still ran after success."""
    READY = 2
    """All pods are ready: nothing else has to be waited for."""
    SETTLE = 3
    """A pod is gone: its controller may be replacing it right now."""
    LATER = 4
    """All copies of a component are active: mostly they are ready a moment later, which carries it."""
    LAZY = 5
    """Admitted, one component of several complete, or a few more copies: a later change mostly carries it."""


_UNTOLD_OTHERWISE: Final = frozenset({UNSCHEDULABLE, SCHEDULING_GATED, FAILED_CREATE})
_NUMBER: Final = re.compile(r"\d+")
DELAYS: Final[dict[Urgency, float]] = {
    Urgency.URGENT: 0.1,
    Urgency.SOON: 0.3,
    Urgency.READY: 0.1,
    Urgency.SETTLE: 1.0,
    Urgency.LATER: 5.0,
    Urgency.LAZY: 45.0,
}
"""Seconds from the first sight of a change to its signal, during which further changes join it."""


@dataclass(frozen=True, slots=True)
class Facts:
    """The meaning of a snapshot. The number of pods is not part of it."""

    owner_uid: str = ""
    anchor_deleting: bool = False
    orphaned: bool = False
    """Whether someone else deleted the attempt's owner."""
    missing: tuple[str, ...] = ()
    """Components that are gone, each with the uid of the lost object."""
    failed: tuple[str, ...] = ()
    """Components that report a failure; for copies, how many do."""
    failures: tuple[str, ...] = ()
    """Identities of the unreplaced failures that travel in the snapshot (at most 16)."""
    complete: tuple[str, ...] = ()
    admitted: bool = False
    ready: bool = False
    finished: bool = False
    quiet: bool = False
    """Whether all pods have ended, so that a component that cannot be read may be complete."""
    lingering: bool = False
    """Whether all components are complete while pods still run and use their quota."""
    up: tuple[str, ...] = ()
    """Awaited components that are ready or complete, and components with copies that are ready."""
    done: int = 0
    """Eighths of all copies that have succeeded, rounded up; 0 once all have."""
    awake: bool = False
    """Whether a workload suspended in place, and proven to have no pods, has pods again."""
    resumed: int = 0
    """The turn of its last resume in place."""
    made: tuple[str, ...] = ()
    """If all is ready: components created after the attempt began (in order, or again), each with its uid.

    Their creator looked at once, and perhaps too early: that they run is news, although all was ready before them.
    """

    stuck: tuple[str, ...] = ()
    """Components with pods that cannot start so far, and why: neither which pods, nor how many."""
    waiting: tuple[str, ...] = ()
    """Components with pods that lack a node or cannot be created, and why: no names, the count by power of two.

    Pods of one component are found waiting one after another, each a moment after it was refused (row D34).
    """
    scaled: tuple[str, ...] = ()
    """Components whose own specs ask for fewer pods than declared, for none, or for more, and how many (row D14)."""

    unserved: tuple[str, ...] = ()
    """Components of a kind that the cluster does not serve (row D24)."""

    foreign: tuple[str, ...] = ()
    """Owners of foreign pods that carry the workload's labels: not how many pods (row D26)."""

    asked: str = ""
    """The request of its custom resource, if it has one: its generation, except the first (row F7)."""

    active: tuple[str, ...] = ()
    """Components whose copies are all active, and not yet ready: a JobSet's status shows it (row F16)."""

    @property
    def blank(self) -> bool:
        """Whether a workflow that has just created everything knows this already."""
        return not (
            self.anchor_deleting
            or self.orphaned
            or self.missing
            or self.failed
            or self.failures
            or self.admitted
            or self.ready
            or self.finished
            or self.quiet
            or self.up
            or self.done
            or self.awake
            or self.stuck
            or self.waiting
            or self.scaled
            or self.unserved
            or self.foreign
            or self.active
        )

    @property
    def unhealthy(self) -> bool:
        """Whether a clock may be running against the workload."""
        return bool(self.orphaned or self.missing or self.failed or self.failures) or not (self.ready or self.finished)

    def digest(self) -> bytes:
        """Return the same few bytes for the same facts, in any process."""
        # Fields added in later versions are left out while empty, so that earlier acknowledgements stay valid.
        said = astuple(self)
        later = (bool(self.up), bool(self.done), self.awake, bool(self.resumed), bool(self.made), bool(self.stuck))
        later += (bool(self.waiting), bool(self.scaled), bool(self.unserved), bool(self.foreign))
        later += (bool(self.asked), bool(self.active))
        kept = max((place + 1 for place, says in enumerate(later) if says), default=0)
        said = said[: len(said) - len(later) + kept]
        return hashlib.blake2b(repr(said).encode(), digest_size=DIGEST_BYTES).digest()


def facts_of(observation: Observation, made: Collection[str] = (), resumed: int = 0) -> Facts:
    """Return the facts of a snapshot; `made` and `resumed` tell what was done since its attempt began."""
    views = observation.components.values()
    expected = sum(view.pods.expected for view in views)
    absent, unready = shortfall(observation, sum(view.declared for view in views))
    return Facts(
        owner_uid=observation.owner_uid,
        anchor_deleting=observation.anchor_deleting,
        orphaned=observation.owner_deleting or not observation.owner_found,
        missing=tuple(f"{name}/{observation.components[name].uid}" for name in observation.missing),
        failed=tuple(_failed(name, view) for name, view in sorted(observation.components.items()) if view.failed),
        failures=tuple(
            f"{one.cls}/{one.component}/{one.subject}/{one.reason}/{one.exit_code}/{one.time.isoformat()}"
            for one in observation.failures
            # Its time is the time of the look, and `missing` already covers it.
            if one.cls is not FailureClass.MISSING
        ),
        complete=tuple(name for name, view in sorted(observation.components.items()) if view.complete),
        admitted=bool(expected) and not absent,
        ready=bool(expected) and not unready,
        finished=observation.complete,
        quiet=_quiet(observation),
        lingering=observation.complete and observation.occupies,
        up=tuple(_up(observation)),
        done=_done(observation),
        awake=observation.parked and observation.occupies,
        resumed=resumed,
        made=tuple(f"{name}/{observation.components[name].uid}" for name in made) if expected and not unready else (),
        stuck=tuple(sorted({f"{one.component}/{one.reason}/{one.exit_code}" for one in observation.stuck})),
        waiting=tuple(sorted({_essence(one) for one in observation.waiting if one.reason in _UNTOLD_OTHERWISE})),
        scaled=tuple(
            f"{name}/{_scaled(view)}" for name, view in sorted(observation.components.items()) if _scaled(view)
        ),
        unserved=tuple(name for name, view in sorted(observation.components.items()) if view.unserved),
        foreign=tuple(one.partition(" of ")[2] for one in observation.foreign),
        asked=_asked(observation.asked),
        active=tuple(name for name, view in sorted(observation.components.items()) if _is_active(view)),
    )


def _is_active(view: ComponentView) -> bool:
    copies = view.copies
    return copies is not None and not view.started and 0 < copies.expected <= copies.active


def _asked(asked: Asked | None) -> str:
    """Return the news in a custom resource's request: a workload knows the generation that it began with."""
    return f"{asked.generation}/{asked.suspend}" if asked is not None and asked.generation > 1 else ""


def _scaled(view: ComponentView) -> str:
    """Return the news in a changed number of pods: not each step of an autoscaler within the declared number."""
    if view.overrun:
        return f"+{view.overrun}"
    return "" if not view.released else "fewer" if view.pods.expected else "none"


def _essence(one: Waiting) -> str:
    """Return the news in a group of waiting pods: other reasons of the scheduler, and twice as many pods."""
    essence = f"{one.component}/{one.reason}/{one.count.bit_length()}"
    if one.reason != UNSCHEDULABLE:
        return essence
    reasons = {_NUMBER.sub("", part).strip() for part in one.message.split(", ")}
    return f"{essence}/{sorted(reasons)}"


def _failed(name: str, view: ComponentView) -> str:
    # Each failed copy is news, even if its failure no longer fits into the snapshot.
    return name if view.copies is None else f"{name}/{view.copies.failed}"


def _up(observation: Observation) -> Iterator[str]:
    for name, view in sorted(observation.components.items()):
        if view.awaited and view.found and view.complete:
            yield f"{name} complete"
        if (view.awaited or view.copies is not None) and view.found and view.started:
            yield f"{name} ready"  # Copies report it to users too: once, when the last is ready.
        if view.awaited and view.copies is not None and view.copies.succeeded:
            yield f"{name} in part"


def _done(observation: Observation) -> int:
    """Return the progress of copies, so coarsely that the number of signals does not grow with the number of copies."""
    copies = [view.copies for view in observation.components.values() if view.copies is not None]
    expected, succeeded = sum(one.expected for one in copies), sum(one.succeeded for one in copies)
    return -(-EIGHTHS * succeeded // expected) if succeeded < expected else 0


def _quiet(observation: Observation) -> bool:
    """Whether all pods have ended while a component's result cannot be seen: its workflow should look itself.

    A component that can be read reports its end a moment later, which is then signalled anyway.
    """
    going = [view for view in observation.components.values() if not view.complete]
    return any(view.found and not view.uid for view in going) and all(_ended(view.pods) for view in going)


def _ended(pods: PodCounts) -> bool:
    return pods.expected > 0 and not pods.going and pods.succeeded + pods.failed >= pods.expected


def urgency(before: Facts, now: Facts) -> Urgency:
    """Return how soon to signal the change from one to the other."""
    first_failure = bool(now.failures) and not before.failures
    fallen = not set(now.missing) <= set(before.missing) or not set(now.failed) <= set(before.failed)
    ended = (now.finished and not before.finished) or (now.anchor_deleting and not before.anchor_deleting)
    if first_failure or fallen or ended or now.asked != before.asked:
        return Urgency.URGENT
    troubled = (before.missing, before.failed, before.failures) != (now.missing, now.failed, now.failures)
    freed = before.lingering and not now.lingering
    risen = not set(now.up) <= set(before.up) or (now.awake and not before.awake)
    anew = (now.ready or now.up) and now.resumed != before.resumed
    ready = now.ready and (not before.ready or now.made != before.made)
    stuck = now.stuck != before.stuck
    held = bool(now.waiting) and not before.waiting
    held = held or _at_nothing(before) != _at_nothing(now)
    held = held or bool(now.foreign) != bool(before.foreign) or bool(now.unserved) != bool(before.unserved)
    if held or troubled or freed or risen or anew or stuck or (now.quiet and not before.quiet):
        return Urgency.SOON
    if ready:
        return Urgency.READY
    # The anchor's status, which may come a moment later, says whether we deleted the owner ourselves.
    more_wait = not _groups(now) <= _groups(before)
    if now.orphaned or (before.ready and not now.ready) or more_wait:
        return Urgency.SETTLE
    return Urgency.LAZY if set(now.active) <= set(before.active) else Urgency.LATER


def _groups(facts: Facts) -> set[tuple[str, ...]]:
    """Return which pods wait and how many, without the scheduler's reasons: those change all the time."""
    return {tuple(one.split("/", 3)[:3]) for one in facts.waiting}


def _at_nothing(facts: Facts) -> set[str]:
    return {one for one in facts.scaled if one.endswith("/none")}


def short_key(uid: str) -> bytes:
    """Return a few bytes that represent an object's uid in a heartbeat."""
    return hashlib.blake2b(uid.encode(), digest_size=KEY_BYTES).digest()
