"""The API server's errors: one exception for each case that a caller must tell apart."""

from __future__ import annotations

import math
import ssl
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from holdfast import names

RETRY_AFTER_MAXIMUM: Final = 30.0
"""Seconds. Whoever answers in the API server's place, such as a proxy, might keep us away for ever."""


class Cause(NamedTuple):
    """One field that the API server refuses, by its path within the object (`spec.containers[0].image`), and why."""

    field: str
    message: str


class KubeError(Exception):
    """The API server refused a request, or could not be asked; `status` is the HTTP status, 0 without an answer."""

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        retry_after: float | None = None,
        causes: tuple[Cause, ...] = (),
    ) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after
        """Seconds to wait before the next request, if the server says so: at most `RETRY_AFTER_MAXIMUM`."""
        self.causes = causes
        """The refused fields, if the server names them."""


class NotFound(KubeError):
    """404: there is no such object."""


class UnknownKind(NotFound):
    """The cluster does not serve this kind."""


class Conflict(KubeError):
    """409: a precondition (uid, version) does not hold, or the object has changed meanwhile."""


class AlreadyExists(Conflict):
    """409: there is an object of that name."""


class Gone(KubeError):
    """410: the version or page asked for is too old."""


class Forbidden(KubeError):
    """403: the user may not do this."""


class QuotaExceeded(Forbidden):
    """403: a resource quota of the namespace is used up; it may be free again later."""


class Invalid(KubeError):
    """400, 405, 415 or 422: the request can never succeed as it is."""


class WebhookFailed(KubeError):
    """500: an admission webhook could not be called. The API server itself is well."""


REFUSED: Final = (Forbidden, Invalid, WebhookFailed)
"""How a change of one object is refused, by a right, a policy or a webhook: others may succeed."""


class Unreachable(KubeError):
    """No answer, or no usable one: connection error, time-out, 5xx, 429. Nothing is known."""

    def blinding(self, method: str) -> bool:
        """Whether the cluster cannot be seen, rather than only one change failed."""
        return method == "GET" or self.status != 500

    @property
    def is_one_kinds(self) -> bool:
        """Whether only this kind's server or webhook may be down: then other requests are answered."""
        return self.status not in (0, 401, 429)

    def partial(self, path: str) -> bool:
        """Whether this may concern only one kind (its webhook, its own API server), or one node's kubelet."""
        if self.status < 500:
            return False
        if is_log(path):
            return True
        group = path.removeprefix("/apis/").partition("/")[0] if path.startswith("/apis/") else ""
        return "." in group and group != names.GROUP


def is_log(path: str) -> bool:
    """Whether a path is that of a pod's log: a kubelet answers it, and the API server only passes it on."""
    return path.startswith("/api/v1/namespaces/") and path.endswith("/log")


class Unauthorized(Unreachable):
    """401: the server does not accept our credentials; until it does, nothing is known."""


def error_of(
    code: int, status: Mapping[str, Any], method: str, path: str, headers: Mapping[str, str] | None = None
) -> KubeError:
    """Return the exception for an error answer."""
    reason = str(status.get("reason") or "")
    message = str(status.get("message") or f"{method} {path}: HTTP {code} {reason}".strip())
    kind: type[KubeError]
    match code:
        case 401:
            kind = Unauthorized
        case 403:
            kind = QuotaExceeded if "exceeded quota" in message else Forbidden
        case 404:
            # A missing object is answered with a Status; this text is the answer for a path that is not served at all.
            kind = UnknownKind if message.startswith("404 page not found") else NotFound
        case 409:
            kind = AlreadyExists if reason == "AlreadyExists" else Conflict
        case 410:
            kind = Gone
        case 429:
            kind = Unreachable
        case 500 if method != "GET" and "failed calling webhook" in message:
            kind = WebhookFailed
        case _ if code >= 500:
            kind = Unreachable
        case _:
            kind = Invalid
    return kind(code, reason, message, _retry_after(status, headers), _causes(status))


def _causes(status: Mapping[str, Any]) -> tuple[Cause, ...]:
    details: Any = status.get("details") or {}
    given: Any = details.get("causes") or ()
    return tuple(Cause(str(one.get("field") or ""), str(one.get("message") or "")) for one in given)


def _retry_after(status: Mapping[str, Any], headers: Mapping[str, str] | None) -> float | None:
    details: Any = status.get("details") or {}
    for value in ((headers or {}).get("Retry-After"), details.get("retryAfterSeconds")):
        if value:
            try:
                seconds = float(value)
            except (TypeError, ValueError, OverflowError):
                continue
            if math.isfinite(seconds) and seconds >= 0:
                return min(seconds, RETRY_AFTER_MAXIMUM)
    return None


def of_configuration(error: Exception) -> str:
    """Return why a kubeconfig cannot be used, without what it holds: the library's messages may quote a token. Pure."""
    if isinstance(error, OSError):
        return error.strerror or str(error.reason if isinstance(error, ssl.SSLError) else "") or type(error).__name__
    if isinstance(error, TypeError | AttributeError | KeyError):
        return "it is no kubeconfig"  # Empty, or of another form: the library has no words for it.
    return str(error).partition("{")[0].partition("[")[0].rstrip(" :/") or type(error).__name__
