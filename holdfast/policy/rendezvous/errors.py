"""The errors that a rendezvous keeps of its members: bounded, however many have failed (D7). Pure."""

from __future__ import annotations

from typing import Final

from holdfast.model.gang.state import GangState, MemberRecord
from holdfast.model.gang.wire import bounded
from holdfast.policy.rendezvous.news import CURT, FAILURES_WHOLE
from holdfast.policy.rendezvous.rounds import failures
from holdfast.policy.values.edit import edit

ERRORS_MAXIMUM: Final = 256 * 1024
"""The characters of errors that are kept whole: the maximum of 64 members, or short errors of 4,096 members."""


def with_short_errors(state: GangState) -> GangState:
    """Return the state with errors cut short if their total is too long.

    The first failures of a round are kept whole: the earliest one decides about the gang, and is sent to its workload.
    For any other member, the failure of the first worker is kept, with the end of its error.
    """
    said = {name: _length(one) for name, one in state.members.items() if one.report.failures}
    if sum(said.values()) <= ERRORS_MAXIMUM:
        return state
    whole = {one.join.member for one in failures(state)[:FAILURES_WHOLE]}
    cut = {name: _cut(state.members[name]) for name in said if name not in whole}
    return edit(state, members={**state.members, **cut})


def _length(one: MemberRecord) -> int:
    return sum(len(failure.error) for failure in one.report.failures)


def _cut(one: MemberRecord) -> MemberRecord:
    first = one.report.failures[0]
    short = (edit(first, error=bounded(first.error, CURT)),)
    return one if short == one.report.failures else edit(one, report=edit(one.report, failures=short))
