"""`kind: Workload` as a custom resource: what it asks for, and its status as kubectl and kstatus read it (row F17)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from holdfast import names
from holdfast.formats.condition import condition, is_deployed, timed
from holdfast.formats.registry import Resource, is_suspended, managed_by
from holdfast.formats.text import Json
from holdfast.model import ConditionType, Phase, PodSet, Reason, Report

KIND: Final = "Workload"
READY: Final = "Ready"
RECONCILING: Final = "Reconciling"
STALLED: Final = "Stalled"

_WITH_PODS: Final = frozenset({Phase.RUNNING, Phase.CHECKPOINTING})
"""The phases in which it is as its spec asks if its pods are ready."""
_SETTLED: Final = frozenset({Phase.FINISHING, Phase.SUSPENDED, Phase.SUCCEEDED})
_GIVEN_UP: Final = frozenset({Phase.FAILED, Phase.CANCELLED})


def _bare(document: Json) -> Json:
    return document


def _pod_sets(document: Json) -> dict[str, tuple[PodSet, ...]]:
    return {}


def _status_suffices(status: Mapping[str, Any]) -> bool:
    return "observedGeneration" in status


def reported(document: Json, report: Report, now: datetime) -> Json:
    """Return the status for a report that is about to be written; its sequence is in the condition `Life`."""
    previous: Json = document.get("status") or {}
    generation = report.generation or previous.get("observedGeneration") or document["metadata"].get("generation")
    own = [
        {
            "type": one.type.value,
            "status": "True" if one.status else "False",
            "reason": one.reason.value,
            "message": one.message,
        }
        for one in report.conditions
    ]
    return {
        "observedGeneration": generation,
        "phase": report.phase.value,
        "reason": report.reason.value,
        "message": report.message,
        "attempt": report.attempt,
        "executions": report.executions,
        "restarts": report.restarts,
        "conditions": timed([*_standing(report), *own, condition(report)], previous, generation, now),
    }


def noted(document: Json, report: Report, now: datetime) -> Json:
    """Return the status with what nobody decides for: its counts and conditions stay as its workflow said them last."""
    previous: Json = document.get("status") or {}
    told = {"phase": report.phase.value, "reason": report.reason.value, "message": report.message}
    return {**previous, **told, "conditions": timed([*_standing(report), condition(report)], previous, None, now)}


def _standing(report: Report) -> list[Json]:
    """Return the conditions by which kstatus tells a resource that is as asked from one that is not yet, or never."""
    stalled = report.phase in _GIVEN_UP or report.reason is Reason.HELD
    pods = any(one.type is ConditionType.PODS_READY and one.status for one in report.conditions)
    ready = not stalled and (report.phase in _SETTLED or (report.phase in _WITH_PODS and pods))
    found = ((READY, ready), (RECONCILING, not ready and not stalled), (STALLED, stalled))
    return [
        {
            "type": kind,
            "status": "True" if holds else "False",
            "reason": report.reason.value,
            "message": report.message,
        }
        for kind, holds in found
    ]


RESOURCE: Final = Resource(
    names.API_VERSION,
    KIND,
    managed_by=managed_by,
    is_suspended=is_suspended,
    bare=_bare,
    pod_sets=_pod_sets,
    status=reported,
    is_deployed=is_deployed,
    status_suffices=_status_suffices,
    folder="workload",
    own_queue=True,
    note=noted,
)
"""How a Workload in the cluster requests a workload."""
