"""A real Prometheus scrapes a real worker: its alerts fire, and the dashboards' queries have answers."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from holdfast import names
from holdfast.local import Stack
from tests.e2e.ground.proxy import api_proxy
from tests.e2e.ground.site import appwrapper, free_port, job, open_site, until
from tests.e2e.ground.space import FOREIGN_FINALIZER, open_space
from tests.monitoring.promtool import ALERTS, program
from tests.monitoring.test_dashboards import queries
from tests.worker.temporal.authority import Authority

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
ANSWERED = (
    "fleet: Running",
    "fleet: Held",
    "fleet: Nodes down",
    "fleet: Workloads by phase",
    "worker: Workers",
    "worker: Slots in use",
    "worker: Operations under way",
    "worker: Memory",
)

OUTAGE = 35.0
"""Seconds: a decision that takes over 30 is told."""


@dataclass
class Prometheus:
    """A Prometheus, by its API."""

    address: str

    async def get(self, path: str, **parameters: str) -> Any:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://{self.address}/api/v1/{path}", params=parameters) as answer,
        ):
            told = await answer.json()
        assert told["status"] == "success", told
        return told["data"]

    async def answers(self) -> bool:
        try:
            return bool(await self.get("status/buildinfo"))
        except (aiohttp.ClientError, AssertionError):
            return False

    async def query(self, expression: str) -> list[dict[str, Any]]:
        return (await self.get("query", query=expression))["result"]

    async def firing(self) -> set[str]:
        found = (await self.get("alerts"))["alerts"]
        return {one["labels"]["alertname"] for one in found if one["state"] == "firing"}

    async def fires(self, alert: str, seconds: float = 60) -> None:
        async def check() -> bool:
            return alert in await self.firing()

        await until(check, seconds, f"{alert} fires", pause=0.3)

    async def rests(self, alert: str, seconds: float = 60) -> None:
        async def check() -> bool:
            return alert not in await self.firing()

        await until(check, seconds, f"{alert} fires no more", pause=0.3)


@asynccontextmanager
async def prometheus(directory: Path, target: str, *, seconds: int = 60) -> AsyncIterator[Prometheus]:
    """Run a Prometheus that scrapes one worker each second; its alerts fire without their waits.

    Args:
        directory: for its files.
        target: the worker's address.
        seconds: how long a minute of a rate's window is here.
    """
    rules = yaml.safe_load(ALERTS.read_text())
    for group in rules["groups"]:
        for one in group["rules"]:
            del one["for"]
            one["expr"] = re.sub(r"\[(\d+)m\]", lambda found: f"[{int(found[1]) * seconds}s]", one["expr"])
    (directory / "alerts.yml").write_text(yaml.safe_dump(rules))
    configuration = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": ["alerts.yml"],
        "scrape_configs": [{"job_name": "holdfast", "static_configs": [{"targets": [target]}]}],
    }
    file = directory / "prometheus.yml"
    file.write_text(yaml.safe_dump(configuration))
    address = f"127.0.0.1:{free_port()}"
    argv = [
        program("prometheus"),
        f"--config.file={file}",
        f"--storage.tsdb.path={directory / 'data'}",
        f"--web.listen-address={address}",
    ]
    log = directory / "prometheus.log"
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(*argv, stdout=out, stderr=out)
    made = Prometheus(address)
    try:
        await until(made.answers, 90, lambda: f"Prometheus answers: {log.read_text()[-2000:]}")
        yield made
    finally:
        process.terminate()
        await asyncio.wait_for(process.wait(), 30)


async def test_alerts_fire_by_what_a_worker_says(stack: Stack, tmp_path: Path):
    metrics = f"127.0.0.1:{free_port()}"
    async with open_site(stack, tmp_path, prefix="p") as site, prometheus(tmp_path, metrics) as monitor:
        await monitor.fires("HoldfastWorkerMissing")
        worker = await site.start_worker(HOLDFAST_METRICS_ADDRESS=metrics)
        await monitor.rests("HoldfastWorkerMissing")
        async with open_space(site) as space:
            # A removal that no force ends, since another's finalizer stays.
            stuck = await space.submit(
                appwrapper("stuck", job("stuck"), forcefulDeletionGracePeriodDuration="2s", retryLimit="5")
            )
            await space.reach(stuck, "Running")
            pod = (await space.pods("stuck"))[0]["metadata"]["name"]
            await space.finalize("v1", "Pod", pod, FOREIGN_FINALIZER)
            await stuck.signal(names.SIGNAL_SUSPEND, "maintenance")
            await monitor.fires("HoldfastRemovalStuck")

            # A sensitive workload fails, and is held. Workloads are counted as the watch begins: here, by a new worker.
            document = appwrapper("secret", job("secret"), failureGracePeriodDuration="0s")
            held = await space.submit(site.read(document, space.namespace).model_copy(update={"sensitive": True}))
            await space.reach(held, "Running")
            await space.fail_pod("secret")
            await space.reach(held, "Pending")

            async def told() -> bool:
                found = await monitor.query('holdfast_failures_total{class="App", decision="hold"}')
                return [one["value"][1] for one in found] == ["1"]

            await until(told, 90, "the failure is counted")
            assert "HoldfastWorkloadsHeld" not in await monitor.firing()
            worker.kill()
            await monitor.fires("HoldfastWorkerMissing")
            await site.start_worker(HOLDFAST_METRICS_ADDRESS=metrics)
            await monitor.fires("HoldfastWorkloadsHeld", 90)
            await monitor.fires("HoldfastRemovalStuck")

            await _each_query_is_answered(monitor)

            async def counted() -> bool:
                found = await monitor.query('holdfast_workloads{phase="Pending", reason="Held"}')
                return [(one["metric"]["cluster"], one["value"][1]) for one in found] == [(site.cluster, "1")]

            await until(counted, 90, "one workload is counted as held")
            assert not await monitor.query('{__name__=~"holdfast_.+", pod!=""}')

            # Once the finalizer is taken off the removal ends, and so does the alert.
            await space.finalize("v1", "Pod", pod)
            await space.reach(stuck, "Suspended")
            await monitor.rests("HoldfastRemovalStuck")

            async def measured() -> bool:
                found = await monitor.query("holdfast_removal_seconds_count")
                spent = await monitor.query("holdfast_workload_time_seconds_sum")
                buckets = {(one["metric"]["kind"], one["metric"]["bucket"]) for one in spent}
                whole = {("batch", name) for name in ("starting", "lost", "removing")} <= buckets
                return (
                    [one["value"][1] for one in found] == ["1"] and {kind for kind, _ in buckets} == {"batch"} and whole
                )

            # Prometheus reads the worker some time after it has counted.
            await until(measured, 60, "the removal is measured")


@pytest.mark.release
async def test_the_other_alerts_fire_by_what_a_worker_says(stack: Stack, tmp_path: Path):
    metrics, authority = f"127.0.0.1:{free_port()}", Authority(tmp_path / "authority", "root")
    file = authority.sign("bmc", ends=timedelta(days=5)).certificate
    async with (
        open_site(stack, tmp_path, prefix="p") as site,
        prometheus(tmp_path, metrics, seconds=3) as monitor,
        api_proxy(site.kubeconfig, tmp_path) as (api, kubeconfig),
    ):
        settings = {"HOLDFAST_METRICS_ADDRESS": metrics, "HOLDFAST_PROVISIONER_CA_FILE": str(file)}
        await site.ready(site.launch(kubeconfig=kubeconfig, **settings))
        await monitor.rests("HoldfastWorkerMissing")
        await monitor.fires("HoldfastCertificateExpires")
        file.write_bytes(authority.sign("bmc-again", ends=timedelta(days=60)).certificate.read_bytes())
        await monitor.rests("HoldfastCertificateExpires")

        async with open_space(site) as space:
            at_once = {"failureGracePeriodDuration": "0s", "retryPausePeriodDuration": "0s"}
            quick, slow = [await space.submit(appwrapper(name, job(name), **at_once)) for name in ("quick", "slow")]
            await space.reach(quick, "Running", 1)
            await space.reach(slow, "Running", 1)
            await space.fail_pod("quick")
            await space.reach(quick, "Running", 2)

            async def counted() -> bool:
                return bool(await monitor.query(f"{names.METRIC_REACTION}_seconds_count"))

            await until(counted, 90, "a decision that came soon is counted")
            assert not {"HoldfastNotReady", "HoldfastWatchBlind", "HoldfastReactionSlow"} & await monitor.firing()

            # The API server is away from the worker alone, for longer than a decision may take.
            await api.refuse()
            await space.fail_pod("slow")
            away = asyncio.create_task(asyncio.sleep(OUTAGE))
            await monitor.fires("HoldfastNotReady")
            await monitor.fires("HoldfastWatchBlind")
            await away
            await api.start()
            await monitor.fires("HoldfastReactionSlow", 90)
            await space.reach(slow, "Running", 2)
            await monitor.rests("HoldfastNotReady")
            await monitor.rests("HoldfastWatchBlind", 90)

            # An entity that somebody ended is told once, and begun anew.
            assert "HoldfastEntityUnhealthy" not in await monitor.firing()
            await site.client.get_workflow_handle(names.node_monitor_id(site.cluster)).terminate("by mistake")
            await monitor.fires("HoldfastEntityUnhealthy")
            await monitor.rests("HoldfastEntityUnhealthy")


async def _each_query_is_answered(monitor: Prometheus) -> None:
    """Ask each query of the dashboards; some have nothing yet to tell of, such as queues."""

    async def empty() -> set[str]:
        return {where for where, query in queries() if not await monitor.query(query)}

    async def check() -> bool:
        return not any(one.startswith(tuple(f"{title} " for title in ANSWERED)) for one in await empty())

    await until(check, 60, f"there are numbers for {', '.join(ANSWERED)}", pause=0.3)
