"""Reads the steps that the running pods of an attempt tell: in their annotation, or over HTTP (row P1).

What a pod tells is text of a stranger: at most 4 KiB are read, and what does not parse counts as nothing told.
"""

from __future__ import annotations

import asyncio
import errno
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
from pydantic import ValidationError
from yarl import URL

from holdfast import names
from holdfast.activities.facts.pod_address import own_address, pod_url
from holdfast.activities.facts.pods import PodFacts, PodState, pod_facts
from holdfast.activities.kube.http import body_of
from holdfast.activities.kube.raw import mapping, mappings
from holdfast.activities.site.site import Site
from holdfast.model import Progress, ProgressSource
from holdfast.model.calls.progress import FollowInput
from holdfast.model.life.progress import PodStep, Step

BYTES_MAXIMUM: Final = 4096
AT_ONCE: Final = 32
"""How many pods of one workload are asked at the same time."""
ROUND: Final = 0.8
"""The part of a period in which all pods must have answered: who has not by then has told nothing."""
_TIMEOUT: Final = 5.0
_CONNECT: Final = 2.0


@dataclass(frozen=True, slots=True)
class RunningPod:
    """A running pod, and where its step is read."""

    facts: PodFacts
    address: str
    annotation: str
    restarts: int = 0
    """How often its containers have restarted in it."""


async def pod_steps(site: Site, given: FollowInput) -> list[PodStep]:
    """Return the steps of the attempt's running pods; empty if none runs, or none can be reached.

    The read is consistent, since a cache that lags would look like a stall.

    Raises:
        KubeError: if the pods cannot be listed.
    """
    labels = f"{names.LABEL_WORKLOAD_UID}={given.target.workload_uid},{names.LABEL_ATTEMPT}={given.attempt}"
    found = await site.kube.list("v1", "Pod", given.target.namespace, labels=labels, keep=running_pod)
    chosen = given.progress.components
    listed: list[RunningPod | None] = found["items"]
    pods = [
        pod
        for pod in listed
        if pod is not None and pod.facts.component and (not chosen or pod.facts.component in chosen)
    ]
    if given.progress.source is ProgressSource.HTTP:
        return await asked(given.progress, pods)
    return [_pod_step(pod, step_of(pod.annotation)) for pod in pods]


def running_pod(raw: Mapping[str, Any]) -> RunningPod | None:
    """Return a pod that runs; None if it does not."""
    facts = pod_facts(raw)
    if facts.state is not PodState.RUNNING or mapping(raw.get("status")).get("phase") != "Running":
        return None
    annotations = mapping(mapping(raw.get("metadata")).get("annotations"))
    counts = [one.get("restartCount") for one in mappings(mapping(raw.get("status")).get("containerStatuses"))]
    restarts = sum(count for count in counts if isinstance(count, int))
    return RunningPod(facts, own_address(raw), str(annotations.get(names.ANNOTATION_STEP) or ""), restarts)


def step_of(text: str | bytes) -> Step | None:
    """Return what a pod tells; None if it tells nothing, or nothing that can be read."""
    if not text or len(text) > BYTES_MAXIMUM:
        return None
    try:
        return Step.model_validate_json(text)
    except ValidationError:
        return None


async def asked(rules: Progress, pods: list[RunningPod]) -> list[PodStep]:
    """Return the answers of pods over HTTP; empty if no pod could be connected to: then nothing is known.

    Of others, each that could not be connected to is hidden, but not one that was not reached for lack of time.
    All have a part of the period to answer in. The more pods there are, the less each has, so that those that hang
    leave time for the others.
    """
    with_address = [pod for pod in pods if pod.address]
    few, reached, told = asyncio.Semaphore(AT_ONCE), set[str](), dict[str, Step | None]()
    hidden = set[str]()
    span = ROUND * rules.period.total_seconds()
    each = min(_TIMEOUT, max(span / max(math.ceil(len(with_address) / AT_ONCE), 1), span / 10))

    async def connected(_: aiohttp.ClientSession, context: Any, __: aiohttp.TraceConnectionCreateEndParams) -> None:
        reached.add(context.trace_request_ctx)

    trace = aiohttp.TraceConfig()
    trace.on_connection_create_end.append(connected)
    timeout = aiohttp.ClientTimeout(total=each, sock_connect=min(_CONNECT, each))
    connector = aiohttp.TCPConnector(force_close=True, limit=AT_ONCE)
    async with aiohttp.ClientSession(
        timeout=timeout, connector=connector, auto_decompress=False, trace_configs=[trace]
    ) as session:

        async def ask(pod: RunningPod) -> None:
            async with few:
                try:
                    told[pod.facts.uid] = await _get(session, rules, pod)
                except (OSError, aiohttp.ClientError) as error:  # With all kinds of timeouts.
                    if getattr(error, "errno", None) == errno.ECONNREFUSED:
                        reached.add(pod.facts.uid)
                    elif pod.facts.uid not in reached:
                        hidden.add(pod.facts.uid)

        with suppress(TimeoutError):
            async with asyncio.timeout(span):
                await asyncio.gather(*(ask(pod) for pod in with_address))
    if not reached:
        return []
    return [_pod_step(pod, told.get(pod.facts.uid), hidden=pod.facts.uid in hidden) for pod in with_address]


async def _get(session: aiohttp.ClientSession, rules: Progress, pod: RunningPod) -> Step | None:
    assert rules.port is not None
    url = URL(pod_url(pod.address, rules.port, rules.path), encoded=True)
    headers, uid = {"User-Agent": "holdfast-progress"}, pod.facts.uid
    async with session.get(url, allow_redirects=False, headers=headers, trace_request_ctx=uid) as response:
        if response.status != 200:
            return None
        return step_of(await body_of(response, BYTES_MAXIMUM + 1))


def _pod_step(pod: RunningPod, told: Step | None, *, hidden: bool = False) -> PodStep:
    facts = pod.facts
    return PodStep(uid=facts.uid, name=facts.name, node=facts.node, told=told, restarts=pod.restarts, hidden=hidden)
