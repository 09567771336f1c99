"""What is kept of objects read by the thousand: all that is asked of them later, no more, and little of each."""

from __future__ import annotations

import gc
import json
import tracemalloc
import weakref
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kubernetes.aio.client.configuration import Configuration

from holdfast import names
from holdfast.activities.kube import pages
from holdfast.activities.kube.client import PAGE, Gone, Kube, Object, Unreachable
from holdfast.activities.kube.resources import Resource
from holdfast.activities.kube.trim import lean, owned_trace, trace, unsigned
from holdfast.activities.operations import barrier, checkpoint
from holdfast.activities.operations.barrier import standing_pod
from holdfast.activities.operations.save_requests import request_target
from holdfast.activities.site.site import Site
from holdfast.model import Checkpoint, CheckpointProtocol, Phase, Reason, Report
from holdfast.model.calls.barrier import BarrierInput
from holdfast.model.calls.cluster import CheckpointInput, PlannedComponent, Target
from holdfast.worker.watch.seen import pod_seen
from tests.activities.shapes import pod

FIELDS = [{"manager": f"m{n}", "fieldsV1": {f"f:{key}": {".": {}} for key in range(60)}} for n in range(3)]
TEMPLATE = {"spec": {"containers": [{"name": "main", "image": "busybox", "args": ["x"] * 20}]}}


def full(number: int = 0) -> Object:
    """Return a pod about as the API server gives it: most of it is who has written which field."""
    raw = pod(f"train-workers-{number}", deleting=True, version=1000 + number, node=f"node-{number % 7}")
    raw["metadata"] |= {
        "finalizers": ["example.com/hold"],
        "deletionGracePeriodSeconds": 30,
        "managedFields": FIELDS,
        "annotations": {"note": "n" * 200},
        "ownerReferences": [{"kind": "Job", "name": "w", "uid": "job-uid"}],
    }
    raw["spec"] |= TEMPLATE["spec"]
    return raw


def waiting(number: int = 0) -> Object:
    """Return a pod that waits at its barrier, and is asked to save."""
    raw = full(number)
    del raw["metadata"]["deletionTimestamp"]
    del raw["metadata"]["ownerReferences"]
    for name in (names.ANNOTATION_RESTART_REQUEST, names.ANNOTATION_CHECKPOINT_REQUEST):
        raw["metadata"]["annotations"][name] = "1"
    raw["spec"]["serviceAccountName"] = "runner"
    raw["status"] |= {"hostIP": "10.0.0.1", "podIP": f"10.1.0.{number % 200}"}
    raw["status"] |= {f"{whose}IPs": [{"ip": raw["status"][f"{whose}IP"]}] for whose in ("host", "pod")}
    return raw


@pytest.mark.row("A8", level="pure")
def test_a_trace_has_what_a_removal_goes_by_and_nothing_else():
    raw = full(3)
    labels = raw["metadata"]["labels"]
    kept = {key: labels[key] for key in (names.LABEL_WORKLOAD_UID, names.LABEL_ATTEMPT)}
    assert trace(raw) == {
        "metadata": {
            "name": "train-workers-3",
            "uid": "train-workers-3-uid",
            "namespace": "ns",
            "resourceVersion": "1003",
            "deletionTimestamp": raw["metadata"]["deletionTimestamp"],
            "deletionGracePeriodSeconds": 30,
            "finalizers": ["example.com/hold"],
            "labels": kept,
        },
        "spec": {"nodeName": "node-3"},
    }
    assert owned_trace(raw)["metadata"]["ownerReferences"] == raw["metadata"]["ownerReferences"]
    assert trace(full(4))["metadata"]["finalizers"] is trace(raw)["metadata"]["finalizers"], "what is alike is once"


def test_what_an_object_does_not_say_is_not_in_its_trace():
    kept = trace({"metadata": {"name": "a", "uid": "u"}})
    assert kept == {"metadata": {"name": "a", "uid": "u", "labels": {}}, "spec": {}}
    assert "ownerReferences" not in owned_trace({"metadata": {"name": "a"}})["metadata"]


def test_a_lean_object_lacks_its_template_and_an_unsigned_one_only_who_wrote_it():
    raw: Object = {"metadata": {"name": "j", "managedFields": FIELDS}, "spec": {"suspend": True, "template": TEMPLATE}}
    without = {"metadata": {"name": "j"}, "spec": {"suspend": True, "template": TEMPLATE}}
    assert unsigned(raw) == without
    assert lean(raw) == {"metadata": {"name": "j"}, "spec": {"suspend": True}}
    assert "template" in raw["spec"], "what was read is left as it is"
    assert lean({"metadata": {"name": "c"}, "data": {}}) == {"metadata": {"name": "c"}, "data": {}}


@pytest.mark.parametrize(
    ("keep", "made", "most"),
    [(trace, full, 1200), (pod_seen, full, 1200), (standing_pod, waiting, 1200), (request_target, waiting, 2400)],
)
def test_little_is_kept_of_each_pod(keep: Callable[[Object], Any], made: Callable[[int], Object], most: int):
    many = 2000
    texts = [json.dumps(made(number)) for number in range(many)]
    keep(json.loads(texts[0]))
    tracemalloc.start()
    try:
        kept = [keep(json.loads(text)) for text in texts]
        gc.collect()
        each = tracemalloc.get_traced_memory()[0] / many
    finally:
        tracemalloc.stop()
    assert len(kept) == many
    assert None not in kept
    assert each < most, f"{each:.0f} bytes a pod, of {len(texts[0])} that each has as text"


class _Item(dict[str, Any]):
    """An object of which it can be told whether it is still held."""


class _Paged(Kube):
    """Answers a list in pages of its own, as many of which come too late as it is told."""

    def __init__(self, many: int, late: int = 0, made: Callable[[int], Object] = full) -> None:
        super().__init__(Configuration(host="http://127.0.0.1:9"))
        self.asked: list[tuple[str, str]] = []
        self.held: list[weakref.ref[_Item]] = []
        self.most = 0
        self._many, self._made = many, made
        self._late = late

    async def resource(self, api_version: str, kind: str) -> Resource:
        return Resource(group="", version="v1", kind=kind, plural="pods", namespaced=True, verbs=frozenset({"list"}))

    async def _request(self, method: str, path: str, **options: Any) -> Object:
        query: dict[str, str] = options["query"]
        limit, token = query.get("limit", ""), query.get("continue", "")
        self.asked.append((limit, token))
        if token and self._late:
            self._late -= 1
            raise Gone(410, "Expired", "the continue token is too old")
        begin = int(token or 0)
        end = min(self._many, begin + int(limit)) if limit else self._many
        items = [_Item(self._made(number)) for number in range(begin, end)]
        self.held = [one for one in self.held if one() is not None] + [weakref.ref(one) for one in items]
        self.most = max(self.most, len(self.held))
        more = {"continue": str(end)} if end < self._many else {}
        return {"metadata": {"resourceVersion": "77", **more}, "items": items}


def name_of(raw: Object) -> str:
    return raw["metadata"]["name"]


async def test_a_long_list_is_never_held_whole():
    kube = _Paged(3 * PAGE + 1)
    listed = await kube.list("v1", "Pod", "ns", keep=name_of)
    assert listed["items"] == [f"train-workers-{number}" for number in range(3 * PAGE + 1)]
    assert listed["metadata"]["resourceVersion"] == "77"
    assert [token for _, token in kube.asked] == ["", str(PAGE), str(2 * PAGE), str(3 * PAGE)]
    assert kube.most <= PAGE
    await kube.close()


TARGET = Target(
    cluster="dev", namespace="ns", name="train", workload_uid="u", workflow_id="w", shard=0, run_as=names.RUN_AS_DEFAULT
)
REPORT = Report(sequence=1, phase=Phase.CHECKPOINTING, reason=Reason.PREEMPTED)


async def at_the_barrier(site: Site) -> list[str]:
    name = pod("any")["metadata"]["labels"][names.LABEL_COMPONENT]
    plan = (PlannedComponent(name=name, api_version="batch/v1", kind="Job", object_name=name),)
    given = BarrierInput(target=TARGET, attempt=1, owner_uid="o", plan=plan, in_place=1, report=REPORT)
    seen = await barrier._pods(site, given)
    assert not seen.going
    assert {(pod.account, pod.stands.requested) for pod in seen.pods} == {("runner", 1)}
    return [f"{pod.uid} {pod.version} {pod.name}" for pod in seen.pods]


async def asked_to_save(site: Site) -> list[str]:
    given = CheckpointInput(
        target=TARGET,
        attempt=1,
        checkpoint=Checkpoint(protocol=CheckpointProtocol.ANNOTATION),
        components=(pod("any")["metadata"]["labels"][names.LABEL_COMPONENT],),
        number=1,
        reason="Preempted",
        running=1,
        until=datetime(2026, 1, 1, 12, tzinfo=UTC),
        report=REPORT,
    )
    pods = await checkpoint._pods(site, given)
    return [f"{facts.uid} {raw['metadata']['resourceVersion']} {facts.name}" for raw, facts in pods]


@pytest.mark.parametrize(
    "listed",
    [
        pytest.param(at_the_barrier, marks=pytest.mark.row("J24", level="pure")),
        pytest.param(asked_to_save, marks=pytest.mark.row("L32", level="pure")),
    ],
)
async def test_of_thousands_of_pods_one_page_is_held_whole(listed: Callable[[Site], Awaitable[list[str]]]):
    kube = _Paged(3 * PAGE + 1, made=waiting)
    pods = await listed(cast("Site", SimpleNamespace(kube=kube)))
    assert pods == [f"train-workers-{n}-uid {1000 + n} train-workers-{n}" for n in range(3 * PAGE + 1)]
    assert kube.most <= PAGE
    await kube.close()


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "PAUSE_FIRST", 0.001)


@pytest.mark.usefixtures("at_once")
async def test_a_page_that_comes_too_late_begins_the_list_anew_in_pages_and_nothing_is_kept_twice():
    kube = _Paged(2 * PAGE + 1, late=2)
    passed = f"train-workers-{PAGE}"
    listed = await kube.list("v1", "Pod", "ns", keep=lambda one: name_of(one) if name_of(one) != passed else None)
    expected = [f"train-workers-{number}" for number in range(2 * PAGE + 1)]
    expected.remove(passed)
    assert listed["items"] == expected
    late = [(str(PAGE), ""), (str(PAGE), str(PAGE))]
    assert kube.asked == [*late, *late, *late, (str(PAGE), str(2 * PAGE))]
    assert kube.most <= PAGE
    await kube.close()


@pytest.mark.usefixtures("at_once")
async def test_where_every_page_comes_too_late_nothing_is_known():
    kube = _Paged(PAGE + 1, late=100)
    with pytest.raises(Unreachable, match="6 times"):
        await kube.list("v1", "Pod", "ns")
    assert [token for _, token in kube.asked] == ["", str(PAGE)] * (pages.BEGUN_ANEW + 1)
    await kube.close()
