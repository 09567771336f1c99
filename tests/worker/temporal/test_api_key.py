"""API keys at a Temporal that checks them: which it takes, and that a worker's is rotated without a lost task (X7)."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from jwt.algorithms import RSAAlgorithm
from temporalio.runtime import Runtime
from temporalio.service import RPCError

from holdfast.client.connection import reached, refusals
from holdfast.errors import NotReachable
from holdfast.worker.runtime.settings import Settings
from holdfast.worker.runtime.temporal import TemporalConnector
from tests.worker.temporal.mutual_tls import Server, mutual_tls_server
from tests.worker.temporal.test_mutual_tls import NAMESPACE, register, working
from tests.worker.temporal.test_mutual_tls import settings as certified

pytestmark = [pytest.mark.temporal, pytest.mark.e2e, pytest.mark.timeout(180)]
ROW = pytest.mark.row("X7", level="e2e")


@dataclass(frozen=True)
class Signer:
    """Signs API keys that the server takes."""

    private: RSAPrivateKey
    name: str = "signer"

    def key(self, *permissions: str, lasts: timedelta = timedelta(hours=1)) -> str:
        """Return an API key with these permissions, `namespace:role` each."""
        claims = {"sub": "holdfast", "permissions": permissions, "exp": datetime.now(UTC) + lasts}
        return jwt.encode(claims, self.private, "RS256", headers={"kid": self.name})

    def published(self) -> str:
        """Return the set of keys by which it is checked."""
        key = RSAAlgorithm.to_jwk(self.private.public_key(), as_dict=True)
        return json.dumps({"keys": [{**key, "kid": self.name, "alg": "RS256", "use": "sig"}]})


@pytest.fixture(scope="module")
def signer() -> Signer:
    return Signer(generate_private_key(65537, 2048))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, signer: Signer) -> Iterator[Server]:
    """The server, once it answers and has the namespace."""
    folder = tmp_path_factory.mktemp("api-keys")
    (folder / "keys.json").write_text(signer.published())
    with mutual_tls_server(folder, keys=folder / "keys.json") as server:
        system, own = folder / "system", folder / "own"
        system.write_text(signer.key("temporal-system:admin"))
        own.write_text(signer.key(f"{NAMESPACE}:admin"))
        namespace = {"temporal_namespace": "temporal-system"}
        asyncio.run(register(server, settings(server, system, **namespace), settings(server, own)))
        yield server


def settings(server: Server, key: Path | None, **more: str) -> Settings:
    """The settings of a worker with an API key, or without."""
    given: dict[str, Any] = {**more, **({"temporal_api_key_file": str(key)} if key else {})}
    return certified(server, None, **given)


@ROW
async def test_X7_a_workflow_completes_with_an_api_key(server: Server, signer: Signer, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text(signer.key(f"{NAMESPACE}:write", f"{NAMESPACE}:worker"))
    async with working(settings(server, key)) as work:
        assert await (await work.task(work.client)) == 1


async def counted(server: Server) -> None:
    """Ask as a command does."""
    async with reached(server.address, NAMESPACE) as (client, place):
        with refusals(place):
            await client.count_workflows("")


@ROW
@pytest.mark.parametrize("wrong", ["none", "another", "expired", "elsewhere"])
async def test_X7_a_wrong_api_key_is_refused_and_named(
    server: Server, signer: Signer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    right = f"{NAMESPACE}:write"
    keys = {
        "none": "",
        "another": Signer(generate_private_key(65537, 2048)).key(right),
        "expired": signer.key(right, lasts=timedelta(minutes=-1)),
        "elsewhere": signer.key("elsewhere:write"),
    }
    file = tmp_path / "key"
    file.write_text(keys[wrong])
    with pytest.raises((RuntimeError, RPCError)) as refused:
        await TemporalConnector(
            settings(server, file if keys[wrong] else None), server.address, Runtime.default()
        ).connect()
    monkeypatch.setenv("TEMPORAL_TLS_SERVER_CA_CERT_PATH", str(server.authority.certificate))
    if keys[wrong]:
        monkeypatch.setenv("TEMPORAL_API_KEY", keys[wrong])
    with pytest.raises(NotReachable, match=r"check what this key or certificate may do \(TEMPORAL_API_KEY") as told:
        await counted(server)
    assert not keys[wrong] or keys[wrong] not in f"{refused.value}{told.value}"


@ROW
async def test_X7_a_rotated_api_key_is_used_and_no_task_is_lost(server: Server, signer: Signer, tmp_path: Path) -> None:
    rights = (f"{NAMESPACE}:write", f"{NAMESPACE}:worker")
    used, asking = tmp_path / "key", tmp_path / "asking"
    asking.write_text(signer.key(*rights))
    used.write_text(signer.key(*rights, lasts=timedelta(seconds=20)))
    over = time.monotonic() + 20
    client = await TemporalConnector(settings(server, asking), server.address, Runtime.default()).connect()
    async with working(settings(server, used)) as work:
        assert await (await work.task(client)) == 1
        long = await work.task(client, 26)
        used.write_text(Signer(generate_private_key(65537, 2048)).key(*rights))
        await asyncio.sleep(1.5)
        assert await (await work.task(client)) == 1, "a key that the server does not take leaves the worker as it is"
        used.write_text(signer.key(*rights))
        await asyncio.sleep(max(0.0, over - time.monotonic()) + 3)
        assert await (await work.task(client)) == 1
        assert await long == 1, "the activity that ran meanwhile ended at its first try"
