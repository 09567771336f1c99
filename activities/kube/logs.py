"""Reads the logs of containers as they come, in bounded memory."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Final, NamedTuple

import aiohttp

from holdfast.activities.kube.errors import Invalid
from holdfast.activities.kube.http import Transport
from holdfast.model.words import shortened

PART: Final = 65_536
"""Bytes of a line that are kept at once: a longer line comes in parts."""


_STAMP: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S*")


class LogLine(NamedTuple):
    """A line of a log, or a part of a long one."""

    at: str
    """When it was written: RFC 3339 with nanoseconds, in UTC, always of the same length, so that it sorts as text."""
    text: str


async def log_lines(
    kube: Transport,
    namespace: str,
    pod: str,
    container: str,
    *,
    follow: bool = False,
    previous: bool = False,
    tail: int | None = None,
    since: str = "",
    impersonate: str = "",
) -> AsyncGenerator[LogLine]:
    """Yield the lines of a container's log, until its end or, with `follow`, until the container ends.

    Args:
        kube: the client, with the rights of whoever asks.
        namespace: the pod's namespace.
        pod: the pod's name. The API server takes no uid here: the caller checks whose log it is.
        container: the container's name.
        follow: whether to wait for further lines.
        previous: whether to read the container's instance before its last restart.
        tail: at most so many lines from the end; None: all.
        since: an RFC 3339 time: the log begins with the second that it is in.
        impersonate: the user as which it is read; empty: the client's own.

    Raises:
        NotFound: if there is no such pod.
        Invalid: if the container has not started, or the kubelet has removed its log.
        Unreachable: if the API server or the node's kubelet does not answer.
    """
    query = {"container": container, "timestamps": "true"}
    query |= {"follow": "true"} if follow else {}
    query |= {"previous": "true"} if previous else {}
    query |= {"tailLines": str(tail)} if tail is not None else {}
    query |= {"sinceTime": since} if since else {}
    silence = None if follow else kube.timeout
    deadline = aiohttp.ClientTimeout(total=None, sock_connect=kube.connect_timeout, sock_read=silence)
    path, at = f"/api/v1/namespaces/{namespace}/pods/{pod}/log", ""
    async with kube.streamed(path, query, deadline, impersonate) as response:
        async for part, begins in parts(response.content.iter_any(), PART):
            text = part.decode(errors="replace")
            if begins:
                at, _, written = text.partition(" ")
                if not _STAMP.fullmatch(at):
                    raise Invalid(400, "BadRequest", shortened(text))  # The kubelet's own words instead of a log.
                text = written
            yield LogLine(at, text.removesuffix("\r"))


async def parts(chunks: AsyncIterator[bytes], at_most: int) -> AsyncGenerator[tuple[bytes, bool]]:
    """Yield lines in parts of at most so many bytes, each with whether it begins a line. Pure."""
    rest, begins = b"", True
    async for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            for at in range(0, len(line) or 1, at_most):
                yield line[at : at + at_most], begins and not at
            begins = True
        while len(rest) > at_most:
            yield rest[:at_most], begins
            rest, begins = rest[at_most:], False
    if rest:
        yield rest, begins
