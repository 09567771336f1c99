"""Recognizes the in-place restart agent in a pod: the sidecar that can restart all containers of its pod (row J24)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

RESTART_ALL: Final = "RestartAllContainers"
"""The action of a container's restart rule that restarts all containers of its pod."""


def restart_agent(spec: Mapping[str, Any]) -> str:
    """Return the name of a pod's in-place restart agent; empty if it has none.

    The agent is the first sidecar (an init container with `restartPolicy: Always`) with a restart rule whose action is
    RestartAllContainers. Containers after it start once its startup probe succeeds.

    Args:
        spec: The spec of a pod or of a pod template; any JSON.
    """
    containers: Any = spec.get("initContainers")
    for one in cast("list[Any]", containers) if isinstance(containers, list) else []:
        if isinstance(one, dict) and _restarts_pod(cast("dict[str, Any]", one)):
            return str(cast("dict[str, Any]", one).get("name", ""))
    return ""


def _restarts_pod(container: Mapping[str, Any]) -> bool:
    rules: Any = container.get("restartPolicyRules")
    if container.get("restartPolicy") != "Always" or not isinstance(rules, list) or not container.get("startupProbe"):
        return False
    return any(
        isinstance(one, dict) and cast("dict[str, Any]", one).get("action") == RESTART_ALL
        for one in cast("list[Any]", rules)
    )
