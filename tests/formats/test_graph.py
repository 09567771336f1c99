"""Graphs as documents: every template any published form, all of it right or nothing accepted (row L31)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from holdfast import formats, names
from holdfast.errors import InvalidWorkload
from holdfast.formats.graph import graphs_in, read_graph
from holdfast.model.entities.graph import EdgeKind

pytestmark = pytest.mark.row("L31", level="pure")
EXAMPLES = Path(__file__).parents[2] / "examples"


def job(**metadata: Any) -> dict[str, Any]:
    pod = {
        "restartPolicy": "Never",
        "containers": [{"name": "main", "image": "example.com/train:1", "args": ["${task}"]}],
    }
    document: dict[str, Any] = {"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": {"spec": pod}}}
    return document | ({"metadata": metadata} if metadata else {})


def text(*nodes: dict[str, Any], **more: Any) -> str:
    document: dict[str, Any] = {"apiVersion": names.API_VERSION, "kind": "Graph", "metadata": {"name": "etl"}}
    return yaml.safe_dump({**document, "spec": {"nodes": list(nodes)}, **more})


def problems(given: str, **more: Any) -> list[str]:
    with pytest.raises(InvalidWorkload) as refused:
        read_graph(given, cluster="dev", **more)
    return [str(one) for one in refused.value.problems]


def test_L31_the_example_is_read_as_it_stands():
    graph, workloads = read_graph((EXAMPLES / "graph" / "etl.yaml").read_text(), cluster="dev")
    assert [one.name for one in workloads] == [graph.workload(item) for item in graph.items]
    assert graph.nodes[2].after[0].on is EdgeKind.CORRESPONDING
    assert workloads[2].components[0].template["metadata"]["name"] == "etl-train-1"
    assert workloads[2].labels == {
        "holdfast.dev/graph": "etl",
        "holdfast.dev/graph-node": "train",
        "holdfast.dev/graph-task": "1",
    }
    assert workloads[2].graph is not None
    assert (workloads[2].graph.graph, workloads[2].graph.item) == ("etl", "train-1")
    assert workloads[0].policy.timings.failure_grace_period.total_seconds() == 5


def test_L31_templates_are_of_any_form_and_keep_their_own_rules():
    wrapper = yaml.safe_load((EXAMPLES / "appwrapper-job.yaml").read_text())
    jobset = yaml.safe_load((EXAMPLES / "jobset" / "fail-job.yaml").read_text())
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {}}
    given = [
        {"name": "a", "template": wrapper},
        {"name": "b", "after": [{"node": "a"}], "template": [config, job(name="own")]},
        {"name": "c", "template": jobset},
    ]
    _, workloads = read_graph(text(*given), cluster="dev", overrides={"failureGracePeriod": "7s"})
    assert [one.source.kind for one in workloads] == ["AppWrapper", "List", "JobSet"]
    assert [one.name for one in workloads] == ["etl-a", "etl-b", "etl-c"]
    assert [one.template["metadata"]["name"] for one in workloads[1].components] == ["settings", "own"]
    assert {one.policy.timings.failure_grace_period.total_seconds() for one in workloads} == {7}


def test_L31_each_task_has_its_number_in_its_texts():
    _, workloads = read_graph(text({"name": "a", "tasks": 2, "template": job(name="shard-${task}")}), cluster="dev")
    first, second = (one.components[0].template for one in workloads)
    assert (first["metadata"]["name"], second["metadata"]["name"]) == ("shard-0", "shard-1")
    assert second["spec"]["template"]["spec"]["containers"][0]["args"] == ["1"]


def test_L31_without_tasks_the_texts_stay_as_they_are():
    _, workloads = read_graph(text({"name": "a", "template": job()}), cluster="dev")
    template = workloads[0].components[0].template
    assert template["spec"]["template"]["spec"]["containers"][0]["args"] == ["${task}"], "a variable of its script"


def test_L31_objects_of_one_name_in_two_of_a_graph_are_refused():
    (problem,) = problems(text({"name": "a", "template": job(name="x")}, {"name": "b", "template": job(name="x")}))
    assert problem == "spec.nodes[1].template: Job x is of etl-a too: leave its name out, or change it"
    (problem,) = problems(text({"name": "a", "tasks": 2, "template": job(name="x")}))
    assert problem.endswith("Job x is of etl-a-0 too: leave its name out, or put ${task} in it")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (text(), "spec.nodes: expected a list of at least one node (found a list of 0)"),
        (text({"name": "a"}), "spec.nodes[0].template: expected an object, or a list of plain manifests (found null)"),
        (
            text({"name": "a", "template": job(), "needs": []}),
            "spec.nodes[0].needs: is not a field here; allowed: name, tasks, after, template",
        ),
        (
            text({"name": "a", "template": job()}, status={}),
            "status: is not a field here; allowed: apiVersion, kind, metadata, spec",
        ),
        (text({"name": "a", "template": {"kind": "Job"}}), "spec.nodes[0].template.apiVersion: "),
        (
            text({"name": "a", "template": job(annotations={"holdfast.dev/retryLimit": "many"})}),
            "spec.nodes[0].template: Job etl-a: metadata.annotations[holdfast.dev/retryLimit]: expected a whole number",
        ),
        (
            text({"name": "a", "template": job(), "after": [{"node": "b"}]}),
            "spec.nodes[0].after[0].node: 'b' names no node",
        ),
        (
            text({"name": "a", "template": job(), "after": [{"node": "a", "on": "Never"}]}),
            "spec.nodes[0].after[0].on: ",
        ),
        (text({"name": "a", "template": job(), "tasks": 0}), "spec.nodes[0].tasks: "),
        (
            text({"name": "a", "template": job(), "tasks": True}),
            "spec.nodes[0].tasks: expected a whole number (found true)",
        ),
        (text({"name": "A", "template": job()}), "spec.nodes[0].name: 'A': expected a DNS label"),
        (text({"name": "a", "template": job(namespace="other")}), "namespace"),
    ],
)
def test_L31_what_is_wrong_is_told_with_its_path_and_what_is_allowed(given: str, expected: str):
    assert any(expected in one for one in problems(given)), problems(given)


def test_L31_a_namespace_that_contradicts_the_one_asked_for_is_refused():
    odd = text({"name": "a", "template": job()}, metadata={"name": "etl", "namespace": []})
    assert problems(odd, namespace="team-b") == [
        "metadata.namespace: expected 'team-b', as asked for (found a list of 0)"
    ]
    given = text({"name": "a", "template": job()}, metadata={"name": "etl", "namespace": "team-a"})
    assert problems(given, namespace="team-b") == [
        "metadata.namespace: expected 'team-b', as asked for (found 'team-a')"
    ]
    graph, workloads = read_graph(given, cluster="dev", name="other")
    assert (graph.namespace, workloads[0].namespace, workloads[0].name) == ("team-a", "team-a", "other-a")


def test_a_graph_is_no_workload_and_stands_alone_in_its_file():
    given = text({"name": "a", "template": job()})
    assert graphs_in(given)
    with pytest.raises(InvalidWorkload, match="is a graph of workloads, and stands alone in its file"):
        formats.read(given, cluster="dev")
    assert "found 2 documents" in problems(f"{given}---\n{given}")[0]
