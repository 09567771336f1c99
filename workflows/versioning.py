"""The one list of workflows, each with its versioning behaviour; the plugin and the worker roles use it.

A behaviour cannot be set in `@workflow.defn`: the server refuses one from a worker without worker versioning, so that a
plain worker with the plugin would do nothing at all. `holdfast worker` sets it as the default of its deployment.
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
"""Auto-upgrade with patches: a pinned run of a month would need its old workers all that time."""

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
"""Workflows with a task queue of their own, so that it can be paused alone (row L9); all others share one."""
