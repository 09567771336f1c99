"""A custom resource that stands for its workload, on a real cluster: prepared, told, looked at, let go of (F2-F4)."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from holdfast import names
from holdfast.formats.appwrapper.reader import RESOURCE
from holdfast.formats.condition import life_in
from holdfast.model import Phase
from holdfast.model.calls.cluster import AnchorKind
from tests.activities.bench import MANAGED_BY, Bench
from tests.activities.site.test_prepare import refusal
from tests.formats.appwrapper.test_resource import INFO, resource

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]
ROW = pytest.mark.row
KIND = (RESOURCE.api_version, RESOURCE.kind)
HOLD = "example.com/hold"


async def applied(bench: Bench, *infos: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """Apply an AppWrapper, and let the bench's workload be the one that it asks for."""
    document = resource(*infos, **{"managedBy": MANAGED_BY, **spec})
    document["metadata"] = {"name": bench.target.name, "namespace": bench.namespace, "finalizers": [HOLD]}
    document.pop("status")
    made = await bench.admin.create(document)
    anchor = AnchorKind(api_version=KIND[0], kind=KIND[1])
    bench.target = bench.target.model_copy(update={"anchor": anchor, "workload_uid": made["metadata"]["uid"]})
    return made


async def read(bench: Bench) -> dict[str, Any]:
    return await bench.admin.get(*KIND, bench.target.name, bench.namespace)


async def changed(bench: Bench, patch: dict[str, Any]) -> None:
    uid = (await read(bench))["metadata"]["uid"]
    await bench.admin.patch(*KIND, bench.target.name, bench.namespace, uid=uid, patch=patch)


@pytest.fixture(autouse=True)
async def _let_go(bench: Bench) -> Any:
    yield
    found = await bench.admin.find(*KIND, bench.target.name, bench.namespace)
    if found is not None:
        await changed(bench, {"metadata": {"finalizers": None}})


@ROW("F2", level="e2e")
@ROW("F4", level="e2e")
async def test_F4_a_preparation_marks_it_and_brings_back_what_it_asks_for(bench: Bench):
    await applied(bench, INFO, suspend=True)
    prepared = await bench.prepare()
    found = await read(bench)
    metadata = found["metadata"]
    assert metadata["finalizers"] == [HOLD, names.FINALIZER]
    assert metadata["labels"][names.LABEL_WORKLOAD_UID] == metadata["uid"]
    assert metadata["annotations"][names.ANNOTATION_LIFE] == metadata["uid"]
    assert prepared.asked is not None
    assert (prepared.asked.generation, prepared.asked.suspend) == (1, True)
    ((pod_set,),) = prepared.pod_sets.values()
    assert pod_set.labels == INFO["labels"]
    life = life_in(found["status"])
    assert life is not None
    assert (life.sequence, life.phase) == (1, Phase.RUNNING)
    owner = await bench.admin.get(names.API_VERSION, names.ATTEMPT_KIND, f"{bench.target.name}-a1", bench.namespace)
    assert owner["metadata"]["ownerReferences"][0]["uid"] == metadata["uid"]
    assert await bench.admin.find(names.API_VERSION, names.ANCHOR_KIND, bench.target.name, bench.namespace) is None
    # Its marks are taken off, as `kubectl replace` does: the next attempt puts them back.
    taken = {"labels": {names.LABEL_WORKLOAD_UID: None}, "annotations": None, "finalizers": [HOLD]}
    await changed(bench, {"metadata": taken})
    assert (await bench.observe()).anchor_found, "its status says that it lives"
    bench.attempt = 2
    await bench.prepare()
    assert names.FINALIZER in (await read(bench))["metadata"]["finalizers"]


@ROW("F2", level="e2e")
async def test_F2_an_earlier_report_changes_nothing(bench: Bench):
    await applied(bench)
    await bench.prepare()
    late = bench.report(phase=Phase.RESUMING)
    await bench.send_report(bench.report(phase=Phase.SUSPENDED, used={"restart": 2}))
    assert (await read(bench))["status"]["phase"] == "Suspended"
    await bench.send_report(late)
    found = await read(bench)
    assert (found["status"]["phase"], found["status"]["resettingCount"]) == ("Suspended", 2)


@ROW("F7", level="e2e")
async def test_F7_a_look_says_what_it_asks_for_now(bench: Bench):
    await applied(bench)
    await bench.prepare()
    await changed(bench, {"spec": {"suspend": True}})
    seen = await bench.observe()
    assert seen.asked is not None
    assert (seen.asked.generation, seen.asked.suspend, seen.asked.deleting) == (2, True, False)
    found = await read(bench)
    await bench.admin.delete(*KIND, bench.target.name, bench.namespace, uid=found["metadata"]["uid"])
    seen = await bench.observe()
    assert seen.asked is not None
    assert (seen.asked.generation, seen.asked.deleting, seen.anchor_deleting) == (3, True, True)


@ROW("F3", level="e2e")
async def test_F3_it_is_let_go_of_once_all_is_gone_and_anothers_is_left_alone(bench: Bench):
    made = await applied(bench)
    await bench.prepare()
    assert (await bench.create()).failure is None
    bench.target, own = bench.target.model_copy(update={"workload_uid": "another"}), bench.target
    await bench.remove(release_anchor=True, delete_anchor=True)
    assert names.FINALIZER in (await read(bench))["metadata"]["finalizers"]
    bench.target = own
    assert (await bench.remove(release_anchor=True)).gone
    metadata = (await read(bench))["metadata"]
    assert (metadata["uid"], metadata["finalizers"]) == (made["metadata"]["uid"], [HOLD])
    assert "deletionTimestamp" not in metadata
    await bench.remove(release_anchor=True, delete_anchor=True)
    assert "deletionTimestamp" in (await read(bench))["metadata"]


async def one_that_is_gone(bench: Bench) -> None:
    made = await applied(bench)
    bench.target = bench.target.model_copy(update={"workload_uid": "another"})
    assert f"AppWrapper {bench.namespace}/train of uid another is not there any more" in await refusal(
        bench, names.ERROR_CONFLICT
    )
    bench.target = bench.target.model_copy(update={"workload_uid": made["metadata"]["uid"]})


async def one_that_is_being_deleted_and_was_let_go(bench: Bench) -> None:
    made = await applied(bench)
    await bench.admin.delete(*KIND, bench.target.name, bench.namespace, uid=made["metadata"]["uid"])
    assert "is being deleted, and its finalizer was removed" in await refusal(bench, names.ERROR_CONFLICT)
    await changed(bench, {"metadata": {"finalizers": None}})


async def one_with_pod_sets_that_cannot_be(bench: Bench) -> None:
    await applied(bench, INFO, copy.deepcopy(INFO))
    assert "spec.components[0].podSetInfos: " in await refusal(bench)
    assert names.FINALIZER in (await read(bench))["metadata"]["finalizers"], "its workflow lets go of it at its end"
    await changed(bench, {"metadata": {"finalizers": None}})


async def one_that_another_controller_runs(bench: Bench) -> None:
    await applied(bench, managedBy="example.com/other")
    assert "is not run by this installation" in await refusal(bench, names.ERROR_CONFLICT)
    await changed(bench, {"metadata": {"finalizers": None}})


async def one_of_a_kind_that_stands_for_nothing(bench: Bench) -> None:
    bench.target = bench.target.model_copy(update={"anchor": AnchorKind(api_version="v1", kind="Namespace")})
    assert "stands for no workload" in await refusal(bench)


REFUSED = (
    one_that_is_gone,
    one_that_is_being_deleted_and_was_let_go,
    one_with_pod_sets_that_cannot_be,
    one_that_another_controller_runs,
    one_of_a_kind_that_stands_for_nothing,
)


@ROW("F3", level="e2e")
@pytest.mark.parametrize("check", REFUSED)
async def test_F3_what_cannot_stand_for_it_is_refused(bench: Bench, check: Any):
    await check(bench)
    attempts = await bench.admin.list(names.API_VERSION, names.ATTEMPT_KIND, bench.namespace)
    assert not attempts["items"]


async def closed(bench: Bench) -> None:
    """Let no workload begin in the bench's namespace any more."""
    found = await bench.admin.get("v1", "Namespace", bench.namespace)
    patch = {"metadata": {"labels": {names.LABEL_NAMESPACE_ENABLED: None}}}
    await bench.admin.patch("v1", "Namespace", bench.namespace, uid=found["metadata"]["uid"], patch=patch)


async def assert_left_alone(bench: Bench) -> None:
    """Tell it, and have it deleted: nothing of that may happen."""
    before = await read(bench)
    await bench.send_report(bench.report(phase=Phase.SUSPENDED))
    removed = await bench.remove(attempt=0, plan=(), release_anchor=True, delete_anchor=True)
    assert removed.gone, "nothing is left of the workload"
    assert (await read(bench))["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]


@ROW("X2", level="e2e")
@pytest.mark.parametrize("manager", ["example.com/other", "holdfast.dev/another"])
async def test_X2_one_that_another_controller_runs_is_neither_told_nor_deleted(bench: Bench, manager: str):
    await applied(bench, managedBy=manager)
    await assert_left_alone(bench)
    message = await refusal(bench, names.ERROR_CONFLICT)
    assert f"expected spec.managedBy {MANAGED_BY!r}" in message
    assert f"found {manager!r}" in message
    assert names.FINALIZER not in (await read(bench))["metadata"]["finalizers"]


@ROW("X11", level="e2e")
async def test_X11_one_that_has_not_begun_is_left_alone_where_nothing_may_begin(bench: Bench):
    await applied(bench)
    await closed(bench)
    await assert_left_alone(bench)


@ROW("X11", level="e2e")
async def test_X11_one_that_has_begun_is_finished_where_nothing_may_begin_any_more(bench: Bench):
    await applied(bench)
    await bench.prepare()
    await closed(bench)
    await bench.send_report(bench.report(phase=Phase.SUSPENDED))
    assert (await read(bench))["status"]["phase"] == "Suspended"
    assert (await bench.remove(release_anchor=True)).gone
    assert (await read(bench))["metadata"]["finalizers"] == [HOLD]
    await bench.remove(release_anchor=True, delete_anchor=True)
    assert "deletionTimestamp" in (await read(bench))["metadata"], "it had begun, although it is not held any more"


@ROW("X2", level="e2e")
async def test_X2_an_object_of_another_kind_stands_for_no_workload(bench: Bench):
    """A document may name any object in the worker's reach, by its kind and uid."""
    await applied(bench)
    found = await bench.admin.get("v1", "Namespace", bench.namespace)
    anchor = AnchorKind(api_version="v1", kind="Namespace")
    target = {"name": bench.namespace, "workload_uid": found["metadata"]["uid"], "anchor": anchor}
    bench.target, own = bench.target.model_copy(update=target), bench.target
    await bench.send_report(bench.report())
    assert (await bench.remove(attempt=0, plan=(), release_anchor=True, delete_anchor=True)).gone
    assert "expected AppWrapper of workload.codeflare.dev/v1beta2, " in await refusal(bench)
    assert "deletionTimestamp" not in (await bench.admin.get("v1", "Namespace", bench.namespace))["metadata"]
    bench.target = own
