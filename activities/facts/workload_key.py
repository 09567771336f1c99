"""Identifies a workload by what its objects say: only those in its own namespace count (row X8). Pure."""

from __future__ import annotations

from typing import NamedTuple

from holdfast import names


class WorkloadKey(NamedTuple):
    """A workload as its objects name it. Anyone may copy a uid, but not into a namespace where they have no rights."""

    namespace: str
    """The namespace of the object that carries the uid."""
    uid: str


def own_name(workflow_id: str, cluster: str, namespace: str) -> str:
    """Return the name of the workload with this workflow id; empty if it is not of this cluster and namespace."""
    try:
        of_cluster, of_namespace, name = names.parse_workflow_id(workflow_id)
    except ValueError:
        return ""
    return name if (of_cluster, of_namespace) == (cluster, namespace) else ""
