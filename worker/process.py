"""The worker process from start to end: connects to what it needs, runs its roles, and drains before it exits."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections.abc import Sequence
from contextlib import AsyncExitStack
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

import structlog
from aiohttp import web
from temporalio.client import Client, Interceptor, Plugin
from temporalio.runtime import Runtime
from temporalio.worker import Worker, WorkflowRunner

from holdfast import traces
from holdfast.activities.cluster import ClusterActivities
from holdfast.activities.data.settings import Data
from holdfast.activities.kube.blindness import SharedSight
from holdfast.activities.nodes.redfish import Redfish
from holdfast.codec.codec import Codec
from holdfast.codec.options import encrypts
from holdfast.errors import HoldfastError
from holdfast.relay import relayed
from holdfast.tls import CERTIFICATES
from holdfast.traces import Traces
from holdfast.worker import failpoints, reach, roles
from holdfast.worker.data import NoClient, keep_looking, opened
from holdfast.worker.entities.queues import Admission
from holdfast.worker.entities.watchdog import Entities, Watchdog
from holdfast.worker.evidence import evidence_store, keep_expiring
from holdfast.worker.failpoints import Failpoints
from holdfast.worker.gangs.certificate import Certificate
from holdfast.worker.gangs.hub import GangActivities
from holdfast.worker.gangs.opening import open_door, renewed_certificate
from holdfast.worker.gangs.sessions import Gangs
from holdfast.worker.nodes.watch import NodeWatchActivities
from holdfast.worker.runtime import health as health_pages
from holdfast.worker.runtime import logs, metrics, settings
from holdfast.worker.runtime.health import Check, Health
from holdfast.worker.runtime.kube import Connector, WorkerKube
from holdfast.worker.runtime.metrics import Metrics, Running
from holdfast.worker.runtime.scraped import Certificates, Checks
from holdfast.worker.runtime.settings import Role, Settings, SettingsError
from holdfast.worker.runtime.temporal import TemporalConnector
from holdfast.worker.watch.watch import WatchActivities

EXIT_STOPPED: Final = 0
EXIT_BROKEN: Final = 1
EXIT_REFUSED: Final = 2
EXIT_AT_ONCE: Final = 130
SHUTDOWN_MARGIN: Final = 5.0
"""Seconds beyond the graceful shutdown after which the process cancels everything still running."""

Log: Any = structlog.stdlib.get_logger("holdfast.worker")


def run(given: Settings, runner: WorkflowRunner, plugins: Sequence[Plugin] = ()) -> int:
    """Run a worker until it is stopped; return the process's exit code.

    Args:
        given: the settings.
        runner: runs the workflows: Temporal's sandbox with our pure modules passed through.
        plugins: for the Temporal client; if given, a plugin brings the data converter.
    """
    logs.configure(given.log_format, given.log_level)
    for line in settings.misspelled():
        Log.warning(line)
    gc.freeze()  # What is imported stays.
    try:
        points = failpoints.installed()
        if points is not None:
            Log.warning(
                f"{settings.ENV_ALLOW_FAILPOINTS}=1: this worker kills itself at its failpoints; use it in tests only"
            )
        return asyncio.run(Process(given, runner, plugins, points).run())
    except SettingsError as error:
        Log.error(f"refused: {error}")
        return EXIT_REFUSED


class Process:
    """One worker process."""

    def __init__(
        self,
        given: Settings,
        runner: WorkflowRunner,
        plugins: Sequence[Plugin] = (),
        failpoints: Failpoints | None = None,
    ) -> None:
        """Prepare, without opening anything yet."""
        self._failpoints = failpoints
        self._settings = given
        self._plugins = plugins
        self._runner = runner
        self.health = Health()
        self.metrics = Metrics()
        files = {name: file for name in CERTIFICATES if (file := getattr(given, name)) is not None}
        self.metrics.registry.register(Checks(self.health))
        self.metrics.registry.register(Certificates(files))
        self.addresses: dict[str, str] = {}
        """Addresses of the running servers, by name: `health`, `metrics` and `rendezvous`."""
        self._stop = asyncio.Event()
        self._workers: list[Worker | Admission] = []

    async def run(self) -> int:
        """Run until stopped; return the exit code.

        Raises:
            SettingsError: if something is refused permanently.
        """
        self._listen_for_signals()
        async with AsyncExitStack() as stack:
            runtime, sdk_url = metrics.sdk_runtime()
            await self._serve(stack, "health", self.health.application(), self._settings.health_address)
            await self._serve(stack, "metrics", metrics.page(self.metrics, sdk_url), self._settings.metrics_address)
            self._note_start()
            begin = asyncio.create_task(self._begin(stack, runtime))
            stopped = asyncio.create_task(self._stop.wait())
            try:
                await asyncio.wait({begin, stopped}, return_when=asyncio.FIRST_COMPLETED)
                if not begin.done():
                    return EXIT_STOPPED  # Stopped before anything began.
                return await self._work(await begin, stopped)
            finally:
                for task in (begin, stopped):
                    task.cancel()
                await asyncio.gather(begin, stopped, return_exceptions=True)

    def stop(self) -> None:
        """Shut down: become not ready at once, then finish all running work."""
        self.health.drain()
        self._stop.set()

    # Start.

    async def _begin(self, stack: AsyncExitStack, runtime: Runtime) -> list[Worker | Admission]:
        given = self._settings
        telling: tuple[Interceptor, ...] = (self._failpoints.client_interceptor(),) if self._failpoints else ()
        tracing = await self._tracing(stack)
        if tracing is not None:
            telling = (*telling, tracing.interceptor)
        target = await stack.enter_async_context(relayed(given.temporal_address))
        temporal = TemporalConnector(given, target, runtime, self._plugins, telling)
        client = await reach.temporal(temporal, given, self.health)
        self._note_codec(client)
        renewing = asyncio.create_task(temporal.keep_renewing(self._workers, self._stop))
        stack.callback(renewing.cancel)
        site, kube, where = None, None, ""
        if given.acts_on_cluster:
            client_class = self._failpoints.client() if self._failpoints else WorkerKube
            connector = Connector(given, self.metrics, client_class, tracing.tracer if tracing else None)
            kube = await stack.enter_async_context(await connector())
            where = connector.where
            gangs, data = Gangs(), self._data(stack)
            certificate = renewed_certificate(stack, given)
            if given.rendezvous_address:
                try:
                    served = await open_door(stack, given, connector, gangs, certificate, self.metrics, self.health)
                except OSError as error:
                    raise _not_free("rendezvous", given.rendezvous_address, error) from error
                self.addresses["rendezvous"] = served
            site = await self._site(stack, client, connector, kube, gangs, data, certificate)
        health = client.service_client.check_health
        checking = asyncio.create_task(reach.keep_checking(self.health, health, kube, (temporal.where, where)))
        stack.callback(checking.cancel)
        for queue, sort, most in roles.limits(given, site):
            self.metrics.slots.labels(queue, sort).set(most)
        around = (*((self._failpoints.interceptor(),) if self._failpoints else ()), Running(self.metrics))
        self._workers += roles.workers(client, given, site, self._runner, around)
        return self._workers

    async def _site(
        self,
        stack: AsyncExitStack,
        client: Client,
        connector: Connector,
        kube: WorkerKube,
        gangs: Gangs,
        data: Data | None,
        certificate: Certificate,
    ) -> roles.Site:
        given = self._settings
        uid = await reach.cluster_uid(kube, connector.where, given, self.health)
        installation = await reach.installation_of(client, given, uid, self.health)
        await reach.bind(client, given, uid, installation, Role.WATCH in given.roles, self.health, kube)
        Log.info("acts on", cluster=given.cluster, cluster_uid=uid, address=connector.where, installation=installation)
        watch = WatchActivities(
            client,
            connector,
            cluster_uid=uid,
            installation=installation,
            metrics=self.metrics,
            namespaces=given.namespaces,
            signals_per_second=given.watch_signals_per_second,
            marks=given.marks_for(installation),
            managed_by=given.managed_by,
            compatible_with=given.compatible_with,
        )
        nodes = NodeWatchActivities(
            client, connector, cluster_uid=uid, metrics=self.metrics, marks=given.marks_for(installation)
        )
        if Role.WATCH in given.roles:
            self.health.ask_ready("watch", lambda: _watch_check(watch))
            watchdog = Watchdog(Entities(client, given, kube, uid, installation), self.metrics)
            looks = asyncio.create_task(watchdog.run())
            stack.callback(looks.cancel)
        # While the watch in this process could not see the cluster, its activities could not either.
        sight = SharedSight(kube.sight, watch.intervals)
        marks = given.marks_for(installation)
        access = given.redfish
        machines = self._failpoints.machines() if self._failpoints else None
        provisioning = Redfish(access, machines) if access is not None else None
        rules = (given.limits, sight, marks, given.silence)
        evidence = evidence_store(given, client.data_converter)
        if evidence is not None and Role.WATCH in given.roles:
            expiring = asyncio.create_task(keep_expiring(evidence, given.cluster))
            stack.callback(expiring.cancel)
        cluster = ClusterActivities(
            kube,
            given.cluster,
            uid,
            installation,
            *rules,
            self._rendezvous(),
            data,
            provisioning,
            given.namespaces,
            certificate.ca,
            managed_by=given.managed_by,
            encrypted=encrypts(client.data_converter),
            evidence=evidence,
        )
        meeting = GangActivities(client, connector, cluster_uid=uid, metrics=self.metrics, gangs=gangs)
        return roles.Site(cluster, watch, nodes, meeting)

    def _data(self, stack: AsyncExitStack) -> Data | None:
        """Return what data sets are staged with, and start to check their store."""
        try:
            data = opened(self._settings, self.metrics)
        except NoClient as error:
            raise SettingsError(str(error)) from None
        if data is not None:
            looks = asyncio.create_task(keep_looking(data))
            stack.callback(looks.cancel)
        return data

    async def _tracing(self, stack: AsyncExitStack) -> Traces | None:
        """Return what the environment wants to be traced with; what is left to send is sent at the end."""
        try:
            return await stack.enter_async_context(traces.opened("holdfast-worker"))
        except HoldfastError as error:
            raise SettingsError(str(error)) from None

    def _rendezvous(self) -> str:
        """Return the URL of the rendezvous that pods are given; empty if it is not known."""
        served = self.addresses.get("rendezvous", "")
        scheme = "http" if self._settings.rendezvous_insecure else "https"
        everywhere = served.rpartition(":")[0] in {"0.0.0.0", "[::]", "::"}  # noqa: S104 - compared alone
        return self._settings.rendezvous_url or (f"{scheme}://{served}" if served and not everywhere else "")

    def _note_codec(self, client: Client) -> None:
        """Show on the readiness page what the codec cannot decode. The worker stays ready: the rest goes on."""
        codec = client.data_converter.payload_codec
        if isinstance(codec, Codec):
            self.health.ask_ready("codec", lambda: Check("codec", True, "; ".join(codec.problems())))

    def _note_start(self) -> None:
        given = self._settings
        self.health.note(reach.TEMPORAL, False, f"{given.temporal_address}: not reached yet")
        if given.acts_on_cluster:
            self.health.note(reach.KUBERNETES, False, "not reached yet")
        self.health.note("workers", False, "not started yet")
        self.metrics.up.labels(given.cluster, _version()).set(1)
        for role in given.roles:
            self.metrics.role.labels(role.value).set(1)
        Log.info(
            "starting",
            roles=[str(role) for role in given.roles],
            cluster=given.cluster,
            temporal=given.temporal_address,
            namespace=given.temporal_namespace,
            version=_version(),
            **self.addresses,
        )

    # Work, and its end.

    async def _work(self, workers: list[Worker | Admission], stopped: asyncio.Task[bool]) -> int:
        runs = [asyncio.create_task(worker.run()) for worker in workers]
        self.health.ask_live("workers", lambda: _running(runs, self.health))
        self.health.note("workers", True, ", ".join(worker.task_queue for worker in workers))
        Log.info("ready", queues=[worker.task_queue for worker in workers])
        await asyncio.wait({stopped, *runs}, return_when=asyncio.FIRST_COMPLETED)
        code = EXIT_STOPPED
        if not stopped.done():
            code = EXIT_BROKEN
            for run_ in runs:
                if run_.done() and (error := run_.exception()) is not None:
                    Log.error("a role ended by itself", error=repr(error))
            self.stop()
        limit = self._settings.graceful_shutdown.total_seconds()
        Log.info("draining", seconds=limit)
        ends = [
            asyncio.create_task(worker.shutdown())
            for worker, task in zip(workers, runs, strict=True)
            if not task.done()
        ]
        _, late = await asyncio.wait([*ends, *runs], timeout=limit + SHUTDOWN_MARGIN)
        if late:
            Log.error("something did not end in time", seconds=limit + SHUTDOWN_MARGIN)
            code = EXIT_BROKEN
            for task in late:
                task.cancel()
        await asyncio.gather(*ends, *runs, return_exceptions=True)
        Log.info("stopped", code=code)
        return code

    def _listen_for_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled, number)

    def _signalled(self, number: signal.Signals) -> None:
        if self._stop.is_set():
            Log.warning("told to stop again: ending at once", signal=signal.Signals(number).name)
            os._exit(EXIT_AT_ONCE)
        Log.info("told to stop: draining; a second signal ends at once", signal=signal.Signals(number).name)
        self.stop()

    async def _serve(self, stack: AsyncExitStack, name: str, application: web.Application, address: str) -> None:
        try:
            runner, got = await health_pages.listen(application, address)
        except OSError as error:
            raise _not_free(name, address, error) from error
        stack.push_async_callback(runner.cleanup)
        self.addresses[name] = got


def _not_free(name: str, address: str, error: OSError) -> SettingsError:
    return SettingsError(
        f"{name}_address: {address} cannot be listened on: {error.strerror or error}: "
        "expected a free host:port (port 0 takes any)"
    )


def _running(runs: Sequence[asyncio.Task[None]], health: Health) -> Check:
    ended = [task for task in runs if task.done()]
    return Check("workers", not ended or health.draining, f"{len(ended)} ended" if ended else "")


def _watch_check(watch: WatchActivities) -> Check:
    if not watch.running:
        return Check("watch", True, "stands by: another worker watches, or none is asked to yet")
    parts = [f"{first}-{last}{'' if feeds.settled else ' (listing)'}" for (first, last), feeds in watch.running.items()]
    return Check("watch", True, "watches shards " + ", ".join(parts))


def _version() -> str:
    try:
        return version("holdfast")
    except PackageNotFoundError:
        return "unknown"
