"""Bounds on what a source may ask for: token buckets in bounded memory, and the network that an address counts for."""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from typing import Final, Generic, TypeVar

KEYS_MAXIMUM: Final = 4096
_NETWORK: Final = 64
"""Length of the IPv6 prefix that counts as one source: whoever has one address there has all of them."""

K = TypeVar("K")


class Limited(Exception):
    """A source has asked too often."""

    def __init__(self, seconds: float, why: str = "") -> None:
        """Say after how many seconds it may ask again, and why it is charged."""
        super().__init__(f"too many requests: announce again in {seconds:.0f} s" + (f" ({why})" if why else ""))
        self.seconds = seconds


class Buckets(Generic[K]):
    """One token bucket a key. Of more keys than fit, those used longest ago are forgotten: their buckets are full."""

    def __init__(self, per_second: float, burst: int, at_most: int = KEYS_MAXIMUM) -> None:
        """Fill each bucket with `burst` tokens, and with `per_second` more as time passes."""
        self._rate, self._burst, self._at_most = per_second, burst, at_most
        self._left: OrderedDict[K, tuple[float, float]] = OrderedDict()
        """The tokens of each key, and when they were counted."""

    def take(self, key: K, now: float, why: str = "") -> None:
        """Take one token; `why` it is charged is told with a refusal.

        Raises:
            Limited: if there is none.
        """
        tokens = self._tokens(key, now)
        if tokens < 1:
            raise Limited(max(1.0, (1 - tokens) / self._rate), why)
        self._put(key, tokens - 1, now)

    def give_back(self, key: K, now: float) -> None:
        """Return a token that was taken."""
        self._put(key, min(self._burst, self._tokens(key, now) + 1), now)

    def __len__(self) -> int:
        """Return the number of keys that are remembered."""
        return len(self._left)

    def _tokens(self, key: K, now: float) -> float:
        tokens, at = self._left.get(key, (float(self._burst), now))
        return min(float(self._burst), tokens + (now - at) * self._rate)

    def _put(self, key: K, tokens: float, now: float) -> None:
        self._left[key] = (tokens, now)
        self._left.move_to_end(key)
        if len(self._left) > self._at_most:
            self._left.popitem(last=False)


def source_of(address: str) -> str:
    """Return what an address counts for: itself, or its network if it is of IPv6."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.ipv4_mapped is not None:
            return str(ip.ipv4_mapped)
        return str(ipaddress.ip_network((ip, _NETWORK), strict=False))
    return str(ip)
