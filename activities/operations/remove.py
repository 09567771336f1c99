"""Removal: deletes an attempt and proves it gone, by the garbage collector while there is time, then by force."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Protocol

from temporalio import activity

from holdfast import names
from holdfast.activities.evidence.take import take_evidence
from holdfast.activities.kube.client import REFUSED, Conflict, KubeError, NotFound, Object, Unreachable
from holdfast.activities.kube.priority import Together
from holdfast.activities.kube.raw import mapping, time_of
from holdfast.activities.objects.attempts import attempts_of, refuse_foreign
from holdfast.activities.objects.claims import CLAIM, claims_kept
from holdfast.activities.objects.volume_claims import delete_claims, with_own
from holdfast.activities.operations.checkpoint import Following
from holdfast.activities.operations.remains import (
    Remains,
    find_owner,
    find_remains,
    foreign_finalizers,
    learn_between,
    node_of,
    nodes_down,
    owner_among,
    remnants_of,
)
from holdfast.activities.operations.report import applied, apply_report, tell_events
from holdfast.activities.site.anchor import delete_held, release_anchor
from holdfast.activities.site.deadline import Deadline
from holdfast.activities.site.site import RETRY_FIRST, Pulse, Site, as_retryable_errors, persist, tries, user_of
from holdfast.model import Evidence, Phase
from holdfast.model.calls.cluster import Removed, RemoveInput, Target
from holdfast.policy.status.report import quota_in

POLL_FIRST = 0.1
POLL_LAST = 2.0
POLL_SHARE = 0.2
"""Each poll waits a fifth of the time elapsed so far. On average, a removal is noticed late by a tenth of that time."""
UNTOLD_SECONDS = 10.0
UNTOLD_LAST = 60.0
UNTOLD_A_SECOND = 10.0
"""How long the removal of what has ended may last before its anchor shows it; if many ran at once with it, longer."""
TELL_SECONDS = 3.0
TELL_LAST = 15.0
TELLS_A_SECOND = 20.0
"""When many removals run at once, each shows less often what is left: that slows all of them."""
TELL_SHARE = 20.0
"""Listings of what is left are this many times the last one's duration apart, so they do not slow a large removal."""
FOLLOW_SECONDS = 0.25
"""The longest time between polls while answers are followed: a pod that has saved may end a moment later."""
LOOK_FIRST = 1.0
"""Seconds that a removal asks pods before it deletes: who has saved may end at TERM."""
FORCE_RESOURCES_AFTER = 2.0
"""Seconds that the collector has to remove resources, once their pods are force-deleted, before force removes them."""
SETTLE_SECONDS = 0.25
"""A forced removal's proof cannot rely on the collector, so it is taken twice, this many seconds apart."""
_DELETES_AT_ONCE = 16


async def remove(site: Site, given: RemoveInput, *, is_told: bool = False) -> Removed:
    """Delete the attempt's owner in the foreground and wait for the proof.

    `is_told`: whether the anchor shows already that the removal has begun.

    Raises:
        ApplicationError: of type `ClusterMismatch`, or `ForeignAttempt` if the cluster holds a later attempt.
    """
    await site.precedence.give_way()
    deadline = _deadline(given, given.grace)
    async with Following(site, given.follows) as following:
        tells_late = _shows_its_end(site, given)
        together = site.together_at_ends if tells_late and not quota_in(given.report) else site.together
        with site.precedence.asking() as has_asked, together.member():
            rounds = _Graceful(site, given, deadline, following, has_asked)
            reads_first = given.follows is not None or (given.evidence_of is not None and site.evidence is not None)
            begin = rounds.begin if tells_late and not reads_first else None
            removed = await _until_gone(
                site, given, rounds, deadline, together, following, begin=begin, tells_late=tells_late, is_told=is_told
            )
        return removed.model_copy(update={"answers": following.answers, "evidence": rounds.evidence})


async def force_remove(site: Site, given: RemoveInput) -> Removed:
    """Delete all pods with grace period 0, then the resources, then the owner, repeatedly until all is proven gone.

    Raises:
        ApplicationError: of type `ClusterMismatch`.
    """
    return await _until_gone(site, given, _Forced(site, given), _deadline(given), site.together)


class _Rounds(Protocol):
    refused: dict[str, str]
    """Why objects may not be deleted, by uid."""

    async def round(self, owners: Sequence[Object] | None = None) -> Remains | None:
        """Act, look, and return what is left; None if this round only checked that something is left.

        Args:
            owners: the owners of the workload's attempts, if they have just been read.
        """
        ...


def _shows_its_end(site: Site, given: RemoveInput) -> bool:
    """Whether the anchor says that the workload has ended, so that its last removal need not be told before it begins.

    Nobody takes the deletion for another's then, and no preparation is left that a report must stop (record 0065). A
    try that comes after another tells it: that one may have failed.
    """
    anchor = site.known.look(given.target) if tries() == 1 and given.target.anchor is None else None
    status = mapping((anchor or {}).get("status"))
    ended = {Phase.SUCCEEDED.value, Phase.FAILED.value}
    writes = given.report.unlist or given.report.before
    shown = status.get("attempt") == given.attempt and status.get("phase") in ended
    return given.release_anchor and bool(given.owner_uid) and not writes and shown


async def _until_gone(
    site: Site,
    given: RemoveInput,
    rounds: _Rounds,
    deadline: Deadline,
    together: Together,
    following: Following | None = None,
    *,
    begin: Callable[[], Awaitable[None]] | None = None,
    tells_late: bool = False,
    is_told: bool = False,
) -> Removed:
    """Run rounds until all is proven gone, or time is up.

    `together`: with whom it looks.
    `begin`: goes before the first round, if given; what it could not do is left to the rounds.
    `tells_late`: whether the anchor need not show that it has begun, unless it lasts.
    `is_told`: whether the anchor shows that already.
    """
    site.check(given.target)
    clock = asyncio.get_running_loop().time
    begun, untold = clock(), 0.0
    owners: Sequence[Object] | None = None
    known = given.everything
    async with as_retryable_errors(), Pulse() as pulse:
        reported, told, deleted = is_told, False, False
        if begin is not None:
            try:
                await begin()
            except Unreachable as error:
                pulse.say(f"removing: the API server does not answer: {error.message}")
            await together.sleep(POLL_FIRST, max(0.0, deadline.left(clock(), ())))
        while True:
            try:
                untold = max(untold, Pulse.spread(UNTOLD_SECONDS, UNTOLD_LAST, UNTOLD_A_SECOND))
                quick = tells_late and clock() - begun < untold
                reported = reported or (not quick and await _report_begun(site, given, pulse))
                if not known:
                    owners = await attempts_of(site, given.target)
                    refuse_foreign(owners, given.attempt)
                    known = True
                if given.deletes_first and not deleted:
                    await delete_held(site, given.target)
                    deleted = True
                read, owners = owners, None
                remains = await rounds.round(read)
                if following is not None:
                    pulse.note(following.places)
                if reported and not told:
                    await tell_events(site, given.target, given.report)  # Deletions go first.
                    told = True
                if remains is not None:
                    if (reported or quick) and remains.gone:
                        return await _conclude(site, given, pulse, told=reported)
                    if not remains.gone:
                        pulse.say("waiting for what is being deleted", *await _told_of(site, remains))
            except Unreachable as error:
                pulse.say(f"removing: the API server does not answer: {error.message}", *pulse.told)
                await asyncio.sleep(RETRY_FIRST)
            pulse.blind = site.blind(pulse.blind)
            if deadline.left(clock(), pulse.blind) <= 0:
                # One request that is never answered must not block the removal. But if owner and pods cannot be read
                # either, nothing is known of what is left: then wait for the first answer.
                with suppress(Unreachable):
                    return await _give_up(site, given, pulse, rounds.refused, told=told)
            share = (clock() - begun) * POLL_SHARE
            left = max(0.0, deadline.left(clock(), pulse.blind))
            longest = FOLLOW_SECONDS if given.follows is not None else POLL_LAST
            pause = min(left, longest, max(POLL_FIRST, share))
            await (asyncio.sleep(pause) if given.follows is not None else together.sleep(pause, left))


def _deadline(given: RemoveInput, grace: float = 0.0) -> Deadline:
    wall = datetime.now(UTC)
    started = activity.info().started_time if activity.in_activity() else wall
    return Deadline(given.until, started, wall, asyncio.get_running_loop().time(), grace)


async def _report_begun(site: Site, given: RemoveInput, pulse: Pulse) -> bool:
    """Write the status that the deletion begins, which keeps a preparation from creating anything more (record 0065).

    A request that is not answered does not hold the deletion up; only its proof waits for it.
    """
    try:
        await applied(site, given.target, given.report, tells=False)
    except Unreachable as error:
        pulse.say(f"reporting: the API server does not answer: {error.message}")
        return False
    return True


async def _told_of(site: Site, remains: Remains) -> tuple[tuple[str, ...], int, int]:
    return tuple(one.sentence() for one in await remnants_of(site, remains)), remains.total, len(remains.pods)


async def _give_up(site: Site, given: RemoveInput, pulse: Pulse, refused: Mapping[str, str], *, told: bool) -> Removed:
    """Look a last time, in full, and return what is left."""
    remains = replace(await find_remains(site, given), refused=refused)
    if remains.gone and not told:
        await persist(pulse, "reporting", lambda: apply_report(site, given.target, given.report))
        remains = replace(await find_remains(site, given), refused=refused)
    elif not told:
        with suppress(Unreachable):  # What is left must not wait for this.
            await apply_report(site, given.target, given.report)
    if remains.gone:
        return await _conclude(site, given, pulse)
    remnants = await remnants_of(site, remains)
    return Removed(gone=False, remnants=remnants, remnants_total=remains.total, blind=site.blind(pulse.blind))


class _Graceful:
    """The rounds of a removal that leaves the work to the collector, and waits for the owner to be gone."""

    def __init__(
        self, site: Site, given: RemoveInput, deadline: Deadline, following: Following, has_asked: Callable[[], None]
    ) -> None:
        """`has_asked` is called once the deletions have been asked for: the proofs of others may go on."""
        self._following = following
        self._has_asked = has_asked
        self._asked = False
        self._site = site
        self._given = given
        self._deadline = deadline
        self._looked_at = asyncio.get_running_loop().time()
        self._look = 0.0
        self._learned = False
        self._looked_for_evidence = False
        self.evidence: Evidence | None = None
        self.refused: dict[str, str] = {}

    async def begin(self) -> None:
        """Delete the owner by the uid that is on record, before the attempts are listed.

        An attempt of another memory is refused by the round that follows: the uid is that of an attempt of this one.
        """
        await self._learn_between()
        given = self._given
        name, namespace = given.target.attempt_name(given.attempt), given.target.namespace
        owner = {"metadata": {"name": name, "namespace": namespace, "uid": given.owner_uid}}
        await _delete_owner(self._site, owner, self.refused)
        if given.owner_uid not in self.refused:
            self._deadline.dying(asyncio.get_running_loop().time())
        await self._give_way()

    async def _learn_between(self) -> None:
        if not self._learned:
            await learn_between(self._site, self._given)
            self._learned = True

    async def round(self, owners: Sequence[Object] | None = None) -> Remains | None:
        """Delete the owner; look in full once it is gone, and now and then before that, to report what is left."""
        await self._learn_between()
        owners = owners if owners is not None else await attempts_of(self._site, self._given.target)
        owner = owner_among(owners, self._given)
        if not self._looked_for_evidence:
            untouched = owner is not None and "deletionTimestamp" not in owner["metadata"]
            self.evidence = await take_evidence(self._site, self._given, untouched=untouched)
            self._looked_for_evidence = True
        if owner is None:
            await self._following.look()
            await self._give_way()
            remains = await find_remains(self._site, self._given)
            owner = remains.owner
            if owner is None:
                await delete_claims(self._site, self._given.target, remains.claims, self.refused)
                return replace(remains, refused=self.refused)
        since = owner["metadata"].get("deletionTimestamp")
        # Who has saved says so before it ends; but asking may take its time, and a walltime is over.
        looking = asyncio.ensure_future(self._following.look())
        try:
            await asyncio.wait({looking}, timeout=LOOK_FIRST)
            await _delete_owners(self._site, self._given, owner, self.refused)
            now = asyncio.get_running_loop().time()
            if owner["metadata"]["uid"] not in self.refused:
                self._deadline.dying(now, time_of(since))
            await self._give_way()
            await looking
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
        if now - self._looked_at < max(Pulse.spread(TELL_SECONDS, TELL_LAST, TELLS_A_SECOND), TELL_SHARE * self._look):
            return None
        begun = asyncio.get_running_loop().time()
        remains = await find_remains(self._site, self._given)
        self._looked_at = asyncio.get_running_loop().time()
        self._look = self._looked_at - begun
        await _release_stranded(self._site, self._given.target, remains, self.refused)
        return replace(remains, refused=self.refused)

    async def _give_way(self) -> None:
        """Let other removals ask for their deletions before this one looks what is left.

        One that follows answers does not wait: a pod that has saved may end a moment later.
        """
        if self._asked:
            return
        self._asked = True
        self._has_asked()
        if self._given.follows is None:
            left = self._deadline.left(asyncio.get_running_loop().time(), ())
            await self._site.precedence.give_way_to_deletions(left)


async def _release_stranded(site: Site, target: Target, remains: Remains, refused: dict[str, str]) -> None:
    """Force-delete the pods that no kubelet can end: those being deleted whose node was found Down (row L4)."""
    dying = [pod for pod in remains.pods if "deletionTimestamp" in pod["metadata"]]
    dying = [pod for pod in dying if pod["metadata"].get("deletionGracePeriodSeconds") != 0]
    down = await nodes_down(site, {node_of(pod) for pod in dying})

    user = user_of(target)
    left = (pod for pod in dying if node_of(pod) in down)
    await _all(_try_delete(site, pod, "v1", "Pod", refused, grace_period=0, impersonate=user) for pod in left)


class _Forced:
    """The rounds of a forced removal."""

    def __init__(self, site: Site, given: RemoveInput) -> None:
        self._site = site
        self._given = given
        self._begun = asyncio.get_running_loop().time()
        self._last: Remains | None = None
        self.refused: dict[str, str] = {}

    async def round(self, owners: Sequence[Object] | None = None) -> Remains | None:
        """Delete what is left: pods at once, and resources if the collector has not removed them in time."""
        owner = await find_owner(self._site, self._given) if self._last is None else self._last.owner
        if owner is not None:
            # It should be terminating before anything under it goes, so that objects created late are collected. If its
            # deletion is refused, pods go all the same; nothing is proven gone before it is.
            await _delete_owners(self._site, self._given, owner, self.refused)
        if self._last is None:
            self._last = await find_remains(self._site, self._given)
        await self._force_all(self._last, asks=owner is not None and owner["metadata"]["uid"] in self.refused)
        if self._given.strip_finalizers:
            await self._strip_all(self._last)
        self._last = await find_remains(self._site, self._given)
        if self._last.gone:
            await asyncio.sleep(SETTLE_SECONDS)
            self._last = await find_remains(self._site, self._given)
        self._last = replace(self._last, refused=self.refused)
        return self._last

    async def _force_all(self, remains: Remains, *, asks: bool) -> None:
        await _all(self._force_pod(pod, asks=asks) for pod in remains.pods)
        if asyncio.get_running_loop().time() - self._begun < FORCE_RESOURCES_AFTER:
            return
        user = user_of(self._given.target)
        await _all(self._force(thing, *CLAIM, user) for thing in remains.claims)
        await _all(self._force(thing, one.api_version, one.kind, user) for one, thing in remains.components)
        await _all(self._force(thing, thing["apiVersion"], thing["kind"], user) for thing in remains.between)
        if remains.owner is not None and remains.total == 1:
            owner = (remains.owner, names.API_VERSION, names.ATTEMPT_KIND)
            await _try_delete(self._site, *owner, self.refused, grace_period=0)

    async def _force_pod(self, pod: Mapping[str, Any], *, asks: bool) -> None:
        """Force a pod. `asks`: nobody has told it to end, since its owner may not be deleted; so that is done first."""
        metadata = mapping(pod["metadata"])
        if "deletionTimestamp" in metadata and metadata.get("deletionGracePeriodSeconds") == 0:
            self.refused.pop(metadata["uid"], None)
            return  # Only a finalizer holds it, and we do not remove that unasked.
        ends = time_of(metadata.get("deletionTimestamp"))
        if asks and ends is not None and datetime.now(UTC) < ends:
            return  # Its own grace is not over.
        grace = None if asks and ends is None else 0
        await self._force(pod, "v1", "Pod", user_of(self._given.target), grace=grace)

    async def _strip_all(self, remains: Remains) -> None:
        """Remove foreign finalizers from objects that were being deleted when read; pods first, as in deletion."""
        user, pods = user_of(self._given.target), {pod["metadata"]["uid"] for pod in remains.pods}
        await _all(self._strip(pod, "v1", "Pod", user) for pod in remains.pods)
        components = [(thing, one.api_version, one.kind) for one, thing in remains.components]
        between = [(thing, thing["apiVersion"], thing["kind"]) for thing in remains.between]
        # A claim's finalizer protects its data from pods that may still write.
        between = [one for one in between if one[1:] != CLAIM]
        left = [one for one in (*components, *between) if one[0]["metadata"].get("uid") not in pods]
        await _all(self._strip(*one, user) for one in left)

    async def _strip(self, thing: Mapping[str, Any], api_version: str, kind: str, user: str) -> None:
        metadata = mapping(thing["metadata"])
        foreign = [one for one in foreign_finalizers(metadata) if one != names.FINALIZER]
        if not foreign or "deletionTimestamp" not in metadata:
            return
        kept = [one for one in metadata["finalizers"] if one not in foreign]
        async with self._tried():
            await self._site.kube.patch(
                api_version,
                kind,
                metadata["name"],
                metadata.get("namespace", ""),
                uid=metadata["uid"],
                resource_version=metadata["resourceVersion"],
                patch={"metadata": {"finalizers": kept or None}},
                impersonate=user,
            )

    async def _force(
        self, thing: Mapping[str, Any], api_version: str, kind: str, user: str, *, grace: int | None = 0
    ) -> None:
        async with self._tried():
            await _try_delete(self._site, thing, api_version, kind, self.refused, grace_period=grace, impersonate=user)

    @asynccontextmanager
    async def _tried(self) -> AsyncGenerator[None]:
        """Make one change of a round; the round goes on even if the change is refused."""
        try:
            yield
        except Unreachable as error:
            if not error.is_one_kinds:
                raise  # Else the round goes on.
        except KubeError:
            # A webhook or a lost right blocks it, or it changed since it was read. The round goes on; an object that
            # stays is reported as left.
            return


async def _all(deletions: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run all deletions, a few at a time; raise the first error only when all have finished."""
    left, raised = iter(deletions), list[Exception]()

    async def work() -> None:
        for deletion in left:  # Each is created only when its turn comes: there may be thousands.
            try:
                await deletion
            except Exception as error:
                raised.append(error)

    await asyncio.gather(*(work() for _ in range(_DELETES_AT_ONCE)))
    if raised:
        raise raised[0]


async def _delete_owners(site: Site, given: RemoveInput, owner: Object, refused: dict[str, str]) -> None:
    """Delete the attempt's owner, or those of all attempts at once, so that none waits for what holds another."""
    for one in await attempts_of(site, given.target) if given.everything else [owner]:
        if "deletionTimestamp" in one["metadata"]:
            refused.pop(one["metadata"]["uid"], None)
        else:
            await _delete_owner(site, one, refused)


async def _delete_owner(site: Site, owner: Mapping[str, Any], refused: dict[str, str]) -> None:
    await _try_delete(site, owner, names.API_VERSION, names.ATTEMPT_KIND, refused, propagation="Foreground")


async def _try_delete(
    site: Site, thing: Mapping[str, Any], api_version: str, kind: str, refused: dict[str, str], **options: Any
) -> None:
    """Delete as `_delete` does; if that is refused, note why by uid, so that it is told with what is left."""
    uid = thing["metadata"]["uid"]
    try:
        await _delete(site, thing, api_version, kind, **options)
        refused.pop(uid, None)
    except REFUSED as error:
        refused[uid] = error.message


async def _delete(site: Site, thing: Mapping[str, Any], api_version: str, kind: str, **options: Any) -> None:
    """Delete exactly this object; do nothing if it is gone, or if another object has its name."""
    metadata = thing["metadata"]
    try:
        await site.kube.delete(
            api_version, kind, metadata["name"], metadata.get("namespace", ""), uid=metadata["uid"], **options
        )
    except (NotFound, Conflict):
        return


async def _conclude(site: Site, given: RemoveInput, pulse: Pulse, *, told: bool = True) -> Removed:
    """Report that all is gone, and release the anchor if this ends the workload's life.

    `told`: whether its beginning was reported; else it was quick, and its Events are for an anchor that stays.
    """
    blind = site.blind(pulse.blind)
    claims = await with_own(site, given.target, await claims_kept(site, given.target, given.plan), given.claims)

    async def report() -> None:
        if not told:
            await persist(pulse, "reporting", lambda: tell_events(site, given.target, given.report))
        await persist(pulse, "reporting", lambda: apply_report(site, given.target, given.report_gone))

    async def release() -> bool:
        return await release_anchor(site, given.target, delete=given.delete_anchor)

    goes = given.release_anchor and given.delete_anchor and given.target.anchor is None
    goes = goes and given.report_gone.is_status_alone
    if not goes:
        await report()
    if given.release_anchor:
        if not given.delete_anchor:  # If it is deleted, the collector takes what a worker made under it too late.
            await persist(pulse, "sweeping", lambda: _sweep(site, given))
        stays = await persist(pulse, "releasing the anchor", release)
        if goes and stays:  # A finalizer of somebody else's holds it, and it is read.
            await report()
    return Removed(gone=True, blind=blind, claims=claims)


async def _sweep(site: Site, given: RemoveInput) -> None:
    """Delete attempt owners that a worker created too late, after their attempt had been proven gone."""
    for owner in await attempts_of(site, given.target):
        await _delete(site, owner, names.API_VERSION, names.ATTEMPT_KIND, propagation="Foreground")
