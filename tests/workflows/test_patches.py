"""Patches and releases: a worker beside an earlier one leaves out of histories what that one cannot replay (row O4)."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from holdfast import formats, names
from holdfast.model import StartStatus, Workload
from holdfast.model.spec.component import After
from holdfast.policy.loop.submission import unknown_to_0_1
from holdfast.worker.runtime.settings import Settings
from holdfast.workflows import patches, start
from tests.workflows.test_versioning import WORKFLOWS

pytestmark = pytest.mark.row("O4", level="pure")


def test_every_patch_in_the_workflows_names_the_release_that_brought_it():
    used = {
        found
        for file in WORKFLOWS.rglob("*.py")
        for found in re.findall(r"workflow\.patched\(([\w.]+)\)", file.read_text(encoding="utf-8"))
    }
    known = {"names": names, "patches": patches}
    ids = {getattr(known[module], name) for module, _, name in (one.partition(".") for one in used)}
    assert ids == set(patches.SINCE)


def test_a_worker_compatible_with_a_release_takes_only_the_patches_which_that_one_knows():
    takes = patches.activation("0.1")
    assert takes is not None
    taken = {one for one in patches.SINCE if takes(_asked(one))}
    assert taken == {patches.SUBMITTED, patches.REHEARSED}
    takes = patches.activation("0.2.0")
    assert takes is not None
    assert {one for one in patches.SINCE if not takes(_asked(one))} == {
        names.PATCH_WAITS,
        names.PATCH_SLEEPS,
        patches.WITHDRAWN,
        patches.ABOUT,
        patches.REVOKED,
        patches.DOUBTED,
        patches.SIZED,
        patches.REPLACED,
        patches.CLOSING,
    }
    everything = patches.activation("0.3.0")
    assert everything is not None
    assert all(everything(_asked(one)) for one in patches.SINCE)
    assert patches.activation("") is None


def _asked(patch: str) -> Any:
    return SimpleNamespace(patch_id=patch)


@pytest.mark.parametrize("wrong", ["0.0", "0.3", "1.1", "last", "0"])
def test_a_release_that_is_neither_this_one_nor_the_one_before_is_refused(wrong: str):
    with pytest.raises(ValueError, match=r"compatible_with[\s\S]*expected the release before this one, or this one"):
        Settings(cluster="dev", compatible_with=wrong)
    assert Settings(cluster="dev", compatible_with="0.1").compatible_with == "0.1"


def test_a_document_for_an_earlier_release_has_no_labels_of_its_source():
    spec = jobset()
    labelled = spec.model_copy(update={"source": spec.source.model_copy(update={"labels": {"team": "a"}})})
    assert start.readable_by("0.1", labelled).source.labels == {}
    assert start.readable_by("0.2", labelled) == start.readable_by("", labelled) == labelled


def test_a_document_for_an_earlier_release_has_the_order_in_which_it_starts_and_not_that_of_its_suspension():
    spec = jobset()
    workers = spec.components[0]
    waits = After(component="driver", status=StartStatus.READY, created_suspended=False)
    ordered = spec.model_copy(update={"components": (workers.model_copy(update={"after": (waits,)}),)})
    read = start.readable_by("0.2", ordered)
    assert read.components[0].after == (After(component="driver", status=StartStatus.READY),)
    assert start.readable_by("", ordered) == ordered
    assert "createdSuspended" not in read.model_dump_json()


def jobset(pod: dict[str, Any] | None = None, **spec: Any) -> Workload:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "train:1"}], **(pod or {})}}
    replicated = {"name": "workers", "replicas": 2, "template": {"spec": {"template": template}}}
    document = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "train"},
        "spec": {"replicatedJobs": [replicated], **spec},
    }
    (found,) = formats.read(yaml.safe_dump(document), cluster="dev", namespace="research")
    return found


def restarts_jobs(action: str) -> dict[str, Any]:
    return {"failurePolicy": {"maxRestarts": 2, "rules": [{"name": "alone", "action": action}]}}


def claims() -> dict[str, Any]:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return {"volumeClaimPolicies": [{"templates": [{"metadata": {"name": "data"}, "spec": spec}]}]}


def test_what_a_worker_of_0_1_would_drop_or_refuse_is_named():
    plain = jobset(**restarts_jobs("RestartJobSet"))
    assert unknown_to_0_1(plain) == ""
    mounted = {"containers": [{"name": "main", "image": "a", "volumeMounts": [{"name": "data", "mountPath": "/d"}]}]}
    assert unknown_to_0_1(jobset(mounted, **claims())) == "volumeClaims"
    alone = unknown_to_0_1(jobset(**restarts_jobs("RestartJob")))
    assert alone == "components[1].copyLabels[jobset.sigs.k8s.io/job-restart-attempt].word: Restarts"
