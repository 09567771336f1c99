"""Every workflow declares its versioning behaviour, and a versioned worker runs by it."""

from __future__ import annotations

from temporalio.common import VersioningBehavior
from temporalio.workflow import _Definition  # pyright: ignore[reportPrivateUsage]

from holdfast.plugin import _with_workflows  # pyright: ignore[reportPrivateUsage]
from holdfast.workflows.versioning import BEHAVIOR, DECLARED


def test_every_workflow_declares_its_behaviour_and_is_run_by_the_plugin_too():
    run = {_Definition.must_from_class(workflow).name for workflow in _with_workflows(None)}
    assert run == set(DECLARED)
    assert set(DECLARED.values()) == {BEHAVIOR} == {VersioningBehavior.AUTO_UPGRADE}
