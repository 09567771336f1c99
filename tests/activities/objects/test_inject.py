"""What is added to a template, and that nothing else is changed (row A1)."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import names
from holdfast.activities.objects.inject import InjectionError, Placement, inject, sent_hash
from holdfast.activities.objects.inject_barrier import BARRIER_LIFTED_BY
from holdfast.agent import settings
from holdfast.model import Component, PodSet, SchedulingGate, Toleration
from holdfast.model.calls.cluster import GangPods, PodBounds, Target
from holdfast.model.labels import KUEUE_QUEUE

TARGET = Target(
    cluster="dev",
    namespace="ns",
    name="train",
    workload_uid="u-1",
    workflow_id="workload/dev/ns/train",
    shard=17,
    run_as="holdfast-runner",
)


def job(**pod: Any) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "main", "image": "busybox"}], "restartPolicy": "Never"}, **pod}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"}, "spec": {"template": template}}


def part(template: dict[str, Any] | None = None, **pod_set: Any) -> Component:
    sets = (PodSet(path="template.spec.template", **pod_set),)
    return Component(name="work", template=template or job(), pod_sets=sets)


def injected(
    component: Component,
    *,
    config_hash: str = "",
    launch: int = 0,
    copy_index: int | None = None,
    restarts: int | None = None,
    **placement: Any,
) -> dict[str, Any]:
    """Return what is sent for a component of attempt 2, unless `placement` says otherwise."""
    usual: dict[str, Any] = {
        "target": TARGET,
        "attempt": 2,
        "owner_uid": "owner-uid",
        "installation": "inst",
        "labels": {},
    }
    where = Placement(**(usual | placement))
    return inject(component, where, config_hash=config_hash, launch=launch, copy_index=copy_index, restarts=restarts)


def sent(component: Component, attempt: int = 2, **labels: str) -> dict[str, Any]:
    return injected(component, attempt=attempt, labels=labels)


OURS = {
    names.LABEL_INSTALLATION: "inst",
    names.LABEL_WORKLOAD_UID: "u-1",
    names.LABEL_ATTEMPT: "2",
    names.LABEL_COMPONENT: "work",
    names.LABEL_SHARD: "17",
    names.LABEL_LAUNCH: "0",
}


@pytest.mark.parametrize(
    ("api_version", "kind", "taken"),
    [("batch/v1", "Job", True), ("jobset.x-k8s.io/v1alpha2", "JobSet", True), ("example.com/v1", "Job", False)],
)
def test_A13_a_component_does_not_delete_itself_before_its_success_ttl(api_version: str, kind: str, taken: bool):
    template = {**job(), "apiVersion": api_version, "kind": kind}
    template["spec"] = {**template["spec"], "ttlSecondsAfterFinished": 0, "suspend": False}
    made = sent(part(template))
    assert ("ttlSecondsAfterFinished" not in made["spec"]) is taken
    assert made["spec"]["suspend"] is False
    assert template["spec"]["ttlSecondsAfterFinished"] == 0, "the template is not changed"


def test_A1_labels_annotations_and_owner_are_put_on_the_object():
    metadata = sent(part(), team="blue")["metadata"]
    assert metadata["labels"] == {**OURS, "team": "blue"}
    assert metadata["annotations"][names.ANNOTATION_WORKLOAD] == "train"
    assert metadata["namespace"] == "ns"
    assert metadata["ownerReferences"] == [
        {
            "apiVersion": "holdfast.dev/v1",
            "kind": "Attempt",
            "name": "train-a2",
            "uid": "owner-uid",
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]


def test_A1_labels_are_put_on_the_pods():
    metadata = sent(part(), team="blue")["spec"]["template"]["metadata"]
    assert metadata["labels"] == {**OURS, "team": "blue"}
    assert metadata["annotations"] == {names.ANNOTATION_WORKLOAD: "train"}


def test_A1_what_admission_gave_is_put_on_the_pods():
    have = {"key": "old", "operator": "Exists"}
    template = job(metadata={"labels": {"app": "x"}})
    template["spec"]["template"]["spec"] |= {"tolerations": [have], "nodeSelector": {"zone": "a"}}
    got = sent(
        part(
            template,
            labels={"queue": "q"},
            annotations={"note": "n"},
            node_selector={"pool": "gpu", "zone": "a"},
            tolerations=(
                Toleration(key="old", operator="Exists"),
                Toleration(key="gpu", effect="NoSchedule", toleration_seconds=5),
            ),
            scheduling_gates=(SchedulingGate(name="example.com/gate"),),
        )
    )["spec"]["template"]
    assert got["metadata"]["labels"] == {**OURS, "app": "x", "queue": "q"}
    assert got["metadata"]["annotations"]["note"] == "n"
    assert got["spec"]["nodeSelector"] == {"zone": "a", "pool": "gpu"}
    assert got["spec"]["tolerations"] == [have, {"key": "gpu", "effect": "NoSchedule", "tolerationSeconds": 5}]
    assert got["spec"]["schedulingGates"] == [{"name": "example.com/gate"}]


def test_the_containers_learn_their_attempt_unless_they_say_otherwise():
    template = job()
    spec = template["spec"]["template"]["spec"]
    spec["initContainers"] = [{"name": "init"}]
    spec["containers"].append({"name": "own", "env": [{"name": "HOLDFAST_ATTEMPT", "value": "mine"}]})
    spec["containers"].append({"name": "uses", "env": [{"name": "DIR", "value": "/out/$(HOLDFAST_ATTEMPT)"}]})
    got = sent(part(template))["spec"]["template"]["spec"]
    ours = [{"name": "HOLDFAST_ATTEMPT", "value": "2"}, {"name": "HOLDFAST_WORKLOAD_UID", "value": "u-1"}]
    assert got["initContainers"][0]["env"] == ours
    assert got["containers"][0]["env"] == ours
    assert got["containers"][1]["env"] == [ours[1], {"name": "HOLDFAST_ATTEMPT", "value": "mine"}]
    assert got["containers"][2]["env"] == [*ours, {"name": "DIR", "value": "/out/$(HOLDFAST_ATTEMPT)"}]


def service(**spec: Any) -> Component:
    fields = {"selector": {"app": "web"}, **spec}
    return Component(
        name="work", template={"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": fields}
    )


@pytest.mark.row("L30", level="pure")
def test_L30_a_service_finds_the_pods_of_its_own_attempt_alone():
    ours = {names.LABEL_WORKLOAD_UID: "u-1", names.LABEL_ATTEMPT: "2"}
    assert sent(service())["spec"]["selector"] == {"app": "web", **ours}
    assert sent(service(clusterIP="None"))["spec"]["selector"] == {"app": "web"}, "it only names pods for each other"
    assert "selector" not in sent(Component(name="work", template={**service().template, "spec": {}}))["spec"]
    with pytest.raises(InjectionError, match=r"template.spec.selector\[holdfast.dev/attempt\]: the template sets '1'"):
        sent(service(selector={names.LABEL_ATTEMPT: "1"}))


def test_a_pod_is_its_own_template():
    template = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}}
    got = sent(Component(name="work", template=template, pod_sets=(PodSet(path="template", labels={"a": "b"}),)))
    assert got["metadata"]["labels"] == {**OURS, "a": "b"}
    assert got["spec"]["containers"][0]["env"][0]["name"] == "HOLDFAST_ATTEMPT"


def test_paths_go_through_lists():
    replicated = {"name": "w", "template": {"spec": {"template": {"spec": {"containers": [{"name": "c"}]}}}}}
    template = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "js"},
        "spec": {"replicatedJobs": [{"name": "other"}, replicated]},
    }
    path = "template.spec.replicatedJobs[1].template.spec.template"
    got = sent(Component(name="work", template=template, pod_sets=(PodSet(path=path),)))
    inner = got["spec"]["replicatedJobs"][1]["template"]["spec"]["template"]
    assert inner["metadata"]["labels"] == OURS
    assert got["spec"]["replicatedJobs"][0] == {"name": "other"}


def test_a_generated_name_is_the_same_each_time_and_another_for_another_attempt():
    template = job()
    template["metadata"] = {"generateName": "train-"}
    first, again, next_one = sent(part(template)), sent(part(template)), sent(part(template), attempt=3)
    assert "generateName" not in first["metadata"]
    assert first["metadata"]["name"].startswith("train-")
    assert first == again
    assert first["metadata"]["name"] != next_one["metadata"]["name"]


def test_the_hash_tells_different_objects_apart_and_not_the_same_ones():
    one, two = sent(part()), sent(part(labels={"a": "b"}))
    key = names.ANNOTATION_SENT_HASH
    assert one["metadata"]["annotations"][key] == sent(part())["metadata"]["annotations"][key]
    assert one["metadata"]["annotations"][key] != two["metadata"]["annotations"][key]
    del one["metadata"]["annotations"][key]
    assert sent_hash(one) == sent(part())["metadata"]["annotations"][key]


REFUSED: list[tuple[str, Component, str]] = [
    ("a label set otherwise", part(job(metadata={"labels": {"q": "1"}}), labels={"q": "2"}),
     r"template\.spec\.template\.metadata\.labels\[q\]: the template sets '1'"),
    ("an annotation set otherwise", part(job(metadata={"annotations": {"q": "1"}}), annotations={"q": "2"}),
     r"template\.spec\.template\.metadata\.annotations\[q\]"),
    ("our own label", part(job(metadata={"labels": {names.LABEL_COMPONENT: "me"}})), r"holdfast\.dev/component"),
    ("a node selector set otherwise",
     part(job(spec={"containers": [], "nodeSelector": {"z": "a"}}), node_selector={"z": "b"}),
     r"template\.spec\.template\.spec\.nodeSelector\[z\]"),
    ("labels that are no object", part(job(metadata={"labels": ["a"]})), r"metadata\.labels: expected an object"),
    ("a path to nowhere", Component(name="c", template=job(), pod_sets=(PodSet(path="template.spec.no"),)),
     r"template\.spec\.no: there is nothing at \.no"),
    ("an index too far", Component(name="c", template={**job(), "l": [1]}, pod_sets=(PodSet(path="template.l[3]"),)),
     r"template\.l\[3\]"),
    ("a path into a text", Component(name="c", template=job(), pod_sets=(PodSet(path="template.kind.x"),)), r"kind\.x"),
    ("no pod template", Component(name="c", template=job(), pod_sets=(PodSet(path="template.spec"),)),
     r"template\.spec: expected a pod template"),
    ("another owner", Component(name="c", template={**job(), "metadata": {"name": "j", "ownerReferences": [{}]}}),
     r"template\.metadata\.ownerReferences"),
]  # fmt: skip


@pytest.mark.parametrize(("component", "message"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_what_contradicts_the_template_is_refused_with_its_path(component: Component, message: str):
    with pytest.raises(InjectionError, match=message):
        sent(component)


keys = st.sampled_from(["app", "tier", "zone", "example.com/x"])
texts = st.text("abc", min_size=1, max_size=3)
maps = st.dictionaries(keys, texts, max_size=3)
containers = st.lists(
    st.fixed_dictionaries(
        {"name": texts},
        optional={
            "env": st.lists(
                st.fixed_dictionaries({"name": st.sampled_from(["A", "HOLDFAST_ATTEMPT"]), "value": texts}), max_size=2
            ),
            "args": st.lists(texts, max_size=2),
        },
    ),
    min_size=1,
    max_size=3,
)


@st.composite
def templates(draw: st.DrawFn) -> dict[str, Any]:
    spec: dict[str, Any] = {"containers": draw(containers)}
    if draw(st.booleans()):
        spec["initContainers"] = draw(containers)
    if draw(st.booleans()):
        spec["nodeSelector"] = draw(maps)
    if draw(st.booleans()):
        spec["tolerations"] = [{"key": key} for key in draw(st.lists(texts, max_size=2))]
    metadata = draw(st.fixed_dictionaries({}, optional={"labels": maps, "annotations": maps}))
    template = job(spec=spec, metadata=metadata) if draw(st.booleans()) else job(spec=spec)
    template["metadata"] |= draw(st.fixed_dictionaries({}, optional={"labels": maps, "annotations": maps}))
    template["spec"]["backoffLimit"] = draw(st.integers(0, 3))
    return template


def contains(whole: Any, piece: Any) -> bool:
    """Whether all of the piece is in the whole, lists in their order."""
    if isinstance(piece, dict):
        return isinstance(whole, dict) and all(key in whole and contains(whole[key], piece[key]) for key in piece)
    if isinstance(piece, list):
        rest = iter(whole)
        return all(any(contains(one, wanted) for one in rest) for wanted in piece)
    return whole == piece


def without_ours(got: dict[str, Any], template: dict[str, Any], pod_set: PodSet, labels: dict[str, str]) -> Any:
    """Take away all that was added, leaving what must be the template."""
    got = copy.deepcopy(got)
    metadata = got["metadata"]
    for field in ("namespace", "ownerReferences"):
        del metadata[field]

    def strip(parent: dict[str, Any], field: str, added: dict[str, str], before: dict[str, Any]) -> None:
        old = before.get(field)
        for key in added:
            if key in parent.get(field, {}) and key not in (old or {}):
                del parent[field][key]
        if old is None and not parent.get(field):
            parent.pop(field, None)

    ours = {**labels, **OURS}
    notes = {names.ANNOTATION_WORKLOAD: "", names.ANNOTATION_SENT_HASH: ""}
    strip(metadata, "labels", ours, template["metadata"])
    strip(metadata, "annotations", notes, template["metadata"])
    pods, before = got["spec"]["template"], template["spec"]["template"]
    old_metadata = before.get("metadata", {})
    strip(pods["metadata"], "labels", {**ours, **pod_set.labels}, old_metadata)
    strip(pods["metadata"], "annotations", {**notes, **pod_set.annotations}, old_metadata)
    if "metadata" not in before:
        assert pods.pop("metadata") == {}
    strip(pods["spec"], "nodeSelector", dict(pod_set.node_selector), before["spec"])
    for field in ("containers", "initContainers"):
        for index, container in enumerate(pods["spec"].get(field, ())):
            old_env = before["spec"][field][index].get("env")
            given_names = {one["name"] for one in old_env or ()}
            added = {names.ENV_ATTEMPT, names.ENV_WORKLOAD_UID} - given_names
            container["env"] = [one for one in container["env"] if one["name"] not in added]
            if old_env is None:
                assert container.pop("env") == []
    return got


@given(templates(), maps, maps, maps)
def test_the_template_is_otherwise_unchanged(
    template: dict[str, Any], labels: dict[str, str], set_labels: dict[str, str], selector: dict[str, str]
):
    before = copy.deepcopy(template)
    component = part(template, labels=set_labels, node_selector=selector)
    pod_set = component.pod_sets[0]
    try:
        got = sent(component, 2, **labels)
    except InjectionError:
        return
    finally:
        assert template == before
        assert component.template == before
    assert contains(got, template)
    assert without_ours(got, template, pod_set, labels) == template


def passed_off(key: str, field: str, place: str) -> Component:
    """Return a component that brings a label or an annotation that is written only while it lives."""
    if place == "pods":
        return part(job(metadata={field: {key: "1"}}))
    if place == "pod set":
        return part(**{field: {key: "1"}})
    return part({**job(), "metadata": {"name": "train", field: {key: "1"}}})


PLACES = pytest.mark.parametrize("place", ["pods", "object", "pod set"])


@pytest.mark.row("D45", level="pure")
@PLACES
@pytest.mark.parametrize(
    ("field", "key"), [*(("annotations", key) for key in sorted(names.WRITTEN_IN_LIFE)), ("labels", names.LABEL_COPY)]
)
def test_what_is_written_while_it_lives_is_refused_in_a_template(field: str, key: str, place: str):
    where = "template.metadata" if place == "object" else "template.spec.template.metadata"
    with pytest.raises(InjectionError) as refused:
        sent(passed_off(key, field, place))
    assert (refused.value.path, "expected none in a template" in refused.value.message) == (
        f"{where}.{field}[{key}]",
        True,
    )


@PLACES
@pytest.mark.parametrize(
    ("field", "key"), [*(("annotations", key) for key in sorted(names.WRITTEN_IN_LIFE)), ("labels", names.LABEL_COPY)]
)
def test_what_an_earlier_release_accepted_is_left_out_of_later_attempts(field: str, key: str, place: str):
    made = injected(passed_off(key, field, place), strict=False)
    metadata = made["metadata"] if place == "object" else made["spec"]["template"]["metadata"]
    assert key not in metadata[field]


@pytest.mark.row("F10", level="pure")
def test_F10_what_is_assigned_to_pods_names_no_queue_but_may_have_kueues_other_labels():
    others = {"kueue.x-k8s.io/podset": "main", "kueue.x-k8s.io/local-queue-name": "team"}
    with pytest.raises(InjectionError, match="give the workload itself the queue") as refused:
        sent(part(labels={KUEUE_QUEUE: "team", **others}))
    assert refused.value.path == f"template.spec.template.metadata.labels[{KUEUE_QUEUE}]"
    accepted = injected(part(labels={KUEUE_QUEUE: "team", **others}), strict=False)
    for made in (accepted, sent(part(labels=others))):
        labels = made["spec"]["template"]["metadata"]["labels"]
        assert {key: labels[key] for key in labels if key.startswith("kueue")} == others


@pytest.mark.parametrize("place", ["pods", "pod set"])
@pytest.mark.parametrize("key", BARRIER_LIFTED_BY)
def test_what_lifts_the_barrier_is_refused_at_every_attempt(key: str, place: str):
    with pytest.raises(InjectionError, match="lets a pod's programs start"):
        injected(passed_off(key, "annotations", place), strict=False, in_place=0)


BOUNDS = PodBounds(active_deadline=900, termination_grace=30)


def bound(template: dict[str, Any], bounds: PodBounds = BOUNDS) -> dict[str, Any]:
    return injected(part(template), bounds=bounds)


@pytest.mark.row("L18", level="pure")
def test_L18_pods_and_jobs_bear_the_backstop_and_a_grace_where_they_say_nothing():
    made = bound(job())
    spec = made["spec"]["template"]["spec"]
    assert (spec["activeDeadlineSeconds"], spec["terminationGracePeriodSeconds"]) == (900, 30)
    assert made["spec"]["activeDeadlineSeconds"] == 900, "else its controller would make them again"
    plain = sent(part())["spec"]
    assert "activeDeadlineSeconds" not in plain
    assert not {"activeDeadlineSeconds", "terminationGracePeriodSeconds"} & plain["template"]["spec"].keys()


@pytest.mark.row("L18", level="pure")
@pytest.mark.parametrize(("own", "kept"), [(60, 60), (3600, 900)])
def test_L18_what_a_template_says_counts_where_it_is_less_and_its_grace_always(own: int, kept: int):
    template = job()
    template["spec"]["activeDeadlineSeconds"] = own
    template["spec"]["template"]["spec"] |= {"activeDeadlineSeconds": own, "terminationGracePeriodSeconds": 600}
    made = bound(template)["spec"]
    assert (made["activeDeadlineSeconds"], made["template"]["spec"]["activeDeadlineSeconds"]) == (kept, kept)
    assert made["template"]["spec"]["terminationGracePeriodSeconds"] == 600
    template["spec"]["activeDeadlineSeconds"] = "soon"
    with pytest.raises(InjectionError, match="expected a whole number, found 'soon'"):
        bound(template)


@pytest.mark.row("L18", level="pure")
def test_L18_where_a_controller_refuses_a_deadline_there_is_none():
    made = bound({**job(), "apiVersion": "apps/v1", "kind": "Deployment"})
    assert "activeDeadlineSeconds" not in made["spec"]["template"]["spec"]
    assert made["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == 30


def test_T13_a_gangs_job_makes_pods_again_as_often_as_it_takes_and_each_knows_its_rendezvous():
    made = gathered(part())
    spec = made["spec"]
    assert (spec["parallelism"], spec["completions"], spec["completionMode"]) == (5, 5, "Indexed")
    assert spec["backoffLimit"] == 2**31 - 1
    pod = spec["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] == 45, "longer than the 30 s that the agent gives its workers"
    (volume,) = pod["volumes"]
    (source,) = volume["projected"]["sources"]
    token = source["serviceAccountToken"]
    assert token == {"audience": "rendezvous.holdfast.dev", "expirationSeconds": 600, "path": "token"}
    (container,) = pod["containers"]
    (mount,) = container["volumeMounts"]
    told = {one["name"]: one.get("value") or one["valueFrom"]["fieldRef"]["fieldPath"] for one in container["env"]}
    assert told == {
        "HOLDFAST_ATTEMPT": "2",
        "HOLDFAST_WORKLOAD_UID": "u-1",
        "HOLDFAST_RENDEZVOUS": "http://hub:8090",
        "HOLDFAST_RENDEZVOUS_TOKEN_FILE": f"{mount['mountPath']}/token",
        "HOLDFAST_ROLE": "work",
        "HOLDFAST_MEMBER": "metadata.name",
        "HOLDFAST_POD_UID": "metadata.uid",
        "HOLDFAST_POD_ADDRESS": "status.podIP",
        "HOLDFAST_NODE": "spec.nodeName",
    }


def test_the_agent_can_read_what_a_gangs_pods_are_told():
    (container,) = gathered(part())["spec"]["template"]["spec"]["containers"]
    environment = {one["name"]: one.get("value", "given-by-the-kubelet") for one in container["env"]}
    told = settings.read(["--", "train"], environment)
    assert (told.url, told.role, told.attempt, told.workload_uid) == ("http://hub:8090", "work", 2, "u-1")


@pytest.mark.row("X9", level="pure")
def test_X9_a_gangs_pods_verify_the_rendezvous_by_the_authority_that_they_are_given():
    made = gathered(part(), "https://hub", rendezvous_ca="PEM")
    template = made["spec"]["template"]
    assert template["metadata"]["annotations"]["holdfast.dev/rendezvous-ca"] == "PEM"
    (volume,) = template["spec"]["volumes"]
    _, source = volume["projected"]["sources"]
    field = {"fieldPath": "metadata.annotations['holdfast.dev/rendezvous-ca']"}
    assert source == {"downwardAPI": {"items": [{"path": "ca.crt", "fieldRef": field}]}}
    (container,) = template["spec"]["containers"]
    environment = {one["name"]: one.get("value", "given-by-the-kubelet") for one in container["env"]}
    (mount,) = container["volumeMounts"]
    assert settings.read(["--", "train"], environment).ca_file == f"{mount['mountPath']}/ca.crt"


@pytest.mark.row("X9", level="pure")
def test_X9_an_authority_that_is_replaced_between_two_tries_makes_no_other_object():
    first, second = (gathered(part(), "https://hub", rendezvous_ca=ca) for ca in ("old", "new"))
    key = "holdfast.dev/sent-hash"
    assert first["metadata"]["annotations"][key] == second["metadata"]["annotations"][key]


def test_what_a_gangs_template_says_itself_stays():
    template = job()
    template["spec"] |= {"backoffLimitPerIndex": 3}
    pod = template["spec"]["template"]["spec"]
    pod |= {"terminationGracePeriodSeconds": 90, "volumes": [{"name": "data", "emptyDir": {}}]}
    pod["containers"][0]["env"] = [{"name": "HOLDFAST_ROLE", "value": "trainer"}]
    made = gathered(part(template))["spec"]
    assert "backoffLimit" not in made
    assert made["template"]["spec"]["terminationGracePeriodSeconds"] == 90
    assert [one["name"] for one in made["template"]["spec"]["volumes"]] == ["data", "holdfast-rendezvous"]
    roles = [one for one in made["template"]["spec"]["containers"][0]["env"] if one["name"] == "HOLDFAST_ROLE"]
    assert roles == [{"name": "HOLDFAST_ROLE", "value": "trainer"}]


@pytest.mark.parametrize(
    ("pod", "rendezvous", "words"),
    [
        ({}, "", "gang: this worker has no address under which pods reach a rendezvous"),
        (
            {"volumes": [{"name": "holdfast-rendezvous", "emptyDir": {}}]},
            "http://hub",
            "template.spec.template.spec.volumes: expected none named 'holdfast-rendezvous'",
        ),
        (
            {
                "containers": [
                    {
                        "name": "main",
                        "volumeMounts": [{"name": "x", "mountPath": "/var/run/secrets/rendezvous.holdfast.dev"}],
                    }
                ]
            },
            "http://hub",
            "template.spec.template.spec.containers[0].volumeMounts: expected none at /var/run/secrets/rendezvous",
        ),
    ],
)
def test_what_would_be_in_a_gangs_way_is_refused(pod: dict[str, Any], rendezvous: str, words: str):
    template = job()
    template["spec"]["template"]["spec"] |= pod
    with pytest.raises(InjectionError) as refused:
        gathered(part(template), rendezvous)
    assert str(refused.value).startswith(words)


def gathered(component: Component, rendezvous: str = "http://hub:8090", rendezvous_ca: str = "") -> dict[str, Any]:
    """Return the Job of a gang of five pods."""
    gang = GangPods(component="work", pods=5)
    return injected(component, gang=gang, rendezvous=rendezvous, rendezvous_ca=rendezvous_ca)


@pytest.mark.row("J25", level="pure")
def test_J25_pods_that_restart_in_place_read_the_checkpoint_from_a_file_alone():
    made = injected(part(), in_place=0, resume_from="s3://saved/7")
    pods = made["spec"]["template"]
    told = {one["name"]: one for one in pods["spec"]["containers"][0]["env"]}
    assert told[names.ENV_RESUME_FROM_FILE]["value"] == names.IN_PLACE_RESUME_FILE
    assert names.ENV_RESUME_FROM not in told, "the kubelet may resolve a variable from a pod older than the file"
    assert pods["metadata"]["annotations"][names.ANNOTATION_RESUME_FROM] == "s3://saved/7"
    usual = injected(part(), resume_from="s3://saved/7")["spec"]["template"]["spec"]["containers"][0]["env"]
    assert {names.ENV_RESUME_FROM, names.ENV_RESUME_FROM_FILE} & {one["name"] for one in usual} == {
        names.ENV_RESUME_FROM
    }


@pytest.mark.row("J25", level="pure")
@pytest.mark.parametrize("in_place", [None, 0])
def test_J25_a_template_that_would_lift_the_barrier_is_refused(in_place: int | None):
    template = job(metadata={"annotations": {names.ANNOTATION_IN_PLACE_ATTEMPT: "0"}})
    with pytest.raises(InjectionError, match="expected none") as refused:
        injected(part(template), in_place=in_place)
    assert refused.value.path == (f"template.spec.template.metadata.annotations[{names.ANNOTATION_IN_PLACE_ATTEMPT}]")
