"""The one list of workflows, each with its versioning behaviour: the plugin and the roles of a worker go by it.

A behaviour cannot stand in `@workflow.defn`: the server refuses one from a worker without worker versioning, so that a
plain worker with the plugin would do nothing at all. `holdfast worker` gives it as the default of its deployment.
"""

from __future__ import annotations

from typing import Any, Final

from temporalio.common import VersioningBehavior

from holdfast.workflows.entities.broker import CheckpointBroker
from holdfast.workflows.entities.cluster_watch import ClusterWatch
from holdfast.workflows.entities.graph import GraphWorkflow
from holdfast.workflows.entities.node_monitor import NodeMonitor
from holdfast.workflows.entities.provisioner import Provisioner
from holdfast.workflows.entities.queue import QueueWorkflow
from holdfast.workflows.entities.rendezvous import Rendezvous
from holdfast.workflows.workload import WorkloadWorkflow

BEHAVIOR: Final = VersioningBehavior.AUTO_UPGRADE
"""Auto-upgrade with patches: a pinned month-long run would never let its old workers go."""

DECLARED: Final[dict[type[Any], VersioningBehavior]] = dict.fromkeys(
    (
        WorkloadWorkflow,
        ClusterWatch,
        NodeMonitor,
        Rendezvous,
        GraphWorkflow,
        CheckpointBroker,
        Provisioner,
        QueueWorkflow,
    ),
    BEHAVIOR,
)
APART: Final = (QueueWorkflow,)
"""Each on a task queue of its own, so that one pauses alone (row L9); all others share one."""
