"""Before anything is made, the API server is asked: what it will never take is refused, the rest is not."""

from __future__ import annotations

from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from holdfast import names
from holdfast.activities.kube.client import (
    AlreadyExists,
    Forbidden,
    Invalid,
    KubeError,
    Object,
    QuotaExceeded,
    WebhookFailed,
)
from holdfast.activities.objects.rehearse import stays
from holdfast.model import Component
from tests.activities.bench import Bench, config, job, pod, service, spoiled
from tests.quotas import limited

WEBHOOK = 'admission webhook "check.example.com" denied the request: there is no such queue'


@pytest.mark.parametrize(
    ("error", "alone", "helped", "waits"),
    [
        (Invalid(422, "Invalid", "spec.x: Invalid value"), True, True, True),
        (Invalid(422, "Invalid", WEBHOOK), True, False, True),
        (Invalid(400, "BadRequest", 'admission webhook "x" does not support dry run'), False, False, False),
        (Forbidden(403, "Forbidden", 'no PriorityClass with name "x" was found'), True, False, False),
        (Forbidden(403, "Forbidden", 'RBAC: role "x" not found'), False, False, False),
        (QuotaExceeded(403, "Forbidden", "exceeded quota: pods"), False, False, False),
        (WebhookFailed(500, "InternalError", "failed calling webhook"), False, False, False),
    ],
)
def test_only_what_stays_is_refused(error: KubeError, alone: bool, helped: bool, waits: bool) -> None:
    """What an earlier component would bring is not there in a dry run, and a workload that waits waits for rights."""
    assert stays(error, [job()], waits=False) is alone
    assert stays(error, [config()], waits=False) is helped
    assert stays(error, [], waits=True) is waits


async def asked(bench: Bench, *components: Component, **changes: Any) -> str:
    """Prepare with a rehearsal, and return why it was refused; empty if it was not."""
    bench.components = components
    source = changes.pop("source", "AppWrapper")
    target = bench.target.model_copy(update={"source_kind": source})
    said: list[ApplicationError] = []
    while True:
        try:
            await bench.prepare(components=components, target=target, **changes)
        except ApplicationError as error:
            if error.type == names.ERROR_UNREACHABLE:
                continue  # As Temporal would: the machine was busy.
            said.append(error)
        break
    if said:
        assert (said[0].type, said[0].non_retryable) == (names.ERROR_REFUSED, True)
        assert await bench.anchor() is None
        assert await bench.owner() is None
        return said[0].message
    assert await bench.admin.find("batch/v1", "Job", "work", bench.namespace) is None, "a dry run makes nothing"
    return ""


@pytest.mark.e2e
class TestRehearsal:
    async def test_what_the_server_takes_is_prepared(self, bench: Bench):
        assert not await asked(bench, config(), pod(), job())

    @pytest.mark.row("U14", level="e2e")
    async def test_each_field_of_each_component_is_named(self, bench: Bench):
        message = await asked(bench, spoiled(pod(), restartPolicy="Odd"), job(), spoiled(job("b"), parallelism=-1))
        assert message == (
            "spec.components[0].template.spec.restartPolicy: is not one of the allowed values; "
            "allowed: Always, OnFailure, Never (found 'Odd'); "
            "spec.components[2].template.spec.parallelism: must be greater than or equal to 0 (found -1)"
        )

    @pytest.mark.row("U14", level="e2e")
    async def test_plain_manifests_are_named_as_they_are(self, bench: Bench):
        message = await asked(bench, spoiled(job(), parallelims=3), source="List")
        assert message == "Job work: spec.parallelims: is no field that the API server knows"

    async def test_what_injection_cannot_add(self, bench: Bench):
        message = await asked(bench, config(), job(metadata={"labels": {names.LABEL_ATTEMPT: "7"}}))
        assert message.startswith(
            f"spec.components[1].template.metadata.labels[{names.LABEL_ATTEMPT}]: the template sets"
        )

    async def test_a_foreign_object_in_the_way(self, bench: Bench):
        body: Object = {**job().template, "metadata": {"name": "work", "namespace": bench.namespace}}
        await bench.admin.create(body)
        bench.components = (pod(), job())
        with pytest.raises(ApplicationError) as caught:
            await bench.prepare(components=bench.components)
        assert "template.metadata.name" not in caught.value.message
        assert caught.value.message.startswith(f"Job work: metadata.name: Job {bench.namespace}/work is there already")

    @pytest.mark.row("A4", level="e2e")
    @pytest.mark.row("S2", level="e2e")
    async def test_a_quota_is_left_to_creation(self, bench: Bench):
        await limited(bench.admin, bench.namespace, {"pods": "0"})
        assert not await asked(bench, pod())
        created = await bench.create()
        assert created.failure is not None
        assert (created.failure.reason, created.exhausted) == ("QuotaExceeded", True)

    async def test_an_account_that_pods_lack(self, bench: Bench):
        missing = spoiled(pod(), serviceAccountName="nobody")
        assert f"service account {bench.namespace}/nobody does not exist" in await asked(bench, missing)
        with pytest.raises(ApplicationError, match=r"not submitted in time: .*nobody does not exist"):
            await bench.prepare(components=(missing,), waits=True, patience=0.3)

    async def test_a_later_attempt_is_not_rehearsed(self, bench: Bench):
        await bench.prepare()
        bench.attempt = 2
        assert (await bench.prepare()).owner_uid


async def identities(bench: Bench) -> list[tuple[str, str]]:
    """Return what would differ if anybody had touched what the components are."""
    found: list[tuple[str, str]] = []
    for one in bench.components:
        template = one.template
        name = template["metadata"]["name"]
        thing = await bench.admin.get(template["apiVersion"], template["kind"], name, bench.namespace)
        found.append((thing["metadata"]["uid"], str(thing["metadata"]["labels"])))
    return found


@pytest.mark.e2e
class TestRehearsalOfAChange:
    async def test_the_server_validates_before_it_looks_whether_the_name_is_taken(self, bench: Bench):
        """On this order the rehearsal of what is there stands, for built-in kinds and for custom ones."""
        await bench.prepare()
        owner = await bench.owner()
        assert owner is not None
        metadata = {"name": "work", "namespace": bench.namespace}
        for there, slip in (
            ({**job().template, "metadata": metadata}, {"spec": {**job().template["spec"], "parallelism": -1}}),
            (
                {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "spec": owner["spec"], "metadata": metadata},
                {"spec": {**owner["spec"], "attempt": "one"}},
            ),
        ):
            await bench.admin.create(there)
            with pytest.raises(AlreadyExists):
                await bench.admin.would_create(there)
            with pytest.raises(Invalid):
                await bench.admin.would_create({**there, **slip})

    @pytest.mark.row("U14", level="e2e")
    async def test_each_field_is_named_and_what_is_there_is_let_be(self, bench: Bench):
        bench.components = (config(), pod(), job())
        await bench.launch()
        before = await identities(bench)
        assert not await bench.rehearse(config(), pod(labels={"colour": "blue"}), spoiled(job(), backoffLimit=1))
        target = bench.target.model_copy(update={"source_kind": "AppWrapper"})
        slips = spoiled(pod(), restartPolicy="Odd"), spoiled(job(), parallelims=3)
        message = await bench.rehearse(*slips, target=target)
        assert message == (
            "spec.components[1].template.spec.restartPolicy: is not one of the allowed values; "
            "allowed: Always, OnFailure, Never (found 'Odd'); "
            "spec.components[2].template.spec.parallelims: is no field that the API server knows"
        )
        assert await identities(bench) == before

    async def test_what_others_bring_is_there_unless_it_is_made_again_too(self, bench: Bench):
        bench.components = (config(), pod())
        await bench.launch()
        missing = spoiled(pod(), priorityClassName="none-such")
        assert "no PriorityClass with name none-such" in await bench.rehearse(missing)
        assert not await bench.rehearse(config(), missing)
        assert not await bench.rehearse(missing, standing=False)
        assert not await bench.rehearse(missing, waits=True)

    async def test_a_port_that_what_is_there_holds_is_no_hindrance_and_anothers_is(self, bench: Bench):
        bench.components = (spoiled(service(), type="NodePort"), spoiled(service("back"), type="NodePort"))
        await bench.prepare()
        assert (await bench.create()).failure is None
        found = await bench.admin.list("v1", "Service", bench.namespace)
        port = {one["metadata"]["name"]: one["spec"]["ports"][0]["nodePort"] for one in found["items"]}

        def changed(holder: str, **spec: Any) -> Component:
            ports = [{"port": 81, "nodePort": port[holder]}]
            return spoiled(service(), type="NodePort", clusterIP=address, ports=ports, **spec)

        address = next(one["spec"]["clusterIP"] for one in found["items"] if one["metadata"]["name"] == "front")
        assert not await bench.rehearse(changed("front"))
        assert "spec.sessionAffinity: is not one of" in await bench.rehearse(changed("front", sessionAffinity="Odd"))
        message = await bench.rehearse(changed("back"))
        assert message.startswith("Service front: spec.ports[0].nodePort: provided port is already allocated")

    async def test_an_account_that_has_lost_its_rights_is_told_before_anything_is_removed(self, bench: Bench):
        await bench.launch()
        account = await bench.admin.get("v1", "ServiceAccount", bench.target.run_as, bench.namespace)
        unset = {"metadata": {"annotations": {names.ANNOTATION_RUN_AS: None}}}
        uid = account["metadata"]["uid"]
        await bench.admin.patch("v1", "ServiceAccount", bench.target.run_as, bench.namespace, uid=uid, patch=unset)
        assert "does not let workloads run as it" in await bench.rehearse(*bench.components)
        assert not await bench.rehearse(*bench.components, waits=True)
