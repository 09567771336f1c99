"""Holdfast: Kubernetes workload lifecycles as durable Temporal workflows. This file names the public API, lazily.

Names are resolved on first use, so that `holdfast.model` stays free of Temporal, workflow sandboxes load next to
nothing, and `holdfast --help` is quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.client import ExplanationView, Holdfast, Run, StatusView, Summary
    from holdfast.errors import (
        AlreadyEnded,
        HoldfastError,
        InvalidWorkload,
        NotReachable,
        SpecConflict,
        WorkloadFailed,
        WorkloadNotFound,
    )
    from holdfast.formats import read
    from holdfast.model import Explanation, Phase, Status, Workload
    from holdfast.plugin import HoldfastPlugin
    from holdfast.policy.loop.change import PolicyChange

__version__ = "0.2.0"

_HOME = {
    "AlreadyEnded": "holdfast.errors",
    "Explanation": "holdfast.model",
    "ExplanationView": "holdfast.client",
    "Holdfast": "holdfast.client",
    "HoldfastError": "holdfast.errors",
    "HoldfastPlugin": "holdfast.plugin",
    "InvalidWorkload": "holdfast.errors",
    "NotReachable": "holdfast.errors",
    "PolicyChange": "holdfast.policy.loop.change",
    "Phase": "holdfast.model",
    "Run": "holdfast.client",
    "SpecConflict": "holdfast.errors",
    "Status": "holdfast.model",
    "StatusView": "holdfast.client",
    "Summary": "holdfast.client",
    "Workload": "holdfast.model",
    "WorkloadFailed": "holdfast.errors",
    "WorkloadNotFound": "holdfast.errors",
    "read": "holdfast.formats",
}

__all__ = [
    "AlreadyEnded",
    "Explanation",
    "ExplanationView",
    "Holdfast",
    "HoldfastError",
    "HoldfastPlugin",
    "InvalidWorkload",
    "NotReachable",
    "Phase",
    "PolicyChange",
    "Run",
    "SpecConflict",
    "Status",
    "StatusView",
    "Summary",
    "Workload",
    "WorkloadFailed",
    "WorkloadNotFound",
    "__version__",
    "read",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'holdfast' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
