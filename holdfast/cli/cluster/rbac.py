"""What `deploy/` grants the worker: the one place that says what it needs, which `doctor` asks about."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import yaml

from holdfast import names
from holdfast.local.system.paths import deploy_dir

NODES: Final = frozenset({"nodes", "leases"})
"""What the worker can do without: nodes that are silent or marked are then not noticed."""
_ROLES: Final = {"ClusterRole", "Role"}


@dataclass(frozen=True, order=True)
class Right:
    """One thing that a role lets its subject do."""

    group: str
    resource: str
    """Plural; of a subresource with its name, as in `anchors/status`."""
    verb: str
    namespace: str = ""
    """Of a Role; empty: in every one."""

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}"


def granted(manifest: str = "rbac.yaml") -> tuple[Right, ...]:
    """Return every right of the worker's own roles, each once.

    Args:
        manifest: a file of `deploy/`.

    Raises:
        FileNotFoundError: if the manifests are not packaged.
    """
    folder = deploy_dir()
    if folder is None:
        raise FileNotFoundError("the manifests of deploy/ are not there")
    documents: list[dict[str, Any]] = list(yaml.safe_load_all((folder / manifest).read_text(encoding="utf-8")))
    return tuple(sorted({right for document in documents for right in _rights(document)}))


def _rights(document: dict[str, Any]) -> Iterator[Right]:
    metadata = document["metadata"]
    if document["kind"] not in _ROLES or not metadata["name"].startswith(names.WORKER_SERVICE_ACCOUNT):
        return
    for rule in document.get("rules", ()):
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    yield Right(group, resource, verb, metadata.get("namespace", ""))
