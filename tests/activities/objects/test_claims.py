"""Claims of a StatefulSet's pods on a real cluster: kept and said, or gone with their attempt and proven so (D25)."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.activities.kube.client import Object
from holdfast.model import Component, PodSet
from holdfast.model.calls.cluster import Removed
from tests.activities.bench import Bench, eventually, pod_spec

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(90), pytest.mark.row("D25", level="e2e")]

HOLD = "example.com/hold"


def stateful_set(**spec: Any) -> Component:
    """Return two pods with a claim each. Nothing here provides storage, so that they stay Pending."""
    template = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 2,
            "podManagementPolicy": "Parallel",
            "serviceName": "web",
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": pod_spec(restartPolicy="Always")},
            "volumeClaimTemplates": [
                {
                    "metadata": {"name": "data"},
                    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}},
                }
            ],
            **spec,
        },
    }
    return Component(name="web", template=template, pod_sets=(PodSet(path="template.spec.template", replicas=2),))


async def claims(bench: Bench) -> list[Object]:
    return (await bench.admin.list("v1", "PersistentVolumeClaim", bench.namespace))["items"]


async def made(bench: Bench) -> None:
    await bench.prepare()
    assert (await bench.create()).failure is None

    async def there() -> bool:
        return len(await claims(bench)) == 2

    await eventually(there)


async def test_D25_claims_are_kept_and_said_and_those_of_others_are_not_counted(bench: Bench):
    other = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data-web-mine", "namespace": bench.namespace},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}},
    }
    bench.components = (stateful_set(),)
    await made(bench)
    await bench.admin.create(other)
    before = {one["metadata"]["uid"] for one in await claims(bench)}
    removed = await bench.remove()
    assert removed.gone
    assert removed.claims is not None
    assert (removed.claims.names, removed.claims.total) == (("data-web-0", "data-web-1"), 2)
    assert {one["metadata"]["uid"] for one in await claims(bench)} == before, "nothing of it was touched"


async def test_D25_claims_that_go_with_it_are_part_of_the_proof(bench: Bench):
    bench.components = (stateful_set(persistentVolumeClaimRetentionPolicy={"whenDeleted": "Delete"}),)
    await made(bench)

    async def owned() -> bool:
        return all(one["metadata"].get("ownerReferences") for one in await claims(bench))

    await eventually(owned)
    (held, _) = sorted(await claims(bench), key=lambda one: one["metadata"]["name"])
    key = ("v1", "PersistentVolumeClaim", held["metadata"]["name"], bench.namespace)
    finalizers = [*held["metadata"]["finalizers"], HOLD]
    await bench.admin.patch(*key, uid=held["metadata"]["uid"], patch={"metadata": {"finalizers": finalizers}})

    async def only_held() -> Removed | None:
        """Return what is left once the claims' controller has let go of the one that is held."""
        found = await bench.remove(4.0)
        return found if [one.finalizers for one in found.remnants[:1]] == [(HOLD,)] else None

    removed = await eventually(only_held, 60)
    assert not removed.gone
    first = removed.remnants[0]
    assert (first.kind, first.name, first.finalizers) == ("PersistentVolumeClaim", "data-web-0", (HOLD,))
    await bench.admin.patch(*key, uid=held["metadata"]["uid"], patch={"metadata": {"finalizers": []}})
    removed = await bench.remove()
    assert (removed.gone, removed.claims) == (True, None)
    assert await claims(bench) == []
