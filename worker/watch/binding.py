"""Since when the API server checks who creates a custom resource: the front door runs none that is older (F5)."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any, Final

import structlog

from holdfast.activities.kube.client import Forbidden, Kube, UnknownKind
from holdfast.activities.kube.raw import mapping, time_of
from holdfast.policy.entities.front_door import Verdict, unchecked

_BINDING: Final = ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding")
_KEPT: Final = 60.0
"""Seconds for which a binding that was read is not read again."""

Log: Any = structlog.stdlib.get_logger("holdfast.front_door")


def binding_of(kind: str) -> str:
    """Return the name of the binding in `deploy/` by which the creators of a kind's objects are checked."""
    return f"{kind.lower()}-components.holdfast.dev"


class Bindings:
    """Reads the bindings, and remembers since when each has been there."""

    def __init__(self, kube: Kube) -> None:
        """Start without memory."""
        self._kube = kube
        self._known: dict[str, tuple[float, datetime]] = {}

    async def unchecked(self, kind: str, created: datetime | None) -> Verdict | None:
        """Return the verdict on a resource that was created before its creator was checked; None if it was checked.

        None too if that cannot be told, since the worker may not read bindings or the cluster does not know any.
        """
        name = binding_of(kind)
        read_at, bound = self._known.get(name, (0.0, None))
        if bound is None or time.monotonic() - read_at > _KEPT:
            try:
                found = await self._kube.find(*_BINDING, name)
            except (Forbidden, UnknownKind) as error:
                Log.warning("it cannot be told who was checked at creation", binding=name, why=error.message)
                return None
            denies = found is not None and "Deny" in mapping(found["spec"]).get("validationActions", ())
            bound = time_of(found["metadata"]["creationTimestamp"]) if found is not None and denies else None
            self._known.pop(name, None)
            if bound is not None:
                self._known[name] = (time.monotonic(), bound)
        return unchecked(created, bound, name)
