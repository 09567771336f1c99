"""The client: submit workloads, ask about them, steer them. It needs a Temporal connection and nothing else."""

from holdfast.client.run import Run
from holdfast.client.session import Holdfast
from holdfast.client.views import ActivityView, ExplanationView, StatusView, Summary

__all__ = ["ActivityView", "ExplanationView", "Holdfast", "Run", "StatusView", "Summary"]
