"""Junk at the gang door, by the thousand, while a gang meets: what it costs the API server (row X9).

The API server's own audit log counts the reviews: the door asks as an account that nothing else uses.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import jwt
import pytest
import yaml
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from bench.audit import mark, whole
from holdfast.local import Stack
from tests.e2e.ground.site import until
from tests.e2e.witness.audit import since
from tests.worker.gangs.crowd import UID, Crowd, open_crowd
from tests.worker.gangs.tokens import claims
from tests.worker.ground import Ground

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
REQUESTS = int(os.environ.get("HOLDFAST_JUNK_REQUESTS", "10000"))
SENDERS = 2
MOST_REVIEWS = 100
ACCOUNT = "door"


class Reviews:
    """TokenReviews that an account has asked for since this was made, by the API server's audit log."""

    def __init__(self, stack: Stack, user: str) -> None:
        self._log, self._user = stack.audit_log, user
        self._begun = mark(self._log)

    def count(self) -> int:
        found = 0
        for log in since(self._log, self._begun):
            for line in whole(log):
                if b"tokenreviews" in line:
                    found += json.loads(line)["user"]["username"] == self._user
        return found


@asynccontextmanager
async def account(ground: Ground) -> AsyncIterator[None]:
    """Make an account with the worker's own rights, and let it go."""
    kube, namespace = ground.kube, ground.namespace
    await kube.create(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT, "namespace": namespace}}
    )
    bound = await kube.create(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": f"{namespace}-door"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "holdfast-worker"},
            "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace}],
        }
    )
    try:
        yield
    finally:
        metadata = bound["metadata"]
        await kube.delete(bound["apiVersion"], bound["kind"], metadata["name"], uid=metadata["uid"])


async def kubeconfig(ground: Ground, path: Path) -> Path:
    """Write a kubeconfig for that account."""
    place = f"/api/v1/namespaces/{ground.namespace}/serviceaccounts/{ACCOUNT}/token"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    made = await ground.kube.mutate("POST", place, query={}, body=body)
    document: dict[str, Any] = yaml.safe_load(await asyncio.to_thread(Path(ground.settings.kubeconfig).read_text))
    (user,) = document["users"]
    user["user"] = {"token": made["status"]["token"]}
    await asyncio.to_thread(path.write_text, yaml.safe_dump(document))
    return path


def expired(stack: Stack, like: str, pod: dict[str, Any]) -> str:
    """Return a token of a pod that the cluster's own key has signed, and that ran out an hour ago."""
    key = load_pem_private_key((stack.layout.pki / "service-accounts.key").read_bytes(), None)
    metadata, now = pod["metadata"], int(time.time())
    said = claims(metadata["name"], metadata["uid"], metadata["namespace"], exp=now - 3600, iat=now - 4200)
    header = jwt.get_unverified_header(like)
    return jwt.encode(said, key, algorithm=header["alg"], headers={"kid": header["kid"]})  # type: ignore[arg-type]


@asynccontextmanager
async def junk(crowd: Crowd, tokens: list[str], enough: Path) -> AsyncIterator[list[asyncio.subprocess.Process]]:
    """Send junk in the name of the gang's first pod, from processes of their own, until `enough` is there."""
    metadata = next(iter(crowd.pods.values()))["metadata"]
    order = crowd.folder.parent / "order.json"
    order.write_text(
        json.dumps(
            {
                "url": f"{crowd.url}/rendezvous/v1/{UID}/announce",
                "ca": str(crowd.ca),
                "requests": REQUESTS // SENDERS,
                "enough": str(enough),
                "tokens": tokens,
                "kid": jwt.get_unverified_header(tokens[0])["kid"],
                "pod": metadata["name"],
                "uid": metadata["uid"],
                "namespace": metadata["namespace"],
            }
        )
    )
    argv = (sys.executable, "-m", "tests.worker.gangs.junk", str(order))
    senders = [await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE) for _ in range(SENDERS)]
    try:
        yield senders
    finally:
        for sender in senders:
            if sender.returncode is None:
                sender.kill()
                await sender.wait()


@pytest.mark.row("X9", level="e2e")
async def test_X9_junk_by_the_thousand_costs_few_reviews_and_a_gang_goes_on_meeting(stack: Stack, tmp_path: Path):
    async with open_crowd(stack, tmp_path, kubeconfig_of=_door_account) as crowd:
        user = f"system:serviceaccount:{crowd.ground.namespace}:{ACCOUNT}"
        reviews = Reviews(stack, user)
        for name in ("gang-0", "gang-1", "gang-2"):
            await crowd.pod(name)
        await crowd.gangs.begin_gang(crowd.begin(min=2, max=3, last_call=timedelta(seconds=2)))
        for name in ("gang-0", "gang-1"):
            await crowd.agent(name)
        await crowd.ran(2)
        assert 0 < reviews.count() <= 10, "those of the gang itself"
        other = await crowd.token("gang-0", "https://kubernetes.default.svc")
        tokens = [other, expired(stack, other, crowd.pods["gang-0"])]
        enough = tmp_path / "enough"

        async def flooded() -> bool:
            return crowd.refused() >= REQUESTS / 20

        async with junk(crowd, tokens, enough) as senders:
            await until(flooded, 120, "junk is being refused")
            await crowd.agent("gang-2")
            ranks = await crowd.ran(3)
            assert [sender.returncode for sender in senders] == [None] * SENDERS, "they met in the midst of it"
            enough.touch()
            outputs = await asyncio.gather(*[sender.communicate() for sender in senders])
        answers: Counter[str] = sum((Counter(json.loads(out)) for out, _ in outputs), Counter())
        print(f"MEASURED {answers.total()} junk requests, {reviews.count()} reviews; answers {dict(answers)}")
        assert answers.total() >= REQUESTS
        assert set(answers) <= {"400", "401", "429", "closed"}
        assert reviews.count() < MOST_REVIEWS
        assert sorted(ranks.values()) == [0, 1, 2]
        status = await crowd.status()
        assert (status.charged, status.absent) == ({}, {}), "nobody was lost meanwhile"
        assert crowd.keys == "read"


@asynccontextmanager
async def _door_account(ground: Ground, folder: Path) -> AsyncIterator[Path]:
    async with account(ground):
        yield await kubeconfig(ground, folder / "door.kubeconfig")
