"""Each place in which the worker refuses a workload has a test of its own; here each of them is lived once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from holdfast.activities.kube.client import Kube
from holdfast.activities.objects import rehearse
from holdfast.activities.operations import prepare
from holdfast.activities.site import permissions
from tests.activities.bench import Bench
from tests.activities.conftest import enabled, made
from tests.activities.operations.test_submission import TestWaits as Waits
from tests.activities.site.test_prepare import TestRefusals as Refusals
from tests.activities.site.test_prepare import refusal
from tests.activities.site.test_prepare import test_a_foreign_owner_is_named as a_foreign_owner
from tests.activities.site.test_rehearse import TestRehearsal as Rehearsal
from tests.activities.site.test_resource import REFUSED
from tests.activities.site.test_withdrawn import (
    test_X12_pods_run_as_the_workloads_account_or_one_that_has_opted_in as accounts,
)
from tests.refusing import lines_run, missed, places

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

Check = Callable[[Bench], Awaitable[None]]
AT_ONCE = 4
FILES = [Path(str(module.__file__)).resolve() for module in (permissions, prepare, rehearse)]
REFUSING = {"refused", "conflict", "_NotYet", "_NoKind", "ApplicationError", "Problem"}
"""What is called where something is refused."""


async def a_namespace_that_is_being_deleted(bench: Bench) -> None:
    held = {"name": "held", "namespace": bench.namespace, "finalizers": ["example.com/hold"]}
    await bench.admin.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": held})
    found = await bench.admin.get("v1", "Namespace", bench.namespace)
    await bench.admin.delete("v1", "Namespace", bench.namespace, uid=found["metadata"]["uid"])
    assert await refusal(bench) == f"namespace {bench.namespace} is being deleted"


async def an_account_without_a_right(bench: Bench) -> None:
    await Refusals().test_an_account_without_a_right(bench, "create")


CHECKS: tuple[Check, ...] = (
    a_namespace_that_is_being_deleted,
    an_account_without_a_right,
    a_foreign_owner,
    accounts,
    *REFUSED,
    Refusals().test_a_namespace_that_does_not_exist,
    Refusals().test_a_service_account_that_does_not_exist,
    Refusals().test_a_service_account_that_did_not_opt_in,
    Refusals().test_a_worker_that_may_not_act_as_the_account,
    Refusals().test_a_secret,
    Refusals().test_a_kind_the_cluster_does_not_serve,
    Refusals().test_a_kind_of_no_namespace,
    Refusals().test_a_kind_whose_end_the_worker_could_not_see,
    Refusals().test_two_components_under_one_name,
    Refusals().test_an_anchor_of_another_workload_that_has_not_ended,
    Rehearsal().test_what_injection_cannot_add,
    Rehearsal().test_a_foreign_object_in_the_way,
    Rehearsal().test_each_field_of_each_component_is_named,
    Waits().test_S2_preparation_waits_for_the_namespace_to_be_enabled,
    Waits().test_S10_preparation_waits_no_longer_than_was_asked,
)


@pytest.mark.row("U14", level="e2e")
async def test_each_place_in_which_the_worker_refuses_is_reached(kube: Kube, admin: Kube) -> None:
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(check: Check) -> None:
        async with slots, made(admin) as namespace:
            await enabled(admin, kube, namespace)
            await check(await Bench.make(kube, admin, namespace))

    with lines_run(FILES) as run:
        await asyncio.gather(*(one(check) for check in CHECKS))
    left = missed(places(FILES, REFUSING), run)
    assert not left, f"nothing is refused at {left}: add a check"
