"""Keeps an HTTP session at one service, whatever redirects and links its answers contain (row X1)."""

from __future__ import annotations

from typing import Any, Final

from holdfast.activities.kube.raw import one_line
from holdfast.activities.nodes.machine import Refusal

_SAID_MAXIMUM: Final = 200


class _Elsewhere:
    """The adapter of every other service: it sends nothing."""

    def __init__(self, service: str) -> None:
        self._service = service

    def send(self, request: Any, **_: Any) -> Any:
        """Refuse a request.

        Raises:
            Refusal: always.
        """
        text = f"{self._service} leads to {request.url}, which is not followed: expected the same scheme, host and port"
        raise Refusal(one_line(text, _SAID_MAXIMUM))

    def close(self) -> None:
        """Do nothing: no connection is open."""


def stay_at(service: str, session: Any) -> None:
    """Have a session of `requests` send nothing but to one service.

    The session picks the adapter of the longest prefix of a URL, for each redirect anew. A prefix that ends with the
    slash after host and port fits no other host.

    Args:
        service: scheme, host and port.
        session: the session, which has one adapter for each scheme.
    """
    own = session.get_adapter(f"{service}/")
    for scheme in ("https://", "http://"):
        session.mount(scheme, _Elsewhere(service))
    session.mount(f"{service}/", own)
