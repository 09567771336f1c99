"""A list read page by page: all its pages of one version, begun anew where one came too late, never pieced together."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from holdfast.activities.kube.errors import Gone, Unreachable
from holdfast.activities.kube.http import Object

BEGUN_ANEW: Final = 5
"""How often at most a list is begun anew. Versions are let go of every few minutes, and a list takes seconds."""
PAUSE_FIRST: Final = 0.2
"""Seconds before a list is begun anew, doubled each time."""

Ask = Callable[[dict[str, str]], Awaitable[Object]]


class _TooLate(Exception):
    """A page was asked for whose version the server does not have any more."""


async def whole_list(ask: Ask, query: Mapping[str, str], keep: Callable[[Object], Any] | None) -> Object:
    """Return a list with the items of all its pages, or what `keep` makes of them, and the version that it shows.

    To a page that comes too late (410) the server adds a token by which to go on, at a later version: what was moved
    or made meanwhile would be neither on the pages read nor on those to come. So what was read is let go of, and the
    list begun anew, in pages too: absence is concluded from it.

    Raises:
        Unreachable: if pages come too late again and again: nothing is known.
        KubeError: what a page was answered by.
    """
    first = dict(query)
    for nth in range(BEGUN_ANEW + 1):
        if nth:
            await asyncio.sleep(PAUSE_FIRST * 2 ** (nth - 1) * random.uniform(0.5, 1))
            # What is read the second time is no older than what was read the first time.
            first.pop("resourceVersion", None)
        try:
            return await _pages(ask, first, keep)
        except _TooLate:
            continue
    raise Unreachable(410, "Expired", f"a list was begun {BEGUN_ANEW + 1} times, and each time a page came too late")


async def _pages(ask: Ask, query: dict[str, str], keep: Callable[[Object], Any] | None) -> Object:
    whole = await ask(query)
    items = _kept(whole, keep)
    token = whole["metadata"].get("continue", "")
    # A token has its version in it: the server refuses another beside it.
    further = {key: value for key, value in query.items() if key != "resourceVersion"}
    while token:
        try:
            page = await ask({**further, "continue": token})
        except Gone:
            raise _TooLate from None
        items += _kept(page, keep)
        token = page["metadata"].get("continue", "")
    whole["items"] = items
    return whole


def _kept(page: Object, keep: Callable[[Object], Any] | None) -> list[Any]:
    """Take a page's items, and return what is to be kept of them."""
    items: list[Any] = page.pop("items", None) or []
    return items if keep is None else [kept for kept in map(keep, items) if kept is not None]
