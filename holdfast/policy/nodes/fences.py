"""Fences beside other requests for machines: how many are remembered, and how many run at once (D10). Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Set
from typing import Final

from holdfast.model.entities.provisioner import FenceNews, NodeRequest, ProvisionerState
from holdfast.model.words import counted

FENCES_BYTES: Final = 640 * 1024
"""The bytes of the provisioner's memory that fences may use, however much else is pending."""
BEGUN_AT_ONCE: Final = 64
"""How many fences run at the same time; for one service, as many as other requests."""
LOOKED_UP_AT_ONCE: Final = 100
"""How many requests have their provisioning service looked up at the same time."""
_FIELDS: Final = 400
"""The size in bytes of a request's JSON without its texts."""
_SAID: Final = 200
"""The length in characters of a try's message."""


def has_room(state: ProvisionerState, request: NodeRequest) -> bool:
    """Whether one more fence fits into the memory for fences."""
    there = sum(_size(one) for one in state.pending if one.fence) + sum(_size_of_news(one) for one in state.news)
    return there + _size(request) <= FENCES_BYTES


def yields(state: ProvisionerState) -> NodeRequest | None:
    """Return the fence that makes room for another: the last untried one that waits for a service that is away."""
    waiting = (one for one in reversed(state.pending) if one.fence and one.begun is None)
    return next((one for one in waiting if one.service in state.away), None)


class Places:
    """The free places for requests to begin; fences have places of their own."""

    def __init__(self, state: ProvisionerState, busy: Set[int]) -> None:
        """Count the requests that are under way."""
        there = [one for one in state.pending if one.number in busy]
        self._at_once = state.at_once
        self._looked_up = sum(not one.enlisted for one in there)
        self._others = sum(one.enlisted and not one.fence for one in there)
        self._fences = Counter(one.service for one in there if one.enlisted and one.fence)

    def look_up(self) -> bool:
        """Take a place for looking up a provisioning service, if one is free."""
        self._looked_up += 1
        return self._looked_up <= LOOKED_UP_AT_ONCE

    def take(self, request: NodeRequest) -> bool:
        """Take a place for a request, if one is free."""
        if self.lacks(request):
            return False
        if request.fence:
            self._fences[request.service] += 1
        else:
            self._others += 1
        return True

    def lacks(self, request: NodeRequest) -> str:
        """Return why a request gets no place, for people; empty if it gets one."""
        if not request.fence:
            return _most(counted(self._others, "request")) if self._others >= self._at_once else ""
        of_service, all_fences = self._fences[request.service], self._fences.total()
        if of_service >= self._at_once:
            return _most(f"{counted(of_service, 'fence')} of {request.service}")
        return _most(counted(all_fences, "fence")) if all_fences >= BEGUN_AT_ONCE else ""


def _most(what: str) -> str:
    return f"waits for its turn: {what} under way, and no more at once"


def _size(request: NodeRequest) -> int:
    """Return the largest size of a fence as JSON; fields that are not known yet count as long."""
    texts = (request.node, request.uid, request.renewed, request.why, request.by)
    service = _bytes(request.service) if request.service else _bytes(request.node) + 64
    return _FIELDS + sum(map(_bytes, texts)) + service + max(_SAID, _bytes(request.said))


def _size_of_news(news: FenceNews) -> int:
    return _FIELDS + sum(map(_bytes, (news.node, news.uid, news.renewed, news.why)))


def _bytes(text: str) -> int:
    return len(text.encode())
