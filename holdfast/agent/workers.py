"""The workers of one round; the agent controls them by a socket to their keeper."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from holdfast.agent import keeper
from holdfast.agent.error_file import read as read_error
from holdfast.agent.machine import Ended, Event, Gone, Stuck
from holdfast.agent.messages import Failure

KILL_LIMIT: Final = 10.0
"""Seconds after KILL until remaining processes count as stuck, for example in the kernel on a dead mount."""
_BURIAL: Final = 0.01


@dataclass(frozen=True, slots=True)
class Launch:
    """One worker to start: its command, its variables in addition to the agent's environment, and its error file."""

    argv: Sequence[str]
    environment: Mapping[str, str]
    error_file: str


class Workers:
    """The processes of one round, from their start until none of them is left."""

    def __init__(
        self,
        launches: Sequence[Launch],
        process: subprocess.Popen[bytes],
        streams: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        tell: Callable[[Event], None],
        clear: Callable[[], Awaitable[None]],
    ) -> None:
        """Take over the keeper process from `start`."""
        self.keeper = process
        self._launches = launches
        self._reader, self._writer = streams
        self._tell = tell
        self._clear = clear
        self._stuck: asyncio.TimerHandle | None = None
        self._began = time.time()
        self._listening = asyncio.ensure_future(self._listen())

    @classmethod
    async def start(
        cls, launches: Sequence[Launch], tell: Callable[[Event], None], clear: Callable[[], Awaitable[None]]
    ) -> Self:
        """Start a round's workers.

        Args:
            launches: One launch for each worker, by local rank.
            tell: Receives `Ended` for each worker, and `Gone` when no process is left.
            clear: Ends the processes that a killed keeper has left behind, before `tell` receives `Gone`.

        Raises:
            OSError: if the keeper cannot be started.
        """
        ours, theirs = socket.socketpair()
        try:
            process = _keeper(theirs.fileno())
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        workers = cls(launches, process, await asyncio.open_unix_connection(sock=ours), tell, clear)
        workers._order({"start": [{"argv": [*one.argv], "environment": {**one.environment}} for one in launches]})
        return workers

    def stop(self, grace: float) -> None:
        """Send TERM to all processes, and KILL to the rest after `grace` seconds; a second call may shorten it."""
        self._order({"stop": grace})
        if self._stuck:
            self._stuck.cancel()
        self._stuck = asyncio.get_running_loop().call_later(grace + KILL_LIMIT, self._tell, Stuck())

    async def gone(self) -> None:
        """Wait until no process of the round is left."""
        await asyncio.shield(self._listening)

    def _order(self, order: dict[str, Any]) -> None:
        self._writer.write(json.dumps(order).encode() + b"\n")

    async def _listen(self) -> None:
        last: dict[str, Any] = {}
        try:
            while (line := await self._reader.readline()).endswith(b"\n"):
                last = json.loads(line)
                if "gone" not in last:
                    self._tell(self._ended(last))
        except OSError:
            pass  # the keeper was killed with an order unread
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()
        self._bury()
        failure = None
        if "gone" not in last:
            await self._clear()
            failure = self._keeper_failed()
        if self._stuck:
            self._stuck.cancel()
        self._tell(Gone(failure))

    def _bury(self) -> None:
        # Its end of the socket is closed, so the process is about to exit.
        self.keeper.wait()

    def _ended(self, word: Mapping[str, Any]) -> Ended:
        code: int = word["code"]
        if "unstarted" in word:
            return Ended(word["unstarted"], Failure(word["unstarted"], code, time.time(), word["error"]))
        local_rank: int = word["ended"]
        if code == 0:
            return Ended(local_rank, None, word["asked"])
        told = read_error(self._launches[local_rank].error_file)
        now = time.time()
        # Bound the time in the file: the worker ended after the round began, and before now.
        at = min(max(told.at, self._began), now) if told and told.at else now
        error = told.error if told else describe(code)
        return Ended(local_rank, Failure(local_rank, code, at, error), word["asked"])

    def _keeper_failed(self) -> Failure:
        code = self.keeper.returncode or -signal.SIGKILL
        return Failure(0, code, time.time(), f"the workers' keeper ended, and all of them with it: {describe(code)}")


def _keeper(channel: int) -> subprocess.Popen[bytes]:
    # -I and -S: the image's packages and PYTHON* variables are for the workers alone.
    command = [sys.executable, "-I", "-S", "-B", keeper.__file__, str(channel)]
    return subprocess.Popen(command, pass_fds=[channel], stdin=subprocess.DEVNULL, start_new_session=True)


def describe(code: int) -> str:
    """Describe how a process ended; `code` is its exit code, or minus the signal that ended it."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {-code} ({signal.Signals(-code).name})"
    except ValueError:
        return f"signal {-code}"


async def kill_all_below() -> None:
    """Kill every descendant of this process, and reap its children, until none is left."""
    while keeper.descendants(os.getpid()):
        keeper.kill_descendants(os.getpid())
        reap_all()
        await asyncio.sleep(_BURIAL)


def reap_all(but: int | None = None) -> None:
    """Reap every child that has ended, except `but`, which another part of the agent waits for."""
    try:
        while found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if found.si_pid == but:
                return
            os.waitpid(found.si_pid, os.WNOHANG)
    except ChildProcessError:
        return
