"""Checks a token without a review: its signature by the API server's published keys, then its claims (row X9)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, Protocol, cast

import jwt
import structlog
from jwt.exceptions import ExpiredSignatureError, ImmatureSignatureError, InvalidAudienceError, InvalidIssuerError

from holdfast import names
from holdfast.activities.kube.client import KubeError, Object, Unreachable

READ_AGAIN: Final = 10.0
"""Seconds between two reads of the keys, whatever tokens come."""
LEEWAY: Final = 60.0
"""Seconds by which this machine's clock may differ from the API server's. The review that follows is exact."""
_ALGORITHMS: Final = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
)
_ACCOUNT: Final = "system:serviceaccount:"
_CLAIMS: Final = "kubernetes.io"

Log: Any = structlog.stdlib.get_logger("holdfast.gangs")


class Unproven(Exception):
    """The token is not accepted; the message says why."""


class Proof(NamedTuple):
    """The pod that a token was made for."""

    namespace: str
    pod: str
    pod_uid: str


class Claim(NamedTuple):
    """What a token says of itself."""

    proof: Proof
    signed: bool
    """Whether the API server has signed it; False if its keys cannot be read, so that only a review can tell."""


class KeyReader(Protocol):
    """Reads the API server's published keys, as `WorkerKube` does."""

    async def published_keys(self) -> tuple[str, list[Object]]:
        """Return the issuer of tokens, and the keys that they are signed with."""
        ...


class Keys:
    """The API server's keys, read when first needed, and again when a token is signed with another one."""

    def __init__(
        self, kube: KeyReader, clock: Callable[[], float], note: Callable[[str], None] = lambda _: None
    ) -> None:
        """Start without keys; `note` is told why they cannot be read, and nothing once they can."""
        self._kube, self._clock, self._note = kube, clock, note
        self._keys: dict[str, jwt.PyJWK] = {}
        self._issuers: tuple[str, ...] = ()
        """The issuer, and the one before: the API server accepts its tokens until they run out."""
        self._problem: str | None = None
        """Why they could not be read; empty: they could; None: not tried yet."""
        self._next = 0.0
        self._reading: asyncio.Task[None] | None = None

    async def check(self, token: str) -> Claim:
        """Return what a token says, if it may be accepted.

        Raises:
            Unproven: if it certainly may not.
        """
        try:
            header = jwt.get_unverified_header(token)
            key = await self._key(str(header.get("kid") or ""))
            try:
                claims = self._decoded(token, key)
            except InvalidIssuerError:
                await self._refresh()  # The cluster may have another issuer by now.
                claims = self._decoded(token, key)
        except (ExpiredSignatureError, ImmatureSignatureError):
            raise Unproven("the token has run out, or is not valid yet") from None
        except InvalidAudienceError:
            raise Unproven(f"the token is not for the audience {names.RENDEZVOUS_AUDIENCE}") from None
        except InvalidIssuerError:
            raise Unproven("the token is not one of this cluster") from None
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
            raise Unproven("the token is not one that this cluster has signed") from None
        return Claim(_pod(claims), key is not None)

    async def _key(self, kid: str) -> jwt.PyJWK | None:
        """Return a key; None if none can be read.

        Raises:
            Unproven: if the keys can be read, and this one is not among them.
        """
        if kid not in self._keys:
            await self._refresh()
        if not self._keys:
            return None
        if kid not in self._keys:
            raise Unproven("the token is not signed with a key that this cluster publishes")
        return self._keys[kid]

    async def _refresh(self) -> None:
        """Read the keys again, unless they have just been read."""
        if self._reading is None and self._clock() < self._next:
            return
        if self._reading is None:
            self._reading = asyncio.ensure_future(self._read())
            self._reading.add_done_callback(self._read_done)
        await asyncio.shield(self._reading)

    def _decoded(self, token: str, key: jwt.PyJWK | None) -> Mapping[str, Any]:
        needed = ["exp", "iss", "aud", "sub"]
        if key is None:
            checks: Any = {"verify_signature": False, "verify_exp": True, "verify_aud": True, "require": needed}
            return jwt.decode(token, options=checks, audience=names.RENDEZVOUS_AUDIENCE, leeway=LEEWAY)
        return jwt.decode(
            token,
            key,
            algorithms=[key.algorithm_name],
            audience=names.RENDEZVOUS_AUDIENCE,
            issuer=self._issuers,
            leeway=LEEWAY,
            options={"require": needed},
        )

    async def _read(self) -> None:
        try:
            issuer, published = await self._kube.published_keys()
        except KubeError as error:
            if not isinstance(error, Unreachable):
                self._keys = {}  # Those that are known stay while nothing is known of others.
            self._say("" if self._keys else error.message)
        else:
            self._keys = {str(one.get("kid")): key for one in published if (key := _usable(one)) is not None}
            self._issuers = tuple(dict.fromkeys((issuer, *self._issuers)))[:2]
            self._say("" if self._keys else "none of those that it publishes can be used")
        self._next = self._clock() + READ_AGAIN

    def _read_done(self, _: asyncio.Task[None]) -> None:
        self._reading = None

    def _say(self, problem: str) -> None:
        """Log, and note for the health page, what has changed."""
        if self._problem is not None and bool(problem) == bool(self._problem):
            return
        self._problem = problem
        if problem:
            Log.warning("tokens are only reviewed: the API server's keys cannot be read", why=problem)
        else:
            Log.info("tokens are checked by the API server's keys before a review", keys=len(self._keys))
        self._note(f"tokens are only reviewed: the API server's keys cannot be read: {problem}" if problem else "")


def _usable(published: Object) -> jwt.PyJWK | None:
    try:
        key = jwt.PyJWK(published)
    except (jwt.PyJWTError, ValueError):
        return None
    return key if key.algorithm_name in _ALGORITHMS else None


def _pod(claims: Mapping[str, Any]) -> Proof:
    account = str(claims.get("sub") or "")
    bound: Any = claims.get(_CLAIMS)
    bound = cast("Mapping[str, Any]", bound) if isinstance(bound, Mapping) else {}
    pod: Any = bound.get("pod")
    pod = cast("Mapping[str, Any]", pod) if isinstance(pod, Mapping) else {}
    namespace, name, uid = (str(one or "") for one in (bound.get("namespace"), pod.get("name"), pod.get("uid")))
    if not (namespace and name and uid):
        raise Unproven("the token is not bound to a pod: expected the one that is mounted into it")
    if not account.startswith(f"{_ACCOUNT}{namespace}:"):
        raise Unproven(f"the token is not of a service account of namespace {namespace}")
    return Proof(namespace, name, uid)
