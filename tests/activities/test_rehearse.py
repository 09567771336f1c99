"""Before anything is made, the API server is asked: what it will never take is refused, the rest is not."""

from __future__ import annotations

from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from holdfast import names
from holdfast.activities.kube import Forbidden, Invalid, KubeError, Object, QuotaExceeded, WebhookFailed
from holdfast.activities.rehearse import stays
from holdfast.model import Component
from tests.activities.bench import Bench, config, eventually, job, pod

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


def spoiled(component: Component, **spec: Any) -> Component:
    template = component.model_dump()["template"]
    template["spec"].update(spec)
    return component.model_copy(update={"template": template})


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
        quota = {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "none", "namespace": bench.namespace},
            "spec": {"hard": {"pods": "0"}},
        }
        await bench.admin.create(quota)

        async def counted() -> bool:
            found = await bench.admin.get("v1", "ResourceQuota", "none", bench.namespace)
            return "pods" in found.get("status", {}).get("hard", {})

        await eventually(counted)
        assert not await asked(bench, pod())
        created = await bench.create()
        assert created.failure is not None
        assert (created.failure.reason, created.exhausted) == ("QuotaExceeded", True)

    async def test_an_account_that_pods_lack(self, bench: Bench):
        missing = spoiled(pod(), serviceAccountName="nobody")
        assert 'serviceaccount "nobody" not found' in await asked(bench, missing)
        assert not await asked(bench, missing, waits=True)

    async def test_a_later_attempt_is_not_rehearsed(self, bench: Bench):
        await bench.prepare()
        bench.attempt = 2
        assert (await bench.prepare()).owner_uid
