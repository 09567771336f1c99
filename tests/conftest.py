"""What every test folder shares: plugins for rows and progress, pytester to test them, hypothesis, one stack."""

import pytest
from hypothesis import HealthCheck, settings

from holdfast.local import Stack
from tests.shared_stack import shared_stack

pytest_plugins = [
    "tests.plugins.times",
    "tests.plugins.rows",
    "tests.plugins.tiers",
    "tests.plugins.evidence",
    "tests.plugins.progress",
    "pytester",
]

# A machine that is busy with other things makes no property untrue.
settings.register_profile("holdfast", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("holdfast")


@pytest.fixture(scope="session")
def stack() -> Stack:
    """The stack all end-to-end tests share; stopped by `make`."""
    return shared_stack()
