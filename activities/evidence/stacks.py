"""Asks running pods for the stacks of their programs, where they tell their steps over HTTP (row P3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import aiohttp
from yarl import URL

from holdfast.activities.facts.pod_address import own_address, pod_url
from holdfast.activities.facts.pods import PodFacts, PodState, pod_facts
from holdfast.activities.kube.http import body_of
from holdfast.model.life.evidence import StacksRequest
from holdfast.model.words import plain, shortened
from holdfast.progress import STACKS_MAXIMUM, STACKS_PATH

TIMEOUT: Final = 4.0
"""Seconds that a pod has to answer: `holdfast.progress` waits 2 s for its program."""
_WHY_MAXIMUM: Final = 200


class NoStacks(Exception):
    """A pod that should tell stacks does not; the text says why."""


def asked_for_stacks(request: StacksRequest | None, pods: Iterable[Mapping[str, Any]]) -> list[tuple[PodFacts, str]]:
    """Return the URLs of the pods that can be asked: those that run, and have an address of their own. Pure."""
    if request is None:
        return []
    found = [(pod_facts(raw), own_address(raw)) for raw in pods]
    return [
        (pod, pod_url(address, request.port, STACKS_PATH))
        for pod, address in found
        if address and pod.state is PodState.RUNNING and (not request.components or pod.component in request.components)
    ]


async def read_stacks(url: str) -> tuple[str, ...]:
    """Return the lines of the stacks that a pod tells, at most 64 KiB of them; empty if its server knows no stacks.

    Raises:
        NoStacks: if it does not answer in time, or has none now.
    """
    timeout, headers = aiohttp.ClientTimeout(total=TIMEOUT), {"User-Agent": "holdfast-evidence"}
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, headers=headers, auto_decompress=False) as session,
            session.get(URL(url, encoded=True), allow_redirects=False) as response,
        ):
            told = await body_of(response, STACKS_MAXIMUM)
    except TimeoutError:
        raise NoStacks(f"no answer within {TIMEOUT:.0f} s") from None
    except (OSError, aiohttp.ClientError) as error:
        raise NoStacks(str(error)) from None
    text = told.decode(errors="replace")
    if response.content_type != "text/plain" or response.status == 404:
        return ()
    if response.status != 200:
        raise NoStacks(shortened(plain(text.strip()), _WHY_MAXIMUM) or f"HTTP {response.status}")
    return tuple(text.splitlines())
