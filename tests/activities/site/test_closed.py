"""What closes a namespace, an account or a source, and how often the API server is asked for it (row X4). Pure."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio.exceptions import ApplicationError

from holdfast import names
from holdfast.activities.data.settings import Data
from holdfast.activities.data.stage import stage
from holdfast.activities.kube.client import Forbidden, NotFound, Unreachable
from holdfast.activities.kube.resources import Resource as Kind
from holdfast.activities.operations import barrier, park, scale
from holdfast.activities.site.closed import withdrawn
from holdfast.activities.site.permission_cache import FRESH, RIGHTS_FRESH, Permits
from holdfast.activities.site.permissions import until_permitted
from holdfast.activities.site.site import Pulse, Site
from holdfast.model import Component, Limits, Phase, Reason, Report
from holdfast.model.calls.barrier import BarrierInput
from holdfast.model.calls.cluster import PlannedComponent, PrepareInput, ScaleInput, Target, UnparkInput
from holdfast.model.calls.plan import DataVolume
from holdfast.model.calls.stage import StageInput
from holdfast.model.spec.mount import Mount

ROW = pytest.mark.row
OPEN = {"labels": {names.LABEL_NAMESPACE_ENABLED: "true"}}
OPTED_IN = {"annotations": {names.ANNOTATION_RUN_AS: names.RUN_AS_ALLOWED}}
TARGET = Target(
    cluster="c",
    cluster_uid="u",
    namespace="team",
    name="train",
    workload_uid="w",
    workflow_id="workload/c/team/train",
    shard=1,
    run_as="runner",
    source_kind="List",
)
POD: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {}}
JOB: dict[str, Any] = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "work", "ownerReferences": [{"uid": "o"}]},
    "spec": {"parallelism": 2, "completions": 2, "template": {"spec": {}}},
}
DATA = (DataVolume(volume="v", digest="d", path="/data", components=("work",), source="s3://data/corpus"),)


class Cluster:
    """A namespace with its accounts, and how often it was asked for them."""

    def __init__(self) -> None:
        self.there: dict[tuple[str, str], dict[str, Any]] = {
            ("Namespace", "team"): OPEN,
            ("ServiceAccount", "runner"): OPTED_IN,
            ("ServiceAccount", "admin"): {},
        }
        self.asked = 0

    async def get(self, _version: str, kind: str, name: str, _namespace: str = "") -> dict[str, Any]:
        self.asked += 1
        if (kind, name) not in self.there:
            raise NotFound(404, "NotFound", "not there")
        return {"metadata": self.there[kind, name]}


def site(cluster: Cluster, *grants: str, namespaces: tuple[str, ...] = ()) -> Any:
    nothing: Any = None
    data = Data(nothing, nothing, tuple(("team", one) for one in grants))
    return SimpleNamespace(kube=cluster, permits=Permits(), data=data, namespaces=namespaces, encrypted=False)


def named(account: str) -> dict[str, Any]:
    return {**POD, "spec": {"serviceAccountName": account}}


@ROW("X4", level="pure")
@pytest.mark.parametrize(
    ("there", "thing", "why", "opens"),
    [
        ({("Namespace", "team"): {}}, POD, "is not enabled", True),
        ({("Namespace", "team"): None}, POD, "does not exist", False),
        ({("Namespace", "team"): {**OPEN, "deletionTimestamp": "now"}}, POD, "is being deleted", False),
        ({("ServiceAccount", "runner"): {}}, POD, "does not let workloads run as it", True),
        ({("ServiceAccount", "runner"): None}, POD, "service account team/runner does not exist", True),
        ({}, {**POD, "kind": "Secret"}, "Secret p: the contents of a Secret among the components", False),
        ({}, named("admin"), "Pod p: spec.serviceAccountName: 'admin': service account team/admin does not let", True),
        ({}, named("nobody"), "team/nobody does not exist: expected runner, or an account", True),
        ({}, named("x/token"), "'x/token': is no name of a service account: expected runner", False),
        ({}, named(".."), "is no name of a service account", False),
        ({}, named("x" * 254), "is no name of a service account", False),
        ({("ServiceAccount", "admin"): OPTED_IN}, named("admin"), "", False),
        ({}, named("runner"), "", False),
        ({}, named("default"), "", False),
        ({}, POD, "", False),
    ],
)
async def test_X4_what_closes(there: dict[Any, Any], thing: dict[str, Any], why: str, opens: bool) -> None:
    cluster = Cluster()
    cluster.there = {key: value for key, value in (cluster.there | there).items() if value is not None}
    closed = await withdrawn(site(cluster), TARGET, thing)
    if not why:
        assert closed is None
        return
    assert closed is not None
    assert why in closed.why
    assert closed.opens is opens


@ROW("X6", level="pure")
async def test_X6_a_worker_that_encrypts_may_create_a_secret() -> None:
    secret, place = {**POD, "kind": "Secret"}, site(Cluster())
    assert await withdrawn(place, TARGET, secret) is not None
    place.encrypted = True
    assert await withdrawn(place, TARGET, secret) is None


@ROW("X4", level="pure")
async def test_X4_a_source_that_is_granted_no_more_closes_for_good() -> None:
    assert await withdrawn(site(Cluster(), "s3://data"), TARGET, POD, ["s3://data/corpus"]) is None
    closed = await withdrawn(site(Cluster(), "s3://other"), TARGET, POD, ["s3://data/corpus"])
    assert closed is not None
    assert "source s3://data/corpus is not granted to namespace team: expected one under s3://other" in closed.why
    assert not closed.opens


async def resumed(here: Any, _patch: pytest.MonkeyPatch, report: Report) -> None:
    component = Component(name="work", template=JOB)
    given = UnparkInput(
        target=TARGET,
        attempt=1,
        owner_uid="o",
        components=(component,),
        turn=2,
        data=DATA,
        report=report,
        report_done=report,
    )
    await park._still_permitted(here, given)


async def grown(here: Any, patch: pytest.MonkeyPatch, _report: Report) -> None:
    plan = PlannedComponent(name="work", api_version="batch/v1", kind="Job", object_name="work", expected_pods=1)
    given = ScaleInput(
        target=TARGET, attempt=1, owner_uid="o", plan=(plan,), component="work", min=1, max=4, pods=4, data=DATA
    )

    async def there(*_: Any) -> list[dict[str, Any]]:
        return [JOB]

    async def patched(*_: Any, **__: Any) -> bool:
        return True

    patch.setattr(scale, "read_objects", there)
    patch.setattr(scale, "_patched", patched)
    await scale._sized(here, given)


async def restarted(here: Any, _patch: pytest.MonkeyPatch, report: Report) -> None:
    given = BarrierInput(target=TARGET, attempt=1, owner_uid="o", plan=(), in_place=1, data=DATA, report=report)
    pod: Any = SimpleNamespace(component="work", account="")
    await barrier._still_permitted(here, given, [pod])


@ROW("X4", level="pure")
@pytest.mark.parametrize("act", [resumed, grown, restarted])
@pytest.mark.parametrize(
    ("taken", "granted", "why"),
    [
        ("", "s3://data", ""),
        ("Namespace", "s3://data", "is not enabled"),
        ("ServiceAccount", "s3://data", "does not let workloads run as it"),
        ("", "s3://other", "source s3://data/corpus is not granted to namespace team"),
    ],
)
async def test_X4_what_lets_more_pods_run_asks_again_for_each_right(
    act: Callable[..., Awaitable[None]], taken: str, granted: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, report = Cluster(), Report(sequence=1, phase=Phase.RESUMING, reason=Reason.RESUMED)
    cluster.there = {key: {} if key[0] == taken else value for key, value in cluster.there.items()}
    here = site(cluster, granted)
    if not why:
        await act(here, monkeypatch, report)
        return
    with pytest.raises(Exception, match=why) as refusal:
        await act(here, monkeypatch, report)
    assert type(refusal.value).__name__ == "_Refused"


@ROW("X4", level="pure")
async def test_X4_an_api_server_that_does_not_say_neither_permits_nor_refuses() -> None:
    cluster = Cluster()

    async def get(*_: Any) -> dict[str, Any]:
        raise Forbidden(403, "Forbidden", "User worker cannot get namespaces")

    cluster.get = get  # type: ignore[method-assign]
    closed = await withdrawn(site(cluster), TARGET, POD)
    assert closed is not None
    assert closed.why == "whether it is still permitted is not known: User worker cannot get namespaces"
    assert not closed.known

    async def silent(*_: Any) -> dict[str, Any]:
        raise Unreachable(0, "", "no route")

    cluster.get = silent  # type: ignore[method-assign]
    with pytest.raises(Unreachable):
        await withdrawn(site(cluster), TARGET, POD)


@ROW("X4", level="pure")
async def test_X4_many_objects_within_a_while_ask_once_and_what_was_refused_is_asked_each_time() -> None:
    cluster = Cluster()
    cluster.there["ServiceAccount", "admin"] = OPTED_IN
    here = site(cluster)
    for _ in range(10):
        assert await withdrawn(here, TARGET, named("admin")) is None
    assert cluster.asked == 3, "the namespace, and both accounts"
    cluster.there["ServiceAccount", "other"] = {}
    for _ in range(3):
        assert await withdrawn(here, TARGET, named("other")) is not None
    assert cluster.asked == 6


@ROW("X4", level="pure")
async def test_X4_who_asks_at_the_same_time_asks_together() -> None:
    cluster = Cluster()
    here = site(cluster)
    answers = await asyncio.gather(*(withdrawn(here, TARGET, POD) for _ in range(10)))
    assert (answers, cluster.asked) == ([None] * 10, 2), "the namespace, and its account"
    cluster.there["Namespace", "team"] = {}
    here.permits = Permits()
    answers = await asyncio.gather(*(withdrawn(here, TARGET, POD) for _ in range(10)))
    assert all(one is not None and "is not enabled" in one.why for one in answers)
    assert cluster.asked == 3


@ROW("X4", level="pure")
async def test_X4_who_is_broken_off_breaks_no_other_off() -> None:
    permits, answered = Permits(), asyncio.Event()

    async def question() -> str:
        await answered.wait()
        return "yes"

    first, second = (asyncio.create_task(permits.ask("what", question)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    answered.set()
    assert await second == "yes"


@ROW("X4", level="pure")
async def test_X4_what_was_allowed_is_asked_again_within_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 0 < FRESH <= 60
    permits = Permits()
    permits.give("namespace", "team")
    assert permits.has("namespace", "team")
    assert not permits.has("namespace", "other")
    monkeypatch.setattr("holdfast.activities.site.permission_cache.FRESH", 0.0)
    assert not permits.has("namespace", "team")
    assert permits.has_right("namespace", "team"), "rights are kept longer: the API server checks them too"
    assert FRESH < RIGHTS_FRESH <= 60
    monkeypatch.setattr("holdfast.activities.site.permission_cache.RIGHTS_FRESH", 0.0)
    assert not permits.has_right("namespace", "team")


@ROW("X11", level="pure")
@pytest.mark.parametrize(("namespaces", "served"), [((), True), (("team",), True), (("other", "third"), False)])
async def test_X11_nothing_is_made_in_a_namespace_that_the_worker_does_not_serve(
    namespaces: tuple[str, ...], *, served: bool
) -> None:
    cluster = Cluster()
    closed = await withdrawn(site(cluster, namespaces=namespaces), TARGET, POD)
    assert (closed is None) is served
    if closed is not None:
        assert "'team' is not among those this worker may act in: expected one of other, third" in closed.why
        assert not closed.opens, "no grant opens it: the operator has closed it"
        assert cluster.asked == 0


@ROW("X12", level="pure")
async def test_X12_a_secret_brings_the_token_of_no_account_that_has_not_opted_in() -> None:
    metadata = {"name": "s", "annotations": {"kubernetes.io/service-account.name": "admin"}}
    secret = {**POD, "kind": "Secret", "type": "kubernetes.io/service-account-token", "metadata": metadata}
    cluster = Cluster()
    here = site(cluster)
    here.encrypted = True
    closed = await withdrawn(here, TARGET, secret)
    assert closed is not None
    place = "Secret s: metadata.annotations[kubernetes.io/service-account.name]: 'admin'"
    assert closed.why.startswith(f"{place}: service account team/admin does not let workloads run as it")
    cluster.there["ServiceAccount", "admin"] = OPTED_IN
    assert await withdrawn(here, TARGET, secret) is None


@ROW("X4", level="pure")
@ROW("X10", level="pure")
@pytest.mark.parametrize(
    ("there", "why", "waits", "waited_for"),
    [
        ({("Namespace", "team"): {}}, "is not enabled", True, True),
        ({("Namespace", "team"): {}}, "is not enabled", False, False),
        ({("ServiceAccount", "runner"): {}}, "does not let workloads run as it", True, True),
        ({("ServiceAccount", "runner"): {}}, "does not let workloads run as it", False, False),
        ({("Namespace", "team"): None}, "does not exist", True, False),
        ({("Namespace", "team"): {**OPEN, "deletionTimestamp": "now"}}, "is being deleted", True, False),
    ],
)
async def test_X10_no_data_is_staged_where_nothing_may_begin(
    there: dict[Any, Any], why: str, *, waits: bool, waited_for: bool
) -> None:
    cluster, nothing = Cluster(), cast("Any", None)
    cluster.there = {key: value for key, value in (cluster.there | there).items() if value is not None}
    data = Data(nothing, nothing, (("*", "s3://datasets"),))
    here = Site(cast("Any", cluster), TARGET.cluster, TARGET.cluster_uid, "i", Limits(), data=data)
    mount = Mount(name="corpus", source="s3://datasets/corpus", path="/data")
    given = StageInput(target=TARGET, mounts=(mount,), waits=waits)
    if waited_for:
        staged = await stage(here, given)
        assert why in staged.away
        assert not staged.sets
        return
    with pytest.raises(ApplicationError, match=why) as refusal:
        await stage(here, given)
    assert (refusal.value.type, refusal.value.non_retryable) == (names.ERROR_REFUSED, True)


@ROW("X11", level="pure")
async def test_X11_no_data_is_staged_for_a_namespace_that_the_worker_does_not_serve() -> None:
    nothing: Any = None
    here = Site(nothing, TARGET.cluster, TARGET.cluster_uid, "i", Limits(), namespaces=("other",))
    with pytest.raises(ApplicationError, match="expected one of other") as refusal:
        await stage(here, StageInput(target=TARGET, mounts=()))
    assert refusal.value.type == names.ERROR_REFUSED


@ROW("J24", level="pure")
@pytest.mark.parametrize("right", [True, False])
async def test_J24_an_account_that_may_not_patch_pods_is_refused_where_they_wait_at_a_barrier(right: bool) -> None:
    place, asked = site(Cluster()), list[str]()
    pods = Kind("", "v1", "Pod", "pods", True, frozenset())

    async def resource(_version: str, _kind: str) -> Kind:
        return pods

    async def allowed(verb: str, resource: Kind, namespace: str, *, impersonate: str) -> tuple[bool, str]:
        asked.append(f"{verb} {resource.plural} in {namespace} as {impersonate}")
        return verb != "patch" or right, ""

    place.kube.resource, place.kube.allowed = resource, allowed
    told = Report(sequence=1, phase=Phase.RESUMING, reason=Reason.CREATING)
    given = PrepareInput(target=TARGET, attempt=1, plan=(), spec_hash="x", report=told)
    await until_permitted(place, given, Pulse())
    assert not asked
    given = given.model_copy(update={"barrier": True})
    if right:
        await until_permitted(place, given, Pulse())
        await until_permitted(place, given, Pulse())
    else:
        with pytest.raises(ApplicationError, match="team/runner may not patch pods in namespace team") as caught:
            await until_permitted(place, given, Pulse())
        assert caught.value.type == names.ERROR_REFUSED
    assert asked == ["patch pods in team as system:serviceaccount:team:runner"], "the answer is kept for a while"
