"""What is known of a gang's members comes back from its rows as it was, and is small (decision record 0030)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from pydantic import TypeAdapter, ValidationError

from holdfast.model.calls.gang import Announced, GangBegin, RendezvousInput, RendezvousMemory
from holdfast.model.gang.packed import PackedState
from holdfast.model.gang.state import Absence, Gang, GangEvent, Listening, Lost, MemberRecord, Reported, Said
from holdfast.model.gang.wire import Join, MemberState, Report, WorkerFailure
from holdfast.policy.rendezvous.step import begun, step

AT = datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=UTC)


def said(index: int) -> Said:
    join = Join(
        member=f"trainer-worker-{index}",
        pod_uid=f"0b2f7c1e-5a3d-4c62-9a55-{index:012d}",
        attempt=1,
        incarnation=f"{index:032x}",
        started_at=AT + timedelta(microseconds=index),
        node=f"node-{index}",
        local_world_size=8,
        address=f"10.20.{index // 250}.{index % 250}",
        port=29500,
    )
    return Said(join=join, report=Report(state=MemberState.INIT, since=AT))


def test_events_come_back_in_order_as_they_were():
    failed = WorkerFailure(local_rank=3, signal=9, error="killed", at=AT)
    report = Report(state=MemberState.FAILED, round=2, failures=(failed,), since=AT)
    events: tuple[GangEvent, ...] = (
        said(1),
        Reported(member="a", incarnation="i", report=report),
        Lost(member="a", pod_uid="p", absence=Absence.GONE, why="its pod is gone"),
        Listening(since=AT),
    )
    given = Announced(generation=1, attempt=1, seen=4, events=events)
    assert Announced.model_validate_json(given.model_dump_json(by_alias=True)) == given


def test_a_thousand_joins_are_about_200_KiB_and_4096_members_fit_into_one_payload():
    events = tuple(said(index) for index in range(4096))
    thousand = Announced(generation=1, attempt=1, seen=0, events=events[:1000])
    assert len(thousand.model_dump_json(by_alias=True)) < 256 << 10
    state = step(begun(Gang(min=1, max=4096), "uid-1", 1, AT), events, AT).state
    assert state.round == 1
    begin = GangBegin(
        cluster="c", namespace="n", workload="w", workload_uid="u", workflow_id="i", submitted_at=AT, attempt=1,
        gang=state.gang,
    )  # fmt: skip
    whole = RendezvousInput(**dict(begin), memory=RendezvousMemory(state=state))
    wire = whole.model_dump_json(by_alias=True)
    assert len(wire) < 1536 << 10
    assert RendezvousInput.model_validate_json(wire) == whole


def test_what_a_newer_release_adds_is_passed_over():
    adapter = TypeAdapter[object](PackedState)
    state = step(begun(Gang(min=1, max=2), "uid-1", 1, AT), [said(1)], AT).state
    wire = adapter.dump_python(state, mode="json")
    wire["members"][0] = [[*wire["members"][0][0], "new"], [*wire["members"][0][1], "new"], *wire["members"][0][2:], 1]
    assert adapter.validate_python({**wire, "newer": True}) == state


@pytest.mark.parametrize("row", [["Shouted", "a"], ["Said", "a"], ["Reported", "a", "i", "NOPE", 0, 0, []]])
def test_what_is_no_event_is_refused(row: list[object]):
    with pytest.raises((ValidationError, ValueError, TypeError)):
        Announced.model_validate({"generation": 1, "attempt": 1, "seen": 0, "events": [row]})


def test_a_member_that_is_absent_comes_back_with_why():
    adapter = TypeAdapter[object](PackedState)
    state = step(begun(Gang(min=1, max=2), "uid-1", 1, AT), [said(1)], AT).state
    (name,) = state.members
    gone = Lost(member=name, pod_uid=state.members[name].join.pod_uid, absence=Absence.GONE, why="its pod is gone")
    after = step(state, [gone], AT).state
    assert adapter.validate_python(adapter.dump_python(after, mode="json")) == after
    assert isinstance(after.members[name], MemberRecord)
