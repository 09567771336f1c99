"""A graph of workloads in one document: `kind: Graph`, each node with a template in any workload format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, cast

from pydantic import ValidationError

from holdfast import names
from holdfast.errors import InvalidWorkload, Problem, problems_of, truths
from holdfast.formats import read
from holdfast.formats.text import Document, Json, as_json, documents, inside, is_graph
from holdfast.model import Workload
from holdfast.model.entities.graph import Graph, GraphNode, Place

TASK: Final = "${task}"
"""Placeholder for a task's number in all strings of the template of a node with tasks."""
_SHOWN: Final = 20
_FIELDS: Final = ("apiVersion", "kind", "metadata", "spec")
_NODE_FIELDS: Final = ("name", "tasks", "after", "template")


class GraphDocument(NamedTuple):
    """A graph, and its workloads in document order, each with its place in the graph."""

    graph: Graph
    workloads: tuple[Workload, ...]


def graphs_in(text: str) -> bool:
    """Whether a text holds graphs: its first document is a graph."""
    found = documents(text)
    return bool(found) and is_graph(found[0].content)


def read_graph(
    text: str,
    *,
    cluster: str,
    namespace: str | None = None,
    default_namespace: str = "default",
    name: str | None = None,
    overrides: Mapping[str, str] | None = None,
    payloads_encrypted: bool = False,
) -> GraphDocument:
    """Read a graph and all of its workloads: everything is valid, or nothing is accepted (row L31).

    Each workload is named after the graph, its node and, if the node has several tasks, its number: `etl-train-0`.
    Its pods have the labels `holdfast.dev/graph`, `holdfast.dev/graph-node` and, for a task, `holdfast.dev/graph-task`.

    Args:
        text: One document, YAML or JSON.
        cluster: The cluster to run it on.
        namespace: The namespace, if the document names none; a named one must be the same.
        default_namespace: The namespace if neither names one.
        name: The name of the graph, which replaces the document's.
        overrides: Settings for all workloads that override their own (`holdfast.formats.NAMES`).
        payloads_encrypted: Whether payloads are encrypted in transit; a Secret is accepted only then.

    Raises:
        InvalidWorkload: with the problems found, each with its path and what is allowed there.
    """
    found = documents(text)
    if len(found) != 1 or not is_graph(found[0].content):
        problem = Problem("", f"expected one document of kind {names.GRAPH_KIND}, found {len(found)} documents")
        raise InvalidWorkload([problem], "the text")
    document = Document(as_json(found[0].content), found[0].line)
    content, problems = document.content, list[Problem]()
    problems += [Problem(key, "is not a field here", allowed=_FIELDS) for key in content if key not in _FIELDS]
    if content.get("apiVersion") != names.API_VERSION:
        problems.append(Problem("apiVersion", "is not accepted", content.get("apiVersion"), (names.API_VERSION,)))
    own_namespace = inside(content, "metadata", "namespace")
    if namespace is not None and own_namespace is not None and own_namespace != namespace:
        problems.append(Problem("metadata.namespace", f"expected {namespace!r}, as asked for", own_namespace))
    given: Any = inside(content, "spec", "nodes")
    if not isinstance(given, list) or not given:
        problems.append(Problem("spec.nodes", "expected a list of at least one node", given))
    if problems:
        raise InvalidWorkload(problems, str(document))
    graph, templates = _graph(
        document, cast("list[Any]", given), cluster, namespace or own_namespace or default_namespace, name
    )
    workloads = _workloads(document, graph, templates, overrides, payloads_encrypted)
    return GraphDocument(graph, workloads)


def _graph(
    document: Document, given: list[Any], cluster: str, namespace: Any, name: str | None
) -> tuple[Graph, list[Any]]:
    problems, nodes, templates = list[Problem](), list[Json](), list[Any]()
    for index, one in enumerate(given):
        if not isinstance(one, dict):
            problems.append(Problem(f"spec.nodes[{index}]", "expected an object", one))
            continue
        node = cast("Json", one)
        path = f"spec.nodes[{index}]"
        problems += [
            Problem(f"{path}.{key}", "is not a field here", allowed=_NODE_FIELDS)
            for key in node
            if key not in _NODE_FIELDS
        ]
        template: Any = node.get("template")
        manifests = cast("list[Any]", template) if isinstance(template, list) else [template]
        if not template or not all(isinstance(each, dict) for each in manifests):
            problems.append(Problem(f"{path}.template", "expected an object, or a list of plain manifests", template))
        templates.append(template)
        nodes.append({key: value for key, value in node.items() if key != "template"})
    for key in document.content.get("spec", {}):
        if key != "nodes":
            problems.append(Problem(f"spec.{key}", "is not a field here", allowed=("nodes",)))
    if problems:
        raise InvalidWorkload(problems, str(document))
    fields: Json = {"name": name or inside(document.content, "metadata", "name"), "cluster": cluster, "nodes": nodes}
    if namespace is not None:
        fields["namespace"] = namespace
    try:
        graph = Graph.model_validate(fields)
    except ValidationError as error:
        raise InvalidWorkload(problems_of(error, Graph, "spec"), str(document)) from None
    if wrong := tuple(truths(fields, graph, "spec")):
        raise InvalidWorkload(wrong, str(document))
    return graph, templates


def _workloads(
    document: Document, graph: Graph, templates: list[Any], overrides: Mapping[str, str] | None, encrypted: bool
) -> tuple[Workload, ...]:
    problems, made = list[Problem](), list[Workload]()
    taken: dict[tuple[str, str, str], str] = {}
    for index, (node, template) in enumerate(zip(graph.nodes, templates, strict=True)):
        path = f"spec.nodes[{index}].template"
        try:
            for number, item in enumerate(node.items):
                # Without tasks the text may be a script's own variable.
                filled = _filled(template, str(number)) if node.tasks is not None else template
                one = _placed(graph, node, _read_template(graph, item, filled, overrides, encrypted), number)
                problems += _doubled(one, node, path, taken)
                made.append(one)
        except InvalidWorkload as error:
            problems += [
                # For plain manifests a path begins with the object's own name.
                Problem(
                    f"{path}{': ' if ': ' in each.path else '.'}{each.path}".rstrip("."),
                    each.message,
                    each.value,
                    each.allowed,
                )
                for each in error.problems
            ]
        if len(problems) >= _SHOWN:
            break
    if problems:
        raise InvalidWorkload(problems[:_SHOWN], str(document))
    return tuple(made)


def _doubled(workload: Workload, node: GraphNode, path: str, taken: dict[tuple[str, str, str], str]) -> list[Problem]:
    """Refuse objects of the same kind and name in two workloads of a graph: they would conflict in the cluster."""
    found = list[Problem]()
    for component in workload.components:
        template = component.template
        name = str(template["metadata"]["name"])
        other = taken.setdefault((template["apiVersion"], template["kind"], name), workload.name)
        if other != workload.name:
            or_else = f"put {TASK} in it" if node.tasks is not None else "change it"
            why = f"{template['kind']} {name} is of {other} too: leave its name out, or {or_else}"
            found.append(Problem(path, why))
    return found


def _read_template(
    graph: Graph, item: str, template: Any, overrides: Mapping[str, str] | None, encrypted: bool
) -> Workload:
    """Read a template as the workload of one item, under its name."""
    several = cast("list[Json]", template if isinstance(template, list) else [template])
    name = graph.workload(item)
    found = read(
        [_named(one, name) for one in several],
        cluster=graph.cluster,
        namespace=graph.namespace,
        name=name if len(several) > 1 else None,
        overrides=overrides,
        payloads_encrypted=encrypted,
    )
    if len(found) != 1:
        raise InvalidWorkload([Problem("", f"expected one workload, found {len(found)}")])
    return Workload.model_validate(
        {
            **found[0].model_dump(mode="json"),
            "name": name,
            "graph": Place(graph=graph.name, item=item).model_dump(mode="json"),
        }
    )


def _filled(value: Any, number: str) -> Any:
    if isinstance(value, str):
        return value.replace(TASK, number)
    if isinstance(value, list):
        return [_filled(one, number) for one in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {key: _filled(one, number) for key, one in cast("Json", value).items()}
    return value


def _named(template: Json, name: str) -> Json:
    metadata = template.get("metadata")
    known = cast("Json", metadata) if isinstance(metadata, dict) else {}
    return {**template, "metadata": {"name": name, **known}}


def _placed(graph: Graph, node: GraphNode, workload: Workload, number: int) -> Workload:
    labels = {names.LABEL_GRAPH: graph.name, names.LABEL_GRAPH_NODE: node.name}
    if node.tasks is not None:
        labels[names.LABEL_GRAPH_TASK] = str(number)
    return workload.model_copy(update={"labels": {**workload.labels, **labels}})
