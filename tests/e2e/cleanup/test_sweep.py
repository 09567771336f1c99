"""`holdfast sweep` on the real cluster, with the worker's own rights: what goes, and above all what does not."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
from temporalio.client import WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from holdfast import names
from holdfast.activities.kube.client import Kube
from holdfast.worker.cleanup.sweep import Verdict
from holdfast.worker.cleanup.sweep_delete import Outcome, Result, sweep, to_remove
from holdfast.worker.cleanup.sweep_lookup import Ground, ground, survey
from tests.e2e.ground.proxy import Proxy, api_proxy
from tests.e2e.ground.site import Site, appwrapper, executable, job, until
from tests.e2e.ground.space import FOREIGN_FINALIZER, Handle, Space, pod

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]
STATE = dict[tuple[str, str], tuple[str, str]]


class Command:
    """A `holdfast sweep` under way, as it is typed, with the worker's kubeconfig unless another is given."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.said = ""

    @classmethod
    async def begin(cls, site: Site, *argv: str, **environment: str) -> Command:
        own = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
        env = own | {
            "HOLDFAST_CLUSTER": site.cluster,
            "TEMPORAL_ADDRESS": site.temporal_address,
            "TEMPORAL_NAMESPACE": site.cluster,
            "KUBECONFIG": str(site.kubeconfig),
            **environment,
        }
        pipe = asyncio.subprocess.PIPE
        return cls(
            await asyncio.create_subprocess_exec(
                *executable(), "sweep", *argv, env=env, stdin=pipe, stdout=pipe, stderr=pipe
            )
        )

    async def asks(self) -> None:
        """Wait until it has asked whether it may."""
        assert self._process.stderr is not None
        async with asyncio.timeout(60):
            while "[y/N]" not in self.said:
                more = await self._process.stderr.read(1000)
                assert more, f"it never asked: {self.said}"
                self.said += more.decode()

    async def end(self, expect: int, answer: str = "") -> str:
        """Answer it, wait for its end, and return what it printed."""
        try:
            async with asyncio.timeout(150):
                out, err = await self._process.communicate(answer.encode())
        finally:
            if self._process.returncode is None:
                self._process.kill()
        self.said += err.decode()
        assert self._process.returncode == expect, f"{self._process.returncode}\n{out.decode()}\n{self.said}"
        return out.decode()


async def command(site: Site, *argv: str, expect: int = 0, **environment: str) -> str:
    return await (await Command.begin(site, *argv, **environment)).end(expect)


async def document(space: Space, *argv: str, expect: int = 0) -> dict[str, Any]:
    """Sweep, and return what it says of this test's namespace, with the one workload there as `workload`."""
    whole = json.loads(await command(space.site, *argv, "-o", "json", expect=expect))
    mine = [one for one in whole["workloads"] if one["namespace"] == space.namespace]
    return whole | {"workloads": mine, "workload": mine[0] if mine else None}


async def state(space: Space) -> STATE:
    """Return each object of the namespace's workloads, with its uid and version."""
    kinds = [("v1", "Pod"), ("batch/v1", "Job"), (names.API_VERSION, "Anchor"), (names.API_VERSION, "Attempt")]
    return {
        (kind, one["metadata"]["name"]): (one["metadata"]["uid"], one["metadata"]["resourceVersion"])
        for api_version, kind in kinds
        for one in await space.site.objects(api_version, kind, space.namespace)
    }


async def settled(space: Space) -> STATE:
    """Return the namespace's state once its controllers have written down what they saw."""
    looks = [await state(space)]

    async def still() -> bool:
        await asyncio.sleep(2)
        looks.append(await state(space))
        return looks[-1] == looks[-2]

    await until(still, 60, "nothing changes any more")
    return looks[-1]


async def running(space: Space, name: str = "train", *components: dict[str, Any], uid: str = "") -> Handle:
    """Return a workload that is running, and settled so."""
    workload = space.site.read(appwrapper(name, *(components or (job(),))), space.namespace)
    handle = await space.submit(workload.model_copy(update={"uid": uid}))
    await space.reach(handle, "Running")

    async def reported() -> bool:
        return (await space.anchor(name)).get("status", {}).get("phase") == "Running"

    await until(reported, 60, "the anchor says that it is running")
    return handle


async def forget(handle: Handle, site: Site) -> None:
    """End a workflow from outside, and have Temporal forget it."""
    await handle.terminate("lost")
    request = DeleteWorkflowExecutionRequest(
        namespace=site.cluster, workflow_execution=WorkflowExecution(workflow_id=handle.id)
    )
    await site.client.workflow_service.delete_workflow_execution(request)

    async def gone() -> bool:
        try:
            await site.client.get_workflow_handle(handle.id).describe()
        except RPCError as error:
            return error.status is RPCStatusCode.NOT_FOUND
        return False

    await until(gone, 60, "Temporal has forgotten it")


@asynccontextmanager
async def footing(space: Space) -> AsyncIterator[Ground]:
    """Stand where the command stands, in this process."""
    async with await Kube.connect(str(space.site.kubeconfig)) as kube:
        yield await ground(space.site.client, kube, space.site.cluster, "", names.MANAGED_BY)


async def stray(space: Space, name: str, number: int) -> None:
    """Make an attempt of a living workload that its workflow knows nothing of, with a pod, as a late worker would."""
    anchor = await space.anchor(name)
    uid = anchor["spec"]["workloadUid"]
    labels = anchor["metadata"]["labels"] | {names.LABEL_ATTEMPT: str(number)}
    lone = pod("stray")["template"]
    plan = {"name": "stray", "apiVersion": "v1", "kind": "Pod", "objectName": "stray", "expectedPods": 1}
    owner = await space.make(
        {
            "apiVersion": names.API_VERSION,
            "kind": names.ATTEMPT_KIND,
            "metadata": {
                "name": names.attempt_name(name, number),
                "labels": labels,
                "ownerReferences": [reference(anchor)],
            },
            "spec": {
                "workloadUid": uid,
                "workflowId": anchor["spec"]["workflowId"],
                "attempt": number,
                "plan": [plan],
            },
        }
    )
    metadata = {"name": "stray", "labels": labels, "ownerReferences": [reference(owner)]}
    await space.make({**lone, "metadata": metadata})


def reference(owner: dict[str, Any]) -> dict[str, Any]:
    metadata = owner["metadata"]
    return {
        "apiVersion": names.API_VERSION,
        "kind": owner["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


class TestEnded:
    async def test_a_terminated_workflow_leaves_nothing_behind(self, space: Space):
        handle = await running(space)
        await handle.terminate("by somebody")
        before = await settled(space)
        table = await command(space.site, "--dry-run")
        (row,) = [line for line in table.splitlines() if line.startswith(space.namespace)]
        assert "train" in row
        assert "anchor, attempt 1" in row
        assert "its workflow is over: Terminated while Running" in row
        assert await state(space) == before, "a dry run changes nothing"
        told = await command(space.site)
        assert f"{space.namespace}/train: removed (anchor, attempt 1)" in told
        assert await state(space) == {}
        again = await document(space)
        assert again["workloads"] == []

    async def test_a_workload_may_be_submitted_again_after_it(self, space: Space):
        await (await running(space)).terminate("by somebody")
        swept = await document(space)
        assert swept["workload"]["result"] == "removed"
        await running(space)

    async def test_the_record_of_an_outcome_stays(self, space: Space):
        holding = appwrapper("train", pod("lone"), successTTLDuration="10m")
        handle = await space.submit(holding)
        await space.reach(handle, "Running")
        await space.complete("train")
        await space.reach(handle, "Succeeded")

        async def reported() -> bool:
            return (await space.anchor("train"))["status"].get("phase") == "Succeeded"

        await until(reported, 60, "the anchor says that it succeeded")
        await handle.terminate("by somebody")
        swept = await document(space)
        assert (swept["workload"]["verdict"], swept["workload"]["result"]) == ("ended", "removed")
        anchor = await space.anchor("train")
        assert anchor["status"]["phase"] == "Succeeded"
        assert not anchor["metadata"].get("finalizers")
        assert await space.site.gone(space.namespace)

    async def test_what_holds_a_pod_is_named_and_nothing_is_forced(self, space: Space):
        handle = await running(space, "train", pod("held", finalizers=[FOREIGN_FINALIZER]))
        await handle.terminate("by somebody")
        left = await command(space.site, "--timeout", "4s", expect=1)
        assert f"NOT removed, still there when time was up: Pod held (finalizer {FOREIGN_FINALIZER})" in left
        anchor = await space.anchor("train")
        assert names.FINALIZER in anchor["metadata"]["finalizers"], "it stays until all is proven gone"
        owner = await space.site.kube.get(names.API_VERSION, names.ATTEMPT_KIND, "train-a1", space.namespace)
        assert "foregroundDeletion" in owner["metadata"]["finalizers"], "it goes after all that it owns"
        told = await document(space, "--timeout", "0s", expect=1)
        assert told["workload"]["result"] == "left"
        assert told["workload"]["leftTotal"] >= 1
        await space.finalize("v1", "Pod", "held")
        swept = await document(space)
        assert swept["workload"]["result"] == "removed"
        assert await state(space) == {}

    async def test_two_sweeps_at_once_are_harmless(self, space: Space):
        await (await running(space)).terminate("by somebody")
        both = await asyncio.gather(document(space), document(space))
        assert {one["workload"]["result"] for one in both if one["workload"]} == {"removed"}
        assert await state(space) == {}

    async def test_a_workload_that_began_again_after_the_plan_is_let_be(self, space: Space):
        uid = "0b7c1a52-5a44-4f0e-9d0c-5b1f6f3a9e10"
        await (await running(space, uid=uid)).terminate("by somebody")
        async with footing(space) as here:
            found = await survey(here)
            (item,) = [one for one in found.items if one.left.namespace == space.namespace]
            assert item.judgement.verdict is Verdict.ENDED
            await running(space, uid=uid)
            before = await settled(space)
            outcomes: list[Outcome] = []
            await sweep(here, to_remove([item], unknown=False), done=outcomes.append, limit=timedelta(seconds=60))
        assert [one.result for one in outcomes] == [Result.CHANGED]
        assert "meanwhile: its workflow is running" in outcomes[0].why
        assert await state(space) == before

    async def test_a_later_run_of_the_name_does_not_shield_what_an_earlier_one_left(self, space: Space):
        first = "0b7c1a52-5a44-4f0e-9d0c-5b1f6f3a9e11"
        await (await running(space, uid=first)).terminate("by somebody")
        # Refused, since the name's anchor is another workload's that was never let go of.
        second = await space.submit(space.site.read(appwrapper("train", job()), space.namespace))

        async def closed() -> bool:
            return (await second.describe()).status is WorkflowExecutionStatus.FAILED

        await until(closed, 60, "the second run is refused")

        async def listed() -> bool:
            return (await document(space, "--dry-run"))["workload"]["verdict"] == "ended"

        await until(listed, 60, "Temporal lists both runs")
        swept = await document(space)
        assert (swept["workload"]["uid"], swept["workload"]["result"]) == (first, "removed")
        assert "a later run has taken its name" in swept["workload"]["why"]
        assert await state(space) == {}


class TestAlive:
    async def test_a_running_workload_is_not_touched(self, space: Space):
        await running(space)
        before = await settled(space)
        assert len(before) >= 4
        swept = await document(space, "--unknown", "--yes")
        assert swept["workloads"] == []
        assert swept["alive"] >= 1
        assert await state(space) == before

    async def test_an_attempt_that_is_past_goes_and_the_current_one_lives_on(self, space: Space):
        handle = await running(space, "train", job("main"))
        await space.fail_pod("train")
        await space.reach(handle, "Running", attempt=2)

        async def reported() -> bool:
            return (await space.anchor("train"))["status"].get("phase") == "Running"

        await until(reported, 60, "the anchor says that it is running")
        before = await settled(space)
        await stray(space, "train", 1)
        assert ("Pod", "stray") in await state(space)
        swept = await document(space)
        told = swept["workload"]
        assert (told["verdict"], told["remove"], told["result"]) == ("stray", ["train-a1"], "removed")
        assert told["why"] == "its workflow is running and at attempt 2: attempt 1 is a late worker's leftover"
        assert await state(space) == before
        assert (await space.site.status(handle)).attempt == 2

    @pytest.mark.row("L6", level="e2e")
    @pytest.mark.row("D30", level="e2e")
    async def test_L6_orphans_of_a_dead_attempt_go_within_one_sweep_with_an_audit_entry(self, space: Space):
        handle = await running(space, "train", job("main"))
        await space.fail_pod("train")
        await space.reach(handle, "Running", attempt=2)
        await stray(space, "train", 1)
        (owner,) = [
            one
            for one in await space.site.objects(names.API_VERSION, "Attempt", space.namespace)
            if one["metadata"]["name"] == "train-a1"
        ]
        uid = owner["metadata"]["uid"]
        swept = await document(space)
        assert swept["workload"]["result"] == "removed"
        assert not [each for each in await state(space) if each in {("Pod", "stray"), ("Attempt", "train-a1")}]
        assert (await space.site.status(handle)).attempt == 2, "what lives was let be"
        events = await space.site.objects("v1", "Event", space.namespace)
        (entry,) = [one for one in events if one["reason"] == "Swept"]
        assert (entry["involvedObject"]["kind"], entry["involvedObject"]["uid"]) == ("Attempt", uid)
        assert entry["message"] == (
            "holdfast sweep removes train-a1 (stray): "
            "its workflow is running and at attempt 2: attempt 1 is a late worker's leftover"
        )
        await space.truth.settle()
        deletions = [
            one
            for one in space.truth.requests()
            if (one.verb, one.resource, one.name) == ("delete", "attempts", "train-a1")
            and (one.body.get("preconditions") or {}).get("uid") == uid
        ]
        assert len(deletions) == 1, "by its uid, and once, as the API server's own audit log has it"

    async def test_an_attempt_ahead_of_its_workflow_is_not_touched(self, space: Space):
        await running(space)
        await stray(space, "train", 2)
        before = await settled(space)
        swept = await document(space, "--unknown", "--yes")
        assert swept["workloads"] == []
        assert await state(space) == before


class TestUnknown:
    async def test_what_temporal_does_not_know_is_listed_and_goes_only_if_told(self, space: Space):
        await forget(await running(space), space.site)
        before = await settled(space)
        table = await command(space.site)
        assert "Temporal knows no workflow" in table
        assert "`holdfast sweep --unknown` removes" in table
        refused = await Command.begin(space.site, "--unknown")
        await refused.asks()
        assert f"{space.namespace}/train: anchor, attempt 1" in refused.said
        await refused.end(2, "n\n")
        await command(space.site, "--unknown", expect=2)  # Nobody is there to answer.
        assert await state(space) == before
        swept = await document(space, "--unknown", "--yes")
        assert (swept["workload"]["verdict"], swept["workload"]["result"]) == ("unknown", "removed")
        assert await state(space) == {}

    async def test_one_that_is_submitted_while_the_question_stands_is_let_be(self, space: Space):
        uid = "0b7c1a52-5a44-4f0e-9d0c-5b1f6f3a9e12"
        await forget(await running(space, uid=uid), space.site)
        asked = await Command.begin(space.site, "--unknown")
        await asked.asks()
        await running(space, uid=uid)
        before = await settled(space)
        told = await asked.end(0, "y\n")
        assert f"{space.namespace}/train: let be: it has become alive meanwhile" in told
        assert await state(space) == before

    async def test_a_temporal_namespace_that_does_not_know_the_cluster_lets_nothing_go(self, space: Space):
        await running(space)
        before = await settled(space)
        wrong = await Command.begin(
            space.site, "--unknown", "--yes", TEMPORAL_NAMESPACE="default", HOLDFAST_INSTALLATION=space.site.cluster
        )
        await wrong.end(2)
        assert f"does not know cluster {space.site.cluster} at all" in wrong.said
        assert await state(space) == before


class TestOthers:
    async def test_another_installation_is_not_touched_whatever_is_said(self, space: Space):
        await forget(await running(space), space.site)
        mine = await space.anchor("train")
        labels = mine["metadata"]["labels"] | {names.LABEL_INSTALLATION: "theirs"}
        workflow_id = names.workflow_id(space.site.cluster, space.namespace, "theirs")
        theirs = await space.make(
            {
                "apiVersion": names.API_VERSION,
                "kind": names.ANCHOR_KIND,
                "metadata": {"name": "theirs", "labels": labels, "finalizers": [names.FINALIZER]},
                "spec": mine["spec"] | {"workflowId": workflow_id, "workloadUid": "theirs"},
            }
        )
        told = await document(space, "--unknown", "--yes")
        assert [(one["name"], one["result"]) for one in told["workloads"]] == [("train", "removed")]
        assert told["foreign"] >= 1
        uid, version = theirs["metadata"]["uid"], theirs["metadata"]["resourceVersion"]
        assert await state(space) == {(names.ANCHOR_KIND, "theirs"): (uid, version)}

    async def test_another_name_of_the_cluster_is_not_touched_whatever_is_said(self, space: Space):
        await (await running(space)).terminate("by somebody")
        before = await settled(space)
        elsewhere = await Command.begin(
            space.site,
            "--unknown",
            "--yes",
            "-o",
            "json",
            HOLDFAST_CLUSTER="other",
            HOLDFAST_INSTALLATION=space.site.cluster,
        )
        told = json.loads(await elsewhere.end(0))
        assert (told["workloads"], told["foreign"] >= 2) == ([], True)
        assert await state(space) == before

    async def test_the_wrong_installation_for_the_clusters_name_is_refused(self, space: Space):
        wrong = await Command.begin(space.site, HOLDFAST_INSTALLATION="other")
        await wrong.end(2)
        assert f"belongs to installation {space.site.cluster}" in wrong.said


class TestNoAnswer:
    async def test_without_temporal_nothing_is_touched(self, space: Space):
        await (await running(space)).terminate("by somebody")
        before = await settled(space)
        away = await Command.begin(space.site, "--unknown", "--yes", TEMPORAL_ADDRESS="127.0.0.1:1")
        await away.end(3)
        assert "cannot reach Temporal at 127.0.0.1:1" in away.said
        assert await state(space) == before

    async def test_temporal_that_goes_away_after_the_plan_lets_nothing_go(self, space: Space):
        await forget(await running(space), space.site)
        before = await settled(space)
        host, _, port = space.site.temporal_address.rpartition(":")
        proxy = Proxy(host, int(port))
        await proxy.start()
        try:
            asked = await Command.begin(space.site, "--unknown", TEMPORAL_ADDRESS=f"127.0.0.1:{proxy.own_port}")
            await asked.asks()
            await proxy.refuse()
            await asked.end(3, "y\n")
        finally:
            await proxy.close()
        assert "cannot reach Temporal" in asked.said
        assert f"{space.namespace}/train: not finished" in asked.said
        assert await state(space) == before

    async def test_without_kubernetes_it_says_so(self, space: Space, tmp_path: Path):
        async with api_proxy(space.site.kubeconfig, tmp_path) as (proxy, kubeconfig):
            await proxy.refuse()
            away = await Command.begin(space.site, KUBECONFIG=str(kubeconfig))
            await away.end(3)
        assert "cannot reach Kubernetes" in away.said
