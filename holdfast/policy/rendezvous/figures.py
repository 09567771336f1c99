"""The metrics of a gang, under torchelastic's names: restarts left, flakiness, how runs ended (row T14)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from holdfast.model.gang.state import GangState
from holdfast.model.gang.status import CloseReason, RoleFigures


class GangFigures(NamedTuple):
    """The metrics of one gang."""

    roles: Mapping[str, RoleFigures]
    ended: str | None
    """`run_success_no_retries`, `run_success_with_retries`, `run_failed_no_retries`, `run_failed_with_retries`."""


def figures(state: GangState) -> GangFigures:
    """Return the current metrics of a gang."""
    limit = state.gang.max_restarts
    failed = state.closed not in {None, CloseReason.SUCCEEDED, CloseReason.ENDED}
    used = dict[str, int]()
    for one in state.members.values():
        used[one.join.role] = max(used.get(one.join.role, 0), one.restarts)
    roles = {
        role: RoleFigures(
            remaining_restarts=limit - most,
            flakiness=100 if failed else int(100 - 100 * (limit - most + 1) / (limit + 1)),
        )
        for role, most in used.items()
    }
    if state.closed is None or state.closed is CloseReason.ENDED:
        return GangFigures(roles, None)
    how = "with_retries" if any(used.values()) else "no_retries"
    return GangFigures(roles, f"run_{'failed' if failed else 'success'}_{how}")
