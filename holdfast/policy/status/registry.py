"""A workload's Services in the cluster's registry, and their removal with the reported state (row L30)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from holdfast.model import Stage, State, Workload
from holdfast.model.calls.plan import has_name
from holdfast.model.life.report import Entry
from holdfast.policy.attempt.health import REMOVING


def unlisted(spec: Workload, state: State) -> tuple[Entry, ...]:
    """Return the entries to remove before the state is reported: the Services of an attempt that no longer serves.

    Such an attempt is being removed, or its workload has an outcome, though its pods may be kept for a while. Nothing
    touches a held attempt. An attempt that is parked in place serves again with the same objects.
    """
    attempt = state.attempt
    if attempt is None or state.held is not None or attempt.stage is Stage.GONE:
        return ()
    if state.outcome is None and attempt.stage not in REMOVING:
        return ()
    services = [one.template for one in spec.components if _is_service(one.template)]
    peers = [one["metadata"] for one in services if not is_entry(one)]
    return tuple(
        Entry(name=one.name, uid=one.uid)
        for one in attempt.objects
        if (one.api_version, one.kind) == ("v1", "Service")
        and one.uid
        and not any(has_name(metadata, one.name) for metadata in peers)
    )


def _is_service(template: Mapping[str, Any]) -> bool:
    return (template.get("apiVersion"), template.get("kind")) == ("v1", "Service")


def is_entry(template: Mapping[str, Any]) -> bool:
    """Whether an object is a Service for clients. A headless Service only gives pods the names of their peers.

    Pods need these names to the end, to save their state together.
    """
    spec = template.get("spec")
    if not _is_service(template) or not isinstance(spec, dict):
        return False
    fields = cast("dict[str, Any]", spec)
    return bool(fields.get("selector")) and fields.get("clusterIP") != "None"
