"""The span of a request at the Kubernetes API: verb, resource, namespace and status; no object's name, no body."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

_PATH: Final = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/v[^/]+(?:/namespaces/(?P<namespace>[^/]+))?"
    r"/(?P<plural>[^/]+)(?:/(?P<name>[^/]+)(?:/(?P<part>[^/]+).*)?)?"
)
_CHANGES: Final = {"POST": "create", "PUT": "update", "PATCH": "patch"}


class ApiRequest(NamedTuple):
    """What a request is about, in Kubernetes' words.

    Attributes:
        verb: `get`, `list`, `create`, …; the method of a request for something else than resources.
        resource: `pods/log`, `batch/jobs`; empty for something else, such as discovery.
        namespace: Empty for what has none.
    """

    verb: str
    resource: str = ""
    namespace: str = ""


def api_request(method: str, url: str) -> ApiRequest:
    """Return what a request is about."""
    parts = urlsplit(url)
    found = _PATH.fullmatch(parts.path)
    if found is None:
        return ApiRequest(method)
    resource = "/".join(filter(None, found.group("group", "plural", "part")))
    return ApiRequest(
        _verb(method, bool(found["name"]), "watch=1" in parts.query), resource, unquote(found["namespace"] or "")
    )


def _verb(method: str, named: bool, watch: bool) -> str:
    if method == "GET":
        return "watch" if watch else "get" if named else "list"
    if method == "DELETE":
        return "delete" if named else "deletecollection"
    return _CHANGES.get(method, method)


@contextmanager
def api_span(tracer: Tracer, method: str, url: str) -> Generator[Span]:
    """Make the span of a request, in the trace of the activity that sends it."""
    from opentelemetry.trace import SpanKind

    asked = api_request(method, url)
    attributes = {
        "http.request.method": method,
        "holdfast.kubernetes.verb": asked.verb,
        "holdfast.kubernetes.resource": asked.resource,
        "k8s.namespace.name": asked.namespace,
    }
    name = f"{asked.verb} {asked.resource or 'api'}"
    given = {key: value for key, value in attributes.items() if value}
    with tracer.start_as_current_span(name, kind=SpanKind.CLIENT, attributes=given) as span:
        yield span


def set_status(span: Span, code: int) -> None:
    """Note the answer: an HTTP status, or 0 for none. What the API server cannot do is an error; a refusal is not."""
    from opentelemetry.trace import StatusCode

    if code:
        span.set_attribute("http.response.status_code", code)
    if not code or code >= 500:
        span.set_status(StatusCode.ERROR)
