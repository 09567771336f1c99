"""What of a snapshot is news to a workflow: a few facts, their digest, and how urgent a change of them is. Pure."""

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
    """How soon a change is told. Lower is sooner."""

    URGENT = 0
    """A failure, something missing, the end, or the anchor's deletion."""
    SOON = 1
    """Ready, well again, all pods at their end, or the last pod that ran on after success."""
    SETTLE = 2
    """A pod went away: its controller may be replacing it this very moment."""
    LAZY = 3
    """Admitted, one component of several complete, or some more copies: mostly told by what follows it."""


_UNTOLD_OTHERWISE: Final = frozenset({UNSCHEDULABLE, SCHEDULING_GATED, FAILED_CREATE})
_NUMBER: Final = re.compile(r"\d+")
DELAYS: Final[dict[Urgency, float]] = {
    Urgency.URGENT: 0.1,
    Urgency.SOON: 0.3,
    Urgency.SETTLE: 1.0,
    Urgency.LAZY: 45.0,
}
"""Seconds from the first sight of a change to its signal, during which further changes join it."""


@dataclass(frozen=True, slots=True)
class Facts:
    """The meaning of a snapshot. How many pods there are is none of it."""

    owner_uid: str = ""
    anchor_deleting: bool = False
    orphaned: bool = False
    """Whether another hand deleted the attempt's owner."""
    missing: tuple[str, ...] = ()
    """Which components are gone, each with the uid of what went."""
    failed: tuple[str, ...] = ()
    """Which components say that they have failed; of copies, how many do."""
    failures: tuple[str, ...] = ()
    """Identities of the unreplaced failures that travel in the snapshot (at most 16)."""
    complete: tuple[str, ...] = ()
    admitted: bool = False
    ready: bool = False
    finished: bool = False
    quiet: bool = False
    """Whether all pods have ended where some component that cannot be read may therefore be complete."""
    lingering: bool = False
    """Whether all components are complete, and pods run on that still use their quota."""
    up: tuple[str, ...] = ()
    """Which components that something waits for are ready or complete, and which that have copies are ready."""
    done: int = 0
    """How many eighths of all copies have succeeded, the last begun one too, as long as some have not."""
    awake: bool = False
    """Whether pods have come of what is suspended in place, and was proven to have none."""
    resumed: int = 0
    """The turn by which it was resumed in place last."""
    made: tuple[str, ...] = ()
    """Where all is ready, what was made after the attempt had begun, each with its uid: in order, or again.

    Who made it has looked at once, and perhaps too early: that it runs is news, although all was ready before it came.
    """

    stuck: tuple[str, ...] = ()
    """Why which components have pods that cannot be started so far: neither which pods, nor how many."""
    waiting: tuple[str, ...] = ()
    """Why which components have pods without a node, or that cannot be created: no names, and how many by power of two.

    Pods of one component are found waiting one after the other, each a moment after it was refused (row D34).
    """
    scaled: tuple[str, ...] = ()
    """Which components' own specs ask for fewer pods than were declared, for none, or for how many more (row D14)."""

    unserved: tuple[str, ...] = ()
    """Which components are of a kind that the cluster does not serve (row D24)."""

    foreign: tuple[str, ...] = ()
    """Whose pods bear the workload's labels and are not its own: not how many (row D26)."""

    asked: str = ""
    """What its custom resource asks for, where one stands for it: its generation, but for the first (row F7)."""

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
        )

    @property
    def unhealthy(self) -> bool:
        """Whether some clock of the workload may be running against it."""
        return bool(self.orphaned or self.missing or self.failed or self.failures) or not (self.ready or self.finished)

    def digest(self) -> bytes:
        """Return the same few bytes for the same facts, in any process."""
        # What came later is left out where it says nothing, so that what was acknowledged before it stays so.
        said = astuple(self)
        later = (bool(self.up), bool(self.done), self.awake, bool(self.resumed), bool(self.made), bool(self.stuck))
        later += (bool(self.waiting), bool(self.scaled), bool(self.unserved), bool(self.foreign))
        later += (bool(self.asked),)
        kept = max((place + 1 for place, says in enumerate(later) if says), default=0)
        said = said[: len(said) - len(later) + kept]
        return hashlib.blake2b(repr(said).encode(), digest_size=DIGEST_BYTES).digest()


def facts_of(observation: Observation, made: Collection[str] = (), resumed: int = 0) -> Facts:
    """Return what a snapshot means; `made` and `resumed` are what was done since its attempt had begun."""
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
            # Its time is that of the look, and `missing` says it anyway.
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
    )


def _asked(asked: Asked | None) -> str:
    """Return what of a custom resource's wish is news: a workload knows the generation that it began with."""
    return f"{asked.generation}/{asked.suspend}" if asked is not None and asked.generation > 1 else ""


def _scaled(view: ComponentView) -> str:
    """Return what of another number of pods is news: not each step of an autoscaler within what was declared."""
    if view.overrun:
        return f"+{view.overrun}"
    return "" if not view.released else "fewer" if view.pods.expected else "none"


def _essence(one: Waiting) -> str:
    """Return what of a group of pods that wait is news: other reasons of the scheduler, and twice as many pods."""
    essence = f"{one.component}/{one.reason}/{one.count.bit_length()}"
    if one.reason != UNSCHEDULABLE:
        return essence
    reasons = {_NUMBER.sub("", part).strip() for part in one.message.split(", ")}
    return f"{essence}/{sorted(reasons)}"


def _failed(name: str, view: ComponentView) -> str:
    # Each copy that fails is news, also of those whose failures do not travel any more.
    return name if view.copies is None else f"{name}/{view.copies.failed}"


def _up(observation: Observation) -> Iterator[str]:
    for name, view in sorted(observation.components.items()):
        if view.awaited and view.found and view.complete:
            yield f"{name} complete"
        if (view.awaited or view.copies is not None) and view.found and view.started:
            yield f"{name} ready"  # Of copies it is told to their readers, too: once, when the last of them is.
        if view.awaited and view.copies is not None and view.copies.succeeded:
            yield f"{name} in part"


def _done(observation: Observation) -> int:
    """Return how far copies are, so coarsely that what is told of it does not grow with how many there are."""
    copies = [view.copies for view in observation.components.values() if view.copies is not None]
    expected, succeeded = sum(one.expected for one in copies), sum(one.succeeded for one in copies)
    return -(-EIGHTHS * succeeded // expected) if succeeded < expected else 0


def _quiet(observation: Observation) -> bool:
    """Whether no pod is left to end, and how a component ended cannot be seen: its workflow had better look itself.

    A component that can be read says so a moment later, which is then told anyway.
    """
    going = [view for view in observation.components.values() if not view.complete]
    return any(view.found and not view.uid for view in going) and all(_ended(view.pods) for view in going)


def _ended(pods: PodCounts) -> bool:
    return pods.expected > 0 and not pods.going and pods.succeeded + pods.failed >= pods.expected


def urgency(before: Facts, now: Facts) -> Urgency:
    """Return how soon the change from one to the other is to be told."""
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
    if held or troubled or freed or risen or anew or ready or stuck or (now.quiet and not before.quiet):
        return Urgency.SOON
    # An owner that goes by our own hand is told by the anchor's status, which may come a moment later.
    more_wait = not _groups(now) <= _groups(before)
    if now.orphaned or (before.ready and not now.ready) or more_wait:
        return Urgency.SETTLE
    return Urgency.LAZY


def _groups(facts: Facts) -> set[tuple[str, ...]]:
    """Return which pods wait and how many, without the scheduler's reasons: those change all the time."""
    return {tuple(one.split("/", 3)[:3]) for one in facts.waiting}


def _at_nothing(facts: Facts) -> set[str]:
    return {one for one in facts.scaled if one.endswith("/none")}


def short_key(uid: str) -> bytes:
    """Return a few bytes that stand for an object's uid in a heartbeat."""
    return hashlib.blake2b(uid.encode(), digest_size=KEY_BYTES).digest()
