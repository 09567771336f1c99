"""The pages a kubelet and a Prometheus ask for, and the log lines."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import AsyncGenerator, Generator

import aiohttp
import pytest
import structlog

from holdfast.worker.runtime import logs
from holdfast.worker.runtime.health import Check, Health, listen
from holdfast.worker.runtime.metrics import Metrics, page, sdk_runtime


async def _get(address: str, path: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(f"http://{address}{path}") as response:
        return response.status, await response.text()


@pytest.fixture
async def health() -> AsyncGenerator[tuple[Health, str]]:
    health = Health()
    runner, address = await listen(health.application(), "127.0.0.1:0")
    yield health, address
    await runner.cleanup()


async def test_readiness_shows_every_check(health: tuple[Health, str]) -> None:
    checks, address = health
    checks.note("temporal", False, "127.0.0.1:7233 does not answer")
    checks.ask_ready("watch", lambda: Check("watch", True, "stands by"))
    status, body = await _get(address, "/readyz")
    assert status == 503
    assert json.loads(body) == {
        "ok": False,
        "checks": [
            {"name": "shutdown", "ok": True, "message": ""},
            {"name": "temporal", "ok": False, "message": "127.0.0.1:7233 does not answer"},
            {"name": "watch", "ok": True, "message": "stands by"},
        ],
    }
    checks.note("temporal", True)
    assert (await _get(address, "/readyz"))[0] == 200


async def test_draining_is_alive_and_not_ready(health: tuple[Health, str]) -> None:
    checks, address = health
    checks.drain()
    assert (await _get(address, "/readyz"))[0] == 503
    assert (await _get(address, "/livez"))[0] == 200


async def test_a_role_that_ended_is_not_alive(health: tuple[Health, str]) -> None:
    checks, address = health
    checks.ask_live("workers", lambda: Check("workers", False, "1 ended"))
    assert (await _get(address, "/livez"))[0] == 503


async def test_an_address_in_use_is_an_error(health: tuple[Health, str]) -> None:
    with pytest.raises(OSError, match="in use"):
        await listen(Health().application(), health[1])


async def test_one_page_has_our_numbers_and_the_sdks() -> None:
    metrics = Metrics()
    metrics.signals.labels("sent").inc(3)
    metrics.count_request("GET", 200, 0.01)
    runtime, url = sdk_runtime()
    runtime.metric_meter.create_counter("sdk_own", "d").add(1)
    runner, address = await listen(page(metrics, url), "127.0.0.1:0")
    try:
        status, body = await _get(address, "/metrics")
    finally:
        await runner.cleanup()
    assert status == 200
    assert 'holdfast_watch_signals_total{result="sent"} 3.0' in body
    assert 'holdfast_kubernetes_requests_total{code="200",verb="GET"} 1.0' in body
    assert "sdk_own" in body
    assert "process_resident_memory_bytes" in body


async def test_our_numbers_are_served_when_the_sdks_cannot_be_read() -> None:
    runner, address = await listen(page(Metrics(), "http://127.0.0.1:9/metrics"), "127.0.0.1:0")
    try:
        status, body = await _get(address, "/metrics")
    finally:
        await runner.cleanup()
    assert status == 200
    assert "holdfast_watch_pods" in body
    assert "could not be read" in body


@pytest.fixture
def lines() -> Generator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    stream = io.StringIO()
    logs.configure("json", "info", stream)
    yield stream
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def _line(stream: io.StringIO) -> dict[str, object]:
    return json.loads(stream.getvalue().splitlines()[-1])


def test_our_lines_are_json(lines: io.StringIO) -> None:
    structlog.stdlib.get_logger("holdfast.test").warning("it rains", attempt=2)
    line = _line(lines)
    assert (line["event"], line["level"], line["attempt"], line["logger"]) == (
        "it rains",
        "warning",
        2,
        "holdfast.test",
    )
    assert str(line["timestamp"]).endswith("Z")


def test_a_workflows_line_names_its_workload_and_attempt(lines: io.StringIO) -> None:
    extra = {"temporal_workflow": {"workflow_id": "workload/dev/team/train", "attempt": 1}, "attempt": 4}
    logging.getLogger("temporalio.workflow").info("resetting", extra=extra)
    line = _line(lines)
    assert line["workflow_id"] == "workload/dev/team/train"
    assert line["workload"] == "team/train"
    assert line["attempt"] == 4
    assert "temporal_workflow" not in line


def test_an_activitys_line_names_its_workload(lines: io.StringIO) -> None:
    extra = {"temporal_activity": {"workflow_id": "workload/dev/team/train", "activity_type": "create", "attempt": 3}}
    logging.getLogger("temporalio.activity").info("conflict", extra=extra)
    line = _line(lines)
    assert (line["workload"], line["activity"], line["try"]) == ("team/train", "create", 3)


def test_another_workflows_line_has_no_workload(lines: io.StringIO) -> None:
    logging.getLogger("temporalio.workflow").info(
        "x", extra={"temporal_workflow": {"workflow_id": "cluster-watch/dev"}}
    )
    assert "workload" not in _line(lines)


def test_an_exception_is_one_line(lines: io.StringIO) -> None:
    try:
        raise ValueError("no")
    except ValueError:
        logging.getLogger("x").exception("failed")
    assert len(lines.getvalue().splitlines()) == 1
    assert "ValueError" in lines.getvalue()
