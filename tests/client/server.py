"""A real Temporal server for tests: the local stack's program, in memory, on a free port."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager

from holdfast import names
from holdfast.local.resolve import resolve


@contextmanager
def temporal_server(*, search_attributes: bool = True) -> Generator[str]:
    """Run a Temporal server and yield its address."""
    binary = resolve(["temporal"], lambda line: None)["temporal"]
    port = _free_port()
    argv = [str(binary), "server", "start-dev", "--ip=127.0.0.1", f"--port={port}", "--headless", "--log-level=error"]
    if search_attributes:
        argv += [f"--search-attribute={name}={kind}" for name, kind in names.SEARCH_ATTRIBUTES.items()]
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait(str(binary), port, process)
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(timeout=20)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def _wait(binary: str, port: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until it serves: it listens some time before."""
    asked = [binary, "operator", "cluster", "health", "--address", f"127.0.0.1:{port}"]
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the Temporal server ended with {process.returncode}")
        with contextlib.suppress(subprocess.TimeoutExpired):
            if subprocess.run(asked, capture_output=True, timeout=10, check=False).returncode == 0:
                return
        time.sleep(0.1)
    raise RuntimeError("the Temporal server did not begin to serve")
