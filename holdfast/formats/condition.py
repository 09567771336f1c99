"""Where a custom resource's own status has no room for it: the condition that says which report it shows (row F2)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, cast

from holdfast import names
from holdfast.formats.text import Json
from holdfast.model import Phase, Report

CONDITION: Final = f"{names.GROUP}/Life"
"""A condition of every custom resource that stands for a workload. False once its life has ended."""

_MESSAGE = re.compile(r"^report (\d{1,18}), attempt (\d{1,18}), (\w+)(?:: .*)?$", re.DOTALL)
_PHASES: Final = frozenset(Phase)
_LONGEST: Final = 1024


class Life(NamedTuple):
    """What a custom resource's status says of its life."""

    sequence: int
    """Of the report that is shown: a lower one changes nothing."""
    attempt: int
    phase: Phase
    reason: str


def life_in(status: Mapping[str, Any]) -> Life | None:
    """Return what a status says; None where no report has reached it."""
    conditions = status.get("conditions")
    for one in cast("list[Any]", conditions) if isinstance(conditions, list) else ():
        if not isinstance(one, dict) or cast("Json", one).get("type") != CONDITION:
            continue
        condition = cast("Json", one)
        found = _MESSAGE.match(str(condition.get("message", "")))
        if found is not None and found[3] in _PHASES:
            return Life(int(found[1]), int(found[2]), Phase(found[3]), str(condition.get("reason", "")))
    return None


def condition(report: Report) -> Json:
    """Return the condition that says which report a status shows, without its transition time."""
    message = f"report {report.sequence}, attempt {report.attempt}, {report.phase.value}"
    return {
        "type": CONDITION,
        "status": "False" if report.phase.ended else "True",
        "reason": report.reason.value,
        "message": (f"{message}: {report.message}" if report.message else message)[:_LONGEST],
    }


def noted(document: Json, report: Report, now: datetime) -> Json:
    """Return the status of a custom resource with nothing changed but the condition that says how its life is."""
    previous: Json = document.get("status") or {}
    return {**previous, "conditions": timed([condition(report)], previous, None, now)}


def timed(conditions: list[Json], previous: Mapping[str, Any], generation: int | None, now: datetime) -> list[Json]:
    """Return conditions with their transition times: one that has not turned keeps its own.

    Args:
        conditions: Those that are to be told.
        previous: The status so far; conditions of other types stay as they are.
        generation: Of the custom resource, as far as it has been obeyed; None where that is not known.
        now: The transition time of those that have turned.
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
