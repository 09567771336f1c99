"""Worker processes forked from one that has loaded Holdfast: hundreds are started, and loading takes 2 s of CPU.

Each is a process of its own, with its own environment, that runs the very command line: it is killed, stopped and
waited for as any other. `TEST_EXEC=1` starts each by its program instead, as the benches and tests/worker/ do.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

_LOADED: Final = ["holdfast.cli.app", "holdfast.cli.worker", "holdfast.worker.process", "holdfast.worker.failpoints"]


class Forked:
    """One such process, as `subprocess.Popen` has it."""

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self._process = _context().Process(target=_run, args=(list(argv), dict(environment), str(log)), daemon=True)
        self._process.start()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    @property
    def returncode(self) -> int | None:
        """How it ended; less than 0: by which signal."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """Look whether it has ended."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end.

        Raises:
            TimeoutError: if it has not ended by then.
        """
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            raise TimeoutError(f"process {self.pid} still runs after {timeout} s")
        return code

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it with -9."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Ask it to stop."""
        self.send_signal(signal.SIGTERM)


def _context() -> Any:
    root = str(Path(__file__).parents[2])
    if root not in sys.path:
        sys.path.append(root)  # where the new process finds this module
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_LOADED)
    return context


def _run(argv: list[str], environment: dict[str, str], log: str) -> None:
    from holdfast.cli import main

    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    for stream in (1, 2):
        os.dup2(out, stream)
    os.close(out)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    sys.argv = ["holdfast", *argv]
    main()
