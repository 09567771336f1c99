"""The progress plugin, on a small suite: failures are told at once, a hang costs one test and not the run."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HANGS = """
import time, pytest

@pytest.fixture
def stuck():
    yield
    while True:
        time.sleep(0.1)

def test_hangs_at_its_end(stuck):
    pass

def test_fails():
    assert 1 == 2, "told at once"

def test_fails_and_hangs_at_its_end(stuck):
    assert 1 == 2, "and its teardown waits for ever"

def test_passes():
    pass
"""


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\nlast_limit = 2")
    pytester.makepyfile(test_suite=HANGS)
    return pytester


def test_a_test_that_never_ends_is_named_and_the_others_go_on(suite: pytest.Pytester) -> None:
    result = suite.runpytest_subprocess("-p", "tests.plugins.progress", "-n", "1", timeout=100)
    # One that hangs had passed by then, the other had failed: both are counted a second time, as crashed.
    result.assert_outcomes(passed=2, failed=4)
    told = result.stdout.str()
    assert "FAILED test_suite.py::test_hangs_at_its_end" in told
    assert told.count("FAILED test_suite.py::test_fails_and_hangs_at_its_end") >= 2
    assert "crashed" in told
    assert told.index("FAILED test_suite.py::test_fails (call)") < told.index("short test summary")
    assert "in stuck" in told, "it says where it stood"
