"""Reads a list page by page, all of one version; if a page comes too late, reads the list again from the start."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from holdfast.activities.kube.errors import Gone, Unreachable
from holdfast.activities.kube.http import Object

BEGUN_ANEW: Final = 5
"""How often a list is started again at most. The server drops versions every few minutes; a list takes seconds."""
PAUSE_FIRST: Final = 0.2
"""Seconds before a list is started again, doubled each time."""

Ask = Callable[[dict[str, str]], Awaitable[Object]]


class _TooLate(Exception):
    """The server no longer has the version of a requested page."""


async def whole_list(ask: Ask, query: Mapping[str, str], keep: Callable[[Object], Any] | None) -> Object:
    """Return a list with the items of all its pages, or what `keep` makes of them, and the version that it shows.

    When a page comes too late (410), the server offers a token to continue at a later version. An object that was
    moved or made meanwhile could then be missing from the pages read and from those to come. Callers conclude absence
    from a list, so the pages read are discarded, and the list is started again, also in pages.

    Raises:
        Unreachable: if pages come too late every time: nothing is known.
        KubeError: the error that a page failed with.
    """
    first = dict(query)
    for nth in range(BEGUN_ANEW + 1):
        if nth:
            await asyncio.sleep(PAUSE_FIRST * 2 ** (nth - 1) * random.uniform(0.5, 1))  # noqa: S311 - spreads load
            # Without a version it is a quorum read, so the second list is no older than the first.
            first.pop("resourceVersion", None)
        try:
            return await _pages(ask, first, keep)
        except _TooLate:
            continue
    raise Unreachable(410, "Expired", f"a list was begun {BEGUN_ANEW + 1} times, and each time a page came too late")


async def _pages(ask: Ask, query: dict[str, str], keep: Callable[[Object], Any] | None) -> Object:
    whole = await ask(query)
    items = _take_items(whole, keep)
    token = whole["metadata"].get("continue", "")
    # A token contains its version: the server refuses a second version beside it.
    further = {key: value for key, value in query.items() if key != "resourceVersion"}
    while token:
        try:
            page = await ask({**further, "continue": token})
        except Gone:
            raise _TooLate from None
        items += _take_items(page, keep)
        token = page["metadata"].get("continue", "")
    whole["items"] = items
    return whole


def _take_items(page: Object, keep: Callable[[Object], Any] | None) -> list[Any]:
    """Remove the items from a page, and return what is kept of them."""
    items: list[Any] = page.pop("items", None) or []
    return items if keep is None else [kept for kept in map(keep, items) if kept is not None]
