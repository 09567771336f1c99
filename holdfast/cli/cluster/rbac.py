"""The rights that `deploy/` grants the worker: the single source of what it needs, which `doctor` checks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import yaml

from holdfast import names
from holdfast.deploy import FOLDER

NODES: Final = frozenset({"nodes", "leases"})
"""Resources whose rights the worker can do without; it then does not notice silent or marked nodes."""
_ROLES: Final = {"ClusterRole", "Role"}


@dataclass(frozen=True, order=True)
class Right:
    """One permission that a role grants."""

    group: str
    resource: str
    """The plural name; for a subresource, followed by its name, as in `anchors/status`."""
    verb: str
    namespace: str = ""
    """The namespace of a Role; empty: every namespace."""

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}"


def granted(manifest: str = "rbac.yaml") -> tuple[Right, ...]:
    """Return every right of the worker's own roles, each once.

    Args:
        manifest: a file in `deploy/`.
    """
    documents: list[dict[str, Any]] = list(yaml.safe_load_all((FOLDER / manifest).read_text(encoding="utf-8")))
    return tuple(sorted({right for document in documents for right in _rights(document)}))


def _rights(document: dict[str, Any]) -> Iterator[Right]:
    metadata = document["metadata"]
    if document["kind"] not in _ROLES or not metadata["name"].startswith(names.WORKER_SERVICE_ACCOUNT):
        return
    for rule in document.get("rules", ()):
        for group in rule.get("apiGroups", ()):  # Rules about URLs have none; tokens are reviewed without them.
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    yield Right(group, resource, verb, metadata.get("namespace", ""))
