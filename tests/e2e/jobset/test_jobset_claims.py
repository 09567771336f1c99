"""A JobSet's claims: made before its Jobs, kept by restarts and suspension, deleted or retained (row J22)."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import names
from tests.e2e.ground.site import until
from tests.e2e.ground.space import Handle, Space
from tests.e2e.jobset.jobset_life import end_pod, jobs, once, reach, runs
from tests.e2e.peers.jobsets import P, jobset

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600), pytest.mark.asyncio(loop_scope="session")]
ROW = pytest.mark.row
Json = dict[str, Any]
SPEC = {"accessModes": ["ReadWriteOnce"], "storageClassName": "", "resources": {"requests": {"storage": "1Gi"}}}


def claiming(*jobs: Json, **claims: str) -> Json:
    """Return a JobSet whose claims, by name, have a retention policy."""
    policies = [
        {"templates": [{"metadata": {"name": name}, "spec": SPEC}], "retentionPolicy": {"whenDeleted": when}}
        for name, when in claims.items()
    ]
    return jobset("train", *jobs, failurePolicy={"maxRestarts": 3}, volumeClaimPolicies=policies)


def mounts(name: str, *claims: str) -> Json:
    """Return a replicated job whose pods mount claims; they stay Pending, since nothing provides volumes here."""
    found = once(name)
    (container,) = found["template"]["spec"]["template"]["spec"]["containers"]
    container["volumeMounts"] = [{"name": claim, "mountPath": f"/{claim}"} for claim in claims]
    return found


async def claims(space: Space) -> dict[str, Json]:
    """Return the metadata of the claims that are there, by name."""
    found = await space.site.objects("v1", "PersistentVolumeClaim", space.namespace)
    return {one["metadata"]["name"]: one["metadata"] for one in found}


async def uids(space: Space) -> dict[str, str]:
    return {name: one["uid"] for name, one in (await claims(space)).items()}


async def attempt(space: Space, handle: Handle, number: int) -> None:
    """Wait until all Jobs of an attempt are there."""

    async def there() -> bool:
        found = await jobs(space, "train")
        restarts = [one["metadata"]["labels"][f"{P}restart-attempt"] for one in found.values()]
        return restarts == [str(number - 1)] * 2

    await until(there, 300, f"the Jobs of attempt {number} are there")


@ROW("J22", level="e2e")
async def test_J22_claims_outlive_restarts_and_suspension_and_go_or_stay_with_the_jobset(space: Space):
    document = claiming(once("driver"), mounts("loader", "data", "out"), data="Delete", out="Retain")
    handle = await space.submit(document)
    await attempt(space, handle, 1)
    first = await claims(space)
    assert set(first) == {"data-train", "out-train"}
    assert all(one["labels"][f"{P}jobset-name"] == "train" for one in first.values())
    assert [one["kind"] for one in first["data-train"]["ownerReferences"]] == [names.ANCHOR_KIND]
    assert "ownerReferences" not in first["out-train"]
    made = (await jobs(space, "train"))["train-loader-0"]
    assert [one["persistentVolumeClaim"]["claimName"] for one in made["spec"]["template"]["spec"]["volumes"]] == [
        "data-train",
        "out-train",
    ]
    assert all(one["creationTimestamp"] <= made["metadata"]["creationTimestamp"] for one in first.values())
    explained = await handle.query(names.QUERY_EXPLAIN)
    assert "data-train goes with it, out-train stays when it is removed" in explained["kept"]
    there = await uids(space)
    await end_pod(space, "train-driver-0", 1)
    await attempt(space, handle, 2)
    assert await uids(space) == there, "a restart leaves them"
    await runs(space, handle, document, driver=1, loader=0)
    await handle.signal(names.SIGNAL_SUSPEND, "make room")
    await reach(space, handle, "Suspended")
    assert await uids(space) == there, "so does a suspension"
    await handle.signal(names.SIGNAL_RESUME, "room again")
    await attempt(space, handle, 2)
    await handle.signal("cancel", "enough")
    status = await space.ended(handle)
    assert status.phase == "Cancelled"
    assert status.claims is not None
    assert status.claims.names == ("out-train",)
    assert await uids(space) == {"out-train": there["out-train"]}, "it has ended, so the other is proven gone"


@ROW("J22", level="e2e")
async def test_J22_a_claim_that_is_there_is_used_if_it_is_retained_and_refused_otherwise(space: Space):
    mine = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "out-train"}, "spec": SPEC}
    await space.site.kube.create({**mine, "metadata": {"name": "out-train", "namespace": space.namespace}})
    there = await uids(space)
    handle = await space.submit(claiming(once("driver"), mounts("loader", "out"), out="Delete"))
    status = await reach(space, handle, "Failed")
    assert "PersistentVolumeClaim" in status.message
    assert "expected the retention policy Retain" in status.message
    assert await jobs(space, "train") == {}, "nothing else was made"
    await handle.signal("cancel", "another policy")
    assert (await space.ended(handle)).phase == "Failed"
    assert await uids(space) == there, "it was not made for the workload"
    other = await space.submit(claiming(once("driver"), mounts("loader", "out"), out="Retain"))
    await attempt(space, other, 1)
    await other.signal("cancel", "enough")
    assert (await space.ended(other)).phase == "Cancelled"
    assert await uids(space) == there
