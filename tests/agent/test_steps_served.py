"""The step that an agent serves from a thread of its own process, as its environment says (row P1)."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from holdfast import names, progress
from holdfast.activities.progress.read import BYTES_MAXIMUM, step_of
from holdfast.agent import EXIT_REFUSED
from holdfast.agent.process import free_port
from holdfast.model.life.progress import Step
from tests.agent.test_settings import COMMAND, ENVIRONMENT

pytestmark = pytest.mark.row("P1", level="pure")
SERVES = """
import sys, threading
from holdfast import names, progress
progress.serve_beside()
print(*sorted(one.name for one in threading.enumerate() if one.daemon), flush=True)
sys.stdin.read()
"""


@contextmanager
def serving(**environment: str) -> Iterator[str]:
    """Run a process that serves beside its own work; yield the names of its threads in the background."""
    argv = [sys.executable, "-c", SERVES]
    given = {**os.environ, **environment}
    with subprocess.Popen(argv, env=given, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.communicate(timeout=30)
    assert process.returncode == 0, "it does not wait for whoever it serves"


def get(port: int, host: str = "127.0.0.1") -> bytes:
    with urllib.request.urlopen(f"http://{host}:{port}/progress", timeout=10) as answer:
        assert answer.headers["Content-Type"] == "application/json"
        return answer.read()


def test_P1_a_file_is_served_from_a_thread_of_a_process_that_does_something_else(tmp_path: Path) -> None:
    file, port = tmp_path / "step.json", free_port()
    with serving(**{progress.ENV_FILE: str(file), progress.ENV_PORT: str(port)}) as threads:
        assert threads == "holdfast-progress"
        assert step_of(get(port)) == Step(), "nothing is told yet"
        for step in (3, 4):
            progress.write(file, {"step": step, "loss": 0.5})
            assert step_of(get(port)) == Step(step=step)


def has_ipv6() -> bool:
    """Return whether this machine has an address of IPv6."""
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no address of IPv6")
def test_P1_a_file_is_served_over_IPv4_and_IPv6_at_the_same_port(tmp_path: Path) -> None:
    file, port = tmp_path / "step.json", free_port()
    progress.write(file, {"step": 3})
    with progress.server(file, port) as serving:
        threading.Thread(target=serving.serve_forever, daemon=True).start()
        try:
            told = [step_of(get(port, host)) for host in ("127.0.0.1", "[::1]")]
        finally:
            serving.shutdown()
    assert told == [Step(step=3)] * 2


@pytest.mark.parametrize("way", ["none", "binds not"])
def test_P1_without_IPv6_a_file_is_served_over_IPv4(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    def refuses(_: object) -> None:
        raise OSError("Cannot assign requested address")

    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: way == "binds not")
    monkeypatch.setattr(progress._DualStack, "server_bind", refuses)
    with progress.server(tmp_path / "step.json", 0) as serving:
        assert serving.address_family == socket.AF_INET


@pytest.mark.row("P2", level="pure")
@pytest.mark.row("J24", level="pure")
def test_P2_an_agent_serves_no_step_of_programs_before_its_own(tmp_path: Path) -> None:
    file, port = tmp_path / "step.json", free_port()
    progress.write(file, {"step": 1000})
    with serving(**{progress.ENV_FILE: str(file), progress.ENV_PORT: str(port)}):
        assert step_of(get(port)) == Step()


@pytest.mark.row("P2", level="pure")
@pytest.mark.row("J24", level="pure")
@pytest.mark.parametrize(
    ("orders", "told", "expected"),
    [
        ("/orders/attempt", {"step": 1000}, Step()),
        ("/orders/attempt", {"step": 1000, "phase": "compiling"}, Step(phase="compiling")),
        ("", {"step": 1000}, Step(step=1000)),
    ],
)
def test_P2_where_a_pod_restarts_in_place_its_sidecar_serves_no_step_of_before(
    tmp_path: Path, orders: str, told: dict[str, Any], expected: Step
) -> None:
    """It may start after the program, or again alone: a phase stays, and elsewhere the step too."""
    file, port = tmp_path / "step.json", free_port()
    progress.write(file, told)
    argv = [sys.executable, "-m", "holdfast.progress", "--file", str(file), "--port", str(port)]
    with subprocess.Popen(argv, env={**os.environ, names.ENV_IN_PLACE_ATTEMPT_FILE: orders}) as sidecar:
        try:
            until = time.monotonic() + 30
            while time.monotonic() < until:
                with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    break
                time.sleep(0.1)
            assert step_of(get(port)) == expected
        finally:
            sidecar.kill()


def test_P1_of_a_file_at_most_4096_bytes_are_served(tmp_path: Path) -> None:
    file, port = tmp_path / "step.json", free_port()
    with serving(**{progress.ENV_FILE: str(file), progress.ENV_PORT: str(port)}):
        least = len(json.dumps({"step": 3, "note": ""}))
        fits = json.dumps({"step": 3, "note": "x" * (BYTES_MAXIMUM - least)}).encode()
        assert len(fits) == 4096
        file.write_bytes(fits)
        assert get(port) == fits
        assert step_of(fits) == Step(step=3)
        file.write_bytes(fits + b" " * 100_000)
        assert get(port) == fits, "and no byte more"
        file.write_bytes(fits.replace(b"x", b"xx", 1))
        assert step_of(get(port)) is None, "what is cut off cannot be read: nothing is told"


@pytest.mark.parametrize("missing", [progress.ENV_FILE, progress.ENV_PORT])
def test_P1_without_a_file_or_a_port_nothing_is_served(tmp_path: Path, missing: str) -> None:
    given = {progress.ENV_FILE: str(tmp_path / "step.json"), progress.ENV_PORT: str(free_port())}
    with serving(**{**given, missing: ""}) as threads:
        assert threads == ""


def refused(port: str, tmp_path: Path) -> str:
    """Return what an agent says that cannot serve at a port."""
    given = {progress.ENV_FILE: str(tmp_path / "step.json"), progress.ENV_PORT: port}
    argv = [sys.executable, "-m", "holdfast", "agent", *COMMAND]
    environment = {**os.environ, **ENVIRONMENT, **given}
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == EXIT_REFUSED, done.stderr
    return done.stderr.strip()


@pytest.mark.parametrize("port", ["none", "0", "-1", "70000"])
def test_P1_an_agent_refuses_a_port_that_is_none(tmp_path: Path, port: str) -> None:
    assert refused(port, tmp_path) == (
        f"Error: the workers' steps cannot be served: HOLDFAST_PROGRESS_PORT: {port!r}: expected 1 to 65535"
    )


def test_P1_an_agent_refuses_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("", 0)) as taken:
        said = refused(str(taken.getsockname()[1]), tmp_path)
    assert said.startswith("Error: the workers' steps cannot be served: ")
    assert "Address already in use" in said
