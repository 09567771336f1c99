"""Every workflow declares its versioning behaviour, and a versioned worker runs by it."""

from __future__ import annotations

from temporalio.common import VersioningBehavior
from temporalio.workflow import _Definition  # pyright: ignore[reportPrivateUsage]

from holdfast.plugin import HoldfastPlugin
from holdfast.workflows.cluster_watch import ClusterWatch
from holdfast.workflows.versioning import BEHAVIOR, DECLARED
from holdfast.workflows.workload import WorkloadWorkflow


def test_every_workflow_declares_its_behaviour():
    assert HoldfastPlugin(["workflows"])
    for workflow in (WorkloadWorkflow, ClusterWatch):
        definition = _Definition.must_from_class(workflow)
        assert definition.name is not None
        assert DECLARED[definition.name] is BEHAVIOR is VersioningBehavior.AUTO_UPGRADE
