"""Evidence on a real cluster and in a real store: taken before the deletion, kept once, never in the way (row P3)."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import obstore
import pytest

from holdfast.activities.cluster import ClusterActivities
from holdfast.activities.data.s3 import Address, S3Storage
from holdfast.activities.evidence import take
from holdfast.activities.evidence.store import EvidenceStore, opened
from holdfast.cli.cluster import checks
from holdfast.codec.codec import Codec
from holdfast.codec.keyfile import add
from holdfast.codec.keys import Keys
from holdfast.model import Limits, Phase
from holdfast.worker.cleanup.namespace import enable
from tests.activities.bench import INSTALLATION, Bench, eventually
from tests.activities.operations.test_crashes import Crash
from tests.store import BUCKET, REGION, Store, metered, open_store

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120), pytest.mark.row("P3", level="e2e")]
SOURCE = f"s3://{BUCKET}/evidence"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "store") as there:
        yield there


def evidence_store(store: Store, endpoint: str = "", codec: Codec | None = None) -> EvidenceStore:
    objects = S3Storage(Address(endpoint or store.endpoint, REGION, True, store.credentials))
    return EvidenceStore(objects, SOURCE, codec or Codec(None), timedelta(days=1))


def with_store(bench: Bench, kept_in: EvidenceStore) -> EvidenceStore:
    """Let the bench's worker keep evidence."""
    cluster_uid = bench.target.cluster_uid
    bench.activities = ClusterActivities(
        bench.kube, "test", cluster_uid, INSTALLATION, Limits(), rendezvous="", evidence=kept_in
    )
    return kept_in


def keys_in(store: Store) -> list[str]:
    return [one["path"] for page in obstore.list(store.bucket(), "evidence") for one in page]


async def failed(bench: Bench) -> str:
    """Launch it, make one of its pods fail, and return that pod's name."""
    await bench.launch()
    name = sorted(one["metadata"]["name"] for one in await bench.pods())[1]
    found = await bench.admin.get("v1", "Pod", name, bench.namespace)
    marks = {"holdfast.dev/kwok-exit-code": "7", "holdfast.dev/kwok-fail": "0s"}
    patch = {"metadata": {"annotations": marks}}
    await bench.admin.patch("v1", "Pod", name, bench.namespace, uid=found["metadata"]["uid"], patch=patch)

    async def has_failed() -> bool:
        return (await bench.admin.get("v1", "Pod", name, bench.namespace))["status"]["phase"] == "Failed"

    await eventually(has_failed)
    return name


def stored_at_deletions(bench: Bench, store: Store) -> list[bool]:
    """Record at each deletion from now on whether the store has something by then."""
    send, stored = bench.kube.mutate, list[bool]()

    async def mutate(method: str, path: str, **options: Any) -> Any:
        if method == "DELETE":
            stored.append(bool(keys_in(store)))
        return await send(method, path, **options)

    bench.kube.mutate = mutate  # type: ignore[method-assign]
    return stored


@pytest.mark.parametrize("ends", [False, True], ids=["a reset", "the end"])
async def test_P3_evidence_is_in_the_store_before_anything_is_deleted(bench: Bench, store: Store, ends: bool) -> None:
    kept_in = with_store(bench, evidence_store(store))
    name = await failed(bench)
    if ends:
        await bench.send_report(bench.report(phase=Phase.FAILED, attempt=1))
    stored_by_then = stored_at_deletions(bench, store)
    removed = await bench.remove(
        evidence_of=(name,), report=bench.report(phase=Phase.FAILED), release_anchor=ends, delete_anchor=ends
    )
    assert removed.gone
    assert stored_by_then
    assert all(stored_by_then)
    evidence = removed.evidence
    assert evidence is not None
    assert evidence.link == f"{SOURCE}/test/{bench.namespace}/train/uid-of-train/attempt-1"
    stored = await kept_in.kept(bench.target, 1)
    assert stored is not None
    assert (stored.digest, len(stored.data)) == (evidence.digest, evidence.size)
    told = json.loads(stored.data)
    assert told["pods"][0]["name"] == name, "the pod that decided comes first"
    assert told["pods"][0]["containers"][0]["state"]["exitCode"] == 7
    assert {one["name"] for one in told["nodes"]} == {one["node"] for one in told["pods"]}
    assert any(one["type"] == "Ready" for one in told["nodes"][0]["conditions"])
    assert told["attempt"] == 1
    assert evidence.pods == len(told["pods"]) >= 2


async def test_P3_a_removal_that_is_not_asked_to_keeps_nothing(bench: Bench, store: Store) -> None:
    with_store(bench, evidence_store(store))
    await failed(bench)
    removed = await bench.remove()
    assert (removed.gone, removed.evidence, keys_in(store)) == (True, None, [])


async def test_P3_what_is_deleted_at_a_failed_end_is_in_the_store_before_and_is_taken_once(
    bench: Bench, store: Store
) -> None:
    kept_in = with_store(bench, evidence_store(store))
    name = await failed(bench)
    stored_by_then = stored_at_deletions(bench, store)
    cleared = await bench.clear(evidence_of=(name,), report=bench.report(phase=Phase.FAILED))
    assert cleared.done
    assert stored_by_then
    assert all(stored_by_then)
    assert cleared.evidence is not None
    stored = await kept_in.kept(bench.target, 1)
    assert stored is not None
    assert stored.digest == cleared.evidence.digest
    told = json.loads(stored.data)
    assert told["pods"][0]["name"] == name
    assert cleared.evidence.pods == len(told["pods"]) >= 2, "those that ran on, too"
    again = await bench.clear(tries=2, evidence_of=(name,), report=bench.report(phase=Phase.FAILED))
    assert again.evidence == cleared.evidence, "it finds the document, and reads no pods"


async def test_P3_logs_need_a_right_that_a_namespace_does_not_give_by_default(bench: Bench, store: Store) -> None:
    with_store(bench, evidence_store(store))
    removed = await bench.remove(evidence_of=(await failed(bench),))
    assert removed.evidence is not None
    assert removed.evidence.logs == 0
    assert "`holdfast namespace enable --evidence` allows" in removed.evidence.problem


async def test_P3_enable_grants_the_right_and_keeps_it_when_it_is_run_again(bench: Bench) -> None:
    def reads_logs(made: list[dict[str, Any]]) -> list[str]:
        rules = [(one["metadata"]["name"], rule) for one in made for rule in one.get("rules", ())]
        return [name for name, rule in rules if rule["resources"] == ["pods/log"]]

    assert reads_logs(await enable(bench.admin, bench.namespace, dry_run=True)) == []
    first = reads_logs(await enable(bench.admin, bench.namespace, logs=True))
    assert "holdfast-runner" in first
    assert reads_logs(await enable(bench.admin, bench.namespace, dry_run=True)) == first


async def test_P3_a_worker_that_dies_leaves_one_document_which_the_next_one_finds(bench: Bench, store: Store) -> None:
    kept_in = with_store(bench, evidence_store(store))
    name = await failed(bench)
    send = bench.kube.mutate

    async def dies(method: str, path: str, **options: Any) -> Any:
        if method == "DELETE" and before:
            raise Crash
        answer = await send(method, path, **options)
        if method == "DELETE":
            raise Crash
        return answer

    bench.kube.mutate = dies  # type: ignore[method-assign]
    before = True
    with pytest.raises(Crash):  # It has kept the evidence, and deletes nothing.
        await bench.remove(evidence_of=(name,))
    first = await kept_in.kept(bench.target, 1)
    assert first is not None
    before = False
    with pytest.raises(Crash):  # It finds that document, begins the deletion, and does not see the answer.
        await bench.remove(evidence_of=(name,))
    bench.kube.mutate = send  # type: ignore[method-assign]
    removed = await bench.remove(evidence_of=(name,))
    assert removed.gone
    assert removed.evidence is not None
    assert removed.evidence.digest == first.digest
    assert removed.evidence.pods == len(json.loads(first.data)["pods"])
    assert len(keys_in(store)) == 1


async def test_P3_evidence_is_encrypted_where_payloads_are(bench: Bench, store: Store, tmp_path: Path) -> None:
    path = tmp_path / "keys"
    add(path)
    codec = Codec(Keys(path))
    kept_in = with_store(bench, evidence_store(store, codec=codec))
    name = await failed(bench)
    removed = await bench.remove(evidence_of=(name,))
    assert removed.evidence is not None
    assert removed.evidence.pods >= 2
    stored = await kept_in.kept(bench.target, 1)
    assert stored is not None
    assert name.encode() not in stored.data
    assert (await opened(stored, codec))["pods"][0]["name"] == name


@pytest.mark.parametrize("dead", [True, False], ids=["no server", "a server that says nothing"])
async def test_P3_a_store_that_is_away_delays_a_removal_by_ten_seconds_at_most(
    bench: Bench, store: Store, dead: bool
) -> None:
    async with metered(store, -1) as line:
        with_store(bench, evidence_store(store, line.endpoint))
        if dead:
            store.kill()
        name = await failed(bench)
        begun = time.monotonic()
        removed = await bench.remove(evidence_of=(name,))
        lasted = time.monotonic() - begun
    assert removed.gone
    assert removed.evidence is not None
    assert removed.evidence.link == ""
    assert removed.evidence.problem
    assert lasted < take.TOTAL_SECONDS + 8, "the removal of pods that end at once takes a few seconds"


async def test_P3_documents_expire_and_nothing_else_does(store: Store) -> None:
    kept_in = evidence_store(store)
    others = ["evidence/README", "evidence/test-2/team/train/uid/attempt-1", "evidence/test/team/README"]
    for key in ("evidence/test/team/train/uid/attempt-1", *others):
        store.put(key, b"{}")
    store.put("corpus/attempt-1", b"of another prefix")
    assert await kept_in.expire("test") == 0
    assert await replace(kept_in, lifetime=timedelta(days=-1)).expire("test") == 1
    assert sorted(keys_in(store)) == others
    assert obstore.get(store.bucket(), "corpus/attempt-1").bytes() == b"of another prefix"


async def test_P3_doctor_looks_at_the_store(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert [one async for one in checks.evidence("dev")] == [], "none is configured here"
    given = store.settings(tmp_path / "cache")
    for name in ("ENDPOINT", "REGION", "ALLOW_HTTP", "CREDENTIALS_FILE"):
        monkeypatch.setenv(f"HOLDFAST_DATA_{name}", given[f"HOLDFAST_DATA_{name}"])
    monkeypatch.setenv("HOLDFAST_EVIDENCE_STORE", SOURCE)
    assert [(one.good, one.found) async for one in checks.evidence("dev")] == [(True, f"{SOURCE} can be read")]
    monkeypatch.setenv("HOLDFAST_EVIDENCE_STORE", "s3://nowhere/evidence")
    (missing,) = [one async for one in checks.evidence("dev")]
    assert (missing.good, missing.found) == (False, f"{store.endpoint} has no bucket nowhere")
    monkeypatch.setenv("HOLDFAST_EVIDENCE_STORE", "s3://nowhere")
    (wrong,) = [one async for one in checks.evidence("dev")]
    assert "expected a prefix" in wrong.found
