"""Where pods have saved their state, as a removal tells it to its next try: in bounded space (row L19). Pure."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from itertools import islice

from holdfast.model.calls.cluster import Progress

_PLACES = 2
_SAVED_MAXIMUM = 65_536
"""How many pods a heartbeat tells to have saved: it takes at most 1 MB, of 2 MB that Temporal accepts."""


def by_place(saved: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return where pods have saved, by the digest of their uid, as a heartbeat tells it, which is bounded.

    It tells of two places: further ones can only disagree, as the second does already. Of pods beyond `_SAVED_MAXIMUM`
    it tells nothing: the next try counts them as unsaved, unless it finds them itself.
    """
    places: dict[str, list[str]] = {}
    for digest, uri in islice(saved.items(), _SAVED_MAXIMUM):
        place = uri if uri in places or len(places) < _PLACES else next(reversed(places))
        places.setdefault(place, []).append(digest)
    return {place: tuple(digests) for place, digests in places.items()}


def told_of(before: Progress) -> dict[str, str]:
    """Return where pods have saved, by the digest of their uid, from a heartbeat of any release."""
    told = {digest: place for place, digests in before.places.items() for digest in digests}
    return {digest_of_uid(uid): uri for uid, uri in before.saved.items()} | told


def digest_of_uid(uid: str) -> str:
    """Return a short name of a pod."""
    return base64.urlsafe_b64encode(hashlib.sha256(uid.encode()).digest()[:9]).decode()
