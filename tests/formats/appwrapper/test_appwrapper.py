"""AppWrappers as their users write them become workloads; what cannot run is refused with its path."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.errors import InvalidWorkload, ManagedElsewhere
from holdfast.formats import read
from holdfast.formats.appwrapper.reader import read as read_appwrapper
from holdfast.model import Kind, Source
from tests.formats.documents import LABEL, PODS, Json, appwrapper, config_map, copy, custom, deployment, job, one, pod
from tests.formats.documents import refusal as refused


@pytest.mark.row("A1", level="pure")
def test_components_keep_their_order_and_templates() -> None:
    components = [config_map(), pod(), job(parallelism=2), deployment(replicas=3)]
    workload = one(appwrapper(*components))
    assert [component.template for component in workload.components] == components
    assert [component.name for component in workload.components] == [
        "0-configmap-settings",
        "1-pod-p",
        "2-job-train",
        "3-deployment-web",
    ]
    assert [component.expected_pods for component in workload.components] == [0, 1, 2, 3]


def test_the_workload_is_the_appwrapper() -> None:
    document = appwrapper(suspend=True)
    document["metadata"].update(namespace="team", labels={"kueue.x-k8s.io/queue-name": "gpu", "other": "x"})
    document["status"] = {"phase": "Running"}
    workload = one(document)
    assert (workload.name, workload.namespace, workload.cluster) == ("train-llm", "team", "dev")
    assert (workload.kind, workload.queue, workload.suspend) == (Kind.BATCH, "gpu", True)
    assert workload.labels == {LABEL: "train-llm"}
    labels = {"kueue.x-k8s.io/queue-name": "gpu", "other": "x"}
    assert workload.source == Source(api_version="workload.codeflare.dev/v1beta2", kind="AppWrapper", labels=labels)
    assert workload.listed_labels == {LABEL: "train-llm", **labels}
    assert workload.workflow_id == "workload/dev/team/train-llm"


@pytest.mark.row("E3", level="pure")
def test_E3_a_label_that_the_api_server_would_refuse_is_refused_where_it_stands() -> None:
    document = appwrapper()
    document["metadata"]["labels"] = {"team": "not one"}
    with pytest.raises(InvalidWorkload, match=r"metadata\.labels: label team: value 'not one': expected at most 63"):
        one(document)


@pytest.mark.row("E3", level="pure")
def test_E3_labels_are_no_part_of_what_is_asked_for() -> None:
    document = appwrapper()
    document["metadata"]["labels"] = {"team": "x"}
    assert one(document).spec_hash() == one(appwrapper()).spec_hash()


def test_the_same_document_gives_the_same_workload() -> None:
    assert one(appwrapper(job(), pod())).spec_hash() == one(appwrapper(job(), pod())).spec_hash()


@pytest.mark.parametrize("field", ["podSets", "podSetInfos", "annotations"])
def test_null_is_as_good_as_absent(field: str) -> None:
    assert one(appwrapper({"template": job(), field: None})) == one(appwrapper())


@pytest.mark.parametrize("manager", [None, "workload.codeflare.dev/appwrapper-controller", "holdfast.dev/holdfast"])
def test_managed_by_us_or_by_nobody_else_is_accepted(manager: str | None) -> None:
    assert one(appwrapper(managedBy=manager)).name == "train-llm"


def test_managed_by_another_is_ignored_in_words_of_its_own() -> None:
    with pytest.raises(ManagedElsewhere, match=r"AppWrapper train-llm is ignored: .* kueue.x-k8s.io/multikueue"):
        read(appwrapper(managedBy="kueue.x-k8s.io/multikueue"), cluster="dev")


@pytest.mark.row("A1", level="pure")
def test_what_kueue_assigned_is_kept_for_each_pod_set() -> None:
    info = {
        "labels": {"kueue.x-k8s.io/podset": "main"},
        "annotations": {"note": "x"},
        "nodeSelector": {"pool": "a100"},
        "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule", "value": ""}],
        "schedulingGates": [{"name": "kueue.x-k8s.io/topology"}],
    }
    component = {"template": job(), "podSets": [{"path": "template.spec.template"}], "podSetInfos": [info]}
    (pod_set,) = one(appwrapper(component)).components[0].pod_sets
    assert (pod_set.labels, pod_set.annotations) == (info["labels"], info["annotations"])
    assert pod_set.node_selector == info["nodeSelector"]
    (toleration,) = pod_set.tolerations
    assert (toleration.key, toleration.operator, toleration.value) == ("gpu", "Exists", None)
    assert [gate.name for gate in pod_set.scheduling_gates] == ["kueue.x-k8s.io/topology"]


def test_declared_pod_sets_of_an_unknown_kind_are_taken_as_they_are() -> None:
    template = custom(jobs=[{"template": copy(PODS)}, {"template": copy(PODS)}])
    declared = [{"path": "template.spec.jobs[1].template", "replicas": 4}, {"path": "template.spec.jobs[0].template"}]
    workload = one(appwrapper({"template": template, "podSets": declared}))
    assert [(each.path, each.replicas) for each in workload.components[0].pod_sets] == [
        ("template.spec.jobs[1].template", 4),
        ("template.spec.jobs[0].template", 1),
    ]


def test_a_name_may_be_given_to_one_that_has_none() -> None:
    document = appwrapper()
    document["metadata"] = {"generateName": "train-"}
    assert one(document, name="train-7").name == "train-7"
    assert refused(document)[0].path == "metadata.name"


def test_one_appwrapper_can_be_read_by_itself() -> None:
    assert read_appwrapper(appwrapper(), cluster="dev") == one(appwrapper())


def component(**fields: Any) -> Json:
    return appwrapper({"template": job(parallelism=2), **fields})


def pod_sets(*declared: Json) -> Json:
    return component(podSets=list(declared))


PATH = {"path": "template.spec.template", "replicas": 2}
OVERSIZED = appwrapper(*[pod(f"p{index}") for index in range(9)])


def jobset(**policy: Any) -> Json:
    jobs = [{"name": "workers", "replicas": 1, "template": {"spec": job(parallelism=2)["spec"]}}]
    spec = {"replicatedJobs": jobs, "failurePolicy": policy}
    return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "set"}, "spec": spec}


@pytest.mark.row("F10", level="pure")
def test_F10_what_is_under_it_has_no_queue_and_no_restarts_of_its_own() -> None:
    queued = job()
    queued["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "team"}
    inside = job()
    inside["spec"]["template"]["metadata"] = {"labels": {"kueue.x-k8s.io/queue-name": "team"}}
    rules = [{"name": "r", "action": "RestartJobSetAndIgnoreMaxRestarts"}]
    problems = refused(appwrapper(queued, jobset(maxRestarts=3, rules=rules)))
    assert [str(each) for each in problems] == [
        "spec.components[0].template.metadata.labels[kueue.x-k8s.io/queue-name]: expected none: "
        "give the AppWrapper itself the queue (found 'team')",
        "spec.components[1].template.spec.failurePolicy.maxRestarts: expected 0, or none: "
        "the AppWrapper restarts it, as often as its own retryLimit says (found 3)",
        "spec.components[1].template.spec.failurePolicy.rules[0].action: expected FailJobSet: "
        "the AppWrapper restarts it, as often as its own retryLimit says (found 'RestartJobSetAndIgnoreMaxRestarts')",
    ]
    (problem,) = refused(appwrapper(inside))
    assert problem.path == "spec.components[0].template.spec.template.metadata.labels[kueue.x-k8s.io/queue-name]"
    assert one(appwrapper(job(), jobset(maxRestarts=0))).expected_pods == 3
    jobs = jobset()
    jobs["spec"]["replicatedJobs"][0]["template"]["metadata"] = {"labels": {"kueue.x-k8s.io/queue-name": "team"}}
    (problem,) = refused(appwrapper(job(), jobs))
    assert str(problem) == (
        "spec.components[1].template.spec.replicatedJobs[0].template.metadata.labels[kueue.x-k8s.io/queue-name]: "
        "expected none: give the AppWrapper itself the queue (found 'team')"
    )
    ours = jobset(maxRestarts=0)
    ours["spec"]["managedBy"] = "holdfast.dev/holdfast"
    (problem,) = refused(appwrapper(ours))
    assert problem.path == "spec.components[0].template.spec.managedBy"


@pytest.mark.row("F10", level="pure")
def test_F10_a_workload_holds_no_workload_and_nothing_that_restarts_by_itself() -> None:
    def holding(*templates: Json) -> Json:
        pods = [{"path": "template.spec.template", "replicas": 1}]
        components = [{"name": f"c{index}", "template": one, "podSets": pods} for index, one in enumerate(templates)]
        head = {"apiVersion": "holdfast.dev/v1", "kind": "Workload", "metadata": {"name": "w"}}
        return {**head, "spec": {"components": components}}

    ours = jobset(maxRestarts=2)
    ours["spec"]["managedBy"] = "holdfast.dev/holdfast"
    problems = refused(holding(appwrapper(), holding(job()), ours))
    assert [str(each) for each in problems] == [
        "spec.components[0].template: is an AppWrapper: AppWrappers and Workloads cannot be nested",
        "spec.components[1].template: is a Workload: they cannot be nested",
        "spec.components[2].template.spec.managedBy: expected none, or another controller's: Holdfast runs the "
        "Workload, and not what is in it once more (found 'holdfast.dev/holdfast')",
        "spec.components[2].template.spec.failurePolicy.maxRestarts: expected 0, or none: the Workload restarts it, as "
        "often as its own policy.budgets says (found 2)",
    ]


@pytest.mark.row("A1", level="pure")
@pytest.mark.parametrize("namespace", ["", "default"])
def test_a_component_may_name_the_appwrappers_own_namespace_or_leave_it_empty(namespace: str) -> None:
    workload = one(appwrapper(pod(namespace=namespace), job()))
    assert workload.components[0].template["metadata"].get("namespace") == (namespace or None)


@pytest.mark.row("U14", level="pure")
@pytest.mark.parametrize(
    ("document", "path", "says"),
    [
        (appwrapper(appwrapper()), "spec.components[0].template", "is an AppWrapper: they cannot be nested"),
        (
            appwrapper({"template": {"apiVersion": "holdfast.dev/v1", "kind": "Workload", "metadata": {"name": "w"}}}),
            "spec.components[0].template",
            "is a Workload: AppWrappers and Workloads cannot be nested",
        ),
        (
            appwrapper(pod(namespace="elsewhere")),
            "spec.components[0].template.metadata.namespace",
            "expected 'default', the AppWrapper's own, or none (found 'elsewhere')",
        ),
        (
            pod_sets({"path": "template.spec.tmpl", "replicas": 2}),
            "spec.components[0].podSets[0].path",
            "leads nowhere: template.spec has no field tmpl (found 'template.spec.tmpl')",
        ),
        (
            pod_sets({"path": "template.spec", "replicas": 2}),
            "spec.components[0].podSets[0].path",
            "does not lead to a pod template",
        ),
        (pod_sets({"path": "spec.template"}), "spec.components[0].podSets[0].path", "expected one that starts with"),
        (pod_sets(PATH, PATH), "spec.components[0].podSets[1].path", "is given twice"),
        (
            pod_sets({"path": "template.spec.template", "replicas": 3}),
            "spec.components[0].podSets[0].replicas",
            "disagrees with the template: expected 2 (found 3)",
        ),
        (
            pod_sets({"path": "template.spec.template"}),
            "spec.components[0].podSets[0].replicas",
            "disagrees with the template: expected 2 (found 1)",
        ),
        (
            appwrapper({"template": custom(t=copy(PODS)), "podSets": [{"path": "template.spec.t", "replicas": -1}]}),
            "spec.components[0].podSets[0].replicas",
            "expected a whole number, at least 0",
        ),
        (OVERSIZED, "spec.components", "have 9 pod sets in all: expected at most 8"),
        (appwrapper(config_map()), "spec.components", "bring no pods"),
        (appwrapper(components=[]), "spec.components", "expected at least one component"),
        (
            component(podSetInfos=[{}, {}]),
            "spec.components[0].podSetInfos",
            "expected one for each of the 1 pod sets (found a list of 2)",
        ),
        (
            component(podSetInfos=[{"tolerations": [{"operator": "Perhaps"}]}]),
            "spec.components[0].podSetInfos[0].tolerations[0].operator",
            "allowed: Exists, Equal, Lt, Gt (found 'Perhaps')",
        ),
        (component(podSetInfo=[]), "spec.components[0].podSetInfo", "did you mean podSetInfos?"),
        (appwrapper(replicas=2), "spec.replicas", "is not a field here; allowed: components, suspend, managedBy"),
        (appwrapper(suspend="true"), "spec.suspend", "expected true or false (found 'true')"),
        (
            appwrapper(annotations={"a": 3}),
            "metadata.annotations.a",
            "expected text: write it in quotes (found 3)",
        ),
        (appwrapper(components=[{}]), "spec.components[0].template", "is required"),
        (appwrapper(components=[{"template": "x"}]), "spec.components[0].template", "expected an object (found 'x')"),
        (
            appwrapper({"template": {"apiVersion": "v1", "kind": "Pod", "metadata": []}}),
            "spec.components[0].template",
            "expected an object with spec.containers",
        ),
        (
            appwrapper({"template": custom(t=copy(PODS)), "podSets": [{"path": "template.spec.t", "replicas": 10**7}]}),
            "spec.components[0].podSets[0].replicas",
            "expected less than or equal to 1000000 (found 10000000)",
        ),
        (appwrapper({"template": {"kind": "Widget"}}), "spec.components[0].template.apiVersion", "expected a text"),
        (
            appwrapper({"template": {"apiVersion": "v1", "kind": "Pod", "metadata": {}, **PODS}}),
            "spec.components[0].template.metadata.name",
            "expected a name or a generateName",
        ),
        (
            appwrapper(job(parallelism="two")),
            "spec.components[0].template.spec.parallelism",
            "expected a whole number, at least 0 (found 'two')",
        ),
        (
            appwrapper(job(template={"spec": {}})),
            "spec.components[0].template.spec.template",
            "expected an object with spec.containers",
        ),
        (
            appwrapper(pod(labels={LABEL: "other"})),
            f"spec.components[0].template.metadata.labels[{LABEL}]",
            "expected 'train-llm', or no such label (found 'other')",
        ),
    ],
)
def test_refused_with_the_path_and_what_is_allowed(document: Json, path: str, says: str) -> None:
    problems = refused(document)
    assert [problem.path for problem in problems] == [path]
    assert says in str(problems[0])


def test_what_kueue_assigned_may_not_contradict_the_template() -> None:
    template = job(template={**copy(PODS), "metadata": {"labels": {"a": "1"}}})
    template["spec"]["template"]["spec"]["nodeSelector"] = {"pool": "cpu"}
    info = {"labels": {"a": "2"}, "nodeSelector": {"pool": "gpu", "zone": "b"}}
    problems = refused(appwrapper({"template": template, "podSetInfos": [info]}))
    assert [str(problem) for problem in problems] == [
        "spec.components[0].podSetInfos[0].labels.a: contradicts the pod template, which has '1' (found '2')",
        "spec.components[0].podSetInfos[0].nodeSelector.pool: "
        "contradicts the pod template, which has 'cpu' (found 'gpu')",
    ]


def test_a_declared_list_must_be_whole() -> None:
    roles = {role: {"template": copy(PODS)} for role in ("Master", "Worker")}
    template = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "t"},
        "spec": {"pytorchReplicaSpecs": roles},
    }
    master, worker = (f"template.spec.pytorchReplicaSpecs.{role}.template" for role in ("Master", "Worker"))
    problem = refused(appwrapper({"template": template, "podSets": [{"path": master}]}))[0]
    assert (problem.path, problem.message) == ("spec.components[0].podSets", f"expected one for {worker} too")
    other = "template.spec.pytorchReplicaSpecs"
    roles["Extra"] = {"template": copy(PODS)}
    declared = [{"path": master}, {"path": worker}, {"path": f"{other}.Extra.template"}]
    problem = refused(appwrapper({"template": template, "podSets": declared}))[0]
    assert problem.path == "spec.components[0].podSets[2].path"
    assert problem.allowed == (master, worker)


def test_all_problems_are_told_at_once() -> None:
    document = appwrapper({"template": job(parallelism=2), "podSets": [{"path": "template.spec.template"}]}, job("b"))
    document["metadata"]["annotations"] = {"workload.codeflare.dev.appwrapper/retryLimit": "many"}
    document["spec"]["components"][1]["template"]["metadata"]["namespace"] = "x"
    assert len(refused(document)) == 3


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"name": "Bad_Name"}, "metadata.name"),
        ({"name": "x" * 64}, "metadata.name"),
        ({"namespace": "a.b"}, "metadata.namespace"),
        ({"labels": {"kueue.x-k8s.io/queue-name": "no.dots"}}, "metadata.labels[kueue.x-k8s.io/queue-name]"),
    ],
)
def test_names_are_refused_where_they_were_written(change: Json, path: str) -> None:
    document = appwrapper()
    document["metadata"].update(change)
    assert [problem.path for problem in refused(document)] == [path]


def test_what_was_asked_for_must_agree_with_the_document() -> None:
    document = appwrapper()
    document["metadata"]["namespace"] = "team"
    assert one(document, namespace="team").namespace == "team"
    assert one(appwrapper(), namespace="team").namespace == "team"
    paths = [problem.path for problem in refused(document, namespace="other", name="other")]
    assert paths == ["metadata.name", "metadata.namespace"]


def test_another_version_of_the_api_is_refused() -> None:
    document = {**appwrapper(), "apiVersion": "workload.codeflare.dev/v1beta1"}
    (problem,) = refused(document)
    assert (problem.path, problem.allowed) == ("apiVersion", ("workload.codeflare.dev/v1beta2",))
