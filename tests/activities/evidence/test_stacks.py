"""Stacks of a program that hangs: asked for over HTTP, written by a signal of the kernel (row P3)."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from holdfast import names, progress
from holdfast.activities.evidence import stacks
from holdfast.activities.evidence.stacks import NoStacks, asked_for_stacks, read_stacks
from holdfast.model.life.evidence import StacksRequest

pytestmark = [
    pytest.mark.row("P3", level="pure"),
    pytest.mark.skipif(sys.platform != "linux", reason="dnotify is Linux's"),
]
MODULE = Path(progress.__file__)
PROGRAM = """
import ctypes, importlib.util, signal, sys, threading
spec = importlib.util.spec_from_file_location("progress", sys.argv[1])
progress = importlib.util.module_from_spec(spec)
spec.loader.exec_module(progress)

def waits_for_data():
    threading.Event().wait()

def holds_the_lock_of_the_interpreter():
    while True:
        ctypes.PyDLL(None).pause()

{first}
threading.Thread(target=waits_for_data, daemon=True).start()
progress.step(3)
print("told", flush=True)
holds_the_lock_of_the_interpreter()
"""


@contextmanager
def program(file: Path, first: str = "") -> Iterator[subprocess.Popen[str]]:
    """Run a program that tells a step and then hangs, as in a pod of Holdfast."""
    argv = [sys.executable, "-I", "-c", PROGRAM.format(first=first), str(MODULE)]
    environment = {progress.ENV_FILE: str(file), "HOLDFAST_ATTEMPT": "1"}
    process = subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "told\n"
        yield process
    finally:
        process.kill()
        process.communicate()


@contextmanager
def served(server: HTTPServer) -> Iterator[str]:
    """Serve in a thread; yield the URL of its stacks."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}{progress.STACKS_PATH}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "step.json"


@pytest.fixture
def url(file: Path) -> Iterator[str]:
    with served(progress.server(file, 0, "127.0.0.1")) as found:
        yield found


async def test_P3_a_program_that_holds_the_interpreters_lock_tells_the_stacks_of_all_its_threads(
    file: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "STACKS_EVERY", 0.0)
    with program(file) as process:
        first = await read_stacks(url)
        again = await read_stacks(url)
        assert process.poll() is None, "it lives on"
    assert [one.split()[-1] for one in first if "holds_the_lock" in one] == ["holds_the_lock_of_the_interpreter"]
    assert [one.split()[-1] for one in first if "waits_for_data" in one] == ["waits_for_data"]
    assert len(again) == len(first), "only those of now"
    assert "holds_the_lock" in "".join(first[-2:]), "the main thread is last, since the end is what is kept"


async def test_P3_a_program_that_has_ended_or_none_tells_no_stacks(
    file: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(NoStacks, match="no program has told a step yet"):
        await read_stacks(url)
    monkeypatch.setattr(progress, "STACKS_SECONDS", 0.3)
    with program(file):
        pass
    with pytest.raises(NoStacks, match="has written no stacks within"):
        await read_stacks(url)


async def test_P3_a_program_is_interrupted_once_a_minute_however_often_it_is_asked(file: Path, url: str) -> None:
    with program(file):
        first = await read_stacks(url)
        (file.parent / "step.json.stacks" / "ask").unlink()
        assert await read_stacks(url) == first
    assert not (file.parent / "step.json.stacks" / "ask").exists(), "what sends the signal is not made again"


async def test_P3_a_program_that_wrote_none_is_not_asked_again_at_once(
    file: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "STACKS_SECONDS", 0.3)
    with program(file):
        pass
    for _ in range(2):
        with pytest.raises(NoStacks, match="has written no stacks within"):
            await read_stacks(url)
        monkeypatch.setattr(progress, "_ask_for_stacks", pytest.fail)


@pytest.mark.parametrize("left", ["link", "folder that is a link", "pipe"])
def test_P3_what_a_program_leaves_in_place_of_its_stacks_is_not_opened(left: str, tmp_path: Path) -> None:
    file, other = tmp_path / "step.json", tmp_path / "other"
    folder = tmp_path / "step.json.stacks"
    other.mkdir()
    (other / "stacks.txt").write_text("precious")
    if left == "folder that is a link":
        folder.symlink_to(other)
    else:
        folder.mkdir()
        if left == "link":
            (folder / "stacks.txt").symlink_to(other / "stacks.txt")
        else:
            os.mkfifo(folder / "stacks.txt")
    with pytest.raises(OSError, match=r"symbolic links|Not a directory|not a file"):
        progress.stacks(file)
    assert (other / "stacks.txt").read_text() == "precious"
    assert not list(tmp_path.rglob("ask"))


async def test_P3_a_programs_own_signal_handler_stays(file: Path, url: str) -> None:
    with program(file, "signal.signal(signal.SIGWINCH, lambda *_: None)") as process:
        with pytest.raises(NoStacks, match="no program"):
            await read_stacks(url)
        process.kill()
        assert process.stderr is not None
        assert (
            process.stderr.read()
            == "progress: the signal for stacks cannot be used: the program handles SIGWINCH itself\n"
        )


async def test_P3_only_the_end_of_long_stacks_is_served(file: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "STACKS_MAXIMUM", 60)
    with program(file):
        found = await read_stacks(url)
    assert sum(map(len, found)) <= 60
    assert "in <module>" in found[-1]


class Other(BaseHTTPRequestHandler):
    """A server that does not know stacks."""

    status, kind, text = 200, "application/json", b'{"step": 3}'
    gate = threading.Event()

    def do_GET(self) -> None:
        self.gate.wait()
        self.send_response(self.status)
        self.send_header("Content-Type", self.kind)
        self.end_headers()
        self.wfile.write(self.text)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


@pytest.mark.parametrize("fields", [{}, {"status": 404, "kind": "text/plain"}, {"status": 404, "kind": "text/html"}])
async def test_P3_a_server_that_knows_no_stacks_tells_none(fields: dict[str, Any]) -> None:
    Other.gate.set()
    with served(HTTPServer(("127.0.0.1", 0), type("Handler", (Other,), fields))) as found:
        assert await read_stacks(found) == ()


@pytest.mark.parametrize(("text", "why"), [(b"", "HTTP 500"), (b"\x1b[2J" + b"x" * 999, r"^.{0,20}x+…$")])
async def test_P3_why_there_are_no_stacks_is_told_in_one_short_line(text: bytes, why: str) -> None:
    Other.gate.set()
    fields = {"status": 500, "kind": "text/plain", "text": text}
    with (
        served(HTTPServer(("127.0.0.1", 0), type("Handler", (Other,), fields))) as found,
        pytest.raises(NoStacks, match=why) as refused,
    ):
        await read_stacks(found)
    assert len(str(refused.value)) <= 200
    assert "\x1b" not in str(refused.value)


async def test_P3_a_pod_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks, "TIMEOUT", 0.2)
    gate = threading.Event()
    server = HTTPServer(("127.0.0.1", 0), type("Handler", (Other,), {"gate": gate}))
    with served(server) as found:
        with pytest.raises(NoStacks, match="no answer within 0 s"):
            await read_stacks(found)
        gate.set()
    with pytest.raises(NoStacks, match="Connect call failed"):
        await read_stacks(found)


def running(name: str, component: str = "main", **status: Any) -> dict[str, Any]:
    labels = {names.LABEL_COMPONENT: component, names.LABEL_WORKLOAD_UID: "w", names.LABEL_ATTEMPT: "1"}
    metadata = {"name": name, "namespace": "team", "uid": f"uid-of-{name}", "labels": labels}
    found = {"phase": "Running", "podIP": "10.0.0.7", "hostIP": "10.1.0.1", **status}
    return {"metadata": metadata, "spec": {"nodeName": "node-7"}, "status": found}


def test_P3_pods_that_run_at_an_address_of_their_own_are_asked() -> None:
    pods = [
        running("train-0"),
        running("train-1", podIP="fd00::7"),
        running("failed", phase="Failed"),
        running("on-the-nodes-network", podIP="10.1.0.1"),
        running("data", component="data"),
    ]
    asked = asked_for_stacks(StacksRequest(port=9470, components=("main",)), pods)
    assert [(pod.name, url) for pod, url in asked] == [
        ("train-0", "http://10.0.0.7:9470/stacks"),
        ("train-1", "http://[fd00::7]:9470/stacks"),
    ]
    assert len(asked_for_stacks(StacksRequest(port=9470), pods)) == 3
    assert asked_for_stacks(None, pods) == []
