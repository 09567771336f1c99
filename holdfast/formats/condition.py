"""The condition in a custom resource's status that names the report it shows, which its own status cannot (row F2)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, cast

from holdfast import names
from holdfast.formats.text import Json
from holdfast.model import ConditionType, Phase, Report

CONDITION: Final = f"{names.GROUP}/Life"
"""A condition of every custom resource that represents a workload. False once the workload's life has ended."""

_MESSAGE = re.compile(r"^report (\d{1,18}), attempt (\d{1,18}), (\w+)(?:: .*)?$", re.DOTALL)
_PHASES: Final = frozenset(Phase)
_LONGEST: Final = 1024


class Life(NamedTuple):
    """The workload's state as read from a custom resource's status."""

    sequence: int
    """Number of the report shown: a report with a lower number changes nothing."""
    attempt: int
    phase: Phase
    reason: str


def life_in(status: Mapping[str, Any]) -> Life | None:
    """Return the state in a status; None if no report has reached it."""
    conditions = status.get("conditions")
    for one in cast("list[Any]", conditions) if isinstance(conditions, list) else ():
        if not isinstance(one, dict) or cast("Json", one).get("type") != CONDITION:
            continue
        condition = cast("Json", one)
        found = _MESSAGE.match(str(condition.get("message", "")))
        if found is not None and found[3] in _PHASES:
            return Life(int(found[1]), int(found[2]), Phase(found[3]), str(condition.get("reason", "")))
    return None


def is_deployed(status: Mapping[str, Any]) -> bool:
    """Whether a status says, by Holdfast's own condition, that objects of the workload are there."""
    given = cast("list[Json]", status.get("conditions") or [])
    return any((one.get("type"), one.get("status")) == (ConditionType.RESOURCES_DEPLOYED, "True") for one in given)


def condition(report: Report) -> Json:
    """Return the condition that names the report a status shows, without its transition time."""
    message = f"report {report.sequence}, attempt {report.attempt}, {report.phase.value}"
    return {
        "type": CONDITION,
        "status": "False" if report.phase.ended else "True",
        "reason": report.reason.value,
        "message": (f"{message}: {report.message}" if report.message else message)[:_LONGEST],
    }


def noted(document: Json, report: Report, now: datetime) -> Json:
    """Return the status of a custom resource with only its `Life` condition changed."""
    previous: Json = document.get("status") or {}
    return {**previous, "conditions": timed([condition(report)], previous, None, now)}


def timed(conditions: list[Json], previous: Mapping[str, Any], generation: int | None, now: datetime) -> list[Json]:
    """Return conditions with their transition times: a condition whose status has not changed keeps its time.

    Args:
        conditions: The conditions to report.
        previous: The status so far; conditions of other types stay as they are.
        generation: The custom resource's generation that has been applied; None if unknown.
        now: The transition time of conditions whose status has changed.
    """
    given = previous.get("conditions")
    earlier = {str(one.get("type")): one for one in cast("list[Json]", given if isinstance(given, list) else [])}
    found: list[Json] = []
    for one in conditions:
        before = earlier.pop(one["type"], {})
        turned = before.get("status") != one["status"] or "lastTransitionTime" not in before
        at = now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if turned else before["lastTransitionTime"]
        observed = {"observedGeneration": generation} if generation is not None else {}
        found.append({**one, "lastTransitionTime": at, **observed})
    return [*found, *earlier.values()]
