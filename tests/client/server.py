"""A real Temporal server for tests: the local stack's program, in memory, on a free port."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import tempfile
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from holdfast import names
from holdfast.local.programs.resolve import resolve

TRIES = 5
"""Times it is started: it takes free ports of its own for its parts, and another process may take one before it."""


@contextmanager
def temporal_server(*, search_attributes: bool = True, database: Path | None = None) -> Generator[str]:
    """Run a Temporal server and yield its address; it stores what it is given in memory, or in a file."""
    binary = resolve(["temporal"], lambda line: None)["temporal"]
    process, port = _started(str(binary), names.SEARCH_ATTRIBUTES if search_attributes else {}, database)
    try:
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(timeout=20)


def _started(
    binary: str, search_attributes: Mapping[str, str], database: Path | None = None
) -> tuple[subprocess.Popen[bytes], int]:
    argv = [binary, "server", "start-dev", "--ip=127.0.0.1", "--headless", "--log-level=error"]
    argv += [f"--search-attribute={name}={kind}" for name, kind in search_attributes.items()]
    argv += [f"--db-filename={database}"] if database is not None else []
    with tempfile.TemporaryFile() as said:
        for _ in range(TRIES):
            port = _free_port()
            process = subprocess.Popen([*argv, f"--port={port}"], stdout=said, stderr=subprocess.STDOUT)
            if _serves(binary, port, process):
                return process, port
            process.kill()
            process.wait()
        said.seek(0)
        raise RuntimeError(f"the Temporal server did not begin to serve: {said.read().decode()[-4000:]}")


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def _serves(binary: str, port: int, process: subprocess.Popen[bytes]) -> bool:
    """Wait until it serves, which it does some time after it listens; False if it ends before, or takes a minute."""
    asked = [binary, "operator", "cluster", "health", "--address", f"127.0.0.1:{port}"]
    deadline = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(subprocess.TimeoutExpired):
            if subprocess.run(asked, capture_output=True, timeout=10, check=False).returncode == 0:
                return True
        time.sleep(0.1)
    return False
