"""What an agent says and reads is the contract of `holdfast.model.gang.wire`: both ways, by the models themselves."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.agent import environment, messages
from holdfast.agent.conversation import Conversation
from holdfast.agent.hub import PATH
from holdfast.agent.messages import Failure, NotUnderstood, Report, State
from holdfast.agent.settings import Settings
from holdfast.model.gang import wire as contract

AT = datetime(2026, 1, 31, 12, tzinfo=UTC)
PLACE = contract.Assignment(
    run_id="u-1",
    round=2,
    group_rank=1,
    group_world_size=3,
    rank=2,
    world_size=6,
    local_world_size=2,
    role="trainer",
    role_rank=1,
    role_world_size=5,
    coordinator=contract.Coordinator(address="10.0.0.9", port=29400),
    restarts=1,
    max_restarts=3,
)
SETTINGS = Settings(
    command=["train"],
    workers=2,
    url="http://hub:8080",
    token_file="/token",
    workload_uid="u-1",
    attempt=1,
    member="train-0",
    pod_uid="p-0",
    address="10.0.0.7",
    started_at=AT.timestamp(),
)


def wire(directive: contract.Directive) -> Any:
    return directive.model_dump(mode="json")


def read(place: contract.Assignment) -> messages.Assignment:
    """Return a place as the agent reads it off the wire."""
    directive = contract.Directive(revision=1, kind=contract.DirectiveKind.RUN, assignment=place)
    found = messages.Directive.read(wire(directive)).assignment
    assert found
    return found


@pytest.mark.parametrize(
    "report",
    [
        Report(State.INIT),
        Report(State.HEALTHY, 2),
        Report(State.SUCCEEDED, 2),
        Report(State.STOPPED, 2),
        Report(State.UNKNOWN, 2),
        Report(State.FAILED, 2, (Failure(0, 3, AT.timestamp(), "no"), Failure(1, -9, AT.timestamp()))),
        Report(
            State.FAILED, 2, tuple(Failure(rank, 1, AT.timestamp() - rank, "x" * 2000 + "\ud800") for rank in range(5))
        ),
    ],
)
def test_what_is_said_is_an_announcement(report: Report) -> None:
    async def never(announcement: Any, held: float = 0.0) -> Any: ...

    talk = Conversation(never, lambda: SETTINGS.join(29500), lambda event: None, AT.timestamp)
    talk.say(report)
    said = contract.Announcement.model_validate(talk._announcement(report, 4.5))  # pyright: ignore[reportPrivateUsage]
    assert said.join.member == "train-0"
    assert said.join.started_at == AT
    assert said.wait == timedelta(seconds=4.5)
    assert (said.report.state.value, said.report.round, said.report.since) == (report.state.value, report.round, AT)
    assert [one.local_rank for one in said.report.failures] == [
        one.local_rank for one in sorted(report.failures, key=lambda one: one.at)[: contract.FAILURES_MAXIMUM]
    ]


def test_how_a_worker_ended_keeps_its_meaning() -> None:
    exited = contract.WorkerFailure.model_validate(Failure(0, 3, AT.timestamp(), "no").wire())
    assert (exited.exit_code, exited.signal, exited.error, exited.at) == (3, None, "no", AT)
    killed = contract.WorkerFailure.model_validate(Failure(0, -9, AT.timestamp()).wire())
    assert (killed.exit_code, killed.signal) == (None, 9)


@pytest.mark.parametrize("kind", list(contract.DirectiveKind))
def test_every_directive_is_understood(kind: contract.DirectiveKind) -> None:
    said = contract.Directive(
        revision=7,
        kind=kind,
        assignment=PLACE if kind is contract.DirectiveKind.RUN else None,
        reason=contract.CloseReason.SUCCEEDED if kind is contract.DirectiveKind.FINISH else None,
        exit_code=4,
        why="because",
        grace=timedelta(seconds=90),
        heartbeat=timedelta(seconds=2.5),
    )
    read = messages.Directive.read(wire(said))
    assert (read.kind.value, read.revision, read.exit_code, read.why) == (kind.value, 7, 4, "because")
    assert (read.grace, read.heartbeat) == (90.0, 2.5)
    assert (read.assignment is not None) == (kind is contract.DirectiveKind.RUN)


def test_the_words_of_both_sides_are_the_same() -> None:
    assert {one.value for one in messages.State} == {one.value for one in contract.MemberState}
    assert {one.value for one in messages.Kind} == {one.value for one in contract.DirectiveKind}
    assert (messages.PROTOCOL, messages.FAILURES_MAXIMUM) == (contract.PROTOCOL, contract.FAILURES_MAXIMUM)
    assert (messages.ERROR_MAXIMUM, PATH) == (contract.ERROR_MAXIMUM, contract.PATH)
    untold = contract.Directive(revision=0, kind=contract.DirectiveKind.WAIT)
    assert messages.Directive.read(wire(untold)) == messages.Directive()
    assert messages.Directive.read({"revision": 0, "kind": "Wait", "mood": "good"}) == messages.Directive()


@pytest.mark.parametrize(
    "answer",
    [
        None,
        [],
        {},
        {"revision": 1},
        {"revision": 1, "kind": "Dance"},
        {"revision": 1, "kind": "Run"},
        {"revision": 1, "kind": "Run", "assignment": {}},
        {"revision": 1, "kind": "Wait", "grace": "long"},
        {"revision": 1, "kind": "Wait", "grace": 30},
        {"revision": 1, "kind": "Wait", "protocol": 2},
    ],
)
def test_what_is_no_directive_is_not_followed(answer: Any) -> None:
    with pytest.raises(NotUnderstood):
        messages.Directive.read(answer)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0), ("0s", 0), ("90s", 90), ("1m30s", 90), ("250ms", 0.25), ("1d", 86_400)],
)
def test_durations_are_read_as_the_model_writes_them(text: str, seconds: float) -> None:
    assert messages.seconds(text) == seconds


@pytest.mark.parametrize("local_rank", [0, 1])
@pytest.mark.parametrize("inherited", [{}, {"OMP_NUM_THREADS": "8", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}])
def test_a_worker_has_all_that_torchrun_sets(local_rank: int, inherited: dict[str, str]) -> None:
    found = environment.variables(read(PLACE), local_rank, "/tmp/error.json", inherited)
    assert found == {
        "LOCAL_RANK": str(local_rank),
        "RANK": ("2", "3")[local_rank],
        "GROUP_RANK": "1",
        "ROLE_RANK": ("1", "2")[local_rank],
        "ROLE_NAME": "trainer",
        "LOCAL_WORLD_SIZE": "2",
        "WORLD_SIZE": "6",
        "GROUP_WORLD_SIZE": "3",
        "ROLE_WORLD_SIZE": "5",
        "MASTER_ADDR": "10.0.0.9",
        "MASTER_PORT": "29400",
        "TORCHELASTIC_RESTART_COUNT": "1",
        "TORCHELASTIC_MAX_RESTARTS": "3",
        "TORCHELASTIC_RUN_ID": "u-1",
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        "TORCHELASTIC_ERROR_FILE": "/tmp/error.json",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": inherited.get("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
        **({} if inherited else {"OMP_NUM_THREADS": "1"}),
    }


def test_a_member_has_no_worker_beyond_its_last() -> None:
    with pytest.raises(ValueError, match="below 2"):
        environment.variables(read(PLACE), 2, "", {})


def test_a_single_worker_may_use_all_threads() -> None:
    alone = PLACE.model_copy(update={"local_world_size": 1})
    assert "OMP_NUM_THREADS" not in environment.variables(read(alone), 0, "", {})


def test_a_command_may_name_its_local_rank() -> None:
    assert environment.command(["train", "cuda:${local_rank}", "$HOME"], 3) == [
        "train",
        "cuda:3",
        "$HOME",
    ]
