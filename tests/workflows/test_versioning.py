"""Every workflow declares its versioning behaviour, and a versioned worker runs by it."""

from __future__ import annotations

import ast
from pathlib import Path

from temporalio.common import VersioningBehavior
from temporalio.workflow import _Definition  # pyright: ignore[reportPrivateUsage]

from holdfast.plugin import _with_workflows  # pyright: ignore[reportPrivateUsage]
from holdfast.worker.roles import _deployment  # pyright: ignore[reportPrivateUsage]
from holdfast.worker.runtime.settings import Settings
from holdfast.workflows.versioning import DECLARED

WORKFLOWS = Path(__file__).parents[2] / "workflows"


def defined() -> int:
    """How many workflows the source defines, whoever registers them."""
    trees = (ast.parse(file.read_text()) for file in WORKFLOWS.rglob("*.py"))
    classes = (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    return sum("workflow.defn" in ast.unparse(one) for each in classes for one in each.decorator_list)


def test_every_workflow_declares_its_behaviour_and_is_run_by_the_plugin_too():
    run = _with_workflows(None)
    assert set(run) == set(DECLARED)
    assert len({_Definition.must_from_class(workflow).name for workflow in run}) == defined()


def test_a_versioned_worker_runs_each_workflow_by_the_behaviour_it_declares():
    deployment = _deployment(Settings(cluster="dev", deployment_name="holdfast", build_id="7"))
    assert deployment is not None
    assert deployment.use_worker_versioning
    assert (deployment.version.deployment_name, deployment.version.build_id) == ("holdfast", "7")
    assert {deployment.default_versioning_behavior} == set(DECLARED.values())
    assert deployment.default_versioning_behavior is VersioningBehavior.AUTO_UPGRADE, "months are not pinned"


def test_a_worker_without_a_deployment_declares_nothing_that_the_server_would_refuse():
    assert _deployment(Settings(cluster="dev")) is None
    for workflow in _with_workflows(None):
        assert _Definition.must_from_class(workflow).versioning_behavior in {None, VersioningBehavior.UNSPECIFIED}
