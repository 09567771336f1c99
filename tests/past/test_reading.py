"""A life read from its history: the same turns that the workflow takes, and every cause of it (row U12)."""

from __future__ import annotations

import base64
import dataclasses
import json
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

import jsonschema
import pytest
from temporalio.api.common.v1 import Payload
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.converter import PayloadCodec
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner

from holdfast import names
from holdfast.cli.workloads import history_text as text
from holdfast.model import Cause, OperationKind, Reason, State, Status, Workload
from holdfast.model.life.history import schema
from holdfast.past import Run, history_of, read_run, story_of
from holdfast.past.tasks import Finished, Signalled
from holdfast.policy.loop import turn as loop
from holdfast.workflows import workload as workflow_module
from holdfast.workflows.workload import WorkloadWorkflow
from tests.past.recorded import NAMES, histories, runs, story

ROW = pytest.mark.row


@pytest.mark.parametrize("name", NAMES)
async def test_the_turns_are_those_that_the_workflow_takes(name: str, monkeypatch: pytest.MonkeyPatch):
    taken: list[tuple[datetime, State]] = []

    def watched(spec: Workload, state: State, now: datetime, *, full: bool) -> loop.Turn:
        taken.append((now, state))
        return loop.turn(spec, state, now, full=full)

    monkeypatch.setattr(workflow_module, "turn", watched)
    replayer = Replayer(
        workflows=[WorkloadWorkflow],
        workflow_runner=UnsandboxedWorkflowRunner(),
        data_converter=pydantic_data_converter,
    )
    for history in histories(name):
        identifier = history.events[0].workflow_execution_started_event_attributes.workflow_id
        await replayer.replay_workflow(dataclasses.replace(history, workflow_id=identifier))
    turns = [(turn.at, turn.folded) for turn in (await story(name)).turns if turn.taken]
    assert [at for at, _ in turns] == [at for at, _ in taken]
    assert turns == taken


@ROW("L32", level="pure")
async def test_L32_the_patience_of_whoever_preempted_is_read_with_the_signal_and_bounds_the_checkpoint():
    (run,) = await runs("checkpoint-unanswered")
    (asked,) = _preemptions(run)
    assert (asked.value, asked.within) == ("urgent", 0.5)
    turns = (await story("checkpoint-unanswered")).turns
    bounded = next(turn for turn in turns if turn.folded.intent.within is not None)
    until = bounded.folded.intent.within
    assert until is not None
    assert until == bounded.at + timedelta(seconds=0.5)
    request = turns[-1].folded.checkpoint
    assert request is not None
    assert request.ended_at is not None
    waited = request.ended_at - until
    assert timedelta(0) <= waited < timedelta(seconds=10), "its patience ended it, and not the ten minutes of its own"


@ROW("L32", level="pure")
async def test_L32_without_one_it_is_waited_for_as_long_as_it_says_itself():
    (asked,) = [one for run in await runs("checkpointed") for one in _preemptions(run)]
    assert (asked.value, asked.within) == ("a larger job", None)
    assert all(turn.folded.intent.within is None for turn in (await story("checkpointed")).turns)


def _preemptions(run: Run) -> list[Signalled]:
    wishes = (wish for task in run.tasks for wish in task.wishes)
    return [one for one in wishes if isinstance(one, Signalled) and one.name == names.SIGNAL_PREEMPT]


@ROW("U12", level="pure")
@pytest.mark.parametrize("name", NAMES)
async def test_U12_every_cause_is_there_once_in_the_workflows_own_words(name: str):
    life = history_of(await story(name))
    assert [cause.number for cause in life.causes] == list(range(1, life.causes_total + 1))
    assert life.complete
    assert life.causes == tuple(sorted(life.causes, key=lambda cause: cause.time))
    whole = sum(attempt.charged is not None for attempt in life.attempts)
    alone = sum(sum(attempt.launches.values()) for attempt in life.attempts)
    assert whole <= life.restarts <= whole + alone, "a rule may restart a component alone, within its attempt"
    assert life.outcome is not None
    assert all(attempt.gone_at is not None for attempt in life.attempts[-1:])
    jsonschema.validate(json.loads(life.model_dump_json()), schema(), cls=jsonschema.Draft202012Validator)


@ROW("U12", level="pure")
@pytest.mark.parametrize("name", ["held", "made-again", "interrupted-submission"])
async def test_U12_causes_that_the_workflow_no_longer_keeps_are_worked_out_again(name: str):
    written = history_of(await story(name))
    bare = history_of(story_of([_without_causes(run) for run in await runs(name)]))
    assert len(bare.causes) == written.causes_total
    assert not any(cause.written for cause in bare.causes)
    for ours, theirs in zip(bare.causes, written.causes, strict=True):
        assert (ours.time, ours.attempt, ours.phase, ours.reason) == (
            theirs.time,
            theirs.attempt,
            theirs.phase,
            theirs.reason,
        )


async def test_U12_attempts_say_what_ended_them():
    life = history_of(await story("failed"))
    assert [attempt.number for attempt in life.attempts] == [1, 2, 3, 4]
    assert [attempt.charged for attempt in life.attempts] == ["restart"] * 3 + [None]
    assert [attempt.ended_by for attempt in life.attempts] == [Reason.RESETTING] * 3 + [Reason.RETRY_LIMIT_EXCEEDED]
    for attempt in life.attempts:
        assert attempt.failure is not None
        assert attempt.submitted_at is not None
        assert attempt.removing_at is not None
        assert attempt.gone_at is not None
        assert attempt.begun_at < attempt.submitted_at < attempt.removing_at < attempt.gone_at
    assert [(budget.name, budget.used, budget.limit) for budget in life.budgets] == [("restart", 3, 3)]
    assert history_of(await story("forced-deletion")).attempts[0].forced


@ROW("U2", level="pure")
async def test_J14_an_attempt_that_is_suspended_in_place_has_not_ended():
    lived = await story("parked")
    (attempt,) = history_of(lived).attempts
    assert attempt.submitted_at is not None
    assert attempt.ready_at is not None
    assert lived.turns[0].at <= attempt.submitted_at <= lived.turns[-1].at
    first = next(one.cause.time for one in lived.causes.values() if one.cause.reason is Reason.SUBMISSION_SUCCEEDED)
    assert attempt.submitted_at == first, "when it first was, not when it was resumed"
    whole = lived.turns
    for length in range(1, len(whole)):
        if whole[length - 1].after.outcome is not None:
            break
        (attempt,) = history_of(dataclasses.replace(lived, turns=whole[:length])).attempts or (None,)
        assert attempt is None or attempt.ended_by is None


async def test_U2_a_request_to_strip_finalizers_is_told_once_and_in_its_own_words():
    life = history_of(await story("stripped"))
    assert life.exact
    (asked,) = [cause for cause in life.causes if cause.reason is Reason.FINALIZERS_STRIPPED]
    assert asked.written
    assert asked.message == (
        "taking the finalizers off what is left (Pod train-0 (finalizer example.com/hold)), as was asked for: "
        "their operator is gone for good"
    )
    bare = history_of(story_of([_without_causes(run) for run in await runs("stripped")]))
    assert [(cause.reason, cause.message) for cause in bare.causes if cause.reason is asked.reason] == [
        (asked.reason, asked.message)
    ]


async def test_a_life_continued_as_new_is_one_life():
    life = history_of(await story("continue-as-new"))
    assert len(life.runs) == 7
    assert [run.closed for run in life.runs] == ["ContinuedAsNew"] * 6 + ["Completed"]
    assert [attempt.number for attempt in life.attempts] == [1, 2, 3]


async def test_a_life_whose_later_runs_are_not_here_is_not_over():
    life = history_of(story_of((await runs("checkpoint-continued-as-new"))[:2]))
    assert (life.ended_at, life.complete) == (None, False)
    assert any("Its life went on" in note for note in life.notes)
    known = life.runs[-1].ended_at
    assert known is not None
    assert f"known until {text.instant(known)} UTC" in text.history(life)
    assert "over since" in text.history(history_of(await story("checkpoint-continued-as-new")))


async def test_a_life_that_was_ended_in_temporal_is_said_to_be_so():
    (run,) = await runs("happy-path")
    life = history_of(story_of([dataclasses.replace(run, closed="Terminated")]))
    assert any("its pods may still run" in note for note in life.notes)
    assert run.ended_at is not None
    assert f"; terminated {text.instant(run.ended_at)} UTC" in text.history(life)


async def test_what_another_release_decided_is_said_and_not_invented():
    (run,) = await runs("held")
    odd = next(index for index, task in enumerate(run.tasks) if "remove" in task.begun)
    tasks = list(run.tasks)
    tasks[odd] = dataclasses.replace(tasks[odd], begun=("observe",))
    life = history_of(story_of([dataclasses.replace(run, tasks=tuple(tasks))]))
    assert not life.exact
    assert "decided otherwise" in life.notes[0]
    assert all(cause.written for cause in life.causes if cause.time > tasks[odd].at)
    bare = history_of(story_of([_without_causes(dataclasses.replace(run, tasks=tuple(tasks)))]))
    assert not bare.complete
    assert bare.gaps[-1].last == bare.causes_total
    assert all(cause.time <= tasks[odd].at for cause in bare.causes)


async def test_causes_that_another_release_kept_otherwise_are_taken_from_what_it_wrote():
    life = history_of(await story("reset"))
    assert not life.exact
    assert "kept other causes" in life.notes[0]
    assert all(cause.written for cause in life.causes)


async def test_a_beginning_that_temporal_no_longer_keeps_is_said():
    later = (await runs("continue-as-new"))[3:]
    life = history_of(story_of([_without_causes(run) for run in later]))
    assert life.gaps[0].first == 1
    assert "no longer keeps" in life.gaps[0].why
    assert any("The workload began before the oldest run" in note for note in life.notes)
    assert life.causes_total == 9


class Crossed(PayloadCodec):
    """Stands for encryption: what it has not decoded, nobody can read."""

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [
            Payload(metadata={"encoding": b"crossed"}, data=base64.b85encode(each.SerializeToString()))
            for each in payloads
        ]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [Payload.FromString(base64.b85decode(each.data)) for each in payloads]


async def test_encrypted_payloads_are_read_with_the_clients_codec():
    codec = Crossed()
    (history,) = histories("held")
    for event in history.events:
        for payload in _payloads(event):
            payload.CopyFrom((await codec.encode([payload]))[0])
    converter = dataclasses.replace(pydantic_data_converter, payload_codec=codec)
    assert story_of([await read_run(history.events, converter)]).causes == (await story("held")).causes
    blind = await read_run(history.events, pydantic_data_converter)
    assert any("cannot be read" in text for text in blind.unreadable)


def _payloads(message: Any) -> Iterator[Payload]:
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        if field.message_type.GetOptions().map_entry:
            parts = [value[key] for key in value] if field.message_type.fields_by_name["value"].message_type else []
        else:
            parts = list(value) if hasattr(value, "append") or hasattr(value, "add") else [value]
        for part in parts:
            if isinstance(part, Payload):
                yield part
            else:
                yield from _payloads(part)


def _without_causes(run: Run) -> Run:
    """Return the run as one whose workflow had kept no cause of its own, but counted them."""

    def bare(status: Status | None) -> Status | None:
        return status.model_copy(update={"causes": tuple[Cause, ...]()}) if status is not None else None

    tasks = [
        dataclasses.replace(
            task,
            statuses=tuple(bare(status) for status in task.statuses),
            ended=dataclasses.replace(
                task.ended,
                status=bare(task.ended.status),
                state=task.ended.state.model_copy(update={"causes": ()}) if task.ended.state is not None else None,
            )
            if task.ended is not None
            else None,
        )
        for task in run.tasks
    ]
    carried = run.carried.model_copy(update={"causes": ()}) if run.carried is not None else None
    return dataclasses.replace(run, tasks=tuple(tasks), carried=carried)


async def test_a_change_counts_from_when_the_api_server_said_that_it_would_do_and_a_refused_one_never():
    told_of = await story("rehearsed")
    assert told_of.exact, (told_of.contradictions, told_of.other_causes, told_of.unread)
    begun = [task.at for run in told_of.runs for task in run.tasks if "rehearse" in task.begun]
    changes = [one.cause for one in told_of.causes.values() if one.cause.reason is Reason.CONFIGURATION_CHANGED]
    assert (len(begun), len(changes)) == (3, 2), "three were asked about, and one was refused"
    assert all(asked < change.time for asked, change in zip(begun[1:2], changes[:1], strict=True))
    assert told_of.spec.components[0].template["spec"]["text"] == "train:4"


async def test_L28_a_probe_that_tells_late_of_another_attempt_changes_nothing():
    (run,) = await runs("probed")
    told_of = [
        (index, result)
        for index, task in enumerate(run.tasks)
        for result in task.results
        if isinstance(result, Finished) and result.activity == names.ACTIVITY_PROBE
    ]
    first, answer = told_of[0]
    assert isinstance(answer, Finished)
    assert answer.attempt == 1
    late = max(
        at
        for at, task in enumerate(run.tasks)
        if any(isinstance(one, Finished) and one.activity == OperationKind.REPORT for one in task.results)
    )
    assert late > first
    tasks = list(run.tasks)
    tasks[late] = dataclasses.replace(tasks[late], results=(answer, *tasks[late].results))
    edited, lived = story_of([dataclasses.replace(run, tasks=tuple(tasks))]), await story("probed")
    assert [turn.folded for turn in edited.turns] == [turn.folded for turn in lived.turns]
    living = lived.turns[-1].folded.attempt
    assert living is not None
    tasks[late] = dataclasses.replace(
        run.tasks[late], results=(dataclasses.replace(answer, attempt=living.number), *run.tasks[late].results)
    )
    other = story_of([dataclasses.replace(run, tasks=tuple(tasks))])
    assert [turn.folded for turn in other.turns] != [turn.folded for turn in lived.turns], (
        "of the one that lives it counts"
    )
