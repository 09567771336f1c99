"""What was created before the API server checked who creates it is not run: by the bindings of a real server (F5)."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from holdfast import formats, names
from holdfast.activities.kube.client import Forbidden, Kube
from holdfast.activities.kube.raw import time_of
from holdfast.deploy import FOLDER
from holdfast.policy.entities.front_door import Act
from holdfast.worker.watch.binding import Bindings, binding_of
from tests.e2e.ground.site import Site

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session"), pytest.mark.row("F5", level="e2e")]
BINDING = ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding")


@pytest.mark.parametrize("kind", [kind for _, kind in formats.RESOURCES])
async def test_F5_a_resource_older_than_the_binding_is_held_and_a_younger_one_is_not(shared_site: Site, kind: str):
    found = await shared_site.kube.get(*BINDING, binding_of(kind))
    bound = time_of(found["metadata"]["creationTimestamp"])
    assert isinstance(bound, datetime)
    bindings = Bindings(shared_site.kube)
    for _ in range(2):  # Once read, it is remembered.
        older = await bindings.unchecked(kind, bound - timedelta(seconds=1))
        assert older is not None
        assert (older.act, "is younger" in older.why) == (Act.HOLD, True)
        assert await bindings.unchecked(kind, bound + timedelta(minutes=1)) is None


async def test_F5_without_the_binding_all_are_held(shared_site: Site):
    verdict = await Bindings(shared_site.kube).unchecked("Nothing", None)
    assert verdict is not None
    assert (
        "nothing-components.holdfast.dev, which has the API server check who creates it, is missing, or denies nothing"
        in verdict.why
    )


async def test_F5_a_binding_that_denies_nothing_checks_nobody(shared_site: Site):
    kind = f"audited-{secrets.token_hex(3)}"
    binding = {"metadata": {"name": binding_of(kind)}, "spec": {"policyName": "none", "validationActions": ["Audit"]}}
    made = await shared_site.kube.create({"apiVersion": BINDING[0], "kind": BINDING[1], **binding})
    try:
        verdict = await Bindings(shared_site.kube).unchecked(kind, datetime.now(UTC) + timedelta(minutes=1))
        assert verdict is not None
        assert "denies nothing" in verdict.why
    finally:
        await shared_site.kube.delete(*BINDING, made["metadata"]["name"], uid=made["metadata"]["uid"])


async def test_F5_where_bindings_may_not_be_read_nothing_is_held_for_that(shared_site: Site, tmp_path: Path):
    namespace = await shared_site.namespace()
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{names.RUN_AS_DEFAULT}/token"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    token = (await shared_site.kube.mutate("POST", path, body=body))["status"]["token"]
    config = yaml.safe_load(shared_site.stack.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token}
    account = tmp_path / "kubeconfig"
    account.write_text(yaml.safe_dump(config))
    async with await Kube.connect(str(account)) as kube:
        with pytest.raises(Forbidden):
            await kube.find(*BINDING, binding_of("JobSet"))
        assert await Bindings(kube).unchecked("JobSet", None) is None


@pytest.mark.parametrize("form", formats.RESOURCES.values(), ids=lambda form: form.kind)
async def test_F5_each_kind_has_such_a_binding_in_its_folder(form: Any):
    documents = yaml.safe_load_all((FOLDER / form.folder / "policies.yaml").read_text())
    bindings = [one["metadata"]["name"] for one in documents if one["kind"] == BINDING[1]]
    assert binding_of(form.kind) in bindings
