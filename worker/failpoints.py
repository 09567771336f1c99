"""Failpoints: the places at which a test can kill the worker, found by interception and never written by hand.

There is one before and one after each activity, each change sent to the cluster, each update sent to a workflow, and
each command to a machine: `activity.create.before`, `http.create.pods.after`, `http.patch.attempts/status.before`,
`update.announce.after`, `machine.erase.before`. Nothing is installed unless one of the two environment variables is
set. No flag or configuration file sets them, so no worker dies by mistake.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from temporalio import activity, client
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from holdfast import names
from holdfast.activities.kube.client import Object
from holdfast.activities.nodes.redfish import System
from holdfast.model import OperationKind
from holdfast.worker.runtime.kube import WorkerKube
from holdfast.worker.runtime.settings import (
    ENV_ALLOW_FAILPOINTS,
    ENV_FAILPOINT,
    ENV_FAILPOINT_TRACE,
    SettingsError,
)

EXIT_CRASHED: Final = 137
"""Exit code of a worker at a failpoint: that of a process killed with -9."""

VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
ACTIVITIES: Final = (
    *(kind.value for kind in OperationKind),
    *(str(value) for name, value in vars(names).items() if name.startswith("ACTIVITY_")),
)
UPDATES: Final = (names.UPDATE_ATTACH, names.UPDATE_ANNOUNCE, names.UPDATE_CHECKPOINT)
"""The updates that a worker itself sends to workflows."""
ORDERS: Final = ("set_power", "boot_from_network_once", "erase")
"""The commands to a machine."""
_POINT = re.compile(
    rf"(activity\.({'|'.join(ACTIVITIES)})|http\.({'|'.join(VERBS.values())})\.[a-z0-9]+(/[a-z0-9]+)?"
    rf"|update\.({'|'.join(UPDATES)})|machine\.({'|'.join(ORDERS)}))\.(before|after)"
)
_ALLOWED = (
    "expected <point>:<n>, several separated by commas, for example activity.create.before:1: the process ends "
    f"the n-th time it passes the point. A point is activity.<{'|'.join(ACTIVITIES)}>.<before|after>, "
    f"http.<{'|'.join(VERBS.values())}>.<resource or resource/subresource>.<before|after>, "
    f"update.<{'|'.join(UPDATES)}>.<before|after> or machine.<{'|'.join(ORDERS)}>.<before|after>"
)


@dataclass(frozen=True, slots=True, order=True)
class Passing:
    """The n-th time, from 1, that a process passes a point."""

    point: str
    number: int

    def __str__(self) -> str:
        return f"{self.point}:{self.number}"

    @classmethod
    def parse(cls, text: str) -> Passing:
        """Read `<point>:<n>`.

        Raises:
            ValueError: if it is something else; the message says what is allowed.
        """
        point, _, number = text.strip().rpartition(":")
        if not _POINT.fullmatch(point) or not number.isdecimal() or int(number) < 1:
            raise ValueError(f"{text.strip()!r} is no failpoint: {_ALLOWED}")
        return cls(point, int(number))


def die() -> None:
    """End the process at once: nothing is flushed, closed or reported."""
    os._exit(EXIT_CRASHED)


class Failpoints:
    """Counts and traces the points that this process passes, and ends the process at the given ones."""

    def __init__(
        self, at: frozenset[Passing] = frozenset(), trace: int | None = None, end: Callable[[], None] = die
    ) -> None:
        """Prepare.

        Args:
            at: the passings at which to end the process.
            trace: a file descriptor to which each passing is written, as a line `<point>:<n>`.
            end: ends the process.
        """
        self._at = at
        self._trace = trace
        self._end = end
        self._passed: Counter[str] = Counter()

    def passing(self, point: str) -> None:
        """Record that a point is passed; this may end the process."""
        self._passed[point] += 1
        here = Passing(point, self._passed[point])
        if self._trace is not None:
            os.write(self._trace, f"{here}\n".encode())
        if here in self._at:
            self._end()

    def client(self) -> type[WorkerKube]:
        """Return the class of a client that passes a point before and after each change it sends."""
        failpoints = self

        class Intercepted(WorkerKube):
            async def mutate(
                self,
                method: str,
                path: str,
                *,
                query: Mapping[str, str] | None = None,
                body: Object | None = None,
                content_type: str = "application/json",
                impersonate: str = "",
            ) -> Object:
                with failpoints.around(point_of(method, path)):
                    return await super().mutate(
                        method, path, query=query, body=body, content_type=content_type, impersonate=impersonate
                    )

        return Intercepted

    def machines(self) -> type[System]:
        """Return the class of a machine that passes a point before and after each command."""
        failpoints = self

        class Intercepted(System):
            async def set_power(self, on: bool) -> None:
                with failpoints.around("machine.set_power"):
                    await super().set_power(on)

            async def boot_from_network_once(self) -> None:
                with failpoints.around("machine.boot_from_network_once"):
                    await super().boot_from_network_once()

            async def erase(self, drive: str) -> str:
                with failpoints.around("machine.erase"):
                    return await super().erase(drive)

        return Intercepted

    @contextmanager
    def around(self, what: str) -> Generator[None]:
        """Pass a point before and one after a block, also if it fails."""
        self.passing(f"{what}.before")
        try:
            yield
        finally:
            self.passing(f"{what}.after")

    def interceptor(self) -> Interceptor:
        """Return the interceptor that passes a point before and after each activity."""
        return _AroundActivities(self)

    def client_interceptor(self) -> client.Interceptor:
        """Return the interceptor that passes a point before and after each update sent to a workflow."""
        return _AroundUpdates(self)


def installed() -> Failpoints | None:
    """Return the failpoints that the environment sets; None if it sets none.

    Raises:
        SettingsError: if a variable's value cannot be used, or if failpoints are not allowed (row X15).
    """
    at, trace = os.environ.get(ENV_FAILPOINT, ""), os.environ.get(ENV_FAILPOINT_TRACE, "")
    if not at and not trace:
        return None
    if os.environ.get(ENV_ALLOW_FAILPOINTS) != "1":
        which = ENV_FAILPOINT if at else ENV_FAILPOINT_TRACE
        raise SettingsError(
            f"{which}: a failpoint kills this worker: only a test sets it, with {ENV_ALLOW_FAILPOINTS}=1"
        )
    try:
        points = frozenset(Passing.parse(text) for text in at.split(",")) if at else frozenset[Passing]()
    except ValueError as error:
        raise SettingsError(f"{ENV_FAILPOINT}: {error}") from None
    try:
        file = os.open(trace, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644) if trace else None
    except OSError as error:
        raise SettingsError(
            f"{ENV_FAILPOINT_TRACE}: {trace!r}: {error.strerror or error}: expected a file that can be written"
        ) from None
    return Failpoints(points, file)


def point_of(method: str, path: str) -> str:
    """Return the point of a change by what it changes: `http.delete.attempts`, `http.patch.attempts/status`."""
    parts = path.strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    if parts[0] == "namespaces" and len(parts) > 2:
        parts = parts[2:]
    resource = "/".join((parts[0], *parts[2:3]))
    return f"http.{VERBS[method]}.{resource}"


class _AroundActivities(Interceptor):
    def __init__(self, failpoints: Failpoints) -> None:
        self._failpoints = failpoints

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _Around(next, self._failpoints)


class _Around(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, failpoints: Failpoints) -> None:
        super().__init__(next)
        self._failpoints = failpoints

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        with self._failpoints.around(f"activity.{activity.info().activity_type}"):
            return await super().execute_activity(input)


class _AroundUpdates(client.Interceptor):
    def __init__(self, failpoints: Failpoints) -> None:
        self._failpoints = failpoints

    def intercept_client(self, next: client.OutboundInterceptor) -> client.OutboundInterceptor:
        return _Telling(next, self._failpoints)


class _Telling(client.OutboundInterceptor):
    def __init__(self, next: client.OutboundInterceptor, failpoints: Failpoints) -> None:
        super().__init__(next)
        self._failpoints = failpoints

    async def start_workflow_update(self, input: client.StartWorkflowUpdateInput) -> client.WorkflowUpdateHandle[Any]:
        with self._failpoints.around(f"update.{input.update}"):
            return await super().start_workflow_update(input)
