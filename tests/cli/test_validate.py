"""What `validate --server` makes of the API server's answers: refusals with the document's own paths (row D38)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from holdfast import names
from holdfast.activities.kube.errors import KubeError, NotFound, UnknownKind, error_of
from holdfast.cli.workloads.validate import answer_of
from holdfast.formats import read

EXAMPLES = Path(__file__).parents[2] / "examples"
STRICT = (
    'Job in version "v1" cannot be handled as a Job: strict decoding error: unknown field "spec.paralelism", '
    'unknown field "spec.template.spec.containers[0].imag"'
)
Says = Callable[[Mapping[str, Any]], KubeError | None]


class Server:
    """What of a client of the API server is asked here; it answers as recorded from a real one."""

    def __init__(self, says: Says, *, enabled: bool = True, there: bool = True) -> None:
        self._says, self._enabled, self._there = says, enabled, there
        self.asked: list[Mapping[str, Any]] = []

    async def get(self, api_version: str, kind: str, name: str, namespace: str = "") -> dict[str, Any]:
        if kind == "Namespace" and not self._there:
            raise NotFound(404, "NotFound", f'namespaces "{name}" not found')
        labels = {names.LABEL_NAMESPACE_ENABLED: "true"} if self._enabled else {}
        return {"metadata": {"labels": labels, "annotations": {names.ANNOTATION_RUN_AS: names.RUN_AS_ALLOWED}}}

    async def would_create(self, body: Mapping[str, Any], *, impersonate: str = "") -> None:
        self.asked.append(body)
        error = self._says(body)
        if error is not None:
            raise error


def answer(code: int, **status: Any) -> KubeError:
    return error_of(code, status, "POST", "/apis/batch/v1/namespaces/research/jobs")


def of_job(error: KubeError) -> Says:
    return lambda body: error if body["kind"] == "Job" else None


async def asked(server: Server, file: str = "job.yaml") -> tuple[list[str], list[str]]:
    (workload,) = read((EXAMPLES / file).read_text(), cluster="dev", namespace="research")
    found = await answer_of(server, workload)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    return found.problems, found.open


@pytest.mark.row("D38", level="pure")
async def test_D38_fields_that_the_server_does_not_know_are_refused_with_their_paths() -> None:
    problems, _ = await asked(Server(of_job(answer(400, reason="BadRequest", message=STRICT))))
    assert problems == [
        "Job sample: spec.paralelism: is no field that the API server knows",
        "Job sample: spec.template.spec.containers[0].imag: is no field that the API server knows",
    ]


@pytest.mark.row("D38", level="pure")
async def test_D38_a_value_that_is_not_allowed_is_refused_with_its_path_in_the_document() -> None:
    cause = {
        "field": "spec.template.spec.restartPolicy",
        "message": 'Unsupported value: "Odd": supported values: "OnFailure", "Never"',
        "reason": "FieldValueNotSupported",
    }
    invalid = answer(422, reason="Invalid", message="Job is invalid", details={"causes": [cause]})
    problems, _ = await asked(Server(of_job(invalid)), "appwrapper-job.yaml")
    assert len(problems) == 1
    assert problems[0].startswith("spec.components[0].template.spec.template.spec.restartPolicy: ")
    assert "'Odd'" in problems[0]
    assert "Never" in problems[0]


@pytest.mark.row("D38", level="pure")
async def test_D38_what_the_server_has_nothing_against_is_asked_in_its_namespace_and_valid() -> None:
    server = Server(lambda body: None)
    assert await asked(server) == ([], [])
    assert {each["metadata"]["namespace"] for each in server.asked} == {"research"}
    assert json.dumps(server.asked)


@pytest.mark.row("D38", level="pure")
async def test_D38_what_could_not_be_asked_is_said_and_is_no_problem() -> None:
    for error in (
        answer(403, reason="Forbidden", message='jobs.batch is forbidden: User "me" cannot create resource "jobs"'),
        answer(403, reason="Forbidden", message="jobs.batch is forbidden: exceeded quota: team"),
        answer(500, reason="InternalError", message="failed calling webhook"),
    ):
        problems, unasked = await asked(Server(of_job(error)))
        assert problems == []
        assert "not checked: " in unasked[0], error


@pytest.mark.row("D37", level="pure")
async def test_D37_a_closed_namespace_is_a_problem_with_the_command_that_opens_it() -> None:
    server = Server(lambda body: None, there=False)
    problems, _ = await asked(server)
    assert problems == ["namespace research does not exist: `holdfast namespace enable research` makes and enables it"]
    assert {each["metadata"]["namespace"] for each in server.asked} == {"default"}, (
        "the fields are checked all the same"
    )
    problems, _ = await asked(Server(lambda body: None, enabled=False))
    assert problems == ["namespace research is not enabled for Holdfast: run `holdfast namespace enable research`"]


@pytest.mark.row("D38", level="pure")
async def test_D38_a_kind_that_is_not_served_is_named() -> None:
    problems, _ = await asked(Server(of_job(UnknownKind(404, "NotFound", "no Job"))))
    assert "the cluster does not serve Job of batch/v1" in problems[0]
