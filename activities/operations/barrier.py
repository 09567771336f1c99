"""The barrier: brings all pods of an attempt to an in-place restart attempt, and lets their programs start (row J24).

A pod carries its orders as annotations, which its agent reads. The kubelet's status proves that a pod is there. Each
change names the version of the pod as read, and no pod is asked for a lower attempt than before. So a late change of a
worker that another has taken over from is refused, or changes nothing.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from sys import intern
from typing import Any

from holdfast import names
from holdfast.activities.facts.barrier import BarrierFacts, barrier_facts
from holdfast.activities.facts.pods import PodState, pod_facts
from holdfast.activities.kube.client import Conflict, Forbidden, Invalid, NotFound, Unreachable, WebhookFailed
from holdfast.activities.kube.each import each
from holdfast.activities.kube.owners import Ref
from holdfast.activities.kube.raw import mapping
from holdfast.activities.objects.ancestry import own_pods
from holdfast.activities.objects.attempts import living_owner_of
from holdfast.activities.operations.park import GONE
from holdfast.activities.operations.remains import nodes_down
from holdfast.activities.operations.report import apply_report
from holdfast.activities.site.accounts import DEFAULT_ACCOUNT
from holdfast.activities.site.closed import account_closed, namespace_closed, ungranted
from holdfast.activities.site.deadline import Grace
from holdfast.activities.site.site import RETRY_FIRST, Pulse, Site, as_retryable_errors, persist, user_of
from holdfast.model.calls.barrier import BarrierInput, Lifted
from holdfast.model.calls.plan import sources_of
from holdfast.model.words import counted

_POLL_FIRST = 0.1
_POLL_LAST = 1.0
_POLL_IDLE = 5.0
"""The longest time between looks at pods that start for the first time: they may wait for a node for hours."""
_REMIND = 5.0
"""Seconds after which a kubelet is first reminded of a pod's orders. A kubelet that was writing the orders of before as
they changed may not write the new ones until it looks at the pod again, a minute or more later."""
_TOLD = 16
"""How many of the pods waited for are named."""


class _Refused(Exception):
    """The pods cannot start their programs, or not again in place."""

    def __init__(self, why: str, *, renews: bool = False) -> None:
        super().__init__(why)
        self.renews = renews
        """Whether the next attempt may, or its preparation says why not."""


@dataclass(frozen=True, slots=True)
class _Pod:
    """A pod of the attempt that has not failed: all that is kept of it, as there may be thousands."""

    uid: str
    name: str
    version: str
    """Its resource version."""
    node: str
    account: str
    """The service account that it runs as."""
    component: str
    succeeded: bool
    stands: BarrierFacts

    def has_passed(self, attempt: int) -> bool:
        """Whether its programs were allowed to start at an attempt."""
        return self.stands.requested == attempt == self.stands.attempt

    def has_begun(self, attempt: int) -> bool:
        """Whether it was seen after its programs were allowed to start: they run, or its agent has restarted since."""
        return self.has_passed(attempt) and (self.stands.started or self.stands.has_restarted)


@dataclass(frozen=True, slots=True)
class _Pods:
    """The pods of the planned components, at one look."""

    pods: list[_Pod]
    """Those that have not ended."""
    expected: int
    """How many of those there must be: one that has succeeded at the attempt does not come back."""
    going: int
    """How many pods of the workload's attempt are being deleted: they may still run."""


class Reminders:
    """When the kubelets of pods that have not done what their orders say are reminded; one activity's memory."""

    def __init__(self) -> None:
        self._due: dict[tuple[str, int, int | None], tuple[float, float]] = {}

    def due(self, pods: Mapping[str, BarrierFacts], attempt: int, now: float) -> list[str]:
        """Return the uids of those that are due; each waits twice as long for its next.

        Args:
            pods: where each pod stands, by its uid.
            attempt: the in-place restart attempt that all of them are to reach.
            now: seconds, by the loop's clock.
        """
        before, self._due, found = self._due, {}, list[str]()
        for uid, stands in pods.items():
            if not stands.lags(attempt):
                continue
            key = (uid, stands.requested, stands.attempt)
            at, wait = before.get(key, (now + _REMIND, 2 * _REMIND))
            if now >= at:
                found.append(uid)
                at, wait = now + wait, 2 * wait
            self._due[key] = at, wait
        return found


async def barrier(site: Site, given: BarrierInput) -> Lifted:
    """Bring all pods of an attempt to the barrier, and lift it (row J24).

    Raises:
        ApplicationError: of type `ClusterMismatch` or `ClusterUnreachable`, both retried.
    """
    site.check(given.target)
    async with as_retryable_errors(), Pulse() as pulse:
        await persist(pulse, "reporting", lambda: apply_report(site, given.target, given.report))
        try:
            await _until_begun(site, given, pulse)
        except _Refused as refused:
            return Lifted(done=False, refused=str(refused), renews=refused.renews)
        return Lifted(done=True)


async def _until_begun(site: Site, given: BarrierInput, pulse: Pulse) -> None:
    """Act and look, repeatedly, until the programs of all pods have started at the attempt."""
    grace = Grace(site.grace(given.grace)) if given.grace is not None else None
    longest = _POLL_LAST if grace is not None else _POLL_IDLE
    delay, last = _POLL_FIRST, -1
    reminders, clock = Reminders(), asyncio.get_running_loop().time
    ordered = frozenset[str]()  # The pods that were there as their programs were first allowed to start.
    while True:
        try:
            owner = await living_owner_of(site, given.target, given.attempt, given.owner_uid)
            if owner is None:
                raise _Refused(GONE, renews=True)
            seen = await _pods(site, given)
            pods, expected = seen.pods, seen.expected
            begun = [pod for pod in pods if pod.has_begun(given.in_place)]
            if len(begun) >= expected and len(begun) == len(pods):
                return
            known = [pod for pod in pods if pod.uid in ordered] if ordered else pods
            if ordered and len(begun) == len(known) and (grace is None or len(known) < len(pods)):
                return  # What was lost since, or made again and waits, is told by the next look.
            # Once some may start, no pod that was made later starts beside them.
            if await _advance(site, given, replace(seen, pods=known, expected=len(known)) if ordered else seen):
                ordered = ordered or frozenset(pod.uid for pod in pods)
            late = set(reminders.due({pod.uid: pod.stands for pod in pods}, given.in_place, clock()))
            await _remind(site, given, [pod for pod in pods if pod.uid in late])
            there = [pod for pod in pods if pod.has_passed(given.in_place) or pod.stands.is_there(given.in_place)]
            if grace is not None:
                await _check_lost(site, pods, expected)
                grace.see()
                if grace.is_over:
                    raise _Refused(f"{len(there)} of {counted(expected, 'pod')} restarted in time")
            arrived = {pod.uid for pod in there}
            left = [f"Pod {pod.name}" for pod in pods if pod.uid not in arrived]
            there_are = f"{len(there)} of {counted(expected, 'pod is', 'pods are')}"
            doing = f"{there_are} at in-place restart attempt {given.in_place}"
            pulse.say(doing, left[:_TOLD], max(len(left), expected - len(there)))
            moved, last = len(there) + len(begun) != last, len(there) + len(begun)
            delay = _POLL_FIRST if moved else min(delay * 1.5, longest)
        except Unreachable as error:
            pulse.say(f"waiting for pods: the API server does not answer: {error.message}", *pulse.told)
            if grace is not None:
                grace.miss()
            await asyncio.sleep(RETRY_FIRST)
        pulse.blind = site.blind(pulse.blind)
        await asyncio.sleep(delay)


async def _advance(site: Site, given: BarrierInput, seen: _Pods) -> bool:
    """Ask pods to come to the barrier; let their programs start once all are there, and no other pod still ends.

    Returns:
        Whether programs were allowed to start.

    Raises:
        _Refused: if they can not, or may not any more.
    """
    goal, pods = given.in_place, seen.pods
    late = next((pod for pod in pods if pod.stands.requested > goal), None)
    if late is not None:
        why = f"pod {late.name} was asked to reach in-place restart attempt {late.stands.requested}"
        raise _Refused(why, renews=True)
    behind = [pod for pod in pods if pod.stands.requested < goal]
    there = [pod for pod in pods if pod.stands.is_there(goal)]
    passed = sum(pod.has_passed(goal) for pod in pods)
    if behind:
        await _still_permitted(site, given, behind)
        request: dict[str, str | None] = {names.ANNOTATION_RESTART_REQUEST: str(goal)}
        if given.resume_from is not None:
            request[names.ANNOTATION_RESUME_FROM] = given.resume_from or None
        await _annotate(site, given, [(pod, request) for pod in behind])
    elif there and len(there) + passed == len(pods) >= seen.expected and not seen.going:
        # The step is of programs that are dead.
        lifted = {names.ANNOTATION_IN_PLACE_ATTEMPT: str(goal), names.ANNOTATION_STEP: None}
        restarts = names.ANNOTATION_RESTARTS_SEEN
        await _still_permitted(site, given, there)
        await _annotate(site, given, [(pod, {**lifted, restarts: str(pod.stands.restarts)}) for pod in there])
        return True
    return False


async def _still_permitted(site: Site, given: BarrierInput, pods: list[_Pod]) -> None:
    """Refuse to start programs of pods that are no longer permitted to run (row X4)."""
    closed = await namespace_closed(site, given.target, site.permits)
    if closed is not None:
        raise _Refused(closed.why, renews=True)
    if why := ungranted(site, given.target, sources_of(given.data, {pod.component for pod in pods})):
        raise _Refused(why, renews=True)
    for account in sorted({pod.account for pod in pods} - {"", DEFAULT_ACCOUNT}):
        closed = await account_closed(site.kube, given.target, account, site.permits)
        if closed is not None:
            raise _Refused(f"{account!r}: {closed.why}")


async def _remind(site: Site, given: BarrierInput, pods: list[_Pod]) -> None:
    """Have the kubelet write the orders of pods anew."""
    key = names.ANNOTATION_RESTART_REMINDER
    await _annotate(site, given, [(pod, {key: str(pod.stands.reminders + 1)}) for pod in pods])


async def _check_lost(site: Site, pods: list[_Pod], expected: int) -> None:
    """Refuse to wait for a pod that is gone or has failed, or whose node is down."""
    if len(pods) < expected:
        lost = expected - len(pods)
        raise _Refused(f"{counted(lost, 'pod is', 'pods are')} gone")
    down = await nodes_down(site, {pod.node for pod in pods})
    if down:
        raise _Refused(f"node {min(down)} is down")


async def _pods(site: Site, given: BarrierInput) -> _Pods:
    """Read the attempt's pods.

    Raises:
        _Refused: if one has succeeded at an earlier in-place restart attempt: the others would start without it.
    """
    labels = f"{names.LABEL_WORKLOAD_UID}={given.target.workload_uid},{names.LABEL_ATTEMPT}={given.attempt}"
    listed = (await site.kube.list("v1", "Pod", given.target.namespace, labels=labels, keep=standing_pod))["items"]
    own = await own_pods(site, given.target, given.plan, listed, lambda one: one[0])
    planned = {one.name for one in given.plan}
    found: list[_Pod] = []
    ended: Counter[str] = Counter()
    for pod in (pod for _, pod in own if pod is not None):
        if not pod.succeeded:
            found += [pod] if pod.component in planned else []
        elif pod.stands.attempt != given.in_place:
            why = f"pod {pod.name} succeeded before in-place restart attempt {given.in_place}"
            raise _Refused(why, renews=True)
        else:
            ended[pod.component] += 1
    expected = sum(max(0, one.expected_pods - ended[one.name]) for one in given.plan)
    return _Pods(found, expected, going=sum(pod is None for _, pod in own))


def standing_pod(raw: Mapping[str, Any]) -> tuple[Ref | None, _Pod | None] | None:
    """Return a pod's controller and where it stands; no place if it is being deleted, None if it does not count."""
    facts, stands = pod_facts(raw), barrier_facts(raw)
    if facts.state is PodState.TERMINATING:
        return facts.controller, None
    if stands is None or facts.state not in {PodState.PENDING, PodState.RUNNING, PodState.SUCCEEDED}:
        return None
    return facts.controller, _Pod(
        uid=facts.uid,
        name=facts.name,
        version=str(mapping(raw["metadata"])["resourceVersion"]),
        node=facts.node,
        account=intern(str(mapping(raw.get("spec")).get("serviceAccountName") or "")),
        component=facts.component,
        succeeded=facts.state is PodState.SUCCEEDED,
        stands=stands,
    )


async def _annotate(site: Site, given: BarrierInput, changes: list[tuple[_Pod, dict[str, str | None]]]) -> None:
    """Annotate pods at the version that was read."""

    async def change(one: tuple[_Pod, dict[str, str | None]]) -> None:
        pod, annotations = one
        try:
            await site.kube.patch(
                "v1",
                "Pod",
                pod.name,
                given.target.namespace,
                uid=pod.uid,
                resource_version=pod.version,
                patch={"metadata": {"annotations": annotations}},
                impersonate=user_of(given.target),
            )
        except (NotFound, Conflict, WebhookFailed):
            return  # It is read again.
        except (Forbidden, Invalid) as error:
            if "RBAC: " not in error.message:  # If so, the authorizer may not have read a role yet.
                raise _Refused(f"Pod {pod.name}: {error.message}") from None

    await each(changes, change)
