"""API Priority and Fairness: which requests have Holdfast's queues.

A FlowSchema is cluster-wide. Those of these tests match accounts of their own namespaces alone, and go at the end.
"""

from __future__ import annotations

import asyncio
import ssl
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest
import yaml

from holdfast import names
from holdfast.activities.kube.client import Kube, service_account_user
from holdfast.deploy import FOLDER
from holdfast.local import Stack
from holdfast.worker.cleanup.flow import KIND, NAME, admit, dismiss, rules
from tests.e2e.ground.site import until

LEVEL = ("flowcontrol.apiserver.k8s.io/v1", "PriorityLevelConfiguration")


def shipped(kind: str, name: str) -> dict[str, Any]:
    """Return an object of `deploy/flow-control.yaml`."""
    found = yaml.safe_load_all((FOLDER / "flow-control.yaml").read_text())
    return next(one for one in found if (one["kind"], one["metadata"]["name"]) == (kind, name))


def test_the_shipped_schemas_stand_before_those_of_other_accounts_and_say_nothing_of_run_as_accounts() -> None:
    for name in ("holdfast-worker", NAME):
        spec = shipped("FlowSchema", name)["spec"]
        assert spec["matchingPrecedence"] < 9000, "`service-accounts` of Kubernetes"
        assert spec["priorityLevelConfiguration"]["name"] == "holdfast"
    assert "rules" not in shipped("FlowSchema", NAME)["spec"], "applying it again would take all accounts off"


def test_no_accounts_are_no_rules() -> None:
    assert rules([]) == []


@asynccontextmanager
async def made(admin: Kube, manifest: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
    """Create a cluster-wide object, and delete it at the end."""
    there = await admin.create(manifest)
    key = (manifest["apiVersion"], manifest["kind"], manifest["metadata"]["name"])
    try:
        yield there
    finally:
        await admin.delete(*key, uid=there["metadata"]["uid"])


def schema(name: str, level: str, precedence: int, given: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "apiVersion": KIND[0],
        "kind": KIND[1],
        "metadata": {"name": name},
        "spec": {
            "priorityLevelConfiguration": {"name": level},
            "matchingPrecedence": precedence,
            "distinguisherMethod": {"type": "ByUser"},
            "rules": given,
        },
    }


@pytest.mark.e2e
async def test_accounts_are_added_and_taken_off_however_many_at_once(admin: Kube, bare_namespace: str) -> None:
    async with made(admin, schema(bare_namespace, "workload-low", 8999, [])):

        async def accounts() -> set[tuple[str, str]]:
            spec = (await admin.get(*KIND, bare_namespace))["spec"]
            found = [one["serviceAccount"] for rule in spec.get("rules") or [] for one in rule["subjects"]]
            assert len(found) == len({str(one) for one in found}), "each once"
            return {(one["namespace"], one["name"]) for one in found}

        given = {(f"{bare_namespace}-{number}", "runner") for number in range(5)}
        await asyncio.gather(*(admit(admin, *one, schema=bare_namespace) for one in (*given, *given)))
        assert await accounts() == given
        await dismiss(admin, f"{bare_namespace}-1", schema=bare_namespace)
        assert await accounts() == given - {(f"{bare_namespace}-1", "runner")}
        await dismiss(admin, None, schema=bare_namespace)
        assert await accounts() == set()
    await admit(admin, "some", "account", schema=bare_namespace)  # There is no such schema: nothing happens.


@dataclass
class Tenant:
    """An account of the test's own, as which requests are made: by impersonation, as Holdfast does."""

    session: aiohttp.ClientSession
    namespace: str
    url: str

    async def request(self, method: str, path: str) -> str:
        """Make a request; return the uid of the flow schema that it matched."""
        url = f"{self.url}/api/v1/namespaces/{self.namespace}/{path}"
        async with self.session.request(method, url) as got:
            await got.read()
            return got.headers.get("X-Kubernetes-PF-FlowSchema-UID", "")


@asynccontextmanager
async def tenant_of(stack: Stack, namespace: str) -> AsyncIterator[Tenant]:
    config = yaml.safe_load(await asyncio.to_thread(stack.kubeconfig.read_text))
    (cluster,), (user,) = config["clusters"], config["users"]
    tls = ssl.create_default_context(cadata=b64decode(cluster["cluster"]["certificate-authority-data"]).decode())
    headers = {
        "Authorization": f"Bearer {user['user']['token']}",
        "Impersonate-User": service_account_user(namespace, names.RUN_AS_DEFAULT),
    }
    async with aiohttp.ClientSession(headers=headers, connector=aiohttp.TCPConnector(ssl=tls, limit=0)) as session:
        yield Tenant(session, namespace, cluster["cluster"]["server"])


@pytest.mark.e2e
@pytest.mark.timeout(120)
async def test_deletions_as_an_admitted_account_have_a_queue_of_their_own(
    stack: Stack, admin: Kube, namespace: str
) -> None:
    level = shipped("PriorityLevelConfiguration", "holdfast")
    low, high = ({**level, "metadata": {"name": f"{namespace}-{name}"}} for name in ("low", "high"))
    group = [{"kind": "Group", "group": {"name": f"system:serviceaccounts:{namespace}"}}]
    everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"]}
    tenants = [{"subjects": group, "resourceRules": [everything]}]
    async with (
        made(admin, low),
        made(admin, high),
        # Both stand before the shipped ones, which the stack has too.
        made(admin, schema(f"{namespace}-low", f"{namespace}-low", 900, tenants)) as theirs,
        made(admin, schema(f"{namespace}-high", f"{namespace}-high", 800, [])) as ours,
        tenant_of(stack, namespace) as tenant,
    ):

        async def matches(method: str, path: str, wanted: dict[str, Any]) -> None:
            async def check() -> bool:
                return await tenant.request(method, path) == wanted["metadata"]["uid"]

            await until(check, 60, f"{method} matches {wanted['metadata']['name']}")

        await matches("DELETE", "configmaps/none", theirs)
        await admit(admin, namespace, names.RUN_AS_DEFAULT, schema=f"{namespace}-high")
        await matches("DELETE", "configmaps/none", ours)
        await matches("GET", "configmaps", theirs)
        await dismiss(admin, namespace, schema=f"{namespace}-high")
        await matches("DELETE", "configmaps/none", theirs)
