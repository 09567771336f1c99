"""Probes whether a workload's pods still serve: in rounds, at their own addresses, for months (rows L28, L29).

A probe is a request that the worker makes to an address and a path that a user influences. So the worker probes only
pods, at the address that the API server reports, skips pods on their node's network, and follows no redirect.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import aiohttp
from temporalio import activity
from temporalio.exceptions import ApplicationError
from yarl import URL

from holdfast import names
from holdfast.activities.facts.pod_address import own_address
from holdfast.activities.facts.pods import PodFacts, PodState, pod_facts
from holdfast.activities.kube.client import KubeError
from holdfast.activities.kube.raw import mapping, mappings, one_line, time_of
from holdfast.activities.site.site import BEAT_LAST, Site, is_broken_off
from holdfast.model import Failure, Probe, ProbeKind
from holdfast.model.calls.cluster import Probed, ProbeInput
from holdfast.policy.sides.probe import Answer, counted, failed, no_answer, silent

AT_ONCE: Final = 32
"""How many pods of one workload are probed at the same time."""
OURS: Final = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL, errno.ENETUNREACH}
)
"""Errors of this worker itself: they say nothing about a pod."""
MESSAGE_MAXIMUM: Final = 120
_ELSEWHERE: Final = timedelta(seconds=10)
"""Delay until another worker probes if this one reaches no pod; the probe's period if that is shorter."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A pod that can be probed."""

    facts: PodFacts
    address: str
    since: datetime


async def probe(site: Site, given: ProbeInput) -> Probed:
    """Probe the pods in rounds, until one has failed as often in a row as the threshold says.

    Raises:
        ApplicationError: of type `ClusterMismatch`; or of type `NoPodReached`, once this worker reaches no pod of
            several workloads: whether they serve is not known, counts stay, and another worker probes (row D47).
    """
    site.check(given.target)
    rules, (failing, due), beats = given.probe, _earlier(given), _Counts()
    reach, workload = site.reach, given.target.workload_uid
    lasts = 2 * (rules.period + rules.timeout)
    try:
        while True:
            await _until(due, failing, beats)
            begun = datetime.now(UTC)
            due = begun + rules.period
            with suppress(KubeError):  # If the pods cannot be listed, the next round tries again.
                pods = await _pods(site, given, begun)
                reached = set[str]()
                answers = await _beating(answers_of(rules, pods, reached), failing, begun, beats)
                if pods:
                    reach.notes(workload, begun, lasts, reached=bool(reached))
                if pods and not reached and reach.is_cut_off(datetime.now(UTC)):
                    raise _cut_off(rules, failing, due)
                failing = counted(failing, answers)
                mute = worst(pods, answers, failing, rules.failure_threshold)
                if mute is not None:
                    reach.forgets(workload)
                    return Probed(failure=_failure(given, mute, answers[mute.facts.uid] or "", begun))
            beats.tell(failing, due)
    except asyncio.CancelledError:
        reach.forgets(workload)
        if not is_broken_off():
            raise
        return Probed(failing=failing)


def worst(
    pods: Sequence[Asked], answers: Mapping[str, Answer], failing: Mapping[str, int], threshold: int
) -> Asked | None:
    """Return the first pod, by name, that has reached the failure threshold and failed in this round."""
    over = silent(answers, failing, threshold)
    return min((pod for pod in pods if pod.facts.uid in over), key=lambda pod: pod.facts.name, default=None)


def probe_target(raw: Mapping[str, Any]) -> Asked | None:
    """Return a pod as a probe's target; None if it is not running, or has no address of its own."""
    facts, status, address = pod_facts(raw), mapping(raw.get("status")), own_address(raw)
    if facts.state is not PodState.RUNNING or status.get("phase") != "Running" or not address:
        return None
    running = (mapping(mapping(one.get("state")).get("running")) for one in mappings(status.get("containerStatuses")))
    begun = [time for one in running if (time := time_of(one.get("startedAt"))) is not None]
    since = max(begun, default=time_of(status.get("startTime")) or facts.created)
    return Asked(facts, address, since) if since is not None else None


async def _pods(site: Site, given: ProbeInput, now: datetime) -> list[Asked]:
    """Return the pods to probe in a round: those of the attempt that have run for the initial delay."""
    labels = f"{names.LABEL_WORKLOAD_UID}={given.target.workload_uid},{names.LABEL_ATTEMPT}={given.attempt}"
    found = await site.kube.list(
        "v1", "Pod", given.target.namespace, labels=labels, resource_version="0", keep=probe_target
    )
    pods: list[Asked | None] = found["items"]
    chosen = given.probe.components
    return [
        pod
        for pod in pods
        if pod is not None
        and pod.facts.component
        and (not chosen or pod.facts.component in chosen)
        and pod.since + given.probe.initial_delay <= now
    ]


async def answers_of(rules: Probe, pods: Sequence[Asked], reached: set[str] | None = None) -> dict[str, Answer]:
    """Probe all of these pods, and return each answer by pod uid.

    Args:
        rules: how they are probed.
        pods: the pods to probe.
        reached: receives the uids of pods that accepted, or refused, a connection.
    """
    few, met = asyncio.Semaphore(AT_ONCE), reached if reached is not None else set[str]()

    async def connected(_: aiohttp.ClientSession, context: Any, __: aiohttp.TraceConnectionCreateEndParams) -> None:
        met.add(context.trace_request_ctx)

    trace = aiohttp.TraceConfig()
    trace.on_connection_create_end.append(connected)
    timeout = aiohttp.ClientTimeout(total=rules.timeout.total_seconds())
    connector = aiohttp.TCPConnector(force_close=True, limit=AT_ONCE)
    async with aiohttp.ClientSession(
        timeout=timeout, connector=connector, auto_decompress=False, trace_configs=[trace]
    ) as session:

        async def ask(pod: Asked) -> Answer:
            async with few:
                try:
                    if rules.kind is ProbeKind.HTTP:
                        return await _get(session, rules, pod)
                    return await _connect(rules, pod, met)
                except TimeoutError:
                    return no_answer(rules)
                except (OSError, aiohttp.ClientError) as error:
                    number = getattr(error, "errno", None)
                    if number in OURS:
                        return None
                    if number == errno.ECONNREFUSED:
                        met.add(pod.facts.uid)
                    return one_line(str(error), MESSAGE_MAXIMUM) or type(error).__name__

        said = await asyncio.gather(*(ask(pod) for pod in pods))
    return {pod.facts.uid: answer for pod, answer in zip(pods, said, strict=True)}


async def _get(session: aiohttp.ClientSession, rules: Probe, pod: Asked) -> Answer:
    host = f"[{pod.address}]" if ":" in pod.address else pod.address
    url = URL(f"http://{host}:{rules.port}{rules.path}", encoded=True)
    headers, uid = {"User-Agent": "holdfast-probe"}, pod.facts.uid
    async with session.get(url, allow_redirects=False, headers=headers, trace_request_ctx=uid) as response:
        return "" if 200 <= response.status < 400 else f"HTTP {response.status}"


async def _connect(rules: Probe, pod: Asked, reached: set[str]) -> Answer:
    async with asyncio.timeout(rules.timeout.total_seconds()):
        _, writer = await asyncio.open_connection(pod.address, rules.port)
    reached.add(pod.facts.uid)
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return ""


def _cut_off(rules: Probe, failing: Mapping[str, int], due: datetime) -> ApplicationError:
    """Return the error that makes another worker go on with these counts; also send a heartbeat and count a metric."""
    words = "this worker reaches no pod of any workload that it asks: whether they serve is not known, counts stay"
    if activity.in_activity():
        activity.heartbeat({"failing": dict(failing), "due": due.isoformat(), "doing": words})
        about = "Rounds of probes in which a worker reached no pod of any workload."
        activity.metric_meter().create_counter(names.METRIC_PROBES_UNKNOWN, about).add(1)
    delay = min(rules.period, _ELSEWHERE)
    return ApplicationError(words, type=names.ERROR_NO_POD_REACHED, next_retry_delay=delay)


def _failure(given: ProbeInput, pod: Asked, answer: str, now: datetime) -> Failure:
    facts = pod.facts
    return failed(given.probe, given.attempt, now, facts.component, facts.name, facts.node, answer)


# --- what outlives this worker: the counts, and the time of the next round


def _earlier(given: ProbeInput) -> tuple[dict[str, int], datetime]:
    """Return the counts of an earlier try, and when it would have probed next."""
    first = datetime.now(UTC) + given.probe.initial_delay
    details = activity.info().heartbeat_details if activity.in_activity() else ()
    said = mapping(details[0]) if details else mapping(None)
    counts = said.get("failing")
    due = time_of(said.get("due"))
    if not isinstance(counts, dict) or due is None:
        return dict(given.failing), first
    return {str(uid): int(count) for uid, count in counts.items()}, due  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]


class Beats:
    """Heartbeats no more often than needed, since each may be billed."""

    def __init__(self) -> None:
        timeout = activity.info().heartbeat_timeout if activity.in_activity() else None
        self._every = timeout.total_seconds() / 2 if timeout is not None else BEAT_LAST
        self._at = self._clock()

    @property
    def left(self) -> float:
        """Seconds until the next heartbeat is due."""
        return max(0.0, self._at + self._every - self._clock())

    def send(self, details: Mapping[str, Any]) -> None:
        """Send a heartbeat now."""
        self._at = self._clock()
        if activity.in_activity():
            activity.heartbeat(details)

    @staticmethod
    def _clock() -> float:
        return asyncio.get_running_loop().time()


class _Counts(Beats):
    """Heartbeats with the counts of failed probes: at once if a count changes."""

    def __init__(self) -> None:
        super().__init__()
        self._told: dict[str, int] | None = None

    def tell(self, failing: Mapping[str, int], due: datetime) -> None:
        """Send a heartbeat if one is due, or if these counts are new."""
        if self.left and failing == self._told:
            return
        self._told = dict(failing)
        self.send({"failing": self._told, "due": due.isoformat()})


async def _until(due: datetime, failing: Mapping[str, int], beats: _Counts) -> None:
    """Wait until a time, with heartbeats."""
    while (left := (due - datetime.now(UTC)).total_seconds()) > 0:
        await asyncio.sleep(min(left, beats.left))
        beats.tell(failing, due)


async def _beating(
    answers: Awaitable[dict[str, Answer]], failing: Mapping[str, int], begun: datetime, beats: _Counts
) -> dict[str, Answer]:
    """Wait for the answers of a round, with heartbeats; a worker that takes over meanwhile repeats the round."""
    task = asyncio.ensure_future(answers)
    try:
        while True:
            done, _ = await asyncio.wait({task}, timeout=beats.left)
            if done:
                return task.result()
            beats.tell(failing, begun)
    finally:
        task.cancel()
