"""What is said of a queue's place, of the node monitor and of what has ended, by whoever asks them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio.api.common.v1 import Payloads
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import History, HistoryEvent
from temporalio.api.workflowservice.v1 import (
    GetWorkflowExecutionHistoryReverseRequest,
    GetWorkflowExecutionHistoryReverseResponse,
)
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes
from temporalio.converter import DataConverter
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from holdfast import PolicyChange, names
from holdfast.client import found, silence, submission
from holdfast.client import run as client_run
from holdfast.client.connection import Place
from holdfast.client.entities import provisioner
from holdfast.client.entities.provisioner import ProvisionerRun, node_book
from holdfast.client.entities.queue import Directory, QueueRun, place_of
from holdfast.client.run import Run
from holdfast.client.views import StatusView
from holdfast.errors import AlreadyEnded, HoldfastError, InvalidWorkload, NotReachable, WorkloadNotFound
from holdfast.model import Phase, Reason, Status, Workload
from holdfast.model.entities.graph import Place as GraphPlace
from holdfast.model.entities.provisioner import NodeAction, NodeOutcome, NodeRequest, ProvisionerStatus, Result
from holdfast.model.labels import KUEUE_QUEUE
from tests.client.conftest import a_workload
from tests.client.test_explain import LINE, NOW, QUEUE, QUEUE_STANDS, RUNNING, WORKLOAD, Temporal

PLACE = Place("127.0.0.1:7233", "default")
OTHER = LINE.model_copy(update={"uid": "another", "position": 1})


@pytest.mark.parametrize(
    ("lines", "waiting", "said"),
    [
        ((OTHER, LINE), 4, "gpus: place 3 of 4: 2 more GPUs are needed"),
        ((OTHER,), 900, "gpus: it is not among the first 1 of 900 that wait"),
        ((OTHER,), 1, "gpus: it is not among the 1 that wait: the queue has not received it yet"),
        (
            (LINE.model_copy(update={"admitted": True, "position": 0}),),
            0,
            "gpus: it was admitted; it has not received that yet",
        ),
    ],
    ids=["waits", "further back", "not heard of", "let in"],
)
async def test_a_place_in_a_queue_is_told_as_it_is(lines: tuple[Any, ...], waiting: int, said: str):
    stands = QUEUE_STANDS.model_copy(update={"lines": lines, "waiting": waiting})
    temporal: Any = Temporal({WORKLOAD: RUNNING, QUEUE: RUNNING}, {(QUEUE, names.QUERY_STATUS): stands})
    description = await temporal.get_workflow_handle(WORKLOAD).describe()
    assert await place_of(cast(Client, temporal), PLACE, description) == said


async def test_a_monitor_that_no_worker_answers_for_is_not_taken_for_temporal_that_is_away(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(silence, "ANSWER_TIMEOUT", timedelta(seconds=0.05))
    temporal: Any = Temporal({names.node_monitor_id("dev"): RUNNING}, {})
    asking = asyncio.ensure_future(node_book(cast(Client, temporal), PLACE, "dev"))
    done, _ = await asyncio.wait({asking}, timeout=5)
    asking.cancel()
    assert done, "it hangs"
    error = asking.exception()
    assert isinstance(error, HoldfastError)
    assert not isinstance(error, NotReachable)
    assert "no worker answers" in str(error)


class Ending:
    """A Temporal with a queue that ends, as it was told to, before a configuration reaches it."""

    def __init__(self) -> None:
        self.calls = list[str]()

    async def start_workflow(self, *_: Any, **__: Any) -> None:
        self.calls.append("start")
        if len(self.calls) == 1:
            raise WorkflowAlreadyStartedError(QUEUE, names.QUEUE_WORKFLOW)

    def get_workflow_handle(self, *_: Any, **__: Any) -> Any:
        async def execute_update(*_: Any, **__: Any) -> Any:
            self.calls.append("configure")
            raise RPCError("workflow execution already completed", RPCStatusCode.NOT_FOUND, b"")

        return SimpleNamespace(execute_update=execute_update)


@pytest.mark.row("L9", level="pure")
async def test_L9_a_queue_that_ends_as_it_is_applied_is_there_afterwards():
    temporal: Any = Ending()
    await QueueRun(temporal, PLACE, QUEUE).apply(QUEUE_STANDS.queue)
    assert temporal.calls == ["start", "configure", "start"]


def a_request(node: str, at: datetime) -> NodeRequest:
    return NodeRequest(number=1, node=node, action=NodeAction.BOOT, at=at)


def an_outcome(of: NodeRequest) -> NodeOutcome:
    return NodeOutcome(
        number=of.number, node=of.node, action=of.action, result=Result.DONE, asked_at=of.at, ended_at=NOW
    )


@pytest.mark.row("L15", level="pure")
async def test_L15_whoever_waits_for_a_request_is_not_told_anothers_of_the_same_number(
    monkeypatch: pytest.MonkeyPatch,
):
    """A provisioner that is begun anew counts from 1 again."""
    monkeypatch.setattr(provisioner, "_LOOK_SECONDS", 0.01)
    ours, others = a_request("a", NOW), a_request("a", NOW + timedelta(minutes=1))
    run = ProvisionerRun(cast(Client, None), PLACE, "dev")
    told = list[ProvisionerStatus]()

    async def status(*_: Any) -> ProvisionerStatus:
        return told.pop(0)

    monkeypatch.setattr(ProvisionerRun, "_status", status)
    base = ProvisionerStatus(cluster="dev", message="", at_once=1)
    told[:] = [
        base.model_copy(update={"pending": (ours,)}),
        base.model_copy(update={"outcomes": (an_outcome(others), an_outcome(ours))}),
    ]
    assert (await run.ended(ours.number, ours.at)).asked_at == NOW
    for anew in ({"outcomes": (an_outcome(others),)}, {"pending": (others,)}):
        told[:] = [base.model_copy(update=anew), base]
        with pytest.raises(HoldfastError, match="request 1: nothing is known of it any more"):
            await run.ended(ours.number, ours.at)
        assert told == [base], "it does not wait for another's"


@pytest.mark.parametrize(
    ("said", "error", "words"),
    [
        ("workflow execution already completed", AlreadyEnded, "has ended: Cancelled; to run it anew"),
        ("workflow not found for ID: workload/dev/default/train", WorkloadNotFound, "holdfast list"),
    ],
)
async def test_an_update_of_what_has_ended_hears_so_as_a_signal_does(
    said: str, error: type[HoldfastError], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Ended(Run):
        @property
        def handle(self) -> Any:
            return SimpleNamespace(describe=ended().describe)

        async def recorded(self) -> StatusView:
            status = Status(
                name="train",
                namespace="default",
                cluster="dev",
                uid="u",
                phase=Phase.CANCELLED,
                reason=Reason.CANCEL_REQUESTED,
                since=datetime(2026, 1, 1, tzinfo=UTC),
            )
            return StatusView(status=status, fresh=True, closed=True)

    async def update(*_: Any, **__: Any) -> None:
        raise RPCError(said, RPCStatusCode.NOT_FOUND, b"")

    monkeypatch.setattr(client_run, "update", update)
    run = Ended(client=cast("Client", None), place=PLACE, workflow_id="workload/dev/default/train", uid="u")
    for asked in (run.extend("1h"), run.strip_finalizers(), run.update_policy(PolicyChange())):
        with pytest.raises(error, match=words):
            await asked


@pytest.mark.parametrize(
    ("phase", "word"),
    [("Cancelled", "Cancelled"), ("Succeeded", "Succeeded"), ("Running", "Terminated"), (None, "Terminated")],
)
def test_what_has_ended_is_told_by_its_phase_and_not_by_its_workflows(phase: str | None, word: str) -> None:
    shown = [] if phase is None else [SearchAttributePair(SearchAttributeKey.for_keyword(names.SA_PHASE), phase)]
    ended = SimpleNamespace(
        typed_search_attributes=TypedSearchAttributes(shown), status=WorkflowExecutionStatus.TERMINATED
    )
    assert submission._outcome(cast("Any", ended)) == word


def an_event(kind: str, **attributes: Any) -> HistoryEvent:
    known: dict[str, Any] = {f"workflow_execution_{kind}_event_attributes": attributes}
    return HistoryEvent(event_type=EventType.Value(f"EVENT_TYPE_WORKFLOW_EXECUTION_{kind.upper()}"), **known)


def an_input(*values: Any) -> Payloads:
    return Payloads(payloads=DataConverter.default.payload_converter.to_payloads(values))


def signalled(name: str, *values: Any) -> HistoryEvent:
    return an_event("signaled", signal_name=name, input=an_input(*values))


def began_with(*values: Any) -> HistoryEvent:
    return an_event("started", input=an_input(*values))


class Dying:
    """A Temporal with a run of this history, whose column still says that it runs; it takes no signal.

    It has ended once it is described a second time.
    """

    namespace, data_converter = "default", DataConverter.default

    def __init__(self, workload: Workload, phase: Phase, events: tuple[HistoryEvent, ...]) -> None:
        self._workload, self._phase, self._events = workload, phase, events
        self.looks = self.read = 0
        self.workflow_service = SimpleNamespace(get_workflow_execution_history_reverse=self._reverse)

    async def _reverse(
        self, request: GetWorkflowExecutionHistoryReverseRequest, **_: Any
    ) -> GetWorkflowExecutionHistoryReverseResponse:
        self.read += 1
        assert (request.execution.workflow_id, request.execution.run_id) == (self._workload.workflow_id, "r")
        return GetWorkflowExecutionHistoryReverseResponse(
            history=History(events=self._events[::-1]), next_page_token=b"more"
        )

    def get_workflow_handle(self, workflow_id: str, **_: Any) -> Any:
        async def describe(**_: Any) -> Any:
            self.looks += 1
            phase = SearchAttributePair(SearchAttributeKey.for_keyword(names.SA_PHASE), self._phase.value)

            async def memo() -> dict[str, Any]:
                return {names.MEMO_UID: "u", names.MEMO_SPEC_HASH: self._workload.spec_hash()}

            return SimpleNamespace(
                id=workflow_id,
                run_id="r",
                status=RUNNING if self.looks == 1 else WorkflowExecutionStatus.COMPLETED,
                typed_search_attributes=TypedSearchAttributes([phase]),
                memo=memo,
            )

        return SimpleNamespace(describe=describe)


STARTED = began_with({"name": "train"})
CANCEL = signalled(names.SIGNAL_CANCEL, "no longer wanted", "u")
TASK = HistoryEvent(event_type=EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED)


@pytest.mark.row("D53", level="pure")
@pytest.mark.parametrize("phase", [Phase.RUNNING, Phase.RESETTING])
@pytest.mark.parametrize(
    ("events", "removed"),
    [
        ((STARTED, CANCEL), True),
        ((STARTED, CANCEL, TASK, signalled(names.SIGNAL_OBSERVE, {})), True),
        ((STARTED, signalled(names.SIGNAL_CANCEL)), True),
        ((STARTED, signalled(names.SIGNAL_CANCEL, "", "", None)), True),
        ((STARTED, an_event("cancel_requested", cause="by hand")), True),
        ((began_with({}, {"intent": {"cancel": True}}), TASK), True),
        ((STARTED, TASK), False),
        ((began_with({}, {"intent": {"cancel": False}}), TASK), False),
        ((STARTED, signalled(names.SIGNAL_SUSPEND, "for now", "u")), False),
        ((STARTED, signalled(names.SIGNAL_CANCEL, "no longer wanted", "another")), False),
        ((STARTED, signalled(names.SIGNAL_CANCEL, "it is submitted again", "u", ["Failed"])), False),
        ((STARTED, signalled(names.SIGNAL_CANCEL, {"reason": "none"})), False),
    ],
    ids=[
        "cancelled",
        "cancelled, and a reset is under way",
        "by hand",
        "by another SDK",
        "through Temporal",
        "continued as new",
        "not at all",
        "not at all, and continued as new",
        "suspended",
        "meant for another submission",
        "only if it has failed",
        "dropped",
    ],
)
async def test_D53_a_cancel_that_is_not_carried_out_yet_is_seen_in_the_history(
    events: tuple[HistoryEvent, ...], removed: bool, phase: Phase
) -> None:
    for again in (False, True):
        workload = a_workload()
        temporal: Any = Dying(workload, phase, events)
        asked = submission._present(temporal, PLACE, workload, again=again)
        if removed and not again:
            with pytest.raises(HoldfastError, match="is being removed: submit it with --again"):
                await asked
        else:
            found = await asked
            assert (found and found.uid) == (None if removed else "u")
        assert temporal.looks == (2 if removed and again else 1), "it is waited for"
        assert temporal.read == 1, "one page is read"


@pytest.mark.parametrize("phase", [Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED])
async def test_one_that_has_ended_and_is_kept_is_not_begun_by_submitting_it(phase: Phase) -> None:
    workload = a_workload()
    temporal: Any = Dying(workload, phase, (STARTED,))
    with pytest.raises(AlreadyEnded, match=f"has ended: {phase.value}; to run it anew, submit it with --again"):
        await submission._present(temporal, PLACE, workload, again=False)

    workload = a_workload(graph=GraphPlace(graph="nightly", item="train"))
    temporal = Dying(workload, phase, (STARTED,))
    found = await submission._present(temporal, PLACE, workload, again=False)
    assert found is not None, "its graph is continued"
    assert found.uid == "u"


async def test_what_was_revived_meanwhile_is_named_as_commands_take_it() -> None:
    async def memo() -> dict[str, Any]:
        return {names.MEMO_UID: "u"}

    def described(phase: Phase) -> Any:
        shown = SearchAttributePair(SearchAttributeKey.for_keyword(names.SA_PHASE), phase.value)
        columns = TypedSearchAttributes([shown])
        run = {"id": "workload/dev/research/jobset/train", "run_id": "r", "memo": memo}
        return SimpleNamespace(**run, status=RUNNING, typed_search_attributes=columns)

    async def describe(**_: Any) -> Any:
        return described(Phase.RUNNING)

    async def signal(*_: Any, **__: Any) -> None:
        return None

    handle = SimpleNamespace(describe=describe, signal=signal)
    temporal: Any = SimpleNamespace(get_workflow_handle=lambda *_, **__: handle)
    with pytest.raises(HoldfastError, match=r"revived meanwhile .* `holdfast cancel research/jobset/train` ends it"):
        await submission.make_way(temporal, PLACE, submission.InTheWay(described(Phase.FAILED), (Phase.FAILED,)))


ONE = a_workload()
UNCANCELLED: Any = Dying(ONE, Phase.RUNNING, (STARTED,))


def ended(
    phase: Phase = Phase.CANCELLED,
    *,
    running: bool = False,
    graph: str = "",
    applied: str = "",
    labels: dict[str, str] | None = None,
) -> Any:
    """A workload's workflow as Temporal describes it: its phase, and what its memo has it be."""
    shown = SearchAttributePair(SearchAttributeKey.for_keyword(names.SA_PHASE), phase.value)
    told: dict[str, Any] = {names.MEMO_UID: "u", names.MEMO_GRAPH: graph, names.MEMO_LABELS: labels or {}}
    told |= {names.MEMO_KIND: applied, names.MEMO_APPLIED: True} if applied else {names.MEMO_KIND: "AppWrapper"}

    async def memo() -> dict[str, Any]:
        return told

    async def describe() -> Any:
        return description

    description = SimpleNamespace(
        id=ONE.workflow_id,
        run_id="r",
        memo=memo,
        describe=describe,
        typed_search_attributes=TypedSearchAttributes([shown]),
        status=RUNNING if running else WorkflowExecutionStatus.COMPLETED,
    )
    return description


@pytest.mark.row("F8", level="pure")
@pytest.mark.row("L31", level="pure")
@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("running", [True, False])
async def test_only_what_is_submitted_by_itself_begins_anew_once_it_is_over(phase: Phase, *, running: bool) -> None:
    over = not running or phase in {Phase.SUCCEEDED, Phase.CANCELLED, Phase.TERMINATING}
    assert await found.check_retry(UNCANCELLED, PLACE, "it", ended(phase, running=running)) is over
    how = "is being removed" if running and phase is Phase.TERMINATING else "has ended"
    jobset, member = ended(phase, running=running, applied="JobSet"), ended(phase, running=running, graph="g")
    for one, remedy in ((jobset, "delete the JobSet, and apply it again"), (member, "submit its graph again")):
        if not over:
            assert not await found.check_retry(UNCANCELLED, PLACE, "it", one)
            continue
        with pytest.raises(HoldfastError, match=f"^it {how}: {remedy}$"):
            await found.check_retry(UNCANCELLED, PLACE, "it", one)


@pytest.mark.row("D53", level="pure")
async def test_D53_what_was_cancelled_begins_anew_only_by_a_new_run() -> None:
    cancelled: Any = Dying(ONE, Phase.RUNNING, (STARTED, CANCEL))
    assert await found.check_retry(cancelled, PLACE, "it", ended(Phase.RUNNING, running=True))
    with pytest.raises(HoldfastError, match=r"^it is being removed: delete the JobSet, and apply it again$"):
        await found.check_retry(cancelled, PLACE, "it", ended(Phase.FAILED, running=True, applied="JobSet"))


@pytest.mark.row("F8", level="pure")
async def test_F8_a_failed_workload_whose_quota_kueue_counts_as_free_is_not_tried_again() -> None:
    counted = ended(Phase.FAILED, running=True, applied="JobSet", labels={KUEUE_QUEUE: "team"})
    with pytest.raises(HoldfastError, match="Kueue counts its quota as free: delete the JobSet, and apply it again"):
        await found.check_retry(UNCANCELLED, PLACE, "it", counted)
    own = ended(Phase.FAILED, running=True, applied="Workload", labels={KUEUE_QUEUE: "team"})
    assert not await found.check_retry(UNCANCELLED, PLACE, "it", own), "its queue is one of Holdfast's"


@pytest.mark.parametrize(
    ("gone", "remedy"),
    [
        (ended(), "submit it with --again (again=True) or retry it"),
        (ended(applied="JobSet"), "delete the JobSet, and apply it again"),
        (ended(graph="g"), "submit its graph again"),
    ],
)
async def test_what_runs_anew_what_has_ended_is_said_of_each_as_it_is(gone: Any, remedy: str) -> None:
    assert (
        str(AlreadyEnded("it", "Failed", await found.anew(gone))) == f"it has ended: Failed; to run it anew, {remedy}"
    )


class OneQueue:
    """Temporal with one queue that runs."""

    def __init__(self, there: str = "") -> None:
        self.closing = False
        self._there = there

    def get_workflow_handle(self, workflow_id: str) -> Any:
        async def memo() -> dict[str, Any]:
            return {names.MEMO_CLOSING: True} if self.closing else {}

        async def describe() -> Any:
            if workflow_id not in {names.queue_id("dev", "gpus"), self._there}:
                raise RPCError("no such workflow", RPCStatusCode.NOT_FOUND, b"")
            return SimpleNamespace(status=WorkflowExecutionStatus.RUNNING, memo=memo)

        return SimpleNamespace(describe=describe)


@pytest.mark.row("L9", level="pure")
async def test_L9_a_queue_that_is_being_deleted_takes_no_workload_until_it_is_applied_again() -> None:
    temporal, workload = OneQueue(), a_workload(queue="gpus")
    temporal.closing = True
    directory = Directory(cast("Any", temporal), PLACE)
    for one in (workload, workload.model_copy(update={"queued": True})):
        with pytest.raises(InvalidWorkload, match=r"queue: it is being deleted.*`holdfast queue apply FILE`.*'gpus'"):
            await directory.placed(one)
    temporal.closing = False
    assert (await directory.placed(workload)).queued, "a refusal is not cached"


@pytest.mark.row("L9", level="pure")
async def test_L9_what_runs_is_found_by_submitting_it_again_also_while_its_queue_is_being_deleted() -> None:
    workload = a_workload(queue="gpus")
    temporal = OneQueue(workload.workflow_id)
    temporal.closing = True
    assert (await Directory(cast("Any", temporal), PLACE).placed(workload)).queued
