"""From the API server's words to the fields that its author wrote. The words are those of a Kubernetes 1.36."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, cast

import pytest

from holdfast.activities.kube.client import Cause, Forbidden, Invalid, Kube, KubeError, Object
from holdfast.activities.objects.make import Refusal, _make_once
from holdfast.activities.objects.verdict import problems_with
from holdfast.activities.site.site import Site
from holdfast.errors import Problem
from holdfast.model import Limits, Phase, Reason, Report
from holdfast.model.calls.cluster import MakeInput, Target

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


def secret(**fields: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "login"}, "type": "Opaque", **fields}


PASSWORD = 'hunter2: "x"'


@pytest.mark.row("X6", level="pure")
@pytest.mark.parametrize(
    ("document", "message", "causes", "problem"),
    [
        (
            secret(stringData={"user": "me", "password": 48151623}),
            "json: cannot unmarshal number into Go struct field Secret.stringData of type string",
            (),
            Problem("template.stringData.password", "expected text: write it in quotes"),
        ),
        (
            secret(stringData={"password": PASSWORD}),
            "",
            (Cause("stringData[password]", "Invalid value: " + json.dumps(PASSWORD) + ": expected 16 characters"),),
            Problem("template.stringData[password]", "expected 16 characters"),
        ),
        (
            secret(stringData={"pin": "7"}),
            "",
            (Cause("stringData[pin]", 'Invalid value: "7": expected 4 digits'),),
            Problem("template.stringData[pin]", "expected 4 digits"),
        ),
        (
            secret(stringData={"password": PASSWORD}),
            "",
            (Cause("stringData[password]", f"Invalid value: {PASSWORD}"),),
            Problem("template.stringData[password]", "is not valid"),
        ),
        (
            secret(data={"password": "aHVudGVyMg=="}),
            'admission webhook "weak" denied the request: aHVudGVyMg== is a weak password',
            (),
            Problem("template", 'admission webhook "weak" denied the request: (hidden) is a weak password'),
        ),
        (
            secret(data={"password": "x" * 1000}),
            f"denied: {'x' * 1000} is too weak",
            (),
            Problem("template", "denied: (hidden) is too weak"),
        ),
        (
            secret(immutable="yes, please"),
            "json: cannot unmarshal string into Go struct field Secret.immutable of type bool",
            (),
            Problem("template.immutable", "expected true or false"),
        ),
    ],
)
def test_X6_nothing_that_a_secret_holds_is_quoted(
    document: dict[str, Any], message: str, causes: tuple[Cause, ...], problem: Problem
) -> None:
    assert of(message, document, *causes) == (problem,)


@pytest.mark.row("X6", level="pure")
@pytest.mark.parametrize(
    ("field", "value"), [("metadata.name", "Log_in"), ("type", "Odd"), ("metadata.labels[example.com/n]", "a b")]
)
def test_X6_a_secrets_name_labels_and_type_are_no_secret(field: str, value: str) -> None:
    (problem,) = of("", secret(data={"a": "b"}), Cause(field, f"Invalid value: {json.dumps(value)}: is odd"))
    assert problem == Problem(f"template.{field}", "is odd", value)


@dataclass
class Refusing:
    """An API server that creates nothing."""

    error: KubeError

    async def create(self, thing: Object, **_: Any) -> Object:
        raise self.error


@pytest.mark.row("X6", level="pure")
@pytest.mark.parametrize("kind", [Forbidden, Invalid])
async def test_X6_admission_that_quotes_a_secret_as_it_is_created_is_told_without_it(kind: type[KubeError]) -> None:
    error = kind(400, "", 'admission webhook "weak" denied the request: hunter22 is a weak password')
    target = Target(
        cluster="c",
        cluster_uid="k",
        namespace="ns",
        name="w",
        workload_uid="w",
        workflow_id="workload/c/ns/w",
        shard=0,
        run_as="runner",
    )
    site = Site(cast("Kube", Refusing(error)), "c", "k", "us", Limits())
    report = Report(sequence=1, phase=Phase.RUNNING, reason=Reason.SUBMITTED)
    given = MakeInput(target=target, attempt=1, owner_uid="o", components=(), patience=None, report=report)
    with pytest.raises(Refusal) as raised:
        await _make_once(site, given, secret(stringData={"password": "hunter22"}), adopts=False)
    assert raised.value.message == 'admission webhook "weak" denied the request: (hidden) is a weak password'
