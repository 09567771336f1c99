"""API Priority and Fairness: which requests have Holdfast's queues, and that a tenant's flood does not delay them.

A FlowSchema is cluster-wide. Those of these tests match accounts of their own namespaces alone, and go at the end.
"""

from __future__ import annotations

import asyncio
import ssl
import statistics
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
FLOOD = 60
"""Lists that a tenant has under way at any time."""
MAPS, SIZE = 60, 20_000
"""What each of its lists reads: ConfigMaps, and the characters of each."""


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

    async def request(self, method: str, path: str) -> tuple[int, str, float]:
        """Make a request; return its status, the uid of the flow schema it matched, and how long it took."""
        begun, url = asyncio.get_running_loop().time(), f"{self.url}/api/v1/namespaces/{self.namespace}/{path}"
        async with self.session.request(method, url) as got:
            await got.read()
            took = asyncio.get_running_loop().time() - begun
            return got.status, got.headers.get("X-Kubernetes-PF-FlowSchema-UID", ""), took

    async def delete_some(self, count: int = 10) -> list[tuple[int, str, float]]:
        """Delete ConfigMaps that are not there: a deletion needs no more to stand in a queue."""
        return [await self.request("DELETE", f"configmaps/none-{number}") for number in range(count)]

    @asynccontextmanager
    async def flood(self) -> AsyncIterator[list[float]]:
        """List everything again and again; yields how long each list took."""
        took = list[float]()

        async def list_on() -> None:
            while True:
                took.append((await self.request("GET", "configmaps"))[2])

        tasks = [asyncio.create_task(list_on()) for _ in range(FLOOD)]
        try:
            await until(_holds(lambda: len(took) >= 5), 60, "the flood is under way")
            yield took
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def _holds(check: Any) -> Any:
    async def holds() -> bool:
        return bool(check())

    return holds


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
@pytest.mark.timeout(240)
async def test_a_tenants_flood_does_not_delay_deletions_as_its_account(
    stack: Stack, admin: Kube, namespace: str
) -> None:
    """Scaled: the tenant's level has two seats, so that sixty lists fill it, as thousands would fill the real one."""
    data = {"metadata": {"generateName": "some-"}, "data": {"text": "x" * SIZE}}
    maps = [admin.create({"apiVersion": "v1", "kind": "ConfigMap", **_in(data, namespace)}) for _ in range(MAPS)]
    await asyncio.gather(*maps)
    level = shipped("PriorityLevelConfiguration", "holdfast")
    low = {**level, "metadata": {"name": f"{namespace}-low"}}
    few = {"nominalConcurrencyShares": 1, "lendablePercent": 0, "borrowingLimitPercent": 0}
    low["spec"] = {"type": "Limited", "limited": {**level["spec"]["limited"], **few}}
    high = {**level, "metadata": {"name": f"{namespace}-high"}}
    group = [{"kind": "Group", "group": {"name": f"system:serviceaccounts:{namespace}"}}]
    everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"]}
    tenants = [{"subjects": group, "resourceRules": [everything]}]
    async with (
        made(admin, low),
        made(admin, high),
        made(admin, schema(f"{namespace}-low", f"{namespace}-low", 8999, tenants)) as theirs,
        made(admin, schema(f"{namespace}-high", f"{namespace}-high", 1001, [])) as ours,
        tenant_of(stack, namespace) as tenant,
    ):

        async def matches(method: str, path: str, wanted: dict[str, Any]) -> None:
            async def check() -> bool:
                return (await tenant.request(method, path))[1] == wanted["metadata"]["uid"]

            await until(check, 30, f"{method} matches {wanted['metadata']['name']}")

        await matches("DELETE", "configmaps/none", theirs)
        async with tenant.flood() as lists:
            behind = await tenant.delete_some()
        await admit(admin, namespace, names.RUN_AS_DEFAULT, schema=f"{namespace}-high")
        await matches("DELETE", "configmaps/none", ours)
        await matches("GET", "configmaps", theirs)
        async with tenant.flood() as more:
            apart = await tenant.delete_some()
    slow, fast = ([took for _, _, took in given] for given in (behind, apart))
    print(
        f"MEASURED deletions in a flood of {FLOOD} lists (each {statistics.median([*lists, *more]):.2f} s): "
        f"{statistics.median(slow):.2f} s ({max(slow):.2f} at most) in the tenant's queue, "
        f"{statistics.median(fast):.3f} s ({max(fast):.3f} at most) in Holdfast's"
    )
    assert {status for status, _, _ in apart} == {404}
    assert {uid for _, uid, _ in apart} == {ours["metadata"]["uid"]}
    assert statistics.median(fast) < statistics.median(slow) / 2


def _in(manifest: dict[str, Any], namespace: str) -> dict[str, Any]:
    return {**manifest, "metadata": {**manifest["metadata"], "namespace": namespace}}
