"""Raw Kubernetes objects for tests, as the API server would send them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from holdfast import names
from holdfast.model import StatusRule
from holdfast.model.calls.cluster import PlannedComponent

UID = "workload-uid"
OWNER = "owner-uid"
ATTEMPT = 2
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def stamp(second: int) -> str:
    return f"2026-01-01T11:00:{second:02d}Z"


def time(second: int) -> datetime:
    return datetime(2026, 1, 1, 11, 0, second, tzinfo=UTC)


def planned(
    name: str = "work", kind: str = "Job", api: str = "batch/v1", pods: int = 1, status: StatusRule | None = None
) -> PlannedComponent:
    return PlannedComponent(
        name=name,
        api_version=api,
        kind=kind,
        object_name=f"{name}-0",
        expected_pods=pods,
        status=status or StatusRule(),
    )


def owner(submitted: bool = True, deleting: bool = False, uid: str = OWNER, version: int = 10) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "name": "w-a2",
        "namespace": "ns",
        "uid": uid,
        "resourceVersion": str(version),
        "creationTimestamp": stamp(0),
    }
    if deleting:
        metadata["deletionTimestamp"] = stamp(30)
    return {"metadata": metadata, "spec": {}, "status": {"submitted": True} if submitted else {}}


def component(
    name: str = "work-0", owner_uid: str = OWNER, conditions: list[dict[str, Any]] | None = None, version: int = 11
) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "uid": f"{name}-uid",
            "resourceVersion": str(version),
            "creationTimestamp": stamp(1),
            "ownerReferences": [{"uid": owner_uid, "kind": "Attempt", "name": "w-a2"}],
        },
        "status": {"conditions": conditions or []},
    }


def condition(kind: str, status: str = "True", reason: str = "", message: str = "", second: int = 5) -> dict[str, Any]:
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": stamp(second)}


def terminated(code: int, second: int = 9, reason: str = "Error", message: str = "") -> dict[str, Any]:
    end = {"exitCode": code, "reason": reason, "finishedAt": stamp(second)}
    if message:
        end["message"] = message
    return {"name": "main", "state": {"terminated": end}}


def pod(
    name: str = "p",
    phase: str = "Running",
    *,
    of: str = "work",
    uid: str = UID,
    attempt: int = ATTEMPT,
    deleting: bool = False,
    version: int = 12,
    node: str = "node-7",
    **status: Any,
) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "name": name,
        "uid": f"{name}-uid",
        "namespace": "ns",
        "resourceVersion": str(version),
        "creationTimestamp": stamp(2),
        "labels": {names.LABEL_WORKLOAD_UID: uid, names.LABEL_ATTEMPT: str(attempt), names.LABEL_COMPONENT: of},
    }
    if deleting:
        metadata["deletionTimestamp"] = stamp(20)
    return {"metadata": metadata, "spec": {"nodeName": node}, "status": {"phase": phase, **status}}


def failed(name: str = "p", code: int = 1, second: int = 9, **more: Any) -> dict[str, Any]:
    return pod(name, "Failed", containerStatuses=[terminated(code, second)], **more)
