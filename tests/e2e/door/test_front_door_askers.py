"""Who may have an AppWrapper run, and who asked for it, by the API server's own word (rows F3, F5, F13)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from temporalio.client import WorkflowHandle

from holdfast import names
from holdfast.activities.kube.client import Invalid
from holdfast.local import StackError
from holdfast.policy.values.edit import edit
from holdfast.worker.cleanup.namespace import enable
from tests.e2e.door.front_door import KIND, applied, appwrapper, conditions, gone, in_phase, job, read, runs, shows
from tests.e2e.ground.site import Site, until
from tests.e2e.ground.space import Space, open_space, pod, pod_template
from tests.e2e.ground.terminal import command
from tests.e2e.lives.lattice import allocation

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300), pytest.mark.asyncio(loop_scope="session")]
ROW = pytest.mark.row
RUN_AS = f"{names.GROUP}/runAs"
ALICE, CAROL = "alice@example.com", "carol@example.com"


@pytest_asyncio.fixture(loop_scope="session")
async def door(shared_site: Site) -> AsyncIterator[Space]:
    """A namespace in which Alice may create AppWrappers and Jobs, and Carol may change AppWrappers."""
    async with open_space(shared_site, KIND) as opened:
        rules = {
            ALICE: [("workload.codeflare.dev", "appwrappers", "create,get"), ("batch", "jobs", "create")],
            CAROL: [("workload.codeflare.dev", "appwrappers", "get,patch")],
        }
        for user, granted in rules.items():
            await permitted(opened, user, granted)
        yield opened


async def permitted(space: Space, user: str, granted: list[tuple[str, str, str]], only: str = "") -> None:
    name = "-".join([user.partition("@")[0], *([only] if only else [])])
    named = {"resourceNames": [only]} if only else {}
    rules = [
        {"apiGroups": [group], "resources": [what], "verbs": verbs.split(","), **named}
        for group, what, verbs in granted
    ]
    there = {"name": name, "namespace": space.namespace}
    version = "rbac.authorization.k8s.io/v1"
    await space.site.kube.create({"apiVersion": version, "kind": "Role", "metadata": there, "rules": rules})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    subjects = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]
    binding = {"apiVersion": version, "kind": "RoleBinding", "metadata": there, "roleRef": role, "subjects": subjects}
    await space.site.kube.create(binding)

    async def in_force() -> bool:
        """The authorizer reads new roles a moment after they are made."""
        attributes = {"namespace": space.namespace, "group": granted[-1][0], "resource": granted[-1][1], "name": only}
        spec = {"user": user, "resourceAttributes": {**attributes, "verb": granted[-1][2].split(",")[-1]}}
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        return (await space.site.kube.mutate("POST", path, body=body))["status"]["allowed"]

    await until(in_force, 60, f"{user} may do that", pause=0.05)


async def kubectl(space: Space, user: str, *arguments: str, document: Any = None) -> str:
    """Run kubectl as a user; returns what it printed, or how it was refused."""
    stdin = json.dumps(document) if document is not None else None
    argv = (f"--as={user}", "--namespace", space.namespace, *arguments)
    try:
        return await asyncio.to_thread(space.site.stack.kubectl, *argv, stdin=stdin)
    except StackError as error:
        return str(error)


async def create(space: Space, user: str, document: dict[str, Any]) -> str:
    return await kubectl(space, user, "create", "-f", "-", document=document)


def lives_as(space: Space, name: str = "train") -> None:
    """Have the workflow of an AppWrapper ended with the test."""
    workflow_id = names.workflow_id(space.site.cluster, space.namespace, name)
    space.handles.append(space.site.client.get_workflow_handle(workflow_id))


def component(api_version: str, kind: str, name: str = "part") -> dict[str, Any]:
    return {"template": {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": {}}}


@ROW("F5", level="e2e")
async def test_F5_whoever_may_not_create_a_kind_may_not_have_it_created(door: Space):
    refusals = {
        "pods": [pod("worker")],
        "deployments.apps": [job(), component("apps/v1", "Deployment")],
        "networkpolicies.networking.k8s.io": [job(), component("networking.k8s.io/v1", "NetworkPolicy")],
        "ingresses.networking.k8s.io": [job("one"), job("two"), component("networking.k8s.io/v1", "Ingress")],
    }
    for what, components in refusals.items():
        said = await create(door, ALICE, appwrapper(door, *components))
        assert f"{ALICE} may not create {what} in namespace {door.namespace}" in said, said
        assert "(Forbidden)" in said or "is forbidden" in said, said
    many = [job(), *(component("example.com/v1", f"Kind{number}") for number in range(9))]
    said = await kubectl(
        door, "admin", "create", "-f", "-", "--as-group=system:masters", document=appwrapper(door, *many)
    )
    assert "expected at most 8 kinds" in said, said
    assert await read(door) is None, "nothing was created"
    theirs = appwrapper(door, pod("worker"), name="theirs")
    theirs["spec"]["managedBy"] = "example.com/other"
    assert "created" in await create(door, ALICE, theirs), "another controller's is that controller's to judge"
    lives_as(door)
    said = await create(door, ALICE, appwrapper(door, job("one"), job("two")))
    assert "created" in said, said
    await runs(door)


@ROW("F5", level="e2e")
async def test_F5_whoever_may_use_an_account_may_have_things_made_as_it(door: Space):
    dave = "dave@example.com"
    await enable(door.site.kube, door.namespace, service_account="builder")
    await permitted(door, dave, [("workload.codeflare.dev", "appwrappers", "create,get,patch")])
    await permitted(door, dave, [("", "serviceaccounts", "use")], only="builder")
    named = appwrapper(door, job())
    for user, account in ((ALICE, "builder"), (dave, names.RUN_AS_DEFAULT)):
        named["metadata"]["annotations"] = {RUN_AS: account}
        said = await create(door, user, named)
        what = f"serviceaccounts {account} in namespace {door.namespace}"
        assert f"metadata.annotations[{RUN_AS}]: {user} may not use {what}" in said, said
    named["metadata"]["annotations"] = {RUN_AS: "builder"}
    said = await create(door, dave, appwrapper(door, job()))
    assert f"{dave} may not create jobs.batch" in said, said
    lives_as(door)
    assert "created" in await create(door, dave, named)
    await runs(door)
    made = [one.user for one in door.truth.requests() if (one.verb, one.resource) == ("create", "jobs")]
    assert set(made) == {f"system:serviceaccount:{door.namespace}:builder"}
    for other in ('"other"', "null"):
        patch = f'{{"metadata":{{"annotations":{{"{RUN_AS}":{other}}}}}}}'
        said = await kubectl(door, dave, "patch", KIND[1], "train", "--type=merge", "-p", patch)
        assert f"metadata.annotations[{RUN_AS}]: is immutable" in said, said


@ROW("F13", level="e2e")
async def test_F13_who_asked_is_what_the_api_server_says_and_nobody_else(door: Space):
    document = appwrapper(door, job())
    document["metadata"]["annotations"] = {names.ANNOTATION_CREATED_BY: "bob", names.ANNOTATION_CHANGED_BY: "bob"}
    lives_as(door)
    assert "created" in await create(door, ALICE, document)
    found = await runs(door)
    assert asked(found) == (ALICE, ALICE)
    forged = {"metadata": {"annotations": {names.ANNOTATION_CREATED_BY: "bob", names.ANNOTATION_CHANGED_BY: None}}}
    said = await kubectl(door, CAROL, "patch", KIND[1], "train", "--type=merge", "-p", json.dumps(forged))
    assert "patched" in said, said
    found = await read(door)
    assert found is not None
    assert asked(found) == (ALICE, ALICE), "neither is anybody's to write"
    await kubectl(door, CAROL, "patch", KIND[1], "train", "--type=merge", "-p", '{"spec":{"suspend":true}}')
    found = await shows(door, in_phase("Suspended"), "it is suspended")
    assert asked(found) == (ALICE, CAROL), "what its workflow writes on it is no change of its spec"
    full = f"{door.namespace}/train"
    told = await command(door.site, "explain", full)
    assert f"submitter  {ALICE}" in told, told
    assert f"spec.suspend of its AppWrapper is true; its spec was last changed by {CAROL}" in told, told
    assert f"submitter  {ALICE}" in await command(door.site, "status", full)
    history = await command(door.site, "history", full)
    assert f"its AppWrapper was created by {ALICE}" in history, history
    assert f"submitter: {ALICE}" in history

    async def is_told() -> bool:
        events = (await door.site.kube.list("v1", "Event", door.namespace))["items"]
        said = [one["message"] for one in events if one["involvedObject"]["kind"] == KIND[1]]
        return all(any(user in one for one in said) for user in (ALICE, CAROL))

    await until(is_told, 30, "Events tell it too")


@ROW("F13", level="e2e")
@ROW("X13", level="e2e")
async def test_F13_what_came_through_temporal_is_unverified(door: Space):
    spec = pod_template()["spec"]
    handle = await door.submit(allocation("batch", spec))
    await door.reach(handle, "Running", 1)
    full = handle.id.removeprefix(f"workload/{door.site.cluster}/")
    for argv in ("explain", "status", "history"):
        assert "unverified (submitted through Temporal)" in await command(door.site, argv, full), argv


@ROW("X13", level="e2e")
async def test_X13_no_document_says_who_asked(door: Space):
    document = door.site.read(allocation("batch", pod_template()["spec"]), door.namespace)
    source = {**document.source.model_dump(by_alias=True), "generation": 1}

    async def started(name: str, source: dict[str, Any]) -> WorkflowHandle[Any, Any]:
        named = edit(document, name=name)
        body = {**named.model_dump(mode="json", by_alias=True), "source": source}
        start = door.site.client.start_workflow
        return await start(names.WORKLOAD_WORKFLOW, body, id=named.workflow_id, task_queue=names.QUEUE_WORKFLOWS)

    for name, said in (("named", {**source, "by": ALICE}), ("unnamed", source)):
        full = (await started(name, said)).id.removeprefix(f"workload/{door.site.cluster}/")
        told = await command(door.site, "explain", full)
        assert "unverified (submitted through Temporal)" in told
        assert ALICE not in told


@ROW("F3", level="e2e")
async def test_F3_nothing_of_it_can_be_left_behind(door: Space):
    await applied(door, appwrapper(door, job()))
    found = await runs(door)
    said = await kubectl(
        door, "admin", "delete", KIND[1], "train", "--cascade=orphan", "--as-group=system:masters", "--wait=false"
    )
    assert "expected Background or Foreground" in said, said
    now = await read(door)
    assert now is not None
    assert "deletionTimestamp" not in now["metadata"]
    assert conditions(now) == conditions(found)
    # Whoever puts the collector's own word on it beforehand is refused too, unless they say otherwise.
    finalizers = [*now["metadata"]["finalizers"], "orphan"]
    await door.patch(*KIND, "train", {"metadata": {"finalizers": finalizers}})
    path = f"/apis/{KIND[0]}/namespaces/{door.namespace}/appwrappers/train"
    with pytest.raises(Invalid, match="expected Background or Foreground"):
        await door.site.kube.mutate("DELETE", path, body={})
    await door.delete(*KIND, "train", propagation="Background")
    await gone(door)


def asked(found: dict[str, Any]) -> tuple[str, str]:
    """Return who created a resource and who changed it last, as it says."""
    said = found["metadata"]["annotations"]
    return said[names.ANNOTATION_CREATED_BY], said[names.ANNOTATION_CHANGED_BY]
