"""What was permitted as an attempt was prepared, and is not any more, is refused by all that makes anything (row X4).

On a real cluster: each right is taken away in the middle of an attempt, and a worker is asked that remembers nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from holdfast import names
from holdfast.model import Component, FailureClass, PodSet
from holdfast.model.calls.barrier import BarrierInput
from holdfast.model.calls.cluster import GangPods
from tests.activities.bench import Bench, eventually, job, pod_spec
from tests.activities.operations.test_replace import changes
from tests.activities.operations.test_scale import Gang

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]
ROW = pytest.mark.row
ENABLE = "holdfast namespace enable"
ADMIN = "admin"


async def annotated(bench: Bench, account: str, value: str | None) -> None:
    found = await bench.admin.get("v1", "ServiceAccount", account, bench.namespace)
    patch = {"metadata": {"annotations": {names.ANNOTATION_RUN_AS: value}}}
    await bench.admin.patch("v1", "ServiceAccount", account, bench.namespace, uid=found["metadata"]["uid"], patch=patch)


async def account(bench: Bench, name: str = ADMIN, *, opted_in: bool) -> None:
    """Make another account, which may be more powerful than the run-as account."""
    metadata: dict[str, Any] = {"name": name, "namespace": bench.namespace}
    if opted_in:
        metadata["annotations"] = {names.ANNOTATION_RUN_AS: names.RUN_AS_ALLOWED}
    await bench.admin.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})


async def closed(bench: Bench) -> None:
    found = await bench.admin.get("v1", "Namespace", bench.namespace)
    patch = {"metadata": {"labels": {names.LABEL_NAMESPACE_ENABLED: None}}}
    await bench.admin.patch("v1", "Namespace", bench.namespace, uid=found["metadata"]["uid"], patch=patch)


async def opted_out(bench: Bench) -> None:
    await annotated(bench, names.RUN_AS_DEFAULT, None)


async def unserved(bench: Bench) -> None:
    """What `as_another_worker` returns serves another namespace alone."""
    bench.served = ("another",)


TAKEN: dict[str, tuple[Callable[[Bench], Awaitable[None]], str]] = {
    "the namespace is closed": (closed, "is not enabled for Holdfast"),
    "its account has opted out": (opted_out, "does not let workloads run as it"),
    "the worker serves other namespaces": (unserved, "expected one of another (setting `namespaces`)"),
}


def as_account(name: str) -> Component:
    """Return a Job whose pods run as an account."""
    one = job("work")
    template: dict[str, Any] = one.model_dump(mode="json", by_alias=True)["template"]
    template["spec"]["template"]["spec"]["serviceAccountName"] = name
    return one.model_copy(update={"template": template})


async def as_another_worker(bench: Bench) -> Bench:
    """Return the same workload as a worker sees it that was allowed nothing yet."""
    other = await Bench.make(bench.kube, bench.admin, bench.namespace, served=bench.served)
    other.components, other.owner_uid, other.objects = bench.components, bench.owner_uid, bench.objects
    other._sequence = 1000
    return other


@ROW("X4", level="e2e")
@pytest.mark.parametrize("taken", TAKEN)
async def test_X4_creation_and_replacement_make_nothing_more(bench: Bench, taken: str):
    take, why = TAKEN[taken]
    template = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pe"}, "spec": pod_spec()}
    bench.components = (Component(name="pe", template=template, pod_sets=(PodSet(path="template"),)),)
    await bench.launch()
    await take(bench)
    other = await as_another_worker(bench)
    made = changes(bench.kube)
    replaced = await other.replace(launches={"pe": 1})
    assert replaced.failure is not None
    assert (replaced.failure.cls, replaced.failure.reason) == (FailureClass.LAUNCH, "Refused")
    assert why in replaced.failure.message
    created = await other.create()
    assert created.failure is not None
    assert why in created.failure.message
    assert not [what for method, what, _ in made if method == "POST"]
    removed = await other.remove()
    assert removed.gone, "what is there can be removed all the same"


@ROW("X4", level="e2e")
@pytest.mark.parametrize("taken", TAKEN)
async def test_X4_what_sleeps_is_not_resumed(bench: Bench, taken: str):
    take, why = TAKEN[taken]
    bench.components = (job("driver", 1),)
    await bench.launch()
    assert (await bench.park()).done
    await take(bench)
    unparked = await (await as_another_worker(bench)).unpark()
    assert not unparked.done
    assert why in unparked.refused
    found = await bench.admin.get("batch/v1", "Job", "driver", bench.namespace)
    assert found["spec"]["suspend"] is True


async def restarted(bench: Bench, in_place: int) -> tuple[str, dict[str, str]]:
    """Have the pods restart in place within a second; return why they did not, and the orders of the only one."""
    given = BarrierInput(
        target=bench.target,
        attempt=bench.attempt,
        owner_uid=bench.owner_uid,
        plan=bench.plan,
        in_place=in_place,
        grace=1.0,
        report=bench.report(),
    )
    lifted = await bench.run(bench.activities.barrier, given)
    assert not lifted.done
    (pod,) = await bench.pods()
    return lifted.refused, pod["metadata"]["annotations"]


async def at_its_barrier(bench: Bench, component: Component) -> None:
    """Launch a workload whose only pod has the orders of its first start; no agent of it does anything."""
    bench.components = (component,)
    await bench.launch()
    (pod,) = await bench.pods()
    patch = {"metadata": {"annotations": {names.ANNOTATION_RESTART_REQUEST: "0"}}}
    name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
    await bench.admin.patch("v1", "Pod", name, bench.namespace, uid=uid, patch=patch)
    told, orders = await restarted(bench, 1)
    assert told == "0 of 1 pod restarted in time"
    assert orders[names.ANNOTATION_RESTART_REQUEST] == "1"


@ROW("X4", level="e2e")
@ROW("X11", level="e2e")
@pytest.mark.parametrize("taken", TAKEN)
async def test_X4_programs_are_not_restarted_in_place(bench: Bench, taken: str):
    take, why = TAKEN[taken]
    await at_its_barrier(bench, job("work", 1))
    await take(bench)
    told, orders = await restarted(await as_another_worker(bench), 2)
    assert why in told
    assert orders[names.ANNOTATION_RESTART_REQUEST] == "1"


@ROW("X4", level="e2e")
@ROW("X12", level="e2e")
async def test_X12_programs_are_not_restarted_in_place_as_an_account_that_opted_out(bench: Bench):
    await account(bench, opted_in=True)
    one = as_account(ADMIN)
    template = {**one.template, "spec": {**one.template["spec"], "parallelism": 1, "completions": 1}}
    pod_sets = (one.pod_sets[0].model_copy(update={"replicas": 1}),)
    await at_its_barrier(bench, one.model_copy(update={"template": template, "pod_sets": pod_sets}))
    await annotated(bench, ADMIN, None)
    told, orders = await restarted(await as_another_worker(bench), 2)
    assert f"{ADMIN!r}: service account {bench.namespace}/{ADMIN} does not let workloads run as it" in told
    assert orders[names.ANNOTATION_RESTART_REQUEST] == "1"


@ROW("X4", level="e2e")
@pytest.mark.parametrize("taken", TAKEN)
async def test_X4_a_gang_does_not_grow_and_may_shrink(bench: Bench, taken: str):
    take, why = TAKEN[taken]
    bench.components = (job("work", 1),)
    await bench.prepare()
    assert (await bench.create(gang=GangPods(component="work", pods=2))).failure is None
    await take(bench)
    gang = Gang(bench)
    scaled = await gang.scaled(4)
    assert not scaled.done
    assert why in scaled.refused
    assert not gang.told

    async def pods() -> int:
        return (await bench.admin.get("batch/v1", "Job", "work", bench.namespace))["spec"]["parallelism"]

    assert await pods() == 2
    smaller = await gang.scaled(1)
    if take is unserved:  # Another worker may act there (row X11).
        assert why in smaller.refused
        assert await pods() == 2
    else:
        assert smaller.done, "what is there can always be taken away"
        assert await pods() == 1


@ROW("X11", level="e2e")
async def test_X11_nothing_begins_in_a_namespace_that_the_worker_does_not_serve(bench: Bench):
    await unserved(bench)
    other = await as_another_worker(bench)
    made = changes(bench.kube)
    with pytest.raises(ApplicationError, match="expected one of another") as refusal:
        await other.prepare()
    assert (refusal.value.type, refusal.value.non_retryable) == (names.ERROR_REFUSED, True)
    assert await bench.anchor() is None
    assert made == []


@ROW("X12", level="e2e")
async def test_X12_pods_run_as_the_workloads_account_or_one_that_has_opted_in(bench: Bench):
    bench.components = (job("first"), as_account(ADMIN))
    bench.target = bench.target.model_copy(update={"source_kind": "AppWrapper"})
    expected = f"expected {bench.target.run_as}, or an account that is annotated with {names.ANNOTATION_RUN_AS}=allowed"
    place = f"spec.components[1].template.spec.template.spec.serviceAccountName: {ADMIN!r}: service account"
    with pytest.raises(ApplicationError) as missing:
        await bench.prepare(components=bench.components)
    assert missing.value.message == f"{place} {bench.namespace}/{ADMIN} does not exist: {expected}"
    await account(bench, opted_in=False)
    with pytest.raises(ApplicationError) as told:
        await bench.prepare(components=bench.components)
    assert told.value.type == names.ERROR_REFUSED
    assert told.value.message == f"{place} {bench.namespace}/{ADMIN} does not let workloads run as it: {expected}"
    assert await bench.anchor() is None
    await annotated(bench, ADMIN, names.RUN_AS_ALLOWED)
    await bench.prepare(components=bench.components)
    assert (await bench.create()).failure is None
    assert not await bench.rehearse(as_account(bench.target.run_as)), "its own account asks for nothing more"
    assert "does not exist: expected" in await bench.rehearse(as_account("nobody")), "nor may a change name another"


@ROW("X4", level="e2e")
@ROW("X12", level="e2e")
async def test_X12_an_account_that_opts_out_in_the_middle_runs_no_more_pods(bench: Bench):
    await account(bench, opted_in=True)
    bench.components = (as_account(ADMIN),)
    await bench.prepare(components=bench.components)
    assert (await bench.create()).failure is None
    await annotated(bench, ADMIN, None)
    replaced = await (await as_another_worker(bench)).replace()
    assert replaced.failure is not None
    assert replaced.failure.message.startswith(
        f"Job work: spec.template.spec.serviceAccountName: {ADMIN!r}: service account {bench.namespace}/{ADMIN} does "
        "not let workloads run as it: expected"
    )


@ROW("X4", level="e2e")
async def test_X4_pods_that_sleep_do_not_come_back_as_an_account_that_opted_out(bench: Bench):
    await account(bench, opted_in=True)
    bench.components = (as_account(ADMIN),)
    await bench.launch()
    assert (await bench.park()).done
    await annotated(bench, ADMIN, None)
    unparked = await (await as_another_worker(bench)).unpark()
    assert not unparked.done
    assert f"{bench.namespace}/{ADMIN} does not let workloads run as it" in unparked.refused


@ROW("X12", level="e2e")
async def test_X12_an_account_that_comes_with_the_workload_says_so_itself_and_comes_before_its_pods(bench: Bench):
    account, verbs = bench.target.run_as, ["create", "get", "delete", "patch"]
    acts = [f"impersonate-on:serviceaccount:{verb}" for verb in verbs]
    for name, some in ((f"holdfast-impersonate-{account}", acts), (account, verbs)):
        role = await bench.admin.get("rbac.authorization.k8s.io/v1", "Role", name, bench.namespace)
        rule = {"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": some}
        await bench.admin.patch(
            "rbac.authorization.k8s.io/v1",
            "Role",
            name,
            bench.namespace,
            uid=role["metadata"]["uid"],
            patch={"rules": [*role["rules"], rule]},
        )

    def brought(**metadata: Any) -> Component:
        template = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}
        return Component(name="account", template=template)

    opted_in = {"annotations": {names.ANNOTATION_RUN_AS: names.RUN_AS_ALLOWED}}
    for components in (
        (as_account(ADMIN), brought(name=ADMIN, **opted_in)),
        (brought(name=ADMIN), as_account(ADMIN)),
        (brought(generateName="other-", **opted_in), as_account(ADMIN)),
    ):
        bench.components = components
        with pytest.raises(ApplicationError, match="does not exist: expected"):
            await bench.prepare(components=components)
    bench.components = (brought(name=ADMIN, **opted_in), as_account(ADMIN))

    async def granted() -> bool:
        with contextlib.suppress(ApplicationError):  # The authorizer learns of new roles a moment later.
            return bool((await bench.prepare(components=bench.components)).owner_uid)
        return False

    await eventually(granted)
    assert (await bench.create()).failure is None
    assert (await bench.replace()).failure is None, "both are made again at once"
