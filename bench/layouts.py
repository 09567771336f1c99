"""The tables of the report: one per measure. Data."""

from __future__ import annotations

from bench.tables import Column, Layout

START = Layout(
    "start",
    "N two-pod workloads",
    "From the first request until every pod has run; then, all pods being told to succeed, until every workload is "
    "recorded as ended (a Job's condition, an AppWrapper's phase, Temporal's list). Requests: the system's own, over a "
    "whole life with its removal, Events included. CPU: of the cluster, of Temporal and of the system, until all have "
    "ended.",
    (
        Column("submitted_s", "handed in", "s"),
        Column("running_s", "all running", "s", ratio=True),
        Column("ended_s", "told to end, until all recorded", "s", ratio=True),
        Column("requests", "API requests a life"),
        Column("requests_events", "of them Events"),
        Column("cpu_s", "CPU", "s", ratio=True),
        Column("cpu_worker_s", "of it the worker", "s"),
        Column("cpu_temporal_s", "Temporal", "s"),
        Column("cpu_kube-apiserver_s", "API server", "s"),
        Column("peak_worker_mib", "worker, at most", "MiB"),
        Column("peak_controller_mib", "controller, at most", "MiB"),
    ),
)

LAYOUTS = (START,)
