"""Tells the step of a program to Holdfast (row P1): `holdfast.progress.step(n, loss=..., saved=...)`.

Standard library only; this file also works alone, copied beside a program. Where it tells, by environment variables:

- `HOLDFAST_PROGRESS_FILE`: a file, replaced atomically, which the agent or a sidecar serves over HTTP
  (`python -m holdfast.progress --port 9470`);
- `HOLDFAST_PROGRESS_ANNOTATION=1`: the pod's annotation `holdfast.dev/step`, at most every 15 s; the pod's service
  account needs the verb `patch` on pods.

In a pod of Holdfast the step is also kept in the termination message, so that the step at which a program died is
known exactly. Nothing here raises into the program, and nothing waits for the network.

Whoever serves the file also serves the program's stacks, at `/stacks` (row P3): also those of a program that hangs.
"""

from __future__ import annotations

import argparse
import base64
import faulthandler
import json
import logging
import os
import re
import signal
import socket
import ssl
import stat
import threading
import time
import urllib.request
from collections import deque
from contextlib import suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

ENV_FILE: Final = "HOLDFAST_PROGRESS_FILE"
ENV_PORT: Final = "HOLDFAST_PROGRESS_PORT"
"""The port on which the agent serves the file."""
ENV_ANNOTATION: Final = "HOLDFAST_PROGRESS_ANNOTATION"
ENV_POD: Final = "HOLDFAST_POD_NAME"
"""The pod's name, where neither the token of its account nor its host name is of the pod."""
ANNOTATION: Final = "holdfast.dev/step"
PATCH_EVERY: Final = 15.0
"""Seconds between two patches of the annotation."""
STACKS_PATH: Final = "/stacks"
STACKS_SECONDS: Final = 2.0
"""Seconds that a program has to write its stacks."""
STACKS_MAXIMUM: Final = 64 * 1024
"""Bytes of the stacks that are served, the last ones: the main thread comes last."""
STACKS_EVERY: Final = 60.0
"""Seconds between two signals to a program: each may interrupt a call that does not try again."""
_TOLD_MAXIMUM: Final = 4096
"""Bytes of the file that are served."""
_COUNT_MAXIMUM: Final = 10**15
_PHASE_MAXIMUM: Final = 63
_PHASES_MAXIMUM: Final = 16
"""Phases inside each other that are remembered; those without a block end with the next step alone."""
_BOUND_MAXIMUM: Final = 30 * 86_400.0
_PRINTABLE: Final = re.compile(r"[!-~]+")
_OF_A_PHASE: Final = frozenset({"phase", "bound"})
_OWN: Final = frozenset({"step", "total", "saved"}) | _OF_A_PHASE
"""What the worker reads; the rest is for people."""
_DUMP: Final = "stacks.txt"
_ASK: Final = "ask"
_NONE_YET: Final = "no program has told a step yet"
_IN_A_POD: Final = "HOLDFAST_ATTEMPT"
_RESTARTS_IN_PLACE: Final = "HOLDFAST_IN_PLACE_RESTART_ATTEMPT_FILE"
_TERMINATION_LOG: Final = Path("/dev/termination-log")
_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_log = logging.getLogger("holdfast.progress")


class Teller:
    """Tells one program's step; the functions of this module use one for the process."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._word: dict[str, Any] = {}
        self._phases: deque[Phase] = deque(maxlen=_PHASES_MAXIMUM)
        """Those that have begun since the last step and not ended; the last one is told."""
        self._failed: set[str] = set()
        self._changed = threading.Event()
        self._patcher: threading.Thread | None = None
        self._offers_stacks_of = 0

    def step(self, n: int, total: int | None = None, saved: int | None = None, **values: float) -> None:
        """Tell that step `n` is done; it ends all phases. What cannot be told is left out, and logged once.

        Args:
            n: the number of the step, which grows.
            total: how many steps there will be.
            saved: the last step that was saved.
            values: numbers for people, such as `loss`.
        """
        with self._lock:
            self._try("step", lambda: self._step(n, {"total": total, "saved": saved}, values))

    def _step(self, n: int, given: dict[str, int | None], values: dict[str, float]) -> None:
        word = {name: self._word[name] for name in given if name in self._word} | {"step": _count(n)}
        for name, count in given.items():
            if count is not None:
                self._try(name, lambda name=name, count=count: word.update({name: _count(count)}))
        for name, value in values.items():
            self._try(f"value {name}", lambda name=name, value=value: word.update(_value(name, value)))
        self._phases.clear()
        self._tell(word)

    def enter(self, name: str, bound: float | None = None) -> Phase:
        """Tell that the program does something else than stepping, for at most `bound` seconds."""
        phase = Phase(self)
        with self._lock:
            self._try("phase", lambda: self._enter(phase, name, bound))
        return phase

    def _enter(self, phase: Phase, name: str, bound: float | None) -> None:
        phase.told["phase"] = "-".join(_PRINTABLE.findall(str(name)))[:_PHASE_MAXIMUM] or "phase"
        if bound is not None:
            self._try("bound", lambda: phase.told.update(bound=_bound(bound)))
        self._phases.append(phase)
        self._tell_phase()

    def leave(self, phase: Phase) -> None:
        """Tell that a phase is over: the one around it stands again."""
        with self._lock:
            if phase in self._phases:
                self._phases.remove(phase)
                self._try("phase", self._tell_phase)

    def _tell_phase(self) -> None:
        word = {key: value for key, value in self._word.items() if key not in _OF_A_PHASE}
        self._tell(word | (self._phases[-1].told if self._phases else {}))

    def _tell(self, word: dict[str, Any]) -> None:
        if (size := len(json.dumps(word))) > _TOLD_MAXIMUM:
            self._warn("values", f"{size:,} bytes of JSON, expected at most {_TOLD_MAXIMUM:,}")
            word = {key: value for key, value in word.items() if key in _OWN}
        self._word = word
        path = os.environ.get(ENV_FILE)
        if path:
            self._try("file", lambda: write(Path(path), word))
            if os.environ.get(_IN_A_POD) and self._offers_stacks_of != os.getpid():
                self._offers_stacks_of = os.getpid()
                self._try("signal for stacks", lambda: offer_stacks(Path(path)))
        if "step" in word and os.environ.get(_IN_A_POD) and _TERMINATION_LOG.exists():
            self._try("termination message", lambda: _leave_step(word["step"]))
        if os.environ.get(ENV_ANNOTATION) == "1":
            if self._patcher is None or not self._patcher.is_alive():
                self._patcher = threading.Thread(target=self._patch_on, name="holdfast-progress", daemon=True)
                self._patcher.start()
            self._changed.set()

    def _patch_on(self) -> None:
        while True:
            self._changed.wait()
            self._changed.clear()
            with self._lock:
                word = dict(self._word)
            if not self._try("annotation", partial(patch, word)):
                self._changed.set()  # Told again: in a long phase nothing new comes (row P1).
            time.sleep(PATCH_EVERY)

    def _try(self, channel: str, act: Any) -> bool:
        try:
            act()
        except Exception as error:  # A program must not end because its step cannot be told.
            self._warn(channel, error)
            return False
        self._failed.discard(channel)
        return True

    def _warn(self, channel: str, why: object) -> None:
        if channel not in self._failed:
            self._failed.add(channel)
            _log.warning("progress: the %s cannot be used: %s", channel, why)


def _count(value: Any) -> int:
    count = int(value)
    if not 0 <= count <= _COUNT_MAXIMUM:
        raise ValueError(f"{count}: expected 0 to {_COUNT_MAXIMUM}")
    return count


def _value(name: str, value: Any) -> dict[str, float]:
    if name in _OF_A_PHASE:
        raise ValueError("it belongs to a phase: use phase()")
    return {name: float(value)}


def _bound(value: Any) -> float:
    bound = float(value)
    if not bound > 0:
        raise ValueError(f"{bound}: expected more than 0 seconds")
    return min(bound, _BOUND_MAXIMUM)


def write(path: Path, word: dict[str, Any]) -> None:
    """Write the JSON to a file, which is never seen half written."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    beside.write_text(json.dumps(word))
    beside.replace(path)


def forget(file: Path | None = None) -> None:
    """Remove the file, or the one that the environment names: it tells of programs before those that begin now."""
    path = file or os.environ.get(ENV_FILE)
    if path:
        try:
            Path(path).unlink(missing_ok=True)
        except OSError as error:
            _log.warning("progress: the step of before stands: %s", error)


def offer_stacks(path: Path) -> None:
    """Let who serves the file have this process write the stacks of its threads, as long as the process lives.

    When a file is made in the folder beside, the kernel sends this process a signal (dnotify), also from another
    container. `faulthandler` writes in the signal handler itself. So a program that hangs writes too, even one that
    holds the interpreter's lock. By default the signal does nothing, in case it comes where nothing handles it.

    Raises:
        OSError: if the folder cannot be used, or the program has a handler of its own.
        ImportError: if this is not Linux.
    """
    from fcntl import DN_CREATE, DN_MULTISHOT, F_NOTIFY, F_SETOWN, F_SETSIG, fcntl

    if signal.getsignal(signal.SIGWINCH) not in {signal.SIG_DFL, signal.SIG_IGN}:
        raise OSError("the program handles SIGWINCH itself")
    folder = _stacks_folder(path)
    folder.mkdir(exist_ok=True)
    # A sidecar may run as another user. Whoever is in the pod may ask.
    folder.chmod(0o777)
    dump = os.open(folder / _DUMP, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o666)
    os.fchmod(dump, 0o666)
    faulthandler.register(signal.SIGWINCH, file=dump, all_threads=True)
    watched = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    fcntl(watched, F_SETSIG, signal.SIGWINCH)
    fcntl(watched, F_SETOWN, os.getpid())
    fcntl(watched, F_NOTIFY, DN_CREATE | DN_MULTISHOT)


def stacks(path: Path) -> bytes:
    """Ask the program that writes a file for its stacks, and return their end.

    Whoever reaches the port may ask, so the last answer is given again for a minute, also that there was none.

    Raises:
        OSError: if there is no program that offers them, or it does not write any in time.
    """
    with _asking:
        asked, text = _answers.get(path, (None, b""))
        if asked is None or time.monotonic() - asked >= STACKS_EVERY:
            text = _ask_for_stacks(_stacks_folder(path))
            _answers[path] = time.monotonic(), text
    if not text:
        raise OSError(f"the program has written no stacks within {STACKS_SECONDS:.0f} s")
    return text


def _ask_for_stacks(path: Path) -> bytes:
    """Have the signal sent, and return what is written then; empty if nothing is in time.

    The program owns the folder, and may have left anything there: no link is followed, nothing but a file is used.
    """
    try:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        raise OSError(_NONE_YET) from None
    try:
        dump = _opened(folder)
        try:
            os.ftruncate(dump, 0)
            with suppress(FileNotFoundError):
                os.unlink(_ASK, dir_fd=folder)
            os.close(os.open(_ASK, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=folder))
            written, until = 0, time.monotonic() + STACKS_SECONDS
            while time.monotonic() < until:
                time.sleep(0.1)
                before, written = written, os.fstat(dump).st_size
                if written and written == before:
                    break
            return os.pread(dump, STACKS_MAXIMUM, max(0, written - STACKS_MAXIMUM))
        finally:
            os.close(dump)
    finally:
        os.close(folder)


def _opened(folder: int) -> int:
    try:
        dump = os.open(_DUMP, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except FileNotFoundError:
        raise OSError(_NONE_YET) from None
    if not stat.S_ISREG(os.fstat(dump).st_mode):
        os.close(dump)
        raise OSError(f"{_DUMP} is not a file")
    return dump


def _stacks_folder(path: Path) -> Path:
    return path.with_name(f"{path.name}.stacks")


_asking = threading.Lock()
_answers: dict[Path, tuple[float, bytes]] = {}
"""When each program was last asked, and its stacks; empty if it wrote none."""


def patch(word: dict[str, Any]) -> None:
    """Patch the annotation of the pod that this runs in.

    Raises:
        OSError: if the API server cannot be reached, or refuses.
    """
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    host = f"[{host}]" if ":" in host else host
    namespace = (_ACCOUNT / "namespace").read_text().strip()
    token = (_ACCOUNT / "token").read_text().strip()
    pod = os.environ.get(ENV_POD) or _pod_of(token) or os.environ["HOSTNAME"]
    body = json.dumps({"metadata": {"annotations": {ANNOTATION: json.dumps(word)}}}).encode()
    request = urllib.request.Request(
        f"https://{host}:{port}/api/v1/namespaces/{namespace}/pods/{pod}",
        data=body,
        method="PATCH",
        headers={
            "Authorization": f"Bearer {token}",
            "Content-Type": "application/merge-patch+json",
        },
    )
    context = ssl.create_default_context(cafile=str(_ACCOUNT / "ca.crt"))
    handlers = urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
    with urllib.request.build_opener(*handlers).open(request, timeout=10):
        pass


def _pod_of(token: str) -> str:
    """Return the name of the pod that a token is bound to; empty if it is bound to none.

    The host name is another one in pods of Indexed Jobs, on their node's network, and where the name is too long.
    """
    with suppress(IndexError, KeyError, TypeError, ValueError):
        claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
        return str(claims["kubernetes.io"]["pod"]["name"])
    return ""


def _leave_step(n: int) -> None:
    """Keep the step in the termination message: the file is mounted by the kubelet, and cannot be replaced."""
    text = f"step {n}".encode()
    number = os.open(_TERMINATION_LOG, os.O_WRONLY)
    try:
        os.pwrite(number, text, 0)
        os.ftruncate(number, len(text))
    finally:
        os.close(number)


class Phase:
    """A phase that has begun; it ends with its `with` block, or with the next step."""

    def __init__(self, teller: Teller) -> None:
        self._teller = teller
        self.told: dict[str, Any] = {}
        """Its name and bound."""

    def __enter__(self) -> None:
        """Begin the block."""

    def __exit__(self, *_: object) -> None:
        """End the phase."""
        self._teller.leave(self)


_TELLER = Teller()
step = _TELLER.step


def phase(name: str, bound: float | None = None) -> Phase:
    """Declare what may take long, such as `saving`: until the next step, or the end of a `with` block.

    Args:
        name: one word of at most 63 characters; blanks become hyphens.
        bound: how long it may last, in seconds, at most 30 days; None: as long as the workload's `phaseBound`.
    """
    return _TELLER.enter(name, bound)


class _Handler(BaseHTTPRequestHandler):
    """Answers each GET with the file, or with the stacks of the program."""

    file: Path

    def do_GET(self) -> None:
        if self.path == STACKS_PATH:
            try:
                self._answer(200, "text/plain", stacks(self.file))
            except OSError as error:
                self._answer(503, "text/plain", str(error).encode())
            return
        try:
            with self.file.open("rb") as told:
                text = told.read(_TOLD_MAXIMUM)
        except OSError:
            text = b"{}"  # Nothing was told yet.
        self._answer(200, "application/json", text)

    def _answer(self, status: int, kind: str, text: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: Any) -> None:
        """Log no request: there is one every few seconds."""


def _forget_step(file: Path) -> None:
    """Forget the step in the file. A phase stays: a program that began before the sidecar does not tell it again."""
    try:
        with file.open("rb") as opened:
            word: Any = json.loads(opened.read(_TOLD_MAXIMUM))
        phase = {key: word[key] for key in _OF_A_PHASE if key in word}
        if "phase" in phase:
            write(file, phase)
            return
    except (OSError, TypeError, ValueError) as error:
        _log.debug("progress: nothing is kept of %s: %s", file, error)
    forget(file)


class _DualStack(ThreadingHTTPServer):
    """Listens at all addresses of a pod, IPv4 and IPv6."""

    address_family = socket.AF_INET6

    def server_bind(self) -> None:
        self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()


def server(file: Path, port: int, host: str = "") -> ThreadingHTTPServer:
    """Return a server, which does not serve yet, of what a program on this pod tells in a file."""
    handler = type("Handler", (_Handler,), {"file": file})
    if not host and socket.has_dualstack_ipv6():
        with suppress(OSError):
            return _DualStack((host, port), handler)
    return ThreadingHTTPServer((host, port), handler)


def serve_beside() -> None:
    """Serve the file in a thread of this process, if the environment names a file and a port.

    Raises:
        ValueError: if the port is not one.
        OSError: if the port cannot be listened on.
    """
    file, port = os.environ.get(ENV_FILE), os.environ.get(ENV_PORT)
    if file and port:
        if not port.isdecimal() or not 1 <= int(port) <= 65535:
            raise ValueError(f"{ENV_PORT}: {port!r}: expected 1 to 65535")
        serving = server(Path(file), int(port))
        forget()
        threading.Thread(target=serving.serve_forever, name="holdfast-progress", daemon=True).start()


def main() -> None:
    """Serve the file as a sidecar."""
    parser = argparse.ArgumentParser(prog="python -m holdfast.progress", description="Serve the step of a program.")
    parser.add_argument("--file", type=Path, default=os.environ.get(ENV_FILE), help=f"the file; else {ENV_FILE}")
    parser.add_argument("--port", type=int, default=9470)
    given = parser.parse_args()
    if given.file is None:
        parser.error(f"--file: missing: give it, or set {ENV_FILE}")
    file = Path(given.file)
    if os.environ.get(_RESTARTS_IN_PLACE):
        _forget_step(file)
    server(file, given.port).serve_forever()


if __name__ == "__main__":
    main()
