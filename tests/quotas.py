"""Quotas, by which tests keep pods and other objects out of a namespace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from holdfast.activities.kube.client import Kube
from holdfast.worker.cleanup.namespace import apply
from tests.e2e.ground.site import until

IN_FORCE: Final = 75.0
"""Seconds. What counts quotas stands still for 30 s where a kind is gone that it is about to watch."""


async def limited(
    kube: Kube, namespace: str, hard: Mapping[str, str], *scopes: str, name: str = "limit"
) -> dict[str, Any]:
    """Let so much be in a namespace, of these scopes if any, and no more; return the quota once it is gone by."""
    quota = await apply(
        kube,
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"hard": dict(hard), **({"scopes": list(scopes)} if scopes else {})},
        },
    )

    async def in_force() -> bool:
        status = (await kube.get("v1", "ResourceQuota", name, namespace)).get("status") or {}
        return status.get("hard") == hard and hard.keys() <= status.get("used", {}).keys()

    await until(in_force, IN_FORCE, f"quota {name} is gone by in {namespace}")
    return quota
