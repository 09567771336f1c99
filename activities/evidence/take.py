"""Takes the evidence of an attempt that a failure has ended, just before its deletion begins (row P3).

It never fails a removal, and never delays it by more than ten seconds: what cannot be had is a sentence.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from holdfast import names
from holdfast.activities.data.storage import Away, BadData
from holdfast.activities.evidence.document import (
    LINES_MAXIMUM,
    LOG_MAXIMUM,
    LogWanted,
    document,
    logs_wanted,
    node_evidence,
    pod_evidence,
)
from holdfast.activities.evidence.stacks import NoStacks, asked_for_stacks, read_stacks
from holdfast.activities.evidence.store import SIZE_MAXIMUM, EvidenceStore, Stored, opened
from holdfast.activities.facts.pods import PodFacts
from holdfast.activities.kube.client import Forbidden, KubeError
from holdfast.activities.kube.logs import LogLine, log_lines
from holdfast.activities.kube.raw import mapping, sequence
from holdfast.activities.site.closed import keeps_logs
from holdfast.activities.site.site import Site, user_of
from holdfast.model import Evidence
from holdfast.model.calls.cluster import ClearInput, RemoveInput
from holdfast.model.words import plain, shortened
from holdfast.policy.attempt.evidence import PODS_MAXIMUM

TOTAL_SECONDS: Final = 10.0
"""The longest time by which evidence delays a removal."""
READ_SECONDS: Final = 6.0
"""The part of it for reading: the rest is the store's."""
_PROBLEM_MAXIMUM: Final = 300
_MISSING_MAXIMUM: Final = 32
_NOT_ALLOWED: Final = (
    "logs and stacks: the worker may not read them, which `holdfast namespace enable --evidence` allows"
)


async def take_evidence(site: Site, given: RemoveInput | ClearInput, *, untouched: bool) -> Evidence | None:
    """Keep the evidence of an attempt, and return where it lies; None if none is to be kept.

    It may be repeated: an attempt's first document stays.

    Args:
        site: the cluster.
        given: the removal, or the deletion of what is still active of a workload that has failed.
        untouched: whether nothing of the attempt is being deleted yet. Otherwise an earlier try has begun the deletion,
            and its evidence is only looked up.
    """
    if given.evidence_of is None or site.evidence is None:
        return None
    try:
        async with asyncio.timeout(TOTAL_SECONDS), site.evidence.turns:
            if untouched:
                return await _take(site, site.evidence, given, given.evidence_of)
            return await _told(site.evidence, await site.evidence.kept(given.target, given.attempt))
    except TimeoutError:
        return _none(f"not stored within {TOTAL_SECONDS:.0f} s: the store is slow, or many attempts fail at once")
    except (Away, BadData) as error:
        return _none(str(error))
    except Exception as error:  # Whatever goes wrong here must not keep the attempt from being removed.
        return _none(str(error) or type(error).__name__)


async def _take(
    site: Site, store: EvidenceStore, given: RemoveInput | ClearInput, first: Sequence[str]
) -> Evidence | None:
    found = _Found()
    try:
        async with asyncio.timeout(READ_SECONDS):
            await _read(site, given, first, found)
    except TimeoutError:
        found.missing.append(f"the rest was not read within {READ_SECONDS:.0f} s")
    except KubeError as error:
        found.missing.append(f"pods: {error.message}")
    if not found.pods and not found.missing:
        return None  # No pod of it was left.
    about = {
        "cluster": given.target.cluster,
        "namespace": given.target.namespace,
        "workload": given.target.name,
        "uid": given.target.workload_uid,
        "attempt": given.attempt,
        "takenAt": datetime.now(UTC).isoformat(),
        "reason": given.report.reason.value,
        "message": given.report.message,
    }
    missing = [plain(one) for one in dict.fromkeys(found.missing)]
    data = document(about, found.pods, found.nodes, found.logs, found.stacks, missing[:_MISSING_MAXIMUM])
    if len(data) > SIZE_MAXIMUM:
        return _none(f"the document has {len(data):,} bytes: expected at most {SIZE_MAXIMUM:,}")
    return await _told(store, await store.keep(given.target, given.attempt, data))


async def _told(store: EvidenceStore, stored: Stored | None) -> Evidence | None:
    """Describe the document that is there: it may be that of an earlier try."""
    if stored is None:
        return None
    told = await opened(stored, store.codec)
    return Evidence(
        link=stored.link,
        digest=stored.digest,
        size=len(stored.data),
        pods=len(sequence(told.get("pods"))),
        logs=len(sequence(told.get("logs"))),
        stacks=len(sequence(told.get("stacks"))),
        problem=shortened("; ".join(map(str, sequence(told.get("missing")))), _PROBLEM_MAXIMUM),
    )


def _none(why: str) -> Evidence:
    return Evidence(problem=shortened(plain(why), _PROBLEM_MAXIMUM))


@dataclass
class _Found:
    """What was read so far: reading may end at any moment."""

    pods: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    nodes: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    logs: dict[LogWanted, Sequence[str]] = field(default_factory=dict[LogWanted, Sequence[str]])
    stacks: dict[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    """By the pod's uid."""
    missing: list[str] = field(default_factory=list[str])


async def _read(site: Site, given: RemoveInput | ClearInput, first: Sequence[str], found: _Found) -> None:
    namespace = given.target.namespace
    traces = await site.gathered.of("v1", "Pod", namespace, given.target.workload_uid)
    own = {
        one["metadata"]["name"]: one["metadata"]["uid"]
        for one in traces
        if one["metadata"]["labels"].get(names.LABEL_ATTEMPT) == str(given.attempt)
    }
    chosen = [*(name for name in first if name in own), *sorted(own.keys() - set(first))][:PODS_MAXIMUM]
    read = await asyncio.gather(*(site.kube.find("v1", "Pod", name, namespace) for name in chosen))
    pods = [one for one in read if one is not None and one["metadata"]["uid"] == own[one["metadata"]["name"]]]
    found.pods += map(pod_evidence, pods)
    nodes = dict.fromkeys(str(mapping(pod.get("spec")).get("nodeName") or "") for pod in pods)
    logs = [one for pod in pods for one in logs_wanted(pod)]
    asked = asked_for_stacks(given.stacks, pods)
    async with asyncio.TaskGroup() as group:
        for name in filter(None, nodes):
            group.create_task(_tried(_read_node(site, name, found), f"node {name}", found))
        if logs and await _allowed(site, namespace, found):
            for one in logs:
                what = f"log of {one.pod}/{one.container}"
                group.create_task(_tried(_read_log(site, given, one, found), what, found))
            for pod, url in asked:
                group.create_task(_read_stacks(pod, url, found))


async def _allowed(site: Site, namespace: str, found: _Found) -> bool:
    """Whether logs of a namespace may be kept: the account's right to read them is not the owner's word that they may.

    If the API server does not say, none is read.
    """
    try:
        allowed = await keeps_logs(site.kube, namespace)
    except KubeError as error:
        found.missing.append(f"logs and stacks: whether they may be kept is not known: {error.message}")
        return False
    if not allowed:
        found.missing.append(_NOT_ALLOWED)
    return allowed


async def _tried(reading: Awaitable[None], what: str, found: _Found) -> None:
    """Read one thing; if that fails, the others are read."""
    try:
        await reading
    except Forbidden:
        kind = what.partition(" ")[0]
        found.missing.append(_NOT_ALLOWED if kind == "log" else f"{kind}s: the worker may not read them")
    except KubeError as error:
        found.missing.append(f"{what}: {error.message}")


async def _read_node(site: Site, name: str, found: _Found) -> None:
    node = await site.gathered.find("v1", "Node", name)
    if node is None:
        found.missing.append(f"node {name}: is gone")
        return
    found.nodes.append(node_evidence(node))


async def _read_log(site: Site, given: RemoveInput | ClearInput, wanted: LogWanted, found: _Found) -> None:
    """Read the end of a log, as the workload's own account."""
    lines = log_lines(
        site.kube,
        given.target.namespace,
        wanted.pod,
        wanted.container,
        previous=wanted.previous,
        tail=LINES_MAXIMUM,
        impersonate=user_of(given.target),
    )
    async with aclosing(lines):
        found.logs[wanted] = await _end_of(lines)


async def _read_stacks(pod: PodFacts, url: str, found: _Found) -> None:
    """Read the stacks of a pod's program; without them, the rest is kept."""
    try:
        if lines := await read_stacks(url):
            found.stacks[pod.uid] = lines
    except NoStacks as error:
        found.missing.append(f"stacks of {pod.name}: {error}")


async def _end_of(lines: AsyncIterator[LogLine]) -> Sequence[str]:
    """Return the last lines of a log, in bounded memory."""
    kept, size = deque[str](), 0
    async for at, text in lines:
        line = f"{at} {text}"
        line = line if len(line) <= LOG_MAXIMUM else f"{line[: LOG_MAXIMUM - 1]}…"
        kept.append(line)
        size += len(line)
        while size > LOG_MAXIMUM or len(kept) > LINES_MAXIMUM:
            size -= len(kept.popleft())
    return tuple(kept)
