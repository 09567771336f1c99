"""Each query of the dashboards is one that Prometheus understands, of metrics that there are."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from holdfast import names
from holdfast.worker.runtime.health import Health
from holdfast.worker.runtime.metrics import Metrics
from holdfast.worker.runtime.scraped import Certificates, Checks
from tests.monitoring.promtool import DASHBOARDS, ROOT, program, rules

PAGE = ROOT / "docs" / "reference" / "metrics.md"
HISTOGRAMS = {
    f"{names.METRIC_REACTION}_seconds",
    f"{names.METRIC_REMOVAL}_seconds",
    f"{names.METRIC_PREEMPTION}_seconds",
    f"{names.METRIC_SPENT}_seconds",
    names.METRIC_HISTORY_EVENTS,
    names.METRIC_HISTORY_BYTES,
}
COUNTERS = {
    f"{one}_total"
    for one in (
        names.METRIC_FAILURES,
        names.METRIC_FORCED,
        names.METRIC_GANG_RUN,
        names.METRIC_PROBES_UNKNOWN,
        names.METRIC_WALLTIME_CONFLICT,
    )
}
GAUGES = {
    names.METRIC_QUEUE_WAITING,
    names.METRIC_QUEUE_ADMITTED,
    names.METRIC_PROVISIONER_PENDING,
    names.METRIC_PROVISIONER_AVAILABLE,
    names.METRIC_PROVISIONER_OLDEST,
}
WORD = re.compile(r"\b(?:holdfast|temporal|process)_\w+")


def own() -> dict[str, str]:
    """Return each metric of ours that a worker has, as it is shown, with its type."""
    metrics = Metrics()
    metrics.registry.register(Checks(Health()))
    metrics.registry.register(Certificates({}))
    found = dict.fromkeys(HISTOGRAMS, "histogram") | dict.fromkeys(COUNTERS, "counter") | dict.fromkeys(GAUGES, "gauge")
    for one in metrics.registry.collect():
        if one.name.startswith("holdfast_"):
            found[f"{one.name}_total" if one.type == "counter" else one.name] = one.type
    return found


def queries() -> Iterator[tuple[str, str]]:
    """Each query of a dashboard, with where it stands."""
    for file in DASHBOARDS:
        for panel in json.loads(file.read_text())["panels"]:
            for target in panel["targets"]:
                yield f"{file.stem}: {panel['title']} {target['refId']}", target["expr"]


def shown() -> set[str]:
    """Return the names by which a query may ask for what a worker has."""
    return {
        name
        for one, sort in own().items()
        for name in ((f"{one}_bucket", f"{one}_count", f"{one}_sum") if sort == "histogram" else (one,))
    }


def test_every_metric_of_a_workflow_is_named_here():
    told = {value for name, value in vars(names).items() if name.startswith("METRIC_")}
    known = {one.removesuffix("_total").removesuffix("_seconds") for one in HISTOGRAMS | COUNTERS | GAUGES}
    assert {one.removesuffix("_seconds") for one in told} == known


def test_the_page_of_metrics_has_each_metric_and_no_other():
    there = set(re.findall(r"`(holdfast_\w+)`", PAGE.read_text()))
    assert there == set(own())


@pytest.mark.parametrize(
    ("where", "query"), [*queries(), *((one["alert"], one["expr"]) for one in rules())], ids=lambda one: one[:60]
)
def test_a_query_asks_for_what_there_is(where: str, query: str):
    asked = {one for one in WORD.findall(query) if one.startswith("holdfast_")}
    assert asked | set(WORD.findall(query)), where
    assert asked <= shown(), where


def test_prometheus_understands_each_query(tmp_path: Path):
    made = [{"record": f"query:{index}", "expr": query} for index, (_, query) in enumerate(queries())]
    assert len(made) > 30
    file = tmp_path / "queries.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": made}]}))
    done = subprocess.run([program("promtool"), "check", "rules", str(file)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("file", DASHBOARDS, ids=lambda one: one.stem)
def test_a_dashboard_reads_from_the_data_source_that_is_chosen(file: Path):
    board: dict[str, Any] = json.loads(file.read_text())
    assert [one["name"] for one in board["templating"]["list"]] == ["datasource"]
    assert {one["datasource"]["uid"] for one in board["panels"]} == {"${datasource}"}
    assert len({one["id"] for one in board["panels"]}) == len(board["panels"])
    corners = {(one["gridPos"]["x"], one["gridPos"]["y"]) for one in board["panels"]}
    assert len(corners) == len(board["panels"])
    assert all(one["description"] for one in board["panels"])
