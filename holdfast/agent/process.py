"""The agent as a process: runs the commands of `machine` with real workers, signals and the rendezvous."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import socket
import time
from collections.abc import Mapping
from typing import Any, Final

from holdfast.agent import environment
from holdfast.agent.conversation import Conversation
from holdfast.agent.hub import Hub
from holdfast.agent.keeper import become_subreaper
from holdfast.agent.machine import (
    Abandoned,
    Crew,
    End,
    Ended,
    Event,
    Gone,
    Member,
    Signalled,
    Start,
    Stop,
    Stuck,
    Told,
    step,
)
from holdfast.agent.messages import Assignment, Failure, bounded
from holdfast.agent.settings import Settings
from holdfast.agent.workers import Launch, Workers, describe, kill_all_below, reap_all
from holdfast.progress import forget

_log = logging.getLogger(__name__)

LAST_WORD_LIMIT: Final = 5.0
"""Seconds for which a member that was told to end tries to announce that it leaves."""
TERMINATION_LOG: Final = "/dev/termination-log"
_TERMINATION_LOG_MAXIMUM: Final = 4096
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


class Agent:
    """One member, from its first announcement to its end."""

    def __init__(self, settings: Settings, hub: Hub, last_word_limit: float = LAST_WORD_LIMIT) -> None:
        self._settings = settings
        self._hub = hub
        self._last_word_limit = last_word_limit
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._member = Member()
        self._workers: Workers | None = None
        self._port = free_port()
        self._folder = _folder(settings.incarnation)
        self._conversation = Conversation(hub.exchange, self._join, self._tell)
        self._giving_up: asyncio.TimerHandle | None = None

    async def run(self) -> int:
        """Run the member to its end, and return the exit code."""
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._signalled, number)
        loop.add_signal_handler(signal.SIGCHLD, self._reap)
        speaking = asyncio.ensure_future(self._conversation.run())
        self._conversation.say(self._member.report())
        try:
            while True:
                code = await self._happened(await self._events.get())
                if code is not None:
                    return code
        finally:
            speaking.cancel()
            await asyncio.gather(speaking, return_exceptions=True)
            self._hub.close()
            if self._workers:
                # Workers exist here only after a fault of the agent itself: they must not outlive it.
                self._workers.stop(0.0)
                await self._workers.gone()
            shutil.rmtree(self._folder, ignore_errors=True)

    async def _happened(self, event: Event) -> int | None:
        before = self._member
        self._member, commands = step(before, event)
        self._log(event, before)
        for command in commands:
            if isinstance(command, End):
                self._leave_word()
                return command.code
            await self._do(command)
        if self._member.crew is Crew.NONE and before.crew is not Crew.NONE:
            self._workers = None
            self._port = free_port()
        self._conversation.say(self._member.report())
        if self._member.signalled and self._member.crew is Crew.NONE and not self._giving_up:
            loop = asyncio.get_running_loop()
            self._giving_up = loop.call_later(self._last_word_limit, self._tell, Abandoned())
        return None

    async def _do(self, command: Start | Stop) -> None:
        if isinstance(command, Stop):
            assert self._workers
            self._workers.stop(command.grace)
            return
        forget()
        try:
            self._workers = await Workers.start(self._launches(command.assignment), self._tell, kill_all_below)
        except OSError as error:
            self._tell(Gone(Failure(0, 126, time.time(), f"the workers cannot be started: {error}")))

    def _launches(self, place: Assignment) -> list[Launch]:
        launches: list[Launch] = []
        for local_rank in range(place.local_world_size):
            told = _error_file(self._folder, place.round, local_rank)
            launches.append(
                Launch(
                    argv=environment.command([*self._settings.command], local_rank),
                    environment=environment.variables(place, local_rank, told, os.environ),
                    error_file=told,
                )
            )
        return launches

    def _join(self) -> Mapping[str, Any]:
        return self._settings.join(self._port)

    def _tell(self, event: Event) -> None:
        self._events.put_nowait(event)

    def _signalled(self, number: int) -> None:
        _log.warning("told to end by %s", describe(-number))
        self._tell(Signalled())

    def _reap(self) -> None:
        """Reap orphans that this process inherited: the first process of a container inherits all of them."""
        reap_all(but=self._workers.keeper.pid if self._workers else None)

    def _leave_word(self) -> None:
        """Write the reason of this member's failure to the container's status, in case nobody else can report it."""
        words = [f"worker {one.local_rank}: {describe(one.code)}: {one.error}" for one in self._member.failures]
        if self._member.refused:
            words.insert(0, self._member.refused)
        if words and os.path.isfile(TERMINATION_LOG):
            with contextlib.suppress(OSError), open(TERMINATION_LOG, "w", encoding="utf-8") as file:
                file.write(bounded("\n".join(words), _TERMINATION_LOG_MAXIMUM // 4))

    def _log(self, event: Event, before: Member) -> None:
        """Log the directives of the rendezvous, and the results of the workers."""
        after = self._member
        if isinstance(event, Ended) and event.failure and not event.asked:
            failure = event.failure
            _log.error("worker %d failed: %s: %s", failure.local_rank, describe(failure.code), bounded(failure.error))
        if isinstance(event, Gone) and event.failure:
            _log.error("%s", event.failure.error)
        if isinstance(event, Stuck) and after.stuck:
            _log.error("workers survived KILL: their state is not known")
        if isinstance(event, Told) and event.directive != before.directive:
            told = event.directive
            _log.info("told to %s%s", told.kind.value.lower(), f": {told.why}" if told.why else "")
        if after.place and after.place is not before.place:
            place = after.place
            last = place.rank + place.local_world_size - 1
            _log.info("round %d: ranks %d to %d of %d", place.round, place.rank, last, place.world_size)
        if after.crew is Crew.NONE and before.crew is not Crew.NONE and after.place:
            _log.info("round %d is over here: %s", after.place.round, after.report().state.value)


def free_port() -> int:
    """Return a port that is free now, for IPv4 and IPv6."""
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    with socket.create_server(("", 0), family=family, dualstack_ipv6=both) as server:
        return server.getsockname()[1]


def _folder(incarnation: str) -> str:
    """Create the folder of the error files where the image allows it; return an empty path if nowhere."""
    # `mkdir` takes no folder or link that is there already, so nobody else can put one in its place.
    for parent in (os.environ.get("TMPDIR"), "/tmp", "/dev/shm", os.getcwd()):  # noqa: S108
        if parent:
            path = os.path.join(parent, f"holdfast-agent-{incarnation}")
            with contextlib.suppress(OSError):
                os.mkdir(path, mode=0o700)
                return path
    return ""


def _error_file(folder: str, number: int, local_rank: int) -> str:
    if not folder:
        return ""
    path = os.path.join(folder, f"round-{number}", str(local_rank))
    try:
        os.makedirs(path, exist_ok=True)
    except OSError:
        return ""
    return os.path.join(path, "error.json")


def run(settings: Settings) -> int:
    """Run the agent, and return the exit code of its process.

    Raises:
        OSError: if this process cannot be made a subreaper, or no port is free.
    """
    become_subreaper()
    hub = Hub(settings.url, settings.workload_uid, settings.token_file, settings.ca_file)

    async def main() -> int:
        return await Agent(settings, hub).run()

    loop = asyncio.new_event_loop()
    # Not asyncio.run: it would wait for the thread of a pending name lookup.
    return loop.run_until_complete(main())
