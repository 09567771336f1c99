"""Workers and commands forked from a process that has loaded Holdfast: hundreds run, and loading takes 2 s of CPU.

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

_LOADED: Final = [
    "holdfast.cli.app",
    "holdfast.cli.cluster.worker_options",
    "holdfast.worker.process",
    "holdfast.worker.failpoints",
]


class Forked:
    """One such process, as `subprocess.Popen` has it. It writes to a file, its errors to another where one is given."""

    def __init__(
        self, argv: Sequence[str], environment: Mapping[str, str], out: Path, errors: Path | None = None
    ) -> None:
        given = (list(argv), dict(environment), str(out), str(errors or ""))
        self._process = _context().Process(target=_run, args=given, daemon=True)
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
    root = str(Path(__file__).parents[3])
    if root not in sys.path:
        sys.path.append(root)  # where the new process finds this module
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_LOADED)
    return context


def _redirect(path: str, *streams: int) -> None:
    opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    for stream in streams:
        os.dup2(opened, stream)
    os.close(opened)


def _run(argv: list[str], environment: dict[str, str], out: str, errors: str) -> None:
    from holdfast.cli import main

    _redirect(out, 1, *([] if errors else [2]))
    if errors:
        _redirect(errors, 2)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    sys.argv = ["holdfast", *argv]
    main()
