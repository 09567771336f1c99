"""What every test folder shares: plugins for rows and progress, pytester to test them, hypothesis, one stack."""

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from temporalio.worker._workflow import _WorkflowWorker as WorkflowWorker

from holdfast.local import Stack
from tests.shared_stack import shared_stack

pytest_plugins = [
    "tests.plugins.bench",
    "tests.plugins.times",
    "tests.plugins.rows",
    "tests.plugins.tiers",
    "tests.plugins.evidence",
    "tests.plugins.progress",
    "tests.plugins.ledgers",
    "pytester",
]

# A machine that is busy with other things makes no property untrue.
settings.register_profile("holdfast", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("holdfast")


# Nor is a workflow deadlocked that gets no processor for 2 s. Workers in processes of their own stay as they are.
_begin = WorkflowWorker.__init__


def _begin_patiently(self: WorkflowWorker, **given: Any) -> None:
    _begin(self, **given)
    if self._deadlock_timeout_seconds is not None:
        self._deadlock_timeout_seconds = 60


WorkflowWorker.__init__ = _begin_patiently


@pytest.fixture(scope="session")
def stack() -> Stack:
    """The stack all end-to-end tests share; stopped by `make`."""
    return shared_stack()
