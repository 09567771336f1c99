"""The compact form of a gang's members: rows in place of objects (decision record 0030).

A thousand agents that join together take about 200 KiB on the wire, and the memory of 4,096 members stays below
Temporal's limit for one payload. Rows only ever get longer: a field that a row lacks has its default, and an older
release ignores the fields that it does not know. Times are whole microseconds since the epoch, in UTC.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final, cast

from pydantic import BeforeValidator, PlainSerializer

from holdfast.model.gang.state import Absence, GangEvent, GangState, MemberRecord, Reported, Said
from holdfast.model.gang.wire import Join, MemberState, Report, WorkerFailure

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_SAID: Final = "Said"
_REPORTED: Final = "Reported"
_JOIN: Final = 10
_REPORT: Final = 4
_MEMBER: Final = 9

Row = list[Any]


def micros(at: datetime) -> int:
    """Return a time in the form of a row."""
    return (at - _EPOCH) // _MICROSECOND


def instant(number: int) -> datetime:
    """Return the time from the form of a row."""
    return _EPOCH + timedelta(microseconds=number)


def _join_row(join: Join) -> Row:
    return [
        join.member,
        join.pod_uid,
        join.attempt,
        join.incarnation,
        micros(join.started_at),
        join.node,
        join.role,
        join.local_world_size,
        join.address,
        join.port,
    ]


def _join(row: Sequence[Any], index: int | None = None, life: int | None = None) -> Join:
    member, pod_uid, attempt, incarnation, started_at, node, role, local_world_size, address, port = row[:_JOIN]
    return Join(
        member=member,
        pod_uid=pod_uid,
        attempt=attempt,
        incarnation=incarnation,
        started_at=instant(started_at),
        node=node,
        role=role,
        local_world_size=local_world_size,
        address=address,
        port=port,
        index=index,
        life=life or 0,
    )


def _report_row(report: Report) -> Row:
    failures = [[one.local_rank, one.exit_code, one.signal, one.error, micros(one.at)] for one in report.failures]
    return [report.state.value, report.round, micros(report.since), failures]


def _report(row: Sequence[Any]) -> Report:
    state, number, since, failures = row[:_REPORT]
    return Report(
        state=MemberState(state),
        round=number,
        since=instant(since),
        failures=tuple(
            WorkerFailure(local_rank=one[0], exit_code=one[1], signal=one[2], error=one[3], at=instant(one[4]))
            for one in failures
        ),
    )


def _at(row: Sequence[Any], place: int) -> Any:
    """Return a field that rows of an older release lack, or None."""
    return row[place] if len(row) > place else None


def _event_row(event: GangEvent) -> Any:
    match event:
        case Said():
            return [_SAID, *_join_row(event.join), *_report_row(event.report), event.join.index, event.join.life]
        case Reported():
            return [_REPORTED, event.member, event.incarnation, *_report_row(event.report)]
        case _:
            return event.model_dump(mode="json", by_alias=True)


def _event(row: Any) -> Any:
    if not isinstance(row, (list, tuple)):
        return row
    kind, *rest = cast("Sequence[Any]", row)
    if kind == _SAID:
        index, life = _at(rest, _JOIN + _REPORT), _at(rest, _JOIN + _REPORT + 1)
        return Said(join=_join(rest, index, life), report=_report(rest[_JOIN:]))
    if kind == _REPORTED:
        return Reported(member=rest[0], incarnation=rest[1], report=_report(rest[2:]))
    raise ValueError(f"{kind!r}: expected {_SAID} or {_REPORTED}")


def _member_row(one: MemberRecord) -> Row:
    absent = one.absent.value if one.absent is not None else None
    rest = [micros(one.since), one.round, one.succeeded, one.restarts, absent, one.why, one.revision, one.join.index]
    rest.append(one.join.life)
    return [_join_row(one.join), _report_row(one.report), *rest]


def _member(row: Sequence[Any]) -> MemberRecord:
    join, report, since, number, succeeded, restarts, absent, why, revision = row[:_MEMBER]
    return MemberRecord(
        join=_join(join, _at(row, _MEMBER), _at(row, _MEMBER + 1)),
        report=_report(report),
        since=instant(since),
        round=number,
        succeeded=succeeded,
        restarts=restarts,
        absent=Absence(absent) if absent is not None else None,
        why=why,
        revision=revision,
    )


def _pack_state(state: GangState) -> dict[str, Any]:
    wire = state.model_dump(mode="json", by_alias=True, exclude={"members"})
    return {**wire, "members": [_member_row(one) for one in state.members.values()]}


def _unpack_state(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    members: Any = cast("Mapping[str, Any]", value).get("members")
    if not isinstance(members, (list, tuple)):
        return cast("Any", value)
    records = [_member(row) for row in cast("Sequence[Any]", members)]
    return {**cast("Mapping[str, Any]", value), "members": {one.join.member: one for one in records}}


def _unpack_events(value: Any) -> Any:
    return [_event(row) for row in cast("Sequence[Any]", value)] if isinstance(value, (list, tuple)) else value


def _pack_events(events: Sequence[GangEvent]) -> list[Any]:
    return [_event_row(event) for event in events]


PackedEvents = Annotated[
    tuple[GangEvent, ...], BeforeValidator(_unpack_events), PlainSerializer(_pack_events, when_used="json")
]
"""Events, in order; on the wire, agents' posts are rows."""

PackedState = Annotated[GangState, BeforeValidator(_unpack_state), PlainSerializer(_pack_state, when_used="json")]
"""The memory of a rendezvous; on the wire its members are rows."""
