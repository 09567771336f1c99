"""What the published JobSet controller and admission do, asked of the real thing: what the JobSet tests stand on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.activities.kube.client import KubeError
from holdfast.local import Stack
from tests.e2e.ground.site import until
from tests.e2e.peers.jobset_peer import IN_PLACE, SINGLE_JOBS, Peer, open_peer
from tests.formats.jobset.jobsets_refused import CASES, in_place

pytestmark = pytest.mark.e2e
Json = dict[str, Any]


@pytest.fixture
async def peer(stack: Stack, tmp_path: Path) -> AsyncIterator[Peer]:
    async with open_peer(stack, tmp_path) as opened:
        yield opened


@pytest.fixture
async def gated(stack: Stack, tmp_path: Path) -> AsyncIterator[Peer]:
    """The controller with the features that are off by default."""
    async with open_peer(stack, tmp_path, gates=(IN_PLACE, SINGLE_JOBS)) as opened:
        yield opened


async def test_the_published_controller_runs_a_jobset_with_its_defaults(peer: Peer) -> None:
    pods = {
        "metadata": {"annotations": {"holdfast.dev/kwok-complete": "0s"}},
        "spec": {"nodeSelector": {"holdfast.dev/node": "fake"}, "containers": [{"name": "main", "image": "a:1"}]},
    }
    job = {"name": "workers", "replicas": 2, "template": {"spec": {"template": pods}}}
    document: Json = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "train"},
        "spec": {"replicatedJobs": [job], "failurePolicy": {"rules": [{"action": "FailJobSet"}]}},
    }
    stored = await peer.create(document)
    assert stored["spec"]["network"] == {"enableDNSHostnames": True, "publishNotReadyAddresses": True}
    assert stored["spec"]["failurePolicy"]["rules"][0]["name"] == "failurePolicyRule0"
    assert stored["spec"]["replicatedJobs"][0]["template"]["spec"]["completionMode"] == "Indexed"

    async def completed() -> bool:
        return (await peer.get("train")).get("status", {}).get("terminalState") == "Completed"

    await until(completed, 60, "the JobSet is completed")
    jobs = await peer.listed("batch/v1", "Job", "train")
    assert sorted(each["metadata"]["name"] for each in jobs) == ["train-workers-0", "train-workers-1"]
    (condition,) = (await peer.get("train"))["status"]["conditions"]
    assert (condition["type"], condition["reason"], condition["message"]) == (
        "Completed",
        "AllJobsCompleted",
        "jobset completed successfully",
    )
    with pytest.raises(KubeError, match=r"invalid failure policy rule name '1'"):
        await peer.create(
            {
                **document,
                "metadata": {"name": "odd"},
                "spec": {**document["spec"], "failurePolicy": {"rules": [{"action": "FailJobSet", "name": "1"}]}},
            }
        )


@pytest.mark.row("J6", level="e2e")
async def test_J6_the_published_admission_refuses_nothing_that_is_accepted_here(gated: Peer) -> None:
    wrong: list[str] = []
    for case in CASES:
        metadata = {**case.document["metadata"], "namespace": gated.namespace}
        try:
            await gated.kube.would_create({**case.document, "metadata": metadata})
            refused = ""
        except KubeError as error:
            refused = error.message
        if bool(refused) != (case.says is not None and not case.alone):
            wrong.append(f"{case.path}: {case.says}: the published admission says {refused or 'nothing'}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.row("J24", level="e2e")
async def test_J24_the_published_admission_takes_restarts_in_place_by_its_gate_alone(
    stack: Stack, tmp_path: Path
) -> None:
    async with open_peer(stack, tmp_path) as peer:
        with pytest.raises(KubeError, match="InPlaceRestart feature gate is disabled"):
            await peer.create(in_place())
    (tmp_path / "gated").mkdir()
    async with open_peer(stack, tmp_path / "gated", gates=(IN_PLACE,)) as peer:
        stored = await peer.create(in_place())
        assert stored["spec"]["failurePolicy"]["restartStrategy"] == "InPlaceRestart"

        async def created() -> bool:
            return len(await peer.listed("batch/v1", "Job", stored["metadata"]["name"])) == 1

        await until(created, 60, "its Job is created")
