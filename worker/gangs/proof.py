"""Finds the pod that a token proves: asks the API server, and caches the answer for a minute (decision record 0030)."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, cast

from holdfast import names

KEPT: Final = 60.0
"""Seconds for which a review is valid. If the pod goes in that time, the watch shows it."""
REFUSED_KEPT: Final = 5.0
KEPT_MAXIMUM: Final = 16_384
_ACCOUNT: Final = "system:serviceaccount:"
_POD_NAME: Final = "authentication.kubernetes.io/pod-name"
_POD_UID: Final = "authentication.kubernetes.io/pod-uid"


class Unproven(Exception):
    """The token is not accepted; the message says why."""


class Proof(NamedTuple):
    """The pod that a token was made for."""

    namespace: str
    pod: str
    pod_uid: str


class Reviewer(Protocol):
    """Reviews tokens, as `WorkerKube` does."""

    async def review_token(self, token: str, audience: str) -> Any:
        """Return the status of a TokenReview."""
        ...


class Proofs:
    """Reviews tokens, each once a minute, however often it is presented."""

    def __init__(self, kube: Reviewer, clock: Callable[[], float] | None = None) -> None:
        """Start with an empty cache; the clock is the event loop's unless one is given."""
        self._kube = kube
        self._clock = clock or asyncio.get_running_loop().time
        self._known: dict[bytes, tuple[float, Proof | str]] = {}
        self._asking: dict[bytes, asyncio.Future[Proof | str]] = {}

    async def of(self, token: str) -> Proof:
        """Return the pod that a token proves.

        Raises:
            Unproven: if it proves none.
            KubeError: if the API server cannot be reached or refuses.
        """
        digest = hashlib.sha256(token.encode()).digest()
        known = self._known.get(digest)
        if known is not None and self._clock() < known[0]:
            return _accepted(known[1])
        asking = self._asking.get(digest)
        if asking is None:
            asking = self._asking[digest] = asyncio.ensure_future(self._review(digest, token))
            asking.add_done_callback(lambda _: self._asking.pop(digest, None))
        # The caller may be cancelled meanwhile, while others wait for the same answer.
        return _accepted(await asyncio.shield(asking))

    async def _review(self, digest: bytes, token: str) -> Proof | str:
        found = proof(await self._kube.review_token(token, names.RENDEZVOUS_AUDIENCE))
        now = self._clock()
        if len(self._known) >= KEPT_MAXIMUM:
            self._known = {key: one for key, one in self._known.items() if now < one[0]}
        if len(self._known) < KEPT_MAXIMUM:
            self._known[digest] = (now + (KEPT if isinstance(found, Proof) else REFUSED_KEPT), found)
        return found


def proof(status: Mapping[str, Any]) -> Proof | str:
    """Return the pod that a review's status proves, or a message why it proves none."""
    if not status.get("authenticated"):
        return f"the token is not accepted: {status.get('error') or 'it is not one of this cluster, or has run out'}"
    if names.RENDEZVOUS_AUDIENCE not in cast("Sequence[str]", status.get("audiences") or ()):
        return f"the token is not for the audience {names.RENDEZVOUS_AUDIENCE}"
    user: Mapping[str, Any] = status.get("user") or {}
    name, extra = str(user.get("username") or ""), cast("Mapping[str, Sequence[str]]", user.get("extra") or {})
    namespace = name.removeprefix(_ACCOUNT).partition(":")[0] if name.startswith(_ACCOUNT) else ""
    pod, uid = next(iter(extra.get(_POD_NAME) or ()), ""), next(iter(extra.get(_POD_UID) or ()), "")
    if not (namespace and pod and uid):
        return "the token is not bound to a pod: expected the one that is mounted into it"
    return Proof(namespace, pod, uid)


def _accepted(found: Proof | str) -> Proof:
    if isinstance(found, str):
        raise Unproven(found)
    return found
