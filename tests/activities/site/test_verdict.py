"""From the API server's words to the fields that its author wrote. The words are those of a Kubernetes 1.36."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.activities.kube.client import Cause, Invalid
from holdfast.activities.objects.verdict import problems_with
from holdfast.errors import Problem

QUANTITIES = (
    'Job in version "v1" cannot be handled as a Job: quantities must match the regular expression '
    "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)


def template(**container: Any) -> dict[str, Any]:
    first = {"name": "first", "image": "a"}
    spec = {"containers": [first, {"name": "main", "image": "b", **container}], "restartPolicy": "Never"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train"},
        "spec": {"template": {"spec": spec}},
    }


def of(message: str, document: dict[str, Any], *causes: Cause) -> tuple[Problem, ...]:
    return problems_with(Invalid(400, "BadRequest", message, causes=causes), document)


MAIN = "template.spec.template.spec.containers[1]"


@pytest.mark.row("U14", level="pure")
@pytest.mark.parametrize(
    ("cause", "problem"),
    [
        (
            Cause("spec.restartPolicy", 'Unsupported value: "Odd": supported values: "Always", "Never"'),
            Problem(
                "template.spec.restartPolicy", "is not one of the allowed values", "Odd", allowed=("Always", "Never")
            ),
        ),
        (
            Cause("spec.ports[0].port", "Invalid value: 99999: must be between 1 and 65535, inclusive"),
            Problem("template.spec.ports[0].port", "must be between 1 and 65535, inclusive", 99999),
        ),
        (
            Cause("spec.volumes[1].name", 'Duplicate value: "v"'),
            Problem("template.spec.volumes[1].name", "is given twice", "v"),
        ),
        (Cause("spec.containers", "Required value"), Problem("template.spec.containers", "is required")),
        (
            Cause("spec.selector", "Required value: must match the labels"),
            Problem("template.spec.selector", "is required: must match the labels"),
        ),
        (Cause("<nil>", "Invalid value: null: no"), Problem("template", "no", None)),
        (Cause("", "some rule says no"), Problem("template", "some rule says no")),
    ],
)
def test_a_refused_value(cause: Cause, problem: Problem) -> None:
    assert of("", template(), cause) == (problem,)


@pytest.mark.row("U14", level="pure")
def test_fields_that_the_server_does_not_know() -> None:
    message = (
        'Job in version "v1" cannot be handled as a Job: strict decoding error: unknown field "spec.foo", '
        'unknown field "spec.template.spec.containers[0].imag"'
    )
    paths = ["template.spec.foo", "template.spec.template.spec.containers[0].imag"]
    assert [problem.path for problem in of(message, template())] == paths


@pytest.mark.row("U14", level="pure")
@pytest.mark.parametrize(
    ("container", "found", "go", "path", "value"),
    [
        ({"image": 5}, "number", "Container.spec.template.spec.containers.image of type string", "image", 5),
        (
            {"env": [{"name": "a", "value": "x"}, {"name": "b", "value": True}]},
            "bool",
            "EnvVar.spec.template.spec.containers.env.value of type string",
            "env[1].value",
            True,
        ),
        (
            {"command": ["a", 7]},
            "number",
            "Container.spec.template.spec.containers.command of type string",
            "command[1]",
            7,
        ),
        (
            {"livenessProbe": {"httpGet": {"port": []}}},
            "array",
            "HTTPGetAction.spec.template.spec.containers.livenessProbe.ProbeHandler.httpGet.port of type int32",
            "livenessProbe.httpGet.port",
            [],
        ),
        ({"ports": "x"}, "string", "Container.spec.template.spec.containers.ports of type []v1.Port", "ports", "x"),
    ],
)
def test_a_value_of_another_type_is_found_among_the_items_of_lists(
    container: dict[str, Any], found: str, go: str, path: str, value: Any
) -> None:
    (problem,) = of(f"json: cannot unmarshal {found} into Go struct field {go}", template(**container))
    assert (problem.path, problem.value) == (f"{MAIN}.{path}", value)
    assert problem.message.startswith("expected ")


@pytest.mark.row("U14", level="pure")
def test_an_entry_of_a_map_is_found() -> None:
    document = template()
    document["metadata"]["labels"] = {"fine": "x", "example.com/n": 5}
    (problem,) = of("cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string", document)
    assert (problem.path, problem.value) == ("template.metadata.labels[example.com/n]", 5)
    assert problem.message == "expected text: write it in quotes"


@pytest.mark.row("U14", level="pure")
@pytest.mark.parametrize(
    ("container", "path", "value"),
    [
        ({"resources": {"requests": {"cpu": "1", "memory": "lots"}}}, "resources.requests.memory", "lots"),
        (
            {"env": [{"name": "a", "valueFrom": {"resourceFieldRef": {"divisor": "q"}}}]},
            "env[0].valueFrom.resourceFieldRef.divisor",
            "q",
        ),
    ],
)
def test_a_quantity_is_found_though_nothing_is_said_of_its_place(
    container: dict[str, Any], path: str, value: str
) -> None:
    (problem,) = of(QUANTITIES, template(**container))
    assert (problem.path, problem.value) == (f"{MAIN}.{path}", value)


@pytest.mark.row("U14", level="pure")
def test_what_says_nothing_of_a_place_is_a_problem_of_the_whole() -> None:
    assert of("the server is in a bad mood\nand says so", template()) == (
        Problem("template", "the server is in a bad mood and says so"),
    )
