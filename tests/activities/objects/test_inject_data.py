"""Data sets in pods' templates: a volume for each, read-only in every container, over nothing of the template (L14)."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.activities.objects.inject import InjectionError
from holdfast.activities.objects.inject_data import DataPlace
from holdfast.model import Component
from holdfast.model.calls.cluster import CreateInput, DataVolume, PrepareInput
from tests.activities.objects.test_inject import injected, job, part

ROW = pytest.mark.row
DIGEST = "d" * 64
CORPUS = DataVolume(volume="holdfast-data-corpus", digest=DIGEST, path="/data/corpus", components=("work",))
NODES, CLAIM = DataPlace(host_path="/srv/data/team"), DataPlace(claim="datasets")


def pod(component: Component, place: DataPlace | None, *data: DataVolume) -> dict[str, Any]:
    made = injected(component, data=data, place=place)
    return made["spec"]["template"]["spec"]


def with_init() -> Component:
    template = job()
    template["spec"]["template"]["spec"]["initContainers"] = [{"name": "prepare", "image": "busybox"}]
    return part(template)


@ROW("L14", level="pure")
def test_L14_every_container_reads_it_and_none_may_write() -> None:
    made = pod(with_init(), NODES, CORPUS)
    (volume,) = made["volumes"]
    path = f"/srv/data/team/{DIGEST}/data"
    assert volume == {"name": "holdfast-data-corpus", "hostPath": {"path": path, "type": "Directory"}}
    for container in (*made["initContainers"], *made["containers"]):
        assert container["volumeMounts"] == [
            {"name": "holdfast-data-corpus", "mountPath": "/data/corpus", "readOnly": True}
        ]


@ROW("L14", level="pure")
def test_L14_through_a_claim_of_its_namespace() -> None:
    made = pod(part(), CLAIM, CORPUS)
    assert made["volumes"] == [
        {"name": "holdfast-data-corpus", "persistentVolumeClaim": {"claimName": "datasets", "readOnly": True}}
    ]
    (mount,) = made["containers"][0]["volumeMounts"]
    assert mount["subPath"] == f"{DIGEST}/data"


@ROW("L14", level="pure")
def test_L14_what_is_made_twice_is_the_same_and_what_reads_nothing_is_as_it_was() -> None:
    assert pod(part(), NODES, CORPUS) == pod(part(), NODES, CORPUS)
    other = CORPUS.model_copy(update={"components": ("another",)})
    assert pod(part(), NODES, other) == pod(part(), NODES) == pod(part(), None)


@ROW("L14", level="pure")
def test_L14_inputs_without_data_sets_are_written_as_before() -> None:
    assert "data" not in PrepareInput.model_construct(data=()).model_dump(by_alias=True, warnings=False)
    assert CreateInput.model_fields["data"].default == ()


def test_what_the_template_has_there_is_not_overlaid() -> None:
    template = job()
    template["spec"]["template"]["spec"]["volumes"] = [{"name": "holdfast-data-corpus", "emptyDir": {}}]
    with pytest.raises(InjectionError, match="volume of a data set"):
        pod(part(template), NODES, CORPUS)
    for field in ("initContainers", "containers", "ephemeralContainers"):
        template = job()
        mine = {"name": "mine", "volumeMounts": [{"name": "holdfast-data-corpus", "mountPath": "/mine"}]}
        template["spec"]["template"]["spec"].setdefault(field, []).insert(0, mine)
        with pytest.raises(InjectionError, match=rf"{field}\[0\].volumeMounts\[0\].name: .* is the volume"):
            pod(part(template), NODES, CORPUS)
    with pytest.raises(InjectionError, match="data_directory"):
        pod(part(), None, CORPUS)
