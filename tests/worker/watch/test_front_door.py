"""What the watch tells of custom resources that stand for workloads, and which ones a front door sees to. Pure (F7)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.client import WorkflowExecution, WorkflowExecutionStatus
from temporalio.converter import DataConverter
from temporalio.service import RPCError, RPCStatusCode

from holdfast import names
from holdfast.activities.kube.client import AlreadyExists, Forbidden, KubeError, NotFound, Unreachable
from holdfast.formats.appwrapper import reader
from holdfast.model import Phase, Reason
from holdfast.policy.entities.front_door import Act, Run, Verdict
from holdfast.worker.runtime.metrics import Metrics
from holdfast.worker.watch import front_door
from holdfast.worker.watch.front_door import FrontDoor, Place, Seen, in_turn, resource_reader
from holdfast.worker.watch.pulse import Pulse
from holdfast.worker.watch.seen import resource_seen
from tests.fakes.watched import EPOCH, World
from tests.formats.appwrapper.test_resource import report, resource
from tests.formats.test_native_resource import resource as workload_resource

ROW = pytest.mark.row
KIND = (reader.API_VERSION, reader.KIND)
OURS = names.MANAGED_BY


@pytest.fixture
def world() -> World:
    return World()


@ROW("F7", level="pure")
def test_F7_what_a_workload_began_with_is_no_news_and_a_later_generation_is_at_once(world: World) -> None:
    world.resource(suspend=True)
    assert world.pass_time(60) == []
    begun = world.now
    world.resource(generation=2, suspend=False)
    (told,) = world.pass_time(60)
    assert world.sent[-1][0] - begun <= 0.1 + 1e-6
    assert told.workflow_id == "workload/c/ns/w"
    asked = told.observation.asked
    assert asked is not None
    assert (asked.kind, asked.generation, asked.suspend) == ("AppWrapper", 2, False)
    assert (told.observation.attempt, told.observation.owner_found) == (0, False), "it says nothing else"
    world.resource(generation=2, suspend=False)
    assert world.pass_time(60) == []


@ROW("F7", level="pure")
def test_F7_it_is_told_with_what_is_seen_of_an_attempt_and_costs_no_signal_of_its_own(world: World) -> None:
    world.resource(generation=1)
    world.attempt(pods=2)
    world.job()
    world.pod("p0")
    world.pod("p1")
    (ready,) = world.pass_time(60)
    assert ready.facts.ready
    world.resource(generation=2, suspend=True)
    (told,) = world.pass_time(60)
    assert told.observation.asked is not None
    assert told.observation.asked.suspend
    assert told.observation.attempt == 1
    # What was told of one attempt is not told again while there is none, nor with the next.
    world.attempt(deleting=True)
    world.attempt(gone=True)
    assert world.pass_time(60) == []
    world.attempt(number=2)
    assert world.pass_time(60) == []


@ROW("F3", level="pure")
def test_F3_a_deletion_says_of_what_kind_it_was(world: World) -> None:
    world.resource()
    world.resource(deletionTimestamp=EPOCH.isoformat())
    (told,) = world.pass_time(60)
    assert told.observation.anchor_deleting
    assert told.observation.asked is not None
    assert told.observation.asked.kind == "AppWrapper"
    assert not told.observation.asked.foreground


@ROW("F3", level="pure")
def test_F3_that_it_was_in_the_foreground_is_known_after_the_collector_is_done(world: World) -> None:
    deleted: dict[str, Any] = {"deletionTimestamp": EPOCH.isoformat()}
    world.resource()
    world.resource(**deleted, finalizers=[names.FINALIZER, "foregroundDeletion"])
    world.resource(**deleted)
    (told,) = world.pass_time(60)
    assert told.observation.asked is not None
    assert told.observation.asked.foreground


@ROW("F7", level="pure")
def test_F7_a_copy_stands_for_no_workload() -> None:
    raw = resource()
    raw["metadata"]["labels"] = {names.LABEL_WORKLOAD_UID: "another"}
    assert resource_seen(KIND, "c")(raw) is None
    raw["metadata"]["labels"] = {names.LABEL_WORKLOAD_UID: "u-1"}
    found = resource_seen(KIND, "c")(raw)
    assert found is not None
    assert (found.workload_uid, found.attempt, found.deployed, found.held) == ("u-1", 0, False, False)


@ROW("F2", level="pure")
def test_F2_its_status_says_which_attempt_is_deployed() -> None:
    raw = resource()
    raw["metadata"]["labels"] = {names.LABEL_WORKLOAD_UID: "u-1"}
    raw["status"] = reader.RESOURCE.status(raw, report(attempt=3), EPOCH)
    found = resource_seen(KIND, "c")(raw)
    assert found is not None
    assert (found.attempt, found.deployed) == (3, True)


@ROW("F1", level="pure")
@pytest.mark.parametrize("managed_by", [None, "", "workload.codeflare.dev/appwrapper-controller", f"{OURS}-2"])
def test_F1_a_front_door_passes_over_what_another_runs(managed_by: str | None) -> None:
    raw = resource()
    assert resource_reader(KIND, OURS)(raw) is not None
    spec: dict[str, Any] = {**raw["spec"], "managedBy": managed_by}
    assert resource_reader(KIND, OURS)({**raw, "spec": spec}) is None


@ROW("F7", level="pure")
def test_F7_a_front_door_keeps_the_whole_of_one_only_until_its_life_has_begun() -> None:
    raw = resource()
    found = resource_reader(KIND, OURS)(raw)
    assert found is not None
    assert found.document == raw
    assert found.resource.shown is None
    for sequence, phase, shown in (
        (0, Phase.PENDING, None),
        (0, Phase.FAILED, Phase.FAILED),
        (1, Phase.PENDING, Phase.PENDING),
    ):
        raw["status"] = reader.RESOURCE.status(raw, report(sequence, phase=phase), EPOCH)
        found = resource_reader(KIND, OURS)(raw)
        assert found is not None
        assert found.resource.shown is shown, "what a front door itself has noted is no report"
        assert (found.document is None) is (shown is not None)
        assert found.over is (phase is Phase.FAILED)


@ROW("F12", level="pure")
def test_F12_deletions_go_first() -> None:
    several, ends = dict[str, Seen](), {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    for index in range(20):
        raw = resource()
        raw["metadata"] |= {"uid": f"u{index}"} | (ends if index in {7, 15} else {})
        found = resource_reader(KIND, OURS)(raw)
        assert found is not None
        several[found.uid] = found
    due = dict.fromkeys(several, 0.0) | {"u3": 5.0, "u15": 5.0}
    turn = in_turn(due, several, now=1.0)
    assert turn[0] == "u7"
    assert set(turn) == set(several) - {"u3", "u15"}
    assert in_turn(due, several, now=6.0)[:2] == ["u7", "u15"]


class _Kube:
    """Has one resource, and takes what a front door writes; it may refuse Events."""

    def __init__(self, resource: dict[str, Any], refuses: KubeError | None = None) -> None:
        self.resource = resource
        self.written: list[str] = []
        self.events: list[dict[str, Any]] = []
        self._refuses = refuses

    async def find(self, *_: str) -> dict[str, Any]:
        return self.resource

    async def patch(self, *key: str, patch: dict[str, Any], **_: Any) -> dict[str, Any]:
        self.written.append(key[1])
        self.resource = {**self.resource, **{part: patch[part] for part in patch if part == "status"}}
        return self.resource

    async def create(self, body: dict[str, Any]) -> dict[str, Any]:
        self.written.append(body["kind"])
        if self._refuses is not None:
            raise self._refuses
        self.events.append(body)
        return body


class _Temporal:
    """Lists workflows, and notes which were started and which were signalled."""

    def __init__(self, *running: WorkflowExecution) -> None:
        self.started: list[str] = []
        self.told: list[str] = []
        self._running = running

    async def start_workflow(self, *_: Any, **options: Any) -> None:
        self.started.append(options["id"])

    async def list_workflows(self, *_: Any, **__: Any) -> AsyncIterator[WorkflowExecution]:
        for one in self._running:
            yield one

    def get_workflow_handle(self, workflow_id: str, **_: Any) -> Any:
        async def signal(*_: Any, **__: Any) -> None:
            self.told.append(workflow_id)

        return SimpleNamespace(signal=signal)


class _Checked:
    async def unchecked(self, *_: Any) -> None:
        return None


def _door(kube: _Kube, temporal: _Temporal) -> FrontDoor:
    place = Place(cast("Any", temporal), "c", "ours", OURS)
    door = FrontDoor(place, cast("Any", None), Pulse(cast("Any", kube)), Metrics())
    door._kube, door._bindings = cast("Any", kube), cast("Any", _Checked())
    return door


def _seen(kube: _Kube) -> Seen:
    found = resource_reader((kube.resource["apiVersion"], kube.resource["kind"]), OURS)(kube.resource)
    assert found is not None
    return found


async def _handled(kube: _Kube) -> tuple[bool, _Temporal]:
    """Have a front door handle the resource; return whether it is done, and what was started."""
    temporal = _Temporal()
    return await _door(kube, temporal)._handled(_seen(kube)), temporal


def _jobset(**annotations: str) -> dict[str, Any]:
    work = {"name": "work", "template": {"spec": resource()["spec"]["components"][0]["template"]["spec"]}}
    return {
        **resource(),
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": resource()["metadata"] | {"annotations": annotations},
        "spec": {"managedBy": OURS, "replicatedJobs": [work]},
        "status": {},
    }


@ROW("D29", level="pure")
@pytest.mark.parametrize("kind", [KIND, ("jobset.x-k8s.io/v1alpha2", "JobSet")])
async def test_D29_whoever_applies_a_misspelt_setting_finds_it_in_one_event(kind: tuple[str, str]) -> None:
    misspelt = {"holdfast.dev/restartMod": "InPlace", "holdfast.dev/wallTime": "1h"}
    raw = _jobset(**misspelt) if kind[1] == "JobSet" else resource()
    raw["metadata"]["annotations"] = misspelt
    kube = _Kube(raw)
    done, temporal = await _handled(kube)
    assert done
    assert len(temporal.started) == 1
    (event,) = kube.events
    assert (event["type"], event["reason"]) == ("Warning", "AnnotationIgnored")
    assert event["involvedObject"]["uid"] == raw["metadata"]["uid"]
    assert event["involvedObject"]["kind"] == kind[1]
    first = "metadata.annotations[holdfast.dev/restartMod]: is no setting, and is ignored"
    assert f"{first}: did you mean holdfast.dev/restartMode?" in event["message"]
    assert "did you mean holdfast.dev/walltime?" in event["message"]


@ROW("D29", level="pure")
async def test_D29_what_is_spelt_well_costs_no_request_more() -> None:
    raw = resource()
    raw["metadata"]["annotations"] = {"holdfast.dev/restartMode": "InPlace", "example.com/restartMod": "x"}
    kube = _Kube(raw)
    done, temporal = await _handled(kube)
    assert done
    assert len(temporal.started) == 1
    assert kube.written == ["AppWrapper"], "its marks, and no Event"


@ROW("D29", level="pure")
@pytest.mark.parametrize("refuses", [AlreadyExists(409, "AlreadyExists", ""), Forbidden(403, "Forbidden", "no")])
async def test_D29_a_life_begins_whatever_becomes_of_the_event(refuses: KubeError) -> None:
    raw = resource()
    raw["metadata"]["annotations"] = {"holdfast.dev/restartMod": "InPlace"}
    kube = _Kube(raw, refuses)
    done, temporal = await _handled(kube)
    assert done
    assert len(temporal.started) == 1
    assert kube.written == ["AppWrapper", "Event"]


@ROW("F7", level="pure")
async def test_F7_what_is_held_until_a_person_acts_says_so_in_one_event_too() -> None:
    raw = resource()
    raw["metadata"]["annotations"] = {names.ANNOTATION_LIFE: "another"}
    kube = _Kube(raw)
    for _ in range(2):
        done, temporal = await _handled(kube)
        assert not done, "it is checked again"
        assert temporal.started == []
    (event,) = kube.events
    assert (event["type"], event["reason"], event["involvedObject"]["uid"]) == ("Warning", "Held", "u-1")
    assert "it is a copy, or was restored" in event["message"]
    assert kube.written == ["AppWrapper", "Event"], "and nothing that it has said"


class _Queues(_Temporal):
    """Temporal with a queue that runs, and is told to end or not."""

    def __init__(self, *, closing: bool, waits: str = "") -> None:
        super().__init__()
        self._closing = closing
        self._waits = waits
        """The uid of the workload that waits in it already."""

    def get_workflow_handle(self, workflow_id: str, **_: Any) -> Any:
        is_queue = workflow_id == names.queue_id("c", "gpus")

        async def describe(**_: Any) -> Any:
            if not is_queue and not self._waits:
                raise RPCError("workflow not found", RPCStatusCode.NOT_FOUND, b"")
            return SimpleNamespace(status=WorkflowExecutionStatus.RUNNING, memo=memo)

        async def memo() -> dict[str, Any]:
            if not is_queue:
                return {names.MEMO_UID: self._waits}
            return {names.MEMO_CLOSING: True} if self._closing else {}

        return SimpleNamespace(describe=describe)


@ROW("L9", level="pure")
@pytest.mark.parametrize("closing", [False, True])
async def test_L9_a_workload_of_a_queue_that_is_being_deleted_is_refused(*, closing: bool) -> None:
    raw = workload_resource(queue="gpus")
    raw["metadata"]["resourceVersion"] = "1"
    kube, temporal = _Kube(raw), _Queues(closing=closing)
    assert await _door(kube, temporal)._begun(_seen(kube), again=False)
    assert len(temporal.started) == (0 if closing else 1)
    assert ("queue: it is being deleted" in str(kube.resource.get("status"))) is closing


@ROW("L9", level="pure")
@pytest.mark.parametrize("own", [False, True])
async def test_L9_only_what_waits_already_stays_in_a_queue_that_is_being_deleted(*, own: bool) -> None:
    raw = workload_resource(queue="gpus")
    raw["metadata"]["resourceVersion"] = "1"
    kube = _Kube(raw)
    seen = _seen(kube)
    temporal = _Queues(closing=True, waits=seen.uid if own else "another")
    assert await _door(kube, temporal)._begun(seen, again=False) is not own
    assert temporal.started == []
    assert ("queue: it is being deleted" in str(kube.resource.get("status"))) is not own


@ROW("F3", level="pure")
async def test_F3_what_waits_for_an_old_life_and_then_begins_says_so_in_its_status_alone() -> None:
    kube = _Kube(resource())
    await _door(kube, _Temporal())._say(_seen(kube), Verdict(Act.HOLD, "it is taken", Reason.BLOCKED))
    assert "it is taken" in str(kube.resource["status"])
    assert kube.written == ["AppWrapper"]


def _running(workflow_id: str, **memo: Payload) -> WorkflowExecution:
    """Return a running workflow of an applied AppWrapper, with entries of somebody else in its memo."""
    entries = {names.MEMO_UID: "gone", names.MEMO_KIND: KIND[1], names.MEMO_APPLIED: True}
    info = WorkflowExecutionInfo()
    info.execution.workflow_id, info.execution.run_id = workflow_id, "r"
    for key, value in entries.items():
        info.memo.fields[key].CopyFrom(DataConverter.default.payload_converter.to_payload(value))
    for key, payload in memo.items():
        info.memo.fields[key].CopyFrom(payload)
    return WorkflowExecution._from_raw_info(info, "default", DataConverter.default)


class _Nothing:
    async def get(self, *_: str) -> dict[str, Any]:
        raise NotFound(404, "NotFound", "")


ORPHAN = "workload/c/ns/orphan"
UNREADABLE = {
    "a protobuf message of an unknown type": {"encoding": b"json/protobuf", "messageType": b"acme.Owner"},
    "an encoding of its own": {"encoding": b"application/acme"},
    "no JSON": {"encoding": b"json/plain"},
}


@ROW("D2", level="pure")
@ROW("F7", level="pure")
@pytest.mark.parametrize("metadata", UNREADABLE.values(), ids=UNREADABLE)
async def test_F7_a_memo_that_cannot_be_read_and_an_id_of_ones_own_hold_up_no_comparison(metadata: dict[str, bytes]):
    unreadable = _running("workload/c/ns/theirs", owner=Payload(metadata=metadata, data=b"{"))
    temporal = _Temporal(unreadable, _running("by-hand"), _running(ORPHAN))
    door = _door(cast("Any", _Nothing()), temporal)
    await door._audit(frozenset({KIND[1]}))
    assert temporal.told == [ORPHAN]


class _Broken(_Nothing):
    """A cluster that has one resource of which nothing can be said, for a reason that stays."""

    def __init__(self, error: KubeError) -> None:
        self._error = error

    async def get(self, *key: str) -> dict[str, Any]:
        if key[2] == "broken":
            raise self._error
        return await super().get(*key)


@ROW("D2", level="pure")
@pytest.mark.parametrize("error", [KubeError(400, "BadRequest", "bad"), Unreachable(500, "", "webhook failed")])
async def test_D2_a_resource_that_cannot_be_read_holds_up_no_comparison(error: KubeError) -> None:
    temporal = _Temporal(_running("workload/c/ns/broken"), _running(ORPHAN))
    door = _door(cast("Any", _Broken(error)), temporal)
    raw = resource()
    item = resource_reader(KIND, OURS)(raw)
    assert item is not None
    door._seen[item.uid] = item
    await door._audit(frozenset({KIND[1]}))
    assert temporal.told == [ORPHAN], "it may exist"
    assert item.uid in door._due


class _Described(_Temporal):
    """Describes one run, whose memo cannot be read, to whoever asks."""

    def __init__(self, status: WorkflowExecutionStatus, started: datetime) -> None:
        super().__init__()
        info = _running("workload/c/ns/train").raw_info
        info.status, info.first_run_id = cast("Any", int(status)), "first"
        info.start_time.FromDatetime(started)
        info.memo.fields["owner"].CopyFrom(Payload(metadata=UNREADABLE["an encoding of its own"], data=b"{"))
        self._found = WorkflowExecution._from_raw_info(info, "default", DataConverter.default)

    def get_workflow_handle(self, workflow_id: str, **_: Any) -> Any:
        async def describe(**_: Any) -> WorkflowExecution:
            return self._found

        return SimpleNamespace(describe=describe)


@ROW("X6", level="pure")
@ROW("F7", level="pure")
async def test_F7_an_ended_run_that_cannot_be_read_is_told_from_an_earlier_one_by_its_begin() -> None:
    raw = resource()
    raw["metadata"]["creationTimestamp"] = EPOCH.isoformat()
    kube, ended = _Kube(raw), WorkflowExecutionStatus.TERMINATED
    for started, uid in ((EPOCH - timedelta(minutes=2), "first"), (EPOCH - timedelta(seconds=30), ""), (EPOCH, "")):
        found = await _door(kube, _Described(ended, started))._run_of(_seen(kube))
        assert found == Run(uid=uid, running=False, word="Terminated")
    raw["status"] = reader.RESOURCE.status(raw, report(1, phase=Phase.RUNNING), EPOCH)
    found = await _door(kube, _Described(ended, EPOCH - timedelta(days=1)))._run_of(_seen(kube))
    assert found == Run(uid="", running=False, word="Terminated"), "its life has begun"
    with pytest.raises(KeyError):
        await _door(kube, _Described(WorkflowExecutionStatus.RUNNING, EPOCH))._run_of(_seen(kube))


@ROW("D2", level="pure")
async def test_D2_a_comparison_that_fails_is_made_again_and_ends_no_watch(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(front_door, "LISTEN", 0.001)
    monkeypatch.setattr(front_door, "AUDIT", 0.0)
    door, fails = _door(_Kube(resource()), _Temporal()), iter([RuntimeError, asyncio.CancelledError])

    async def audit(_: frozenset[str]) -> None:
        raise next(fails)

    monkeypatch.setattr(FrontDoor, "_settled", frozenset({KIND[1]}))
    monkeypatch.setattr(door, "_audit", audit)
    with pytest.raises(asyncio.CancelledError):
        await door._compare()
