"""What a document of evidence tells of a pod, a node and their logs, whatever they report (row P3)."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast import names
from holdfast.activities.evidence import take
from holdfast.activities.evidence.document import (
    CONTAINERS_MAXIMUM,
    MESSAGE_MAXIMUM,
    LogWanted,
    document,
    logs_wanted,
    node_evidence,
    pod_evidence,
)
from holdfast.activities.kube.client import Forbidden, Kube
from holdfast.cli.workloads.kept_logs import Whose, evidence_document, kept_logs
from holdfast.errors import HoldfastError
from holdfast.model import Evidence
from holdfast.worker.cleanup.disable import close
from holdfast.worker.cleanup.namespace import manifests

pytestmark = pytest.mark.row("P3", level="pure")
KEY = "train/uid/attempt-1"


def ended(code: int, message: str = "") -> dict[str, Any]:
    end = {"exitCode": code, "reason": "Error", "finishedAt": "2026-11-27T10:00:00Z", "message": message}
    return {"terminated": end}


def pod(*statuses: dict[str, Any], name: str = "train-0", **status: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "uid": f"uid-of-{name}"},
        "spec": {"nodeName": "node-7"},
        "status": {"phase": "Failed", "containerStatuses": list(statuses), **status},
    }


RESTARTED = {"name": "main", "restartCount": 1, "state": ended(3, "out of cheese"), "lastState": ended(1)}


def test_P3_ends_messages_and_devices_are_told() -> None:
    device = {"name": "example.com/gpu", "resources": [{"resourceID": "gpu-1", "health": "Unhealthy"}]}
    told = pod_evidence(pod({**RESTARTED, "allocatedResourcesStatus": [device]}, message="it\nfailed"))
    assert (told["name"], told["node"], told["phase"], told["message"]) == ("train-0", "node-7", "Failed", "it failed")
    [container] = told["containers"]
    assert container["state"]["exitCode"] == 3
    assert container["state"]["message"] == "out of cheese"
    assert container["previous"]["exitCode"] == 1
    assert container["devices"] == [{"device": "example.com/gpu", "id": "gpu-1", "health": "Unhealthy"}]


def test_P3_an_exit_code_of_zero_is_told() -> None:
    [container] = pod_evidence(pod({"name": "main", "state": ended(0)}))["containers"]
    assert container["state"]["exitCode"] == 0


def test_P3_of_many_containers_those_that_failed_come_first() -> None:
    statuses = [{"name": f"side-{at}", "state": {"running": {}}} for at in range(20)]
    told = pod_evidence(pod(*statuses, {"name": "main", "state": ended(9)}))["containers"]
    assert len(told) == CONTAINERS_MAXIMUM
    assert told[0]["name"] == "main"


def test_P3_a_message_is_cut_at_the_limit_of_kubernetes() -> None:
    [container] = pod_evidence(pod({"name": "main", "state": ended(1, "x" * 9999)}))["containers"]
    assert len(container["state"]["message"]) == MESSAGE_MAXIMUM


@pytest.mark.parametrize("junk", [None, "text", 3, ["text"], {"containerStatuses": "text"}])
def test_P3_a_status_of_another_shape_is_no_error(junk: Any) -> None:
    raw = {"metadata": {"name": "train-0", "uid": "u"}, "status": junk}
    assert pod_evidence(raw)["name"] == "train-0"
    assert list(logs_wanted(raw)) == []


def test_P3_both_logs_of_a_restarted_container_are_read_and_none_of_one_that_waits() -> None:
    waits = {"name": "other", "state": {"waiting": {"reason": "ImagePullBackOff"}}}
    again = {"name": "third", "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": ended(1)}
    wanted = [(one.container, one.previous) for one in logs_wanted(pod(RESTARTED, waits, again))]
    assert wanted == [("main", True), ("main", False), ("third", True)]


def test_P3_a_nodes_conditions_are_told() -> None:
    condition = {"type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": "disk is full"}
    told = node_evidence({"metadata": {"name": "node-7"}, "status": {"conditions": [condition]}})
    assert told == {"name": "node-7", "conditions": [condition]}


def whole(stacks: dict[str, list[str]] | None = None) -> dict[str, Any]:
    pods = [pod_evidence(pod(RESTARTED, {"name": "side", "state": {"running": {}}})), pod_evidence(pod(name="other"))]
    first, last = (LogWanted("train-0", "uid-of-train-0", "main", previous) for previous in (True, False))
    logs = {first: ["t1 one"], last: ["t2 two", "t3 three"]}
    return json.loads(document({"attempt": 1}, pods, [], logs, stacks or {}, ["node node-7: is gone"]))


def test_P3_kept_logs_read_as_those_of_a_pod_that_is_there() -> None:
    kept = kept_logs(whole())
    assert kept.lines == ("train-0/main: two", "train-0/main: three")
    assert kept.remarks == (
        "train-0/main: exit code 3 (Error) at 2026-11-27T10:00:00Z",
        "train-0/main: termination message: out of cheese",
        "not kept: node node-7: is gone",
    )
    assert kept_logs(whole(), previous=True).lines == ("train-0/main: one",)
    assert kept_logs(whole(), tail=1).lines == ("train-0/main: three",)
    assert kept_logs(whole(), tail=0).lines == ()
    assert kept_logs(whole(), container="side").lines == ()


def test_P3_stacks_follow_the_logs_of_their_pod() -> None:
    told = whole({"uid-of-train-0": ["Current thread 0x1:", '  File "train.py", line 7 in wait'], "gone": ["x"]})
    assert kept_logs(told).lines[2:] == (
        "train-0: stacks of its program, before its pod was deleted:",
        "train-0: Current thread 0x1:",
        'train-0:   File "train.py", line 7 in wait',
    )
    assert len(kept_logs(told, tail=0).lines) == 3, "a tail is one of logs"
    assert len(kept_logs(told, container="side").lines) == 0
    assert kept_logs(told, previous=True).lines == ("train-0/main: one",)


async def test_P3_another_workloads_document_is_not_read() -> None:
    evidence = Evidence(link="s3://kept/c/other/train/uid/attempt-1", digest="0" * 64)
    with pytest.raises(HoldfastError, match="expected the evidence of this attempt, whose key ends with /c/team/train"):
        await evidence_document(cast("Kube", None), Whose("c", "here", "team"), evidence, KEY)
    elsewhere = Evidence(link=f"s3://kept/d/team/{KEY}", digest="0" * 64)
    with pytest.raises(HoldfastError, match="whose key ends with /c/team/train"):
        await evidence_document(cast("Kube", None), Whose("c", "here", "team"), elsewhere, KEY)


class Cluster:
    """A cluster of uid `here`, in which everybody may do all; an error in its place."""

    def __init__(self, fails: Exception | None = None) -> None:
        self.reviews = 0
        self._fails = fails

    async def get(self, _version: str, _kind: str, name: str) -> dict[str, Any]:
        assert name == "kube-system"
        if self._fails is not None:
            raise self._fails
        return {"metadata": {"uid": "here"}}

    async def mutate(self, *_: Any, **__: Any) -> dict[str, Any]:
        self.reviews += 1
        return {"status": {"allowed": False}}


@pytest.mark.parametrize(
    ("uid", "fails", "why"),
    [
        ("there", None, "leads to the cluster of uid here: expected c, of uid there"),
        ("", None, "no watch of c is known"),
        ("here", Forbidden(403, "Forbidden", "no"), "whether the kubeconfig leads to cluster c is not known"),
    ],
)
async def test_P3_another_cluster_is_not_asked_who_may_read(uid: str, fails: Exception | None, why: str) -> None:
    evidence, cluster = Evidence(link=f"s3://kept/c/team/{KEY}", digest="0" * 64), Cluster(fails)
    with pytest.raises(HoldfastError, match=why):
        await evidence_document(cast("Kube", cluster), Whose("c", uid, "team"), evidence, KEY)
    assert cluster.reviews == 0


async def test_P3_the_workloads_own_cluster_says_who_may_read() -> None:
    evidence, cluster = Evidence(link=f"s3://kept/c/team/{KEY}", digest="0" * 64), Cluster()
    with pytest.raises(HoldfastError, match="you may not read logs in namespace team"):
        await evidence_document(cast("Kube", cluster), Whose("c", "here", "team"), evidence, KEY)
    assert cluster.reviews == 1


@pytest.mark.parametrize(
    ("enabled", "annotation", "reads", "missing"),
    [
        ("true", "true", True, []),
        ("true", None, False, ["logs and stacks: the worker may not read them"]),
        ("true", "yes", False, ["logs and stacks: the worker may not read them"]),
        ("false", "true", False, ["logs and stacks: the worker may not read them"]),
        (None, None, False, ["logs and stacks: whether they may be kept is not known: no"]),
    ],
)
async def test_P3_logs_are_read_where_the_namespace_says_so(
    monkeypatch: pytest.MonkeyPatch, enabled: str | None, annotation: str | None, reads: bool, missing: list[str]
) -> None:
    class Space:
        async def get(self, _version: str, _kind: str, name: str) -> dict[str, Any]:
            assert name == "team"
            if enabled is None:
                raise Forbidden(403, "Forbidden", "no")
            annotations = {names.ANNOTATION_EVIDENCE: annotation} if annotation else {}
            return {"metadata": {"labels": {names.LABEL_NAMESPACE_ENABLED: enabled}, "annotations": annotations}}

        async def find(self, _version: str, kind: str, name: str, *_: Any) -> dict[str, Any] | None:
            return pod(RESTARTED, name=name) if kind == "Pod" else None

    async def of(*_: Any) -> list[dict[str, Any]]:
        return [{"metadata": {"name": "train-0", "uid": "uid-of-train-0", "labels": {names.LABEL_ATTEMPT: "1"}}}]

    read = list[str]()

    async def read_log(_site: Any, _given: Any, wanted: LogWanted, _found: Any) -> None:
        read.append(wanted.container)

    monkeypatch.setattr(take, "_read_log", read_log)
    given = SimpleNamespace(target=SimpleNamespace(namespace="team", workload_uid="w"), attempt=1, stacks=None)
    space = Space()
    site, found = SimpleNamespace(kube=space, gathered=SimpleNamespace(of=of, find=space.find)), take._Found()
    await take._read(cast("Any", site), cast("Any", given), (), found)
    assert bool(read) is reads
    told = [one for one in found.missing if one.startswith("logs")]
    assert len(told) == len(missing)
    assert all(one.startswith(start) for one, start in zip(told, missing, strict=True))


def test_P3_enable_marks_the_namespace_and_only_if_it_is_asked_to() -> None:
    assert manifests("team", logs=True)[0]["metadata"]["annotations"] == {names.ANNOTATION_EVIDENCE: "true"}
    assert "annotations" not in manifests("team")[0]["metadata"]


async def test_P3_disable_takes_the_mark_away() -> None:
    patches = list[Any]()

    class Cluster:
        async def list(self, _version: str, kind: str, *_: Any, **__: Any) -> dict[str, Any]:
            return {"items": [{"metadata": {"name": "team", "uid": "u"}}] if kind == "Namespace" else []}

        async def patch(self, *_: Any, patch: Any, **__: Any) -> None:
            patches.append(patch["metadata"])

    await close(cast("Kube", Cluster()), "team")
    assert [one["annotations"] for one in patches] == [{names.ANNOTATION_EVIDENCE: None}]


def test_P3_a_pod_or_container_without_evidence_is_refused() -> None:
    with pytest.raises(HoldfastError, match="no evidence of pod train-9"):
        kept_logs(whole(), pod="train-9")
    with pytest.raises(HoldfastError, match="-c 'nobody': expected one of main, side"):
        kept_logs(whole(), container="nobody")


def test_P3_a_message_cannot_move_a_terminals_cursor() -> None:
    told = json.loads(
        document({}, [pod_evidence(pod({"name": "m", "state": ended(1, "\x1b[2J\nreset")}))], [], {}, {}, [])
    )
    assert "\x1b" not in "".join(kept_logs(told).remarks)
    assert "\n" not in "".join(kept_logs(told).remarks)
