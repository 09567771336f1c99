"""`holdfast namespace disable`: nothing new begins, what runs is left alone or removed, rights are taken away (X11)."""

from __future__ import annotations

import pytest
from temporalio.client import WorkflowExecutionStatus

from holdfast import names
from holdfast.worker.cleanup.flow import admit, admits
from holdfast.worker.cleanup.namespace import LABELS, enable
from tests.e2e.ground.site import appwrapper, job, until
from tests.e2e.ground.space import Space
from tests.e2e.ground.terminal import run
from tests.e2e.rows.test_rows_refusals import refusal

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]


async def disable(space: Space, *argv: str, namespace: str = "") -> tuple[int, str]:
    """Disable a namespace, the test's by default, as an administrator; return the exit code and what was said."""
    done = await run(
        space.site,
        "namespace",
        "disable",
        namespace or space.namespace,
        f"--kubeconfig={space.site.stack.kubeconfig}",
        *argv,
    )
    return done.code, done.out + done.errors


async def granted(space: Space) -> list[str]:
    """Return the roles, bindings and accounts of Holdfast in the namespace."""
    kinds = [
        ("rbac.authorization.k8s.io/v1", "Role"),
        ("rbac.authorization.k8s.io/v1", "RoleBinding"),
        ("v1", "ServiceAccount"),
    ]
    found = [(kind, await space.site.kube.list(api, kind, space.namespace, labels=LABELS)) for api, kind in kinds]
    return [f"{kind} {one['metadata']['name']}" for kind, listed in found for one in listed["items"]]


@pytest.mark.row("X11", level="e2e")
async def test_X11_what_runs_is_left_alone_or_removed_and_nothing_new_begins(space: Space) -> None:
    kube = space.site.kube
    handle = await space.submit(appwrapper("train", job()))
    await space.reach(handle, "Running", 1)
    pods = {one["metadata"]["uid"] for one in await space.pods()}
    code, said = await disable(space)
    assert (code, "--workloads remove, or --workloads leave" in said) == (2, True), said
    before = await granted(space)
    assert f"ServiceAccount {names.RUN_AS_DEFAULT}" in before, "what is refused changes nothing"

    code, said = await disable(space, "--workloads", "leave")
    assert (code, f"namespace {space.namespace} is disabled" in said) == (0, True), said
    assert await granted(space) == [f"ServiceAccount {names.RUN_AS_DEFAULT}"]
    status = await refusal(await space.submit(appwrapper("new", job("other"))))
    assert f"namespace {space.namespace} is not enabled for Holdfast" in status.message
    assert {one["metadata"]["uid"] for one in await space.pods()} == pods
    assert (await handle.describe()).status is WorkflowExecutionStatus.RUNNING

    await enable(kube, space.namespace)
    assert await granted(space) == before, "it is enabled again as it was"
    code, said = await disable(space, "--workloads", "remove")
    assert code == 0, said
    assert await granted(space) == []
    assert await space.pods() == []

    async def is_over() -> bool:
        return (await handle.describe()).status is not WorkflowExecutionStatus.RUNNING

    await until(is_over, 60, "its workflow has ended")
    code, said = await disable(space)
    assert code == 0, f"it may be repeated: {said}"


@pytest.mark.row("X11", level="e2e")
async def test_X11_a_namespace_that_is_not_there_is_refused_unless_something_is_left_of_it(space: Space) -> None:
    absent = f"{space.namespace}-absent"
    for argv in ((), ("--workloads", "leave")):
        code, said = await disable(space, *argv, namespace=absent)
        assert (code, f"there is no namespace {absent} on cluster {space.site.cluster}" in said) == (2, True), said
        assert "is disabled" not in said
    await admit(space.site.kube, absent, names.RUN_AS_DEFAULT)
    assert await admits(space.site.kube, absent)
    code, said = await disable(space, namespace=absent)
    assert (code, f"namespace {absent} is disabled" in said) == (0, True), said
    assert not await admits(space.site.kube, absent)
