"""A version of a kind is no longer served: nothing is known of its objects, and nothing is proven (row D24)."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import names
from holdfast.activities.kube.client import UnknownKind, Unreachable
from holdfast.worker.cleanup.namespace import apply
from tests.e2e.ground.site import Site, appwrapper, until
from tests.e2e.ground.space import Space, open_space, pod_template

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]
OLD = "test.holdfast.dev/v1alpha1"


def definition(*, served: bool) -> dict[str, Any]:
    """A kind with an old version, which may be switched off, and a new one, in which its objects are stored."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "relays.test.holdfast.dev"},
        "spec": {
            "group": "test.holdfast.dev",
            "scope": "Namespaced",
            "names": {"kind": "Relay", "listKind": "RelayList", "plural": "relays", "singular": "relay"},
            "versions": [
                {"name": "v1alpha1", "served": served, "storage": False, "schema": schema},
                {"name": "v1", "served": True, "storage": True, "schema": schema},
            ],
        },
    }


async def switched(site: Site, *, served: bool) -> None:
    """Switch the old version on or off, and wait until the API server has."""
    await apply(site.kube, definition(served=served))

    async def done() -> bool:
        try:
            await site.kube.list(OLD, "Relay", "default")
        except UnknownKind:
            return not served
        except Unreachable:  # Its storage is being set up.
            return False
        return served

    await until(done, 90, f"{OLD} is {'served' if served else 'not served'}")


async def pod_of(space: Space) -> None:
    """Make the pod that the kind's controller would make of its template."""
    found = await space.site.kube.get(OLD, "Relay", "relay", space.namespace)
    metadata = found["spec"]["template"]["metadata"]
    made = pod_template(
        name="relay-0",
        labels=metadata["labels"],
        annotations=metadata.get("annotations", {}),
        ownerReferences=[{"apiVersion": OLD, "kind": "Relay", "name": "relay", "uid": found["metadata"]["uid"]}],
    )
    await space.make({"apiVersion": "v1", "kind": "Pod", **made})


@pytest.mark.row("D24", level="e2e")
async def test_D24_a_version_no_longer_served_neither_resets_nor_proves_anything_and_explain_names_it(
    shared_site: Site,
) -> None:
    site = shared_site
    await switched(site, served=True)
    relay = {"apiVersion": OLD, "kind": "Relay", "metadata": {"name": "relay"}, "spec": {"template": pod_template()}}
    component = {"template": relay, "podSets": [{"path": "template.spec.template", "replicas": 1}]}
    async with open_space(site, (OLD.replace("v1alpha1", "v1"), "Relay")) as space:
        handle = await space.submit(appwrapper("relay", component, warmupGracePeriodDuration="60s"))

        async def exists() -> bool:
            return await site.kube.find(OLD, "Relay", "relay", space.namespace) is not None

        await until(exists, 90, "the relay is made")
        await pod_of(space)
        await space.reach(handle, "Running", 1)
        try:
            await switched(site, served=False)
            # The watch's stream of that version may last for a while: what fails is looked at before it is acted on.
            await space.fail_pod("relay")

            async def told() -> bool:
                explanation = await space.explain(handle)
                return f"the cluster does not serve Relay of {OLD}" in explanation.why

            await until(told, 90, "explain says which version is not served")
            status = await space.site.status(handle)
            assert (status.phase, status.attempt, status.restarts) == ("Running", 1, 0)
            await handle.signal(names.SIGNAL_CANCEL, "")

            async def unproven() -> bool:
                explanation = await space.explain(handle)
                return f"the cluster does not serve Relay of {OLD}" in explanation.now

            await until(unproven, 60, "its removal is not proven, and says why")
            assert (await space.site.status(handle)).phase == "Terminating"
        finally:
            await switched(site, served=True)
        status = await space.ended(handle)
        assert status.phase == "Cancelled"
