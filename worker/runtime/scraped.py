"""Metrics that are read when they are scraped: the readiness checks, and when certificates expire."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from holdfast.tls import expiry_of
from holdfast.worker.runtime.health import Health


class Checks(Collector):
    """Whether each readiness check passes, as `/readyz` has it."""

    def __init__(self, health: Health) -> None:
        """Take the checks' own source, so that page and metric cannot differ."""
        self._health = health

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Yield the checks."""
        found = GaugeMetricFamily("holdfast_ready", "1 while a readiness check passes.", labels=["check"])
        for check in self._health.ready():
            found.add_metric([check.name], int(check.ok))
        yield found


class Certificates(Collector):
    """When the certificates in the worker's files expire."""

    def __init__(self, files: Mapping[str, Path]) -> None:
        """Take the files by the setting that names each."""
        self._files = files

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Yield each file's time; a file that has no certificate that can be read counts as expired."""
        about = "When the certificates in the file of a setting expire; 0 if they cannot be read."
        found = GaugeMetricFamily("holdfast_certificate_expiry_timestamp_seconds", about, labels=["setting"])
        for setting, file in self._files.items():
            try:
                found.add_metric([setting], expiry_of(setting, file.read_bytes()).timestamp())
            except (OSError, ValueError):
                found.add_metric([setting], 0)
        yield found
