"""`holdfast demo`, whole: on a stack of its own, with a worker under the rights deploy/ grants."""

from __future__ import annotations

import subprocess
import sys

import pytest

from holdfast.local import Stack

STACK = "demo-test"


@pytest.mark.e2e
@pytest.mark.timeout(900)
def test_the_demo_ends_with_a_workload_healed_by_one_reset() -> None:
    try:
        command = [sys.executable, "-m", "holdfast", "demo", "--name", STACK]
        result = subprocess.run(command, capture_output=True, text=True, timeout=800)
        assert result.returncode == 0, result.stdout + result.stderr
        assert "Succeeded after one reset" in result.stdout
        assert "exited 137 (OOMKilled)" in result.stdout
        assert "attempt 1 → 2" in result.stdout
        assert "Temporal UI" in result.stdout
        assert "$ kubectl apply -f train-llm-" in result.stdout
        _, shown = result.stdout.split("$ kubectl get appwrapper ")
        assert "Succeeded" in shown.splitlines()[2], shown
    finally:
        Stack.load(STACK).down(purge=True)
