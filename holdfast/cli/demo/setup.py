"""Shared by all demos: a prepared namespace, a worker process beside the local stack, and text output."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.local import Stack

NAMESPACE: Final = "demo"
FIRST_NAMESPACE: Final = "default"
"""The namespace that is enabled if the stack runs its own cluster: commands use it if none is named."""
_READY: Final = 60.0


async def enabled(stack: Stack, *, evidence: bool = False) -> None:
    """Enable the demo's namespace and the first one with the administrator's rights: the worker may not do that.

    With `evidence`, the demo's namespace also lets its logs be kept.
    """
    from holdfast.cli.common.kubernetes import reached
    from holdfast.worker.cleanup.namespace import enable

    async with reached(str(stack.kubeconfig), None) as kube:
        for namespace in (FIRST_NAMESPACE, NAMESPACE):
            await enable(kube, namespace, logs=evidence and namespace == NAMESPACE)


@contextmanager
def worker(stack: Stack, kubeconfig: Path, keep: bool, settings: Mapping[str, str] | None = None) -> Generator[Path]:
    """Run a worker process beside the stack and yield its log once it is ready."""
    log = stack.directory / "demo-worker.log"
    health = f"127.0.0.1:{free_port()}"
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("HOLDFAST_", "TEMPORAL_"))}
    environment |= stack.environment
    environment |= {
        "KUBECONFIG": str(kubeconfig),
        "HOLDFAST_HEALTH_ADDRESS": health,
        "HOLDFAST_METRICS_ADDRESS": "127.0.0.1:0",
        "HOLDFAST_GRACEFUL_SHUTDOWN": "3s",
    }
    environment |= settings or {}
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "holdfast", "worker"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=keep,
        )
    kept = False
    try:
        _await_ready(process, health, log)
        say(f"   pid {process.pid}, log {log}")
        yield log
        kept = keep
    finally:
        if kept:
            say(f"   the worker goes on: pid {process.pid}")
        else:
            process.terminate()
            try:
                process.wait(timeout=15)
            except subprocess.TimeoutExpired:
                process.kill()


def _await_ready(process: subprocess.Popen[bytes], health: str, log: Path) -> None:
    from urllib.error import URLError
    from urllib.request import urlopen

    deadline = time.monotonic() + _READY
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urlopen(f"http://{health}/readyz", timeout=2) as answer:
                if answer.status == 200:
                    return
        except (URLError, OSError):
            pass
        time.sleep(0.2)
    tail = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:])
    raise HoldfastError(f"the worker did not become ready; the end of its log, {log}:\n{tail}")


def named(stack: Stack) -> str:
    """Return the option that names the stack; empty if commands do not need it."""
    return "" if stack.name == "dev" else f" --name {stack.name}"


def indented(text: str) -> str:
    """Return a text indented, to stand below a numbered line."""
    return "\n".join(f"   {line}" for line in text.splitlines())


def say(text: str) -> None:
    """Print a line of the demo."""
    typer.echo(text)


def free_port() -> int:
    """Return a free port."""
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]
