"""What a command used, as the kernel counts it; one that fails is no figure."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from bench.measures.cli import timed

BUSY = "import time\nwhile time.process_time() < 0.2: pass"


def test_the_cpu_is_that_of_the_command():
    wall, cpu = timed([sys.executable, "-c", BUSY], dict(os.environ))
    assert wall > 0
    assert 0.2 <= cpu < 2


def test_a_command_that_waits_uses_no_cpu():
    wall, cpu = timed(["sleep", "0.3"], dict(os.environ))
    assert wall >= 0.3
    assert cpu < 0.2


def test_a_command_that_fails_is_told_with_what_it_printed():
    with pytest.raises(subprocess.CalledProcessError) as caught:
        timed([sys.executable, "-c", "raise SystemExit('no such workload')"], dict(os.environ))
    assert caught.value.output == "no such workload\n"
