"""Evidence of a real container that failed: in a real store, read once its pods are gone, by who may (row P3)."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import obstore
import pytest
import pytest_asyncio
import yaml
from temporalio.client import Client

from holdfast import names
from holdfast.codec.keyfile import add
from holdfast.codec.options import options
from holdfast.local import Stack
from holdfast.worker.cleanup.namespace import enable
from tests.e2e.ground.held import open_real
from tests.e2e.ground.site import Site, appwrapper, open_site, until
from tests.e2e.ground.space import Space
from tests.e2e.status.test_logs import pod
from tests.store import BUCKET, Store

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.real_node,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(300),
]
ROW = pytest.mark.row
SOURCE = f"s3://{BUCKET}/evidence"
PLANTED = "out-of-cheese"
FAILS = f"echo first; echo {PLANTED}; echo 'no cheese' > /dev/termination-log; exit 7"
ONCE = {"failureGracePeriodDuration": "0s", "retryLimit": "0", "deletionOnFailureGracePeriodDuration": "0s"}


@dataclass
class Ground:
    """A site on the real node whose worker keeps evidence."""

    space: Space
    store: Store
    keys: Path | None

    @property
    def environment(self) -> dict[str, str]:
        """What the worker, and who reads evidence, is told of the store."""
        return dict(self.store.environment) | ({names.ENV_CODEC_KEYS: str(self.keys)} if self.keys is not None else {})

    async def run(self, *arguments: str, **changes: str) -> tuple[int, str, str]:
        """Run a command; return its exit code, what it printed, and its remarks on one line."""
        argv, environment = self.space.site.command()
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *argv, *arguments, env=environment | self.environment | changes, stdout=pipe, stderr=pipe
        )
        out, errors = await asyncio.wait_for(process.communicate(), 120)
        assert process.returncode is not None
        return process.returncode, out.decode(), " ".join(errors.decode().replace("│", " ").split())

    def documents(self) -> list[tuple[str, bytes]]:
        """Return all documents in the store."""
        bucket = self.store.bucket()
        keys = [one["path"] for page in obstore.list(bucket, "evidence") for one in page]
        return [(key, bytes(obstore.get(bucket, key).bytes())) for key in keys]


@pytest_asyncio.fixture(loop_scope="session")
async def site(stack: Stack, tmp_path: Path) -> AsyncIterator[Site]:
    async with open_site(stack, tmp_path, prefix="p") as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="session", params=[False, True], ids=["plain", "encrypted"])
async def ground(site: Site, store: Store, tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Ground]:
    keys = tmp_path / "keys" if request.param else None
    if keys is not None:
        add(keys)
        site.client = await Client.connect(site.temporal_address, namespace=site.cluster, **options(keys))
    async with open_real(site) as space:
        made = Ground(space, store, keys)
        await enable(site.kube, space.namespace, logs=True)
        await site.start_worker(kubeconfig=None, **made.environment, HOLDFAST_EVIDENCE_STORE=SOURCE)
        yield made


def failing() -> dict[str, Any]:
    bad = pod("bad", {"main": FAILS})
    bad["template"]["spec"]["restartPolicy"] = "Never"
    return appwrapper("train", pod("good", {"main": "echo here; while :; do sleep 0.1; done"}), bad, **ONCE)


async def reader(ground: Ground, folder: Path) -> Path:
    """Return the kubeconfig of an account that may list pods in the namespace, and read no logs."""
    kube, namespace, name = ground.space.site.kube, ground.space.namespace, f"reader-{secrets.token_hex(2)}"
    rbac = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": name, "namespace": namespace}}
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}
    await kube.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": rbac["metadata"]})
    await kube.create({**rbac, "kind": "Role", "rules": [rule]})
    subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    await kube.create({**rbac, "kind": "RoleBinding", "roleRef": role, "subjects": [subject]})
    # The command asks which cluster this is. What lets it goes with the test's own namespace.
    space = (await kube.get("v1", "Namespace", namespace))["metadata"]
    owner = {"apiVersion": "v1", "kind": "Namespace", "name": namespace, "uid": space["uid"]}
    system = {"name": name, "namespace": "kube-system", "ownerReferences": [owner]}
    rule = {"apiGroups": [""], "resources": ["namespaces"], "resourceNames": ["kube-system"], "verbs": ["get"]}
    await kube.create({**rbac, "metadata": system, "kind": "Role", "rules": [rule]})
    await kube.create({**rbac, "metadata": system, "kind": "RoleBinding", "roleRef": role, "subjects": [subject]})
    stack = ground.space.site.stack
    token = (await asyncio.to_thread(stack.kubectl, "create", "token", name, "-n", namespace)).strip()
    config: dict[str, Any] = yaml.safe_load(stack.kubeconfig.read_text())
    config["users"] = [{"name": "reader", "user": {"token": token}}]
    config["contexts"] = [{"name": "reader", "context": {"cluster": config["clusters"][0]["name"], "user": "reader"}}]
    config["current-context"] = "reader"
    authority = config["clusters"][0]["cluster"].get("certificate-authority")
    if authority:
        config["clusters"][0]["cluster"]["certificate-authority"] = str(stack.kubeconfig.parent / authority)
    path = folder / "reader-kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path


async def _no_pod_is_left(space: Space) -> bool:
    return not await space.pods("train")


@ROW("P3", level="e2e")
@ROW("E2", level="e2e")
async def test_P3_logs_of_a_failed_attempt_are_read_after_its_pods_are_gone(ground: Ground, tmp_path: Path) -> None:
    space = ground.space
    handle = await space.submit(failing(), encrypted=ground.keys is not None)
    await space.ended(handle)
    await until(lambda: _no_pod_is_left(space), 60, "its pods are gone")
    name = f"{space.namespace}/train"

    ((key, data),) = ground.documents()
    assert key.endswith("/attempt-1")
    if ground.keys is None:
        told = json.loads(data)
        assert [one["name"] for one in told["pods"]] == ["bad", "good"], "the pod that decided comes first"
        end = told["pods"][0]["containers"][0]["state"]
        assert (end["exitCode"], end["message"]) == (7, "no cheese\n")
        assert told["missing"] == []
        assert [one["name"] for one in told["nodes"]] == ["real"]
    else:
        assert PLANTED.encode() not in data
        assert b"no cheese" not in data

    code, out, errors = await ground.run("logs", name, "--attempt", "1")
    assert (code, out) == (0, f"bad: first\nbad: {PLANTED}\ngood: here\n"), errors
    assert "bad: exit code 7 (Error)" in errors
    assert "bad: termination message: no cheese" in errors
    if ground.keys is not None:
        without_key = await ground.run("logs", name, HOLDFAST_CODEC_KEYS="")
        assert without_key[0] != 0
        assert PLANTED not in without_key[1] + without_key[2]
        return
    assert (await ground.run("logs", name, "--failed", "--tail", "1"))[:2] == (0, f"bad: {PLANTED}\n")
    link = f"s3://{BUCKET}/{key}"
    assert link in " ".join((await ground.run("history", name))[1].split())
    exported = json.loads((await ground.run("history", name, "-o", "json"))[1])
    assert exported["attempts"][0]["evidence"]["link"] == link
    page = tmp_path / "life.html"
    assert (await ground.run("report", name, "-o", str(page)))[0] == 0
    assert link in page.read_text()

    refused = await ground.run("logs", name, KUBECONFIG=str(await reader(ground, tmp_path)))
    assert refused[:2] == (2, ""), refused
    assert f"you may not read logs in namespace {space.namespace}" in refused[2]

    obstore.put(ground.store.bucket(), key, data + b" ")
    changed = await ground.run("logs", name)
    assert changed[:2] == (2, "")
    assert "was changed" in changed[2]
    ground.store.delete(key)
    expired = await ground.run("logs", name)
    assert expired[:2] == (2, "")
    assert "has expired" in expired[2]
    ground.store.kill()
    away = await ground.run("logs", name)
    assert away[:2] == (3, "")
    assert "HOLDFAST_DATA_ENDPOINT" in away[2]
