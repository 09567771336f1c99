"""`holdfast logs`: what the containers of an attempt write, read with the caller's own rights."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Final

import typer

from holdfast import names
from holdfast.cli.common import kubectl
from holdfast.cli.common.options import (
    EXIT_UNREACHABLE,
    HERE,
    Context,
    Kubeconfig,
    Name,
    Namespace,
    Place,
    chosen,
    grouped,
    with_run,
)
from holdfast.cli.common.output import say
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.activities.kube.client import Kube
    from holdfast.cli.workloads.log_sources import Pod, Position, Source
    from holdfast.client import Run, StatusView

AT_ONCE: Final = 50
"""Logs that are followed at the same time."""
_LOOK: Final = 1.0
"""Seconds between two looks at the pods while following."""
_DRAIN: Final = 10.0
"""Seconds allowed, once the attempt is over, for what its pods are still writing."""


@dataclass(frozen=True, slots=True)
class Wish:
    """Whose logs to show, and how much of them."""

    name: Name
    namespace: Namespace = None
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Until the attempt ends, with pods to come.")] = False
    previous: Annotated[
        bool, typer.Option("--previous", "-p", help="Of each container before its last restart in its pod.")
    ] = False
    attempt: Annotated[
        int | None,
        typer.Option("--attempt", min=1, help="Of this attempt. Default: the latest.", show_default=False),
    ] = None
    container: Annotated[
        str | None, typer.Option("--container", "-c", help="Only of containers of this name.", show_default=False)
    ] = None
    tail: Annotated[
        int | None,
        typer.Option("--tail", min=0, help="Only so many lines of each log. Default: all.", show_default=False),
    ] = None
    failed: Annotated[
        bool, typer.Option("--failed", help="Only of the pod whose failure ended the attempt. Default: the last one.")
    ] = False


def logs(wish: Wish, place: Place = HERE, kubeconfig: Kubeconfig = None, context: Context = None) -> None:
    """Print the logs of all pods of an attempt, each line after the name of its pod.

    Where a pod has several containers, the name of the container follows. Logs are read with the rights of your
    kubeconfig (get and list pods, get pods/log). Once all pods are gone, what a worker has kept as evidence is shown,
    with your credentials for its store (HOLDFAST_DATA_ENDPOINT and the like). Exit code 3 if a log cannot be read.
    """
    for given, option in ((wish.previous, "--previous"), (wish.failed, "--failed")):
        if wish.follow and given:
            raise typer.BadParameter(f"{option} shows what is over: expected no --follow", param_hint=option)
    named = chosen(wish.name, wish.namespace)

    async def read(run: Run) -> bool:
        from holdfast.cli.common.kubernetes import reached, server_of

        server = server_of(kubeconfig or os.environ.get("KUBECONFIG"), context or kubectl.context())
        async with reached(kubeconfig, context) as kube:
            return await _Reader(run, kube, wish, server).read()

    if not with_run(named, place, read):
        raise typer.Exit(EXIT_UNREACHABLE)


def add_to(app: typer.Typer, panel: str) -> None:
    """Add this file's command."""
    app.command(rich_help_panel=panel)(grouped(logs))


class _NotOurs(Exception):
    """A pod is gone, or another has its name."""


@dataclass
class _Reader:
    """One call of the command."""

    run: Run
    kube: Kube
    wish: Wish
    server: str
    _said: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
    """What was last said of a log that cannot be read, once for each reason; by the pod's uid and the container."""
    _missed: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    """Logs whose node did not answer."""

    async def read(self) -> bool:
        """Print everything that was asked for, and return whether all logs could be read."""
        from holdfast.cli.workloads.log_sources import wanted

        view = await self.run.status()
        attempt = wanted(view.status, self.wish.attempt)
        if self.wish.follow:
            await self._follow(attempt, view)
        elif self.wish.failed:
            await self._print_failed(view)
        else:
            await self._print(view, attempt, await self._pods(view, attempt))
        return not self._missed

    async def _pods(self, view: StatusView, attempt: int) -> list[Pod]:
        from holdfast.cli.workloads.log_sources import pod_of

        labels = f"{names.LABEL_WORKLOAD_UID}={view.status.uid},{names.LABEL_ATTEMPT}={attempt}"
        listed = await self.kube.list("v1", "Pod", self.run.namespace, labels=labels, keep=pod_of)
        return listed["items"]

    # What is there now.

    async def _print_failed(self, view: StatusView) -> None:
        from holdfast.cli.workloads.log_sources import decided

        attempt, failure = decided(await self.run.history(), self.wish.attempt)
        name, why = failure.pod, failure.sentence()
        if not name:
            raise HoldfastError(f"--failed: attempt {attempt} was ended by no single pod: {why}")
        pods = [one for one in await self._pods(view, attempt) if one.name == name]
        if not pods:
            await self._print_kept(view, attempt, name, f"pod {name} decided: {why}. ")
            return
        _note(f"attempt {attempt}: {why}")
        await self._print(view, attempt, pods)

    async def _print(self, view: StatusView, attempt: int, pods: list[Pod]) -> None:
        from holdfast.cli.workloads.log_sources import Position, sources

        if not pods:
            await self._print_kept(view, attempt)
            return
        found, silent = sources(pods, self.wish.container, previous=self.wish.previous)
        if not found and self.wish.previous:
            raise HoldfastError(f"--previous: no container of attempt {attempt} has restarted in its pod")
        for one in silent:
            say(one, err=True)
        for source in found:
            await self._tried(source, Position())

    async def _print_kept(self, view: StatusView, attempt: int, pod: str = "", because: str = "") -> None:
        """Print what was kept of the logs of an attempt whose pods are gone; only of one pod, if it is given."""
        from holdfast.cli.cluster.checks import bound_uid
        from holdfast.cli.workloads.kept_logs import Whose, evidence_document, kept_logs
        from holdfast.cli.workloads.log_sources import absent

        past = next((one for one in (await self.run.history()).attempts if one.number == attempt), None)
        evidence = past.evidence if past is not None else None
        if evidence is None or not evidence.link:
            raise HoldfastError(because + absent(view.status, attempt, self.server, evidence))
        key = f"{view.status.name}/{view.status.uid}/attempt-{attempt}"
        cluster = self.run.cluster
        whose = Whose(cluster, await bound_uid(self.run, cluster), self.run.namespace)
        document = await evidence_document(self.kube, whose, evidence, key)
        wish = self.wish
        kept = kept_logs(document, pod=pod, container=wish.container, previous=wish.previous, tail=wish.tail)
        say(f"the pods of attempt {attempt} are gone: {evidence.sentence()}", err=True)
        for remark in kept.remarks:
            say(remark, err=True)
        for line in kept.lines:
            say(line)

    async def _tried(self, source: Source, position: Position) -> bool:
        """Print one log; if its node does not answer, return False; whatever fails, others can be read.

        Raises:
            Unreachable: if the API server itself does not answer.
        """
        from holdfast.activities.kube.client import Invalid, NotFound, Unreachable

        key = source.key
        self._missed.discard(key)
        try:
            await self._copy(source, position)
            return True
        except (_NotOurs, NotFound):
            why, read = "the pod is gone, and its log with it", True
        except Invalid as error:
            why, read = error.message, True
        except Unreachable as error:
            if not error.status:
                raise
            why, read = f"cannot be read: {error.message}", False
            self._missed.add(key)
        if source.previous and position.at:
            return read  # It was followed while it ran; its log is removed once another instance has ended.
        if self._said.get(key) != why:
            self._said[key] = why
            say(f"{source.prefix}: {why}", err=True)
        return read

    async def _copy(self, source: Source, position: Position) -> None:
        """Print a log from a position on.

        Raises:
            _NotOurs: if the pod is gone, or another has its name by now.
            KubeError: if it cannot be read.
        """
        from holdfast.activities.kube.logs import log_lines

        since = position.reopen()
        lines = log_lines(
            self.kube,
            self.run.namespace,
            source.pod,
            source.container,
            follow=self.wish.follow,
            previous=source.previous,
            tail=self.wish.tail if not since else None,
            since=since,
        )
        ours = False
        async with aclosing(lines):
            async for at, text in lines:
                if not ours:
                    # The log was opened by name: it is this pod's if the name is still this pod's now.
                    found = await self.kube.find("v1", "Pod", source.pod, self.run.namespace)
                    if found is None or found["metadata"]["uid"] != source.uid:
                        raise _NotOurs
                    ours = True
                if position.take(at):
                    say(f"{source.prefix}: {text}")

    # What is to come.

    async def _follow(self, attempt: int, view: StatusView) -> None:
        """Print all logs as they are written, until the attempt is over."""
        latest = [view]
        watching = asyncio.create_task(self._watch(latest))
        streams = dict[tuple[str, str], asyncio.Task[None]]()
        try:
            await self._follow_all(attempt, latest, watching, streams)
        finally:
            for task in (watching, *streams.values()):
                task.cancel()
            await asyncio.gather(watching, *streams.values(), return_exceptions=True)

    async def _watch(self, latest: list[StatusView]) -> None:
        async for view in self.run.watch():
            latest[0] = view

    async def _follow_all(
        self,
        attempt: int,
        latest: list[StatusView],
        watching: asyncio.Task[None],
        streams: dict[tuple[str, str], asyncio.Task[None]],
    ) -> None:
        from holdfast.activities.kube.client import Unreachable
        from holdfast.cli.workloads.log_sources import Position, is_over, to_follow

        positions = dict[tuple[str, str], Position]()
        read = set[tuple[str, str, str]]()
        clock, until, crowded, away = asyncio.get_running_loop().time, None, False, False
        while True:
            if watching.done():
                watching.result()
            for key, task in list(streams.items()):
                if task.done():
                    streams.pop(key).result()
            view = latest[0]
            try:
                pods = await self._pods(view, attempt)
                away = False
            except Unreachable as error:
                if not away:
                    say(f"the API server does not answer: tried again: {error.message}", err=True)
                away = True
                await asyncio.sleep(_LOOK)
                continue
            fresh = to_follow(pods, self.wish.container, read, streams.keys())
            room = AT_ONCE - len(streams)
            for source in fresh[:room]:
                copy = self._followed(source, positions.setdefault(source.key, Position()), read)
                streams[source.key] = asyncio.create_task(copy)
            if len(fresh) > room and not crowded:
                crowded = True
                more = f"{len(fresh) - room} more follow as these end (`-c NAME` selects fewer)"
                say(f"{AT_ONCE} logs at a time: {more}", err=True)
            if is_over(view.status, attempt, closed=view.closed, pods=len(pods)):
                until = until if until is not None else clock() + _DRAIN
                if not streams or clock() > until:
                    return
            await asyncio.sleep(_LOOK)

    async def _followed(self, source: Source, position: Position, read: set[tuple[str, str, str]]) -> None:
        """Follow one log; one that breaks off is read on from where it was at the next look.

        It is read to its end only where its container had ended before: the stream may have ended for another reason.
        """
        from holdfast.activities.kube.client import Unreachable

        with suppress(Unreachable):
            if await self._tried(source, position) and source.ended:
                read.add((*source.key, source.instance))


def _note(text: str) -> None:
    """Say something beside the logs, to a person only."""
    if sys.stderr.isatty():
        say(text, err=True)
