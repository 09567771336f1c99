"""What the published controllers accept is accepted, and named where it has no effect here (row D29)."""

from __future__ import annotations

import json
import warnings
from typing import Any

import pytest
import yaml

from holdfast import names
from holdfast.errors import InvalidWorkload
from holdfast.formats import read
from holdfast.model import Workload
from holdfast.profiles import PROFILES
from tests.formats.documents import appwrapper
from tests.formats.jobset.jobsets import jobset_of

pytestmark = pytest.mark.row("D29", level="pure")
PREFIX = "workload.codeflare.dev.appwrapper/"
JOB_SET = """
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: trial}
spec:
  replicatedJobs:
  - name: workers
    template:
      spec:
        template:
          spec:
            restartPolicy: Never
            containers: [{name: main, image: busybox}]
"""
CONFIG = """
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {a: b}
"""
CLAIM = """
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {name: solo}
spec: {containers: [{name: main, image: busybox}]}
"""


def taken(given: Any) -> tuple[list[Workload], list[str]]:
    """Read a document; return its workloads, and what was warned of."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        workloads = read(given, cluster="dev")
    return workloads, [str(one.message) for one in found]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("failureGracePeriod", "failureGracePeriodDuration"),
        ("warmupGracePeriodDurations", "warmupGracePeriodDuration"),
        ("retryLimits", "retryLimit"),
        ("terminalExitCode", "terminalExitCodes"),
        ("successTTL", "successTTLDuration"),
    ],
)
def test_D29_a_misspelt_annotation_is_accepted_and_named_with_the_nearest(written: str, meant: str):
    ((workload,), warned) = taken(json.dumps(appwrapper(annotations={f"{PREFIX}{written}": "30s"})))
    assert workload.policy == PROFILES["appwrapper"]
    (text,) = warned
    assert text.startswith(f"metadata.annotations[{PREFIX}{written}]: is no annotation of AppWrapper, and is ignored")
    assert f"did you mean {PREFIX}{meant}?" in text


def test_D29_a_misspelt_prefix_is_named_too():
    ((_,), warned) = taken(json.dumps(appwrapper(annotations={"workload.codeflare.dev/retryLimit": "5"})))
    assert [f"did you mean {PREFIX}retryLimit?" in text for text in warned] == [True]


def test_D29_an_annotation_that_resembles_none_is_named_with_those_there_are():
    ((_,), warned) = taken(json.dumps(appwrapper(annotations={f"{PREFIX}quux": "5"})))
    assert [f"known are {PREFIX}admissionGracePeriodDuration, " in text for text in warned] == [True]


@pytest.mark.parametrize(("written", "meant"), [("retry-limit", "retryLimit"), ("run-as", "runAs")])
@pytest.mark.parametrize("document", [appwrapper, jobset_of])
def test_D29_a_setting_with_hyphens_is_named_too(document: Any, written: str, meant: str):
    ((_,), warned) = taken(json.dumps(document(annotations={f"{names.GROUP}/{written}": "x"})))
    path = f"metadata.annotations[{names.GROUP}/{written}]"
    assert warned == [f"{path}: is no setting, and is ignored: did you mean {names.GROUP}/{meant}?"]


def test_D29_what_holdfast_itself_writes_is_not_warned_of():
    own = {one for key, one in vars(names).items() if key.startswith("ANNOTATION_") and one != names.ANNOTATION_RUN_AS}
    assert len(own) > 20
    for document in (appwrapper, jobset_of):
        assert taken(json.dumps(document(annotations=dict.fromkeys(own, "x"))))[1] == []


@pytest.mark.parametrize("written", ["retryLimit", "retry-limit", "runAs"])
def test_D29_a_workload_has_no_settings_in_annotations(written: str):
    components = [{"name": "solo", "template": yaml.safe_load(POD)}]
    metadata = {"name": "x", "annotations": {f"{names.GROUP}/{written}": "0", "example.com/retryLimit": "0"}}
    document = {"apiVersion": names.API_VERSION, "kind": "Workload", "metadata": metadata}
    ((_,), warned) = taken({**document, "spec": {"components": components}})
    assert warned == [
        f"metadata.annotations[{names.GROUP}/{written}]: is ignored: the settings of a Workload are fields of its spec"
    ]


def test_D29_what_is_right_or_somebody_elses_is_not_warned_of():
    annotations = {f"{PREFIX}retryLimit": "5", "workload.codeflare.dev/notes": "x", "example.com/retryLimit": "x"}
    assert taken(json.dumps(appwrapper(annotations=annotations)))[1] == []


@pytest.mark.parametrize("others", [CONFIG, CLAIM, f"{CONFIG}---{CLAIM}"])
def test_D29_objects_without_pods_beside_a_job_set_are_left_out_and_named(others: str):
    workloads, warned = taken(f"{others}---{JOB_SET}")
    assert [(one.name, one.source.kind) for one in workloads] == [("trial", "JobSet")]
    kinds = {component.template["kind"] for component in workloads[0].components}
    assert not kinds & {"ConfigMap", "PersistentVolumeClaim"}
    assert len(warned) == others.count("apiVersion")
    assert all("brings no pods, and is not created" in text for text in warned)
    assert any("ConfigMap settings" in text or "PersistentVolumeClaim data" in text for text in warned)


def test_D29_plain_objects_with_pods_among_them_stay_a_workload():
    workloads, warned = taken(f"{CONFIG}---{POD}---{JOB_SET}")
    assert sorted(one.name for one in workloads) == ["solo", "trial"]
    assert warned == []


def test_D29_objects_without_pods_alone_are_refused_still():
    with pytest.raises(InvalidWorkload, match="bring no pods"):
        taken(CONFIG)
