"""The process between an agent and one round of its workers: it starts them, and nothing that they start outlives it.

The agent runs it by its path, with the standard library alone. The keeper is a subreaper: it becomes the parent of all
processes that the workers leave behind, in any session. When the agent's end of the socket closes, for example because
the agent is killed, the keeper kills them all. If the keeper itself is killed, the kernel sends KILL to its workers;
the agent, a subreaper as well, becomes the parent of what they leave behind.

Each line on the socket is a JSON object. To the keeper: `start` (workers: argv, environment), `stop` (seconds from TERM
to KILL; a second one may shorten it). From it: `ended` (local rank, exit code, whether it had been asked to stop),
`unstarted` (local rank, the shell's exit code, the reason), and `gone`, its last message: no process is left.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from typing import Any, Final

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
_TOLD: Final = 1000
"""The most characters of the reason why a worker cannot be started."""
_RETRY: Final = 0.05
"""Seconds after which processes that survived KILL are killed again: they may have forked meanwhile."""


def prctl(option: int, value: int) -> None:
    """Set an attribute of this process.

    Raises:
        OSError: if the kernel refuses it.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def become_subreaper() -> None:
    """Become the parent of every descendant whose own parent dies, instead of the container's first process."""
    prctl(_PR_SET_CHILD_SUBREAPER, 1)


def descendants(root: int) -> dict[int, int]:
    """Return the process groups of all processes below `root`, by process id."""
    children: dict[int, list[int]] = {}
    groups: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                stat = file.read()
        except OSError:
            continue
        # The name of the program is in parentheses, and may contain anything, parentheses too.
        _, parent, group = stat[stat.rindex(b")") + 2 :].split()[:3]
        children.setdefault(int(parent), []).append(int(name))
        groups[int(name)] = int(group)
    found: dict[int, int] = {}
    following = [root]
    while following:
        for child in children.get(following.pop(), []):
            if child not in found:
                found[child] = groups[child]
                following.append(child)
    return found


def kill_descendants(root: int) -> None:
    """Send KILL to all processes below `root`."""
    for pid in descendants(root):
        _signal(os.kill, pid, signal.SIGKILL)


def _signal(how: Any, target: int, number: int) -> None:
    # The process may have ended, or may have changed its user: then only the end of the container stops it.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        how(target, number)


class _Keeper:
    """One round's processes, from the first start until none is left."""

    def __init__(self, channel: socket.socket, wake: int) -> None:
        self._channel = channel
        self._wake = wake
        self._unread = b""
        self._processes: list[subprocess.Popen[bytes]] = []
        self._running: dict[int, int] = {}
        """Local ranks of workers that have not ended, by process id."""
        self._kill_at: float | None = None
        """When KILL follows TERM, by the monotonic clock; None: no stop was requested."""

    def run(self) -> None:
        """Follow the agent's orders, until a stop was ordered and no process is left."""
        while True:
            self._listen()
            none_left = self._reap()
            if self._kill_at is not None:
                if none_left:
                    self._say({"gone": True})
                    self._hear_out()
                    return
                if time.monotonic() >= self._kill_at:
                    kill_descendants(os.getpid())

    def _hear_out(self) -> None:
        """Read until the agent closes: exiting with an order unread would make the kernel discard the last message."""
        with contextlib.suppress(OSError):
            self._channel.shutdown(socket.SHUT_WR)
            while self._channel.recv(1 << 16):
                pass

    def _listen(self) -> None:
        timeout = None if self._kill_at is None else max(_RETRY, self._kill_at - time.monotonic())
        ready, _, _ = select.select([self._channel, self._wake], [], [], timeout)
        if self._wake in ready:
            os.read(self._wake, 4096)
        if self._channel not in ready:
            return
        try:
            read = self._channel.recv(1 << 16)
        except OSError:
            read = b""
        if not read:
            self._stop(0.0)
            self._wait_for_the_end()
            return
        *lines, self._unread = (self._unread + read).split(b"\n")
        for line in lines:
            order = json.loads(line)
            if "start" in order:
                self._start(order["start"])
            else:
                self._stop(order["stop"])

    def _wait_for_the_end(self) -> None:
        """Kill all processes and wait for their end, without the socket: it stays readable once the agent is gone."""
        while not self._reap():
            kill_descendants(os.getpid())
            select.select([self._wake], [], [], _RETRY)

    def _start(self, workers: list[dict[str, Any]]) -> None:
        keeper = os.getpid()

        def bind() -> None:
            prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != keeper:
                os._exit(1)

        for local_rank, worker in enumerate(workers):
            try:
                process = subprocess.Popen(
                    worker["argv"],
                    env={**os.environ, **worker["environment"]},
                    start_new_session=True,
                    preexec_fn=bind,
                )
            except (OSError, ValueError, subprocess.SubprocessError) as error:
                # As in a shell: 127, the program does not exist; 126, it cannot be run.
                code = 127 if getattr(error, "errno", None) == errno.ENOENT else 126
                self._say({"unstarted": local_rank, "code": code, "error": f"{worker['argv'][0]}: {error}"[:_TOLD]})
            else:
                self._processes.append(process)
                self._running[process.pid] = local_rank

    def _stop(self, grace: float) -> None:
        until = time.monotonic() + grace
        if self._kill_at is not None:
            self._kill_at = min(self._kill_at, until)
            return
        self._kill_at = until
        # Signal each group as a whole, so that no process escapes by a fork; then the processes outside these groups.
        for pid in self._running:
            _signal(os.killpg, pid, signal.SIGTERM)
        for pid, group in descendants(os.getpid()).items():
            if group not in self._running:
                _signal(os.kill, pid, signal.SIGTERM)

    def _reap(self) -> bool:
        """Reap the children that have ended, and return whether no child is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if pid == 0:
                return False
            local_rank = self._running.pop(pid, None)
            if local_rank is not None:
                code = os.waitstatus_to_exitcode(status)
                next(process for process in self._processes if process.pid == pid).returncode = code
                self._say({"ended": local_rank, "code": code, "asked": self._kill_at is not None})

    def _say(self, word: dict[str, Any]) -> None:
        # If the agent is gone, the next read detects it.
        with contextlib.suppress(OSError):
            self._channel.sendall(json.dumps(word).encode() + b"\n")


def _woken(number: int, frame: object) -> None:
    """Do nothing: the wake-up pipe already received a byte for the signal."""


def main() -> None:
    """Run the keeper on the socket whose file descriptor is the first argument."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    channel.set_inheritable(False)
    become_subreaper()
    wake, woken = os.pipe()
    for end in (wake, woken):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    # Only the agent ends the keeper. Use a handler, since workers would inherit an ignored signal.
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, _woken)
    _Keeper(channel, wake).run()


if __name__ == "__main__":
    main()
