"""The sweep's removal: deletes what a verdict allows, judges again before each deletion, and waits for the proof."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from holdfast import names
from holdfast.activities.kube.client import Conflict, KubeError, NotFound, Object, Unreachable
from holdfast.activities.kube.raw import mapping
from holdfast.activities.operations.remains import Remains, find_remains, remnants_of
from holdfast.activities.operations.report import event_on
from holdfast.activities.site.anchor import release_anchor
from holdfast.model import Phase, Reason, Report
from holdfast.model.calls.cluster import RemoveInput, Target
from holdfast.worker.cleanup.sweep import AttemptLeft, Judgement, Left, Verdict
from holdfast.worker.cleanup.sweep_lookup import Ground, Item, judgement, look

SWEPT: Final = "Swept"
"""Reason of the Event on a removed attempt."""
LIMIT: Final = timedelta(minutes=10)
_AT_ONCE: Final = 8
_POLL: Final = 0.5
_TELL: Final = 3.0
_ACTED_ON: Final = frozenset({Verdict.ENDED, Verdict.STRAY})


class Result(StrEnum):
    """The result of a removal."""

    REMOVED = "removed"
    """Everything to remove is proven gone."""
    LEFT = "left"
    """Something still exists, and is named."""
    CHANGED = "changed"
    """Its verdict changed, and nothing more was removed from then on."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result for one workload's leftovers."""

    item: Item
    result: Result
    why: str = ""
    """Why the removal stopped, or how the cluster refused it."""
    left: tuple[str, ...] = ()
    """Sentences: what still exists, and what holds it."""
    left_total: int = 0


def to_remove(items: Iterable[Item], *, unknown: bool) -> tuple[Item, ...]:
    """Return what may be removed: items with a positive answer and, if a person says so, unknown ones."""
    verdicts = _ACTED_ON | ({Verdict.UNKNOWN} if unknown else frozenset[Verdict]())
    return tuple(one for one in items if one.judgement.verdict in verdicts)


async def sweep(
    ground: Ground,
    items: Sequence[Item],
    *,
    done: Callable[[Outcome], None],
    say: Callable[[str], None] = lambda _: None,
    limit: timedelta = LIMIT,
) -> None:
    """Remove the leftovers of these workloads, each until proven gone or until time is up.

    Args:
        ground: the cluster and the Temporal namespace.
        items: what to remove (`to_remove`).
        done: receives each outcome as it comes.
        say: receives lines for a person who waits.
        limit: how long one workload's removal may last.

    Raises:
        RPCError: if Temporal does not answer when asked again; nothing more is deleted then.
        Unreachable: if the cluster does not answer, and the limit is over.
    """
    slots = asyncio.Semaphore(_AT_ONCE)

    async def one(item: Item) -> None:
        async with slots:
            done(await _Removal(ground, item, say, limit).run())

    tasks = [asyncio.create_task(one(item)) for item in items]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Removal:
    """The removal of one workload's leftovers: never by force, and only as long as the verdict stands."""

    def __init__(self, ground: Ground, item: Item, say: Callable[[str], None], limit: timedelta) -> None:
        self._ground = ground
        self._item = item
        self._say = say
        self._clock = asyncio.get_running_loop().time
        self._begun = self._clock()
        self._end = self._begun + limit.total_seconds()
        self._doomed = {one.uid: one for one in item.judgement.doomed}
        """All attempts to remove, by uid, including those already gone: their objects are searched for afterwards."""
        self._told_at = self._begun
        self._told: tuple[str, ...] = ()

    async def run(self) -> Outcome:
        while True:
            try:
                outcome = await self._round()
            except Unreachable as error:
                if self._clock() >= self._end:
                    raise
                self._tell((f"the API server does not answer: {error.message}",))
                outcome = None
            except KubeError as error:
                outcome = Outcome(self._item, Result.LEFT, why=f"the cluster refuses: {error.message}")
            if outcome is not None:
                return outcome
            await asyncio.sleep(_POLL)

    async def _round(self) -> Outcome | None:
        """Delete what must go and is not being deleted yet; return the outcome if all is gone or time is up."""
        left = await look(self._ground, self._item.left)
        for attempt in left.attempts:
            if attempt.deleting or not self._is_to_go(attempt):
                continue
            now = await judgement(self._ground, left)
            if now.verdict is not self._item.judgement.verdict:
                return self._changed(now)
            if attempt in now.doomed:
                self._doomed[attempt.uid] = attempt
                await self._delete(attempt)
        late = self._clock() >= self._end
        telling = self._clock() - self._told_at >= _TELL
        if any(one.uid in self._doomed for one in left.attempts) and not (late or telling):
            return None
        sentences, total = await self._remaining(left)
        if not total:
            return await self._conclude()
        if late:
            return Outcome(self._item, Result.LEFT, left=sentences, left_total=total)
        self._tell(sentences)
        return None

    def _is_to_go(self, attempt: AttemptLeft) -> bool:
        """Whether an attempt is a candidate: of a live workload, only attempts that were past when it was judged.

        Attempts that a late worker adds to an ended workload during the removal are removed too.
        """
        if self._item.judgement.verdict is not Verdict.STRAY:
            return True
        return attempt.number <= max(one.number for one in self._doomed.values())

    async def _delete(self, attempt: AttemptLeft) -> None:
        await self._record(attempt)
        with suppress(NotFound, Conflict):  # It is gone, or another has its name.
            await self._ground.site.kube.delete(
                names.API_VERSION,
                names.ATTEMPT_KIND,
                attempt.name,
                self._item.left.namespace,
                uid=attempt.uid,
                propagation="Foreground",
            )

    async def _record(self, attempt: AttemptLeft) -> None:
        """Write an Event on an attempt before it is deleted (row L6).

        A namespace that is being deleted accepts no Events any more; the leftovers there are removed all the same.
        """
        with suppress(KubeError):
            await self._ground.site.kube.create(swept_event(self._item, attempt, datetime.now(UTC)))

    async def _conclude(self) -> Outcome | None:
        """Release the anchor, if the verdict says so and still stands."""
        if not self._item.judgement.releases:
            return Outcome(self._item, Result.REMOVED)
        left = await look(self._ground, self._item.left)
        if left.attempts:
            return None
        now = await judgement(self._ground, left)
        if now.verdict is not self._item.judgement.verdict:
            return self._changed(now)
        await release_anchor(self._ground.site, self._target, delete=now.deletes_anchor)
        return Outcome(self._item, Result.REMOVED)

    def _changed(self, now: Judgement) -> Outcome:
        return Outcome(self._item, Result.CHANGED, why=f"it has become {now.verdict.value} meanwhile: {now.why}")

    # Proof.

    async def _remaining(self, left: Left) -> tuple[tuple[str, ...], int]:
        """Return sentences about the objects that are not proven gone, and their number."""
        standing = [one.name for one in left.attempts if one.uid in self._doomed]
        asked = tuple(self._doomed.values()) or (AttemptLeft("", "", 0),)
        found = [await find_remains(self._ground.site, self._question(attempt)) for attempt in asked]
        if self._item.judgement.verdict is Verdict.STRAY:
            found = [of_attempt(one, attempt.number) for one, attempt in zip(found, asked, strict=True)]
        remains = together(found)
        told = [one.sentence() for one in await remnants_of(self._ground.site, remains)]
        told += [f"{names.ATTEMPT_KIND} {name}" for name in standing]
        return tuple(told), remains.total + len(standing)

    def _question(self, attempt: AttemptLeft) -> RemoveInput:
        """Return the input for the search for remains, which reads no report and no deadline."""
        nothing = Report(sequence=0, phase=Phase.TERMINATING, reason=Reason.CANCEL_REQUESTED)
        return RemoveInput(
            target=self._target,
            attempt=attempt.number,
            owner_uid=attempt.uid,
            plan=attempt.plan,
            until=datetime.now(UTC),
            report=nothing,
            report_gone=nothing,
        )

    @property
    def _target(self) -> Target:
        left, site = self._item.left, self._ground.site
        return Target(
            cluster=site.cluster,
            cluster_uid=site.cluster_uid,
            namespace=left.namespace,
            name=left.name,
            workload_uid=left.workload_uid,
            workflow_id=left.workflow_id,
            shard=names.shard_of(left.workload_uid),
            # Whatever account created the objects, the sweep reads them with its caller's own rights.
            run_as=names.RUN_AS_DEFAULT,
        )

    def _tell(self, sentences: tuple[str, ...]) -> None:
        self._told_at = self._clock()
        if sentences != self._told:
            self._told = sentences
            self._say(f"{self._item.left.namespace}/{self._item.left.name}: still there: {'; '.join(sentences[:3])}")


def swept_event(item: Item, attempt: AttemptLeft, now: datetime) -> Object:
    """Return the Event that says why an attempt is removed; its name is the same each time. Pure."""
    message = f"holdfast sweep removes {attempt.name} ({item.judgement.verdict.value}): {item.judgement.why}"
    metadata = {"name": attempt.name, "namespace": item.left.namespace, "uid": attempt.uid}
    return event_on((names.API_VERSION, names.ATTEMPT_KIND), metadata, f".{attempt.uid}.swept", SWEPT, message, now)


def together(found: Sequence[Remains]) -> Remains:
    """Return the remains of several attempts, each object once; their owners are counted separately."""
    components = {_key(thing): (component, thing) for one in found for component, thing in one.components}
    between = {_key(thing): thing for one in found for thing in one.between if _key(thing) not in components}
    # A component that is a pod was found as both.
    pods = {_key(thing): thing for one in found for thing in one.pods if _key(thing) not in components}
    return Remains(None, tuple(components.values()), tuple(between.values()), tuple(pods.values()))


def of_attempt(remains: Remains, number: int) -> Remains:
    """Return one attempt's part of the remains of a whole workload: the other attempts are live."""
    return replace(
        remains,
        between=tuple(one for one in remains.between if _attempt(one) in (None, str(number))),
        pods=tuple(one for one in remains.pods if _attempt(one) in (None, str(number))),
    )


def _key(thing: Mapping[str, Any]) -> tuple[str, str]:
    metadata = mapping(thing.get("metadata"))
    return str(metadata.get("name")), str(metadata.get("uid"))


def _attempt(thing: Mapping[str, Any]) -> str | None:
    """Return the attempt in an object's label."""
    return mapping(mapping(thing.get("metadata")).get("labels")).get(names.LABEL_ATTEMPT)
