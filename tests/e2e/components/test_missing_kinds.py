"""A kind that the cluster lacks is waited for where that is asked for: until it is installed, or time is up."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import yaml

from holdfast import formats, names
from holdfast.activities.kube.client import NotFound
from holdfast.model import Workload
from holdfast.worker.cleanup.namespace import apply
from tests.e2e.ground.site import appwrapper, job
from tests.e2e.ground.space import Handle, Space
from tests.e2e.lives.streams import cancelled, creations, says
from tests.e2e.rows.test_rows_refusals import FORBIDDEN, assert_nothing_was_created, refusal

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300), pytest.mark.asyncio(loop_scope="session")]
DEFINITION = ("apiextensions.k8s.io/v1", "CustomResourceDefinition")
ROLE = ("rbac.authorization.k8s.io/v1", "Role", names.RUN_AS_DEFAULT)
ACTS_AS = ("rbac.authorization.k8s.io/v1", "Role", f"holdfast-impersonate-{names.RUN_AS_DEFAULT}")


class Late:
    """A kind of a test's own, which the cluster is to serve only later."""

    def __init__(self, group: str = "example.com") -> None:
        self.group = group
        self.kind = f"Late{secrets.token_hex(4)}"
        self.plural = f"{self.kind.lower()}s"

    @property
    def component(self) -> dict[str, Any]:
        template = {"apiVersion": f"{self.group}/v1", "kind": self.kind, "metadata": {"name": "late"}, "spec": {}}
        return {"template": template}

    @property
    def told(self) -> str:
        return f"does not serve {self.kind} of {self.group}/v1: install what defines it"

    async def install(self, space: Space) -> None:
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
        kind = {"kind": self.kind, "listKind": f"{self.kind}List", "plural": self.plural, "singular": self.kind.lower()}
        await apply(
            space.site.kube,
            {
                "apiVersion": DEFINITION[0],
                "kind": DEFINITION[1],
                "metadata": {"name": f"{self.plural}.{self.group}"},
                "spec": {"group": self.group, "scope": "Namespaced", "names": kind, "versions": [version]},
            },
        )

    async def uninstall(self, space: Space) -> None:
        key = (*DEFINITION, f"{self.plural}.{self.group}")
        with contextlib.suppress(NotFound):
            found = await space.site.kube.get(*key)
            await space.site.kube.delete(*key, uid=found["metadata"]["uid"])


@asynccontextmanager
async def late(space: Space, group: str = "example.com") -> AsyncIterator[Late]:
    """A kind that is not there yet, and is not left there."""
    kind = Late(group)
    try:
        yield kind
    finally:
        await kind.uninstall(space)


def workload(space: Space, *components: dict[str, Any], **settings: str) -> Workload:
    """Return a workload as `submit --allow-missing-kinds --set ...` makes it."""
    (found,) = formats.read(
        yaml.safe_dump(appwrapper("train", job(), *components)),
        cluster=space.site.cluster,
        namespace=space.namespace,
        overrides={"allowMissingKinds": "true", **settings},
    )
    return found


async def waiting(space: Space, kind: Late, **settings: str) -> Handle:
    """Submit a workload with a kind that is missing, and return once it waits for it with nothing made."""
    handle = await space.submit(workload(space, kind.component, **settings))
    text = await says(handle, "waiting for 2 components to be permitted", kind.told)
    assert "spec.components[1].template.kind: " in text
    assert "--allow-missing-kinds" not in text, "it is what was given"
    assert (await space.site.status(handle)).phase == "Resuming"
    explanation = await space.explain(handle)
    assert "for a kind that the cluster lacks" in explanation.now
    await space.truth.settle()
    assert not creations(space)
    return handle


async def there(space: Space, kind: Late) -> list[str]:
    items = (await space.site.kube.list(f"{kind.group}/v1", kind.kind, space.namespace))["items"]
    return [one["metadata"]["name"] for one in items]


async def test_once_the_kind_is_installed_a_waiting_workload_goes_on(space: Space):
    async with late(space) as kind:
        handle = await waiting(space, kind)
        await asyncio.sleep(3)
        await kind.install(space)
        status = await space.reach(handle, "Running")
        assert (status.attempt, status.restarts) == (1, 0)
        assert await there(space, kind) == ["late"]
        assert (await cancelled(handle)).phase == "Cancelled"
        assert await there(space, kind) == []


async def test_the_right_to_a_kind_may_come_a_moment_after_it(space: Space):
    async with late(space, group=f"{secrets.token_hex(4)}.test.holdfast.dev") as kind:
        handle = await waiting(space, kind)
        await kind.install(space)
        account = f"service account {space.namespace}/{names.RUN_AS_DEFAULT}"
        await says(handle, f"{account} may not create {kind.plural} of {kind.group}")
        # What the worker may do as the account comes first: the account's own right is what is waited for.
        verbs = ["create", "get", "list", "patch", "delete"]
        for role, some in ((ACTS_AS, [f"impersonate-on:serviceaccount:{verb}" for verb in verbs]), (ROLE, verbs)):
            rules = (await space.site.kube.get(*role, space.namespace))["rules"]
            rule = {"apiGroups": [kind.group], "resources": ["*"], "verbs": some}
            await space.patch(*role, {"rules": [*rules, rule]})
        assert (await space.reach(handle, "Running")).attempt == 1
        assert await there(space, kind) == ["late"]
        assert (await cancelled(handle)).phase == "Cancelled"


async def test_the_submission_timeout_ends_the_wait_with_nothing_made(space: Space):
    async with late(space) as kind:
        handle = await waiting(space, kind, submissionTimeout="8s")
        status = await refusal(handle)
        assert status.reason == "SubmissionTimeout"
        assert status.message.startswith("not submitted in time: spec.components[1].template.kind: ")
        assert kind.told in status.message
        await assert_nothing_was_created(space, handle)


@pytest.mark.parametrize("wish", [names.SIGNAL_CANCEL, names.SIGNAL_SUSPEND])
async def test_whoever_gives_up_does_not_wait_for_the_kind(space: Space, wish: str):
    async with late(space) as kind:
        handle = await waiting(space, kind)
        if wish == names.SIGNAL_SUSPEND:
            await handle.signal(wish, "not now")
            await space.reach(handle, "Suspended")
        assert (await cancelled(handle)).phase == "Cancelled"
        await assert_nothing_was_created(space, handle)


async def test_what_else_is_missing_is_refused_at_once(space: Space):
    async with late(space) as kind:
        handle = await space.submit(workload(space, kind.component, FORBIDDEN))
        status = await refusal(handle)
        assert status.reason == "Refused"
        assert status.message.startswith("spec.components[2].template.kind: ")
        assert "may not create networkpolicies" in status.message
        await assert_nothing_was_created(space, handle)


async def test_a_refusal_says_how_to_wait_instead(space: Space):
    async with late(space) as kind:
        handle = await space.submit(appwrapper("train", job(), kind.component))
        status = await refusal(handle)
        assert kind.told in status.message
        assert status.message.endswith(", or submit with --allow-missing-kinds to wait until it is there")
