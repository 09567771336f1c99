"""Each workflow's versioning behaviour, declared once.

It cannot stand in `@workflow.defn`: the server refuses a behaviour from a worker without worker versioning, so that a
plain worker with the plugin would do nothing at all. `holdfast worker` gives it as the default of its deployment.
"""

from __future__ import annotations

from typing import Final

from temporalio.common import VersioningBehavior

from holdfast import names

BEHAVIOR: Final = VersioningBehavior.AUTO_UPGRADE
"""Auto-upgrade with patches: a pinned month-long run would never let its old workers go."""

DECLARED: Final[dict[str, VersioningBehavior]] = dict.fromkeys(
    (
        names.WORKLOAD_WORKFLOW,
        names.CLUSTER_WATCH_WORKFLOW,
        names.NODE_MONITOR_WORKFLOW,
        names.RENDEZVOUS_WORKFLOW,
        names.GRAPH_WORKFLOW,
        names.QUEUE_WORKFLOW,
        names.BROKER_WORKFLOW,
        names.PROVISIONER_WORKFLOW,
    ),
    BEHAVIOR,
)
