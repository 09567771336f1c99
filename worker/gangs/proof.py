"""Finds the pod that a token proves: checks it, has it reviewed, keeps the answer for a minute (record 0071)."""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, cast

from holdfast import names
from holdfast.worker.gangs.keys import Claim, KeyReader, Keys, Proof, Unproven
from holdfast.worker.gangs.limits import Buckets, Limited

KEPT: Final = 60.0
"""Seconds for which a review is valid. If the pod goes in that time, the watch shows it."""
REFUSED_KEPT: Final = 5.0
KEPT_MAXIMUM: Final = 16_384
AT_ONCE: Final = 256
"""Reviews of tokens not known before that run or wait at once."""
_ACCOUNT: Final = "system:serviceaccount:"
_POD_NAME: Final = "authentication.kubernetes.io/pod-name"
_POD_UID: Final = "authentication.kubernetes.io/pod-uid"


class Reviewer(KeyReader, Protocol):
    """Reviews tokens, as `WorkerKube` does."""

    async def review_token(self, token: str, audience: str) -> Any:
        """Return the status of a TokenReview."""
        ...


class Checked(NamedTuple):
    """A token that may be accepted, and what it says."""

    token: str
    digest: bytes
    claim: Claim
    source: str


class Proofs:
    """Reviews tokens, each once a minute, however often it is presented.

    The tokens that the API server has signed for a pod have a few reviews. Where its keys cannot be read, a source has
    a few reviews of tokens that are refused, and all sources have a rate; a token accepted before is not limited.
    """

    def __init__(
        self,
        kube: Reviewer,
        clock: Callable[[], float] | None = None,
        note: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Start with an empty cache.

        Args:
            kube: reviews tokens and reads keys; a client of its own, whose requests nothing else waits for.
            clock: the event loop's unless one is given.
            note: is told why the API server's keys cannot be read, and nothing once they can.
        """
        self._kube = kube
        self._clock = clock or asyncio.get_running_loop().time
        self._keys = Keys(kube, self._clock, note)
        self._accepted: OrderedDict[bytes, tuple[float, Proof]] = OrderedDict()
        self._refused: OrderedDict[bytes, tuple[float, str]] = OrderedDict()
        self._asking: dict[bytes, asyncio.Future[Proof | str]] = {}
        self._by_source: Buckets[str] = Buckets(per_second=1, burst=20)
        """What a source may have refused, whether by a check or by a review."""
        self._by_pod: Buckets[str] = Buckets(per_second=0.1, burst=5)
        """Reviews of tokens that the API server has signed for a pod."""
        self._unsigned: Buckets[None] = Buckets(per_second=20, burst=40)
        """Reviews of tokens whose signature could not be checked."""

    async def check(self, token: str, source: str) -> Checked:
        """Check a token without a review.

        Args:
            token: the token.
            source: the address that it came from; charged if it is refused.

        Raises:
            Unproven: if it certainly proves nothing.
            Limited: if so, and its source has had too many refused.
        """
        digest = hashlib.sha256(token.encode()).digest()
        known = self._accepted.get(digest)
        if known is not None and self._clock() < known[0]:
            return Checked(token, digest, Claim(known[1], True), source)
        try:
            return Checked(token, digest, await self._keys.check(token), source)
        except Unproven as unproven:
            self._by_source.take(source, self._clock(), str(unproven))
            raise

    async def of(self, checked: Checked) -> Proof:
        """Return the pod that a token proves, by a review unless one is known.

        Raises:
            Unproven: if it proves none.
            Limited: if it cannot be reviewed now.
            KubeError: if the API server cannot be reached or refuses.
        """
        now, digest = self._clock(), checked.digest
        known, refused = self._accepted.get(digest), self._refused.get(digest)
        if known is not None and now < known[0]:
            return known[1]
        if refused is not None and now < refused[0]:
            self._by_source.take(checked.source, now, refused[1])
            raise Unproven(refused[1])
        asking = self._asking.get(digest)
        if asking is None:
            charged = self._charge(checked, now, is_known=known is not None)
            asking = self._asking[digest] = asyncio.ensure_future(self._review(checked, charged))
            asking.add_done_callback(lambda _: self._asking.pop(digest, None))
        # The caller may be cancelled meanwhile, while others wait for the same answer.
        found = await asyncio.shield(asking)
        if isinstance(found, str):
            raise Unproven(found)
        return found

    def _charge(self, checked: Checked, now: float, *, is_known: bool) -> bool:
        """Charge for a review, or raise Limited and charge nobody; return whether its source is charged."""
        if not is_known and len(self._asking) >= AT_ONCE:
            raise Limited(1, "too many reviews run")
        if checked.claim.signed:
            self._by_pod.take(checked.claim.proof.pod_uid, now, "its pod has had too many tokens reviewed")
        elif not is_known:
            self._unsigned.take(None, now)
            try:
                self._by_source.take(checked.source, now, "tokens cannot be checked without a review")
            except Limited:
                self._unsigned.give_back(None, now)
                raise
            return True
        return False

    async def _review(self, checked: Checked, charged: bool) -> Proof | str:
        """Have a token reviewed; its source, if it was charged, is charged for a refusal only."""
        refused = False
        try:
            found = proof(await self._kube.review_token(checked.token, names.RENDEZVOUS_AUDIENCE))
            refused = isinstance(found, str)
        finally:
            if charged and not refused:
                self._by_source.give_back(checked.source, self._clock())
        if isinstance(found, Proof):
            _keep(self._accepted, checked.digest, (self._clock() + KEPT, found))
        else:
            self._accepted.pop(checked.digest, None)
            _keep(self._refused, checked.digest, (self._clock() + REFUSED_KEPT, found))
        return found


def _keep(kept: OrderedDict[bytes, tuple[float, Any]], digest: bytes, value: tuple[float, Any]) -> None:
    kept[digest] = value
    kept.move_to_end(digest)
    if len(kept) > KEPT_MAXIMUM:
        kept.popitem(last=False)


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
