"""`holdfast agent in-place`: the sidecar that holds back a pod's programs, and restarts its pod's containers (row J24).

It takes the place of JobSet's published in-place restart agent and reads the same environment variables. It needs
neither a token nor the network: its orders are annotations of its pod, which the kubelet shows as files.

- It holds its pod's programs back, by a startup probe that fails, until they may start at the requested attempt.
- Once they may run and a later attempt is requested, it exits, and its restart rule makes the kubelet restart all
  containers of the pod.
- It remembers which attempt has run in this pod. After a failure of its pod, it waits for the next one.

It starts at each restart in each pod, so it imports little.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from enum import Enum
from os import path
from typing import Final, NamedTuple, NoReturn

from holdfast import names
from holdfast.agent import EXIT_REFUSED

POLL: Final = 0.25
"""Seconds between two looks at the orders; the kubelet writes a changed annotation within about a second."""
_RAN: Final = "ran"
PROBE_PATH: Final = "/barrier-is-down"
PROBE_PORT: Final = 8081
EXIT_CODE: Final = 1


class Act(Enum):
    """What the agent does now."""

    WAIT = "wait"
    LIFT = "lift"
    RESTART = "restart"


class Orders(NamedTuple):
    """The orders on the agent's pod; None: there is none yet."""

    request: int | None = None
    """The in-place restart attempt that the pod is to reach."""
    attempt: int | None = None
    """The in-place restart attempt at which its programs may run."""


def decide(own: int, ran: int | None, orders: Orders, *, is_lifted: bool) -> tuple[int, Act]:
    """Return an agent's attempt, and what it does.

    Args:
        own: Its attempt so far: the one that was requested when it started, or a later one that it waits for.
        ran: The last attempt at which programs of this pod were allowed to start; None: none.
        orders: The orders now.
        is_lifted: Whether this agent has let the programs start.
    """
    may_run = orders.attempt == own and (ran is None or ran < own)
    if orders.request is not None and orders.request > own:
        # The worker waits for a restart of every pod whose programs it has allowed to start, even if none did yet.
        return (own, Act.RESTART) if is_lifted or may_run else (orders.request, Act.WAIT)
    return own, Act.LIFT if may_run and not is_lifted else Act.WAIT


def begin(ran: int | None, orders: Orders) -> int | None:
    """Return the attempt at which an agent begins; None: it has no orders yet.

    One that was allowed to run before a later one was requested comes first: if this agent was meant, and had not
    looked yet, the worker waits for its restart.
    """
    request, attempt = orders.request, orders.attempt
    if request is None or attempt is None or attempt >= request:
        return request
    return attempt if ran is None or ran < attempt else request


class SettingsError(Exception):
    """The agent's settings are invalid; the text says what was expected, and what was found."""


class Settings(NamedTuple):
    """How the agent was started."""

    orders: str
    memory: str
    probe_path: str = PROBE_PATH
    probe_port: int = PROBE_PORT
    exit_code: int = EXIT_CODE
    """The exit code by which it restarts its pod."""


def read(environment: Mapping[str, str]) -> Settings:
    """Read the settings from the environment, under the published names.

    Raises:
        SettingsError: if one is invalid.
    """
    if environment.get("WORKER_COMMAND"):
        raise SettingsError("WORKER_COMMAND: expected none: this agent runs as a sidecar, beside the program")
    probe_path = environment.get("STARTUP_PROBE_PATH") or PROBE_PATH
    if not probe_path.startswith("/"):
        raise SettingsError(f"STARTUP_PROBE_PATH: {probe_path!r}: expected a path that begins with /")
    return Settings(
        orders=names.IN_PLACE_ORDERS_DIRECTORY,
        memory=names.IN_PLACE_MEMORY_DIRECTORY,
        probe_path=probe_path,
        probe_port=_number(environment, "STARTUP_PROBE_PORT", PROBE_PORT, 65535),
        exit_code=_number(environment, "IN_PLACE_RESTART_EXIT_CODE", EXIT_CODE, 255),
    )


def _number(environment: Mapping[str, str], name: str, default: int, most: int) -> int:
    text = environment.get(name) or str(default)
    if not text.isdecimal() or not 1 <= int(text) <= most:
        raise SettingsError(f"{name}: {text!r}: expected a whole number from 1 to {most}")
    return int(text)


class Agent:
    """One run of the agent, from its start to the restart of its pod."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._ran = _integer(path.join(settings.memory, _RAN))
        self._own: int | None = None
        self._is_lifted = False

    def step(self) -> Act:
        """Look at the orders, and do what they say; return RESTART when the process must exit.

        Raises:
            OSError: if it can neither remember the attempt nor answer the startup probe.
        """
        if not path.isdir(self._settings.orders):
            return self._bypass()
        orders = Orders(*(_integer(path.join(self._settings.orders, name)) for name in names.IN_PLACE_ORDERS))
        if self._own is None:
            self._own = begin(self._ran, orders)
        if self._own is None:
            return Act.WAIT
        self._own, act = decide(self._own, self._ran, orders, is_lifted=self._is_lifted)
        if act is Act.LIFT:
            # First the memory: a program must never run twice at one attempt.
            self._remember(self._own)
            self._answer_probe()
            self._is_lifted = True
            print(f"in-place restart attempt {self._own}: all pods are at the barrier: it is lifted", flush=True)
        elif act is Act.RESTART:
            if not self._is_lifted:
                # It is left: the next agent of this pod goes on to the one that is requested.
                self._remember(self._own)
            print(f"in-place restart attempt {orders.request} is requested: restarting this pod", flush=True)
        return act

    def _bypass(self) -> Act:
        """Let the programs start: a pod without orders belongs to a workload that does not restart in place."""
        if not self._is_lifted:
            self._answer_probe()
            self._is_lifted = True
        return Act.WAIT

    def _remember(self, attempt: int) -> None:
        memory = path.join(self._settings.memory, _RAN)
        new = f"{memory}.new"
        with open(new, "w", encoding="ascii") as file:
            file.write(str(attempt))
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, memory)
        self._ran = attempt

    def _answer_probe(self) -> None:
        both = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if both else socket.AF_INET
        server = socket.create_server(("", self._settings.probe_port), family=family, dualstack_ipv6=both)
        threading.Thread(target=_answer, args=(server, self._settings.probe_path), daemon=True).start()


def _answer(server: socket.socket, probe_path: str) -> None:
    """Answer each request for the startup probe's path with 200, and any other with 404."""
    while True:
        connection, _ = server.accept()
        with connection, contextlib.suppress(OSError):
            connection.settimeout(1)
            words = connection.recv(4096).split(b" ", 2)
            status = b"200 OK" if words[1:2] == [probe_path.encode()] else b"404 Not Found"
            connection.sendall(b"HTTP/1.1 " + status + b"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")


def _integer(file: str) -> int | None:
    """Return the number in a file; None if there is no file, or no number in it."""
    try:
        with open(file, encoding="ascii") as opened:
            text = opened.read().strip()
    except (OSError, ValueError):
        return None
    return int(text) if text.isdecimal() else None


def main(arguments: Sequence[str]) -> NoReturn:
    """Run the agent until its pod restarts or ends; does not return."""
    if arguments:
        print("usage: holdfast agent in-place\n\n" + str(__doc__), flush=True)
        sys.exit(0 if arguments[0] in {"-h", "--help"} else EXIT_REFUSED)
    try:
        settings = read(os.environ)
    except SettingsError as error:
        print(f"Error: {error}", file=sys.stderr)
        sys.exit(EXIT_REFUSED)
    signal.signal(signal.SIGTERM, _end)
    agent = Agent(settings)
    while agent.step() is not Act.RESTART:
        time.sleep(POLL)
    sys.exit(settings.exit_code)


def _end(number: int, _: object) -> NoReturn:
    """End as a process does that a signal has ended: the kubelet stops the pod."""
    os._exit(128 + number)
