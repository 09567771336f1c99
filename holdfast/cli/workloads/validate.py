"""Check files: their structure without a server, and on request with a dry run of the API server (row D38)."""

from __future__ import annotations

import asyncio
import copy
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from holdfast.cli.common.options import Cluster, Context, Format, Kubeconfig, Namespace, Output
from holdfast.cli.common.output import emit
from holdfast.cli.submission.files import Files, Set, overrides, read_all
from holdfast.cli.workloads.submit import As, WithSettings, lines
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.activities.kube.client import Kube
    from holdfast.errors import Problem
    from holdfast.model import Component, Workload

UNCHECKED: Final = (
    "not checked: fields that only Kubernetes knows (misspelt names, values that are not allowed), namespaces, quotas, "
    "webhooks, images; `holdfast validate --server` asks the API server in a dry run"
)
"""What a check of the structure does not cover."""
UNCHECKED_BY_SERVER: Final = "not checked: quotas at the time it begins, images, and whether its pods fit on the nodes"


@dataclass(frozen=True)
class Answer:
    """The API server's verdict on one workload."""

    problems: list[str] = field(default_factory=list[str])
    open: list[str] = field(default_factory=list[str])
    """What the server did not check, and why."""


def validate(
    files: Files,
    server: Annotated[
        bool, typer.Option("--server", help="Ask the API server too, in a dry run with strict fields.")
    ] = False,
    settings: Set = None,
    name: As = None,
    namespace: Namespace = None,
    cluster: Cluster = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: Format = Output.TABLE,
) -> None:
    """Check files. Every problem names its field, its value and what is allowed.

    Without --server, only their structure is checked, and no server is needed.
    """
    place = cluster or os.environ.get("HOLDFAST_CLUSTER") or "any"
    found: list[dict[str, Any]] = []
    texts: list[str] = []
    for file in files:
        try:
            alone, graphs = read_all([file], place, namespace, name, overrides(settings))
            workloads = [*alone, *(one for graph in graphs for one in graph.workloads)]
            answers = asyncio.run(_asked(workloads, kubeconfig, context)) if server else []
            problems = [text for answer in answers for text in answer.problems]
            if problems:
                raise HoldfastError("; ".join(problems))
        except HoldfastError as error:
            if isinstance(error, _unreachable()):
                raise
            found.append({"file": file, "valid": False, "problem": str(error)})
            # What cannot be read at all names the file itself.
            texts.append(str(error) if str(error).startswith(f"{file} ") else f"{file}: {error}")
            continue
        open_ = list(dict.fromkeys(text for answer in answers for text in answer.open))
        unchecked = [UNCHECKED_BY_SERVER, *open_] if server else [UNCHECKED]
        found.append(
            {
                "file": file,
                "valid": True,
                "checked": "server" if server else "structure",
                "unchecked": unchecked,
                "workloads": [f"{w.namespace}/{w.name}" for w in workloads],
            }
        )
        texts.append(lines(workloads, "valid (by the API server)" if server else "valid (structure only)"))
        texts += unchecked
    emit(found, output, lambda: "\n".join(dict.fromkeys(texts)))
    if not all(each["valid"] for each in found):
        raise typer.Exit(2)


def add_to(app: typer.Typer, panel: str) -> None:
    """Add this file's command."""
    commands: tuple[Callable[..., None], ...] = (validate,)
    for command in commands:
        app.command(cls=WithSettings, rich_help_panel=panel)(command)


def _unreachable() -> type[HoldfastError]:
    from holdfast.errors import NotReachable

    return NotReachable


async def _asked(workloads: Sequence[Workload], kubeconfig: str | None, context: str | None) -> list[Answer]:
    """Ask the API server of the kubeconfig about workloads.

    Raises:
        NotReachable: if it does not answer.
    """
    from holdfast.cli.common.kubernetes import reached

    async with reached(kubeconfig, context) as kube:
        return [await answer_of(kube, one) for one in workloads]


async def answer_of(kube: Kube, workload: Workload) -> Answer:
    """Ask the API server, in a dry run with strict fields, whether it would create each component of a workload.

    The request uses the caller's own identity, and the components as their author wrote them. If their namespace does
    not exist yet, it uses `default`.

    Raises:
        KubeError: if the server cannot be reached.
    """
    from holdfast.activities.kube.errors import Forbidden
    from holdfast.activities.site.closed import closed_to

    answer = Answer()
    namespace = workload.namespace
    try:
        closed = await closed_to(kube, namespace, workload.run_as)
    except Forbidden:
        answer.open.append(f"not checked: namespace {namespace}, which this identity may not read")
        closed = None
    if closed is not None:
        answer.problems.append(closed.why)
        namespace = "default" if "does not exist" in closed.why and closed.why.startswith("namespace") else namespace
    for index, component in enumerate(workload.components):
        found, unasked = await _component(kube, component, namespace, workload.components[:index])
        answer.problems.extend(_sentence(workload, index, one) for one in found)
        if unasked:
            answer.open.append(f"not checked: {component.name}, since {unasked}")
    return answer


async def _component(
    kube: Kube, component: Component, namespace: str, before: Sequence[Component]
) -> tuple[list[Problem], str]:
    """Return the problems of one component, and why the server did not check it, if it did not."""
    from holdfast.activities.kube.errors import AlreadyExists, Forbidden, KubeError, UnknownKind, Unreachable
    from holdfast.activities.objects.rehearse import stays
    from holdfast.activities.objects.verdict import problems_with
    from holdfast.errors import Problem

    sent: dict[str, Any] = copy.deepcopy(dict(component.template))
    metadata: dict[str, Any] = {"name": component.name, **sent.get("metadata", {}), "namespace": namespace}
    sent["metadata"] = metadata
    try:
        await kube.would_create(sent)
    except AlreadyExists:
        return [], ""
    except UnknownKind:
        what = f"the cluster does not serve {sent['kind']} of {sent['apiVersion']}: install what defines it"
        return [Problem("template.kind", what, sent["kind"])], ""
    except Unreachable as error:
        if error.status != 500:
            raise
        return [], error.message
    except KubeError as error:
        if isinstance(error, Forbidden) and " cannot create " in error.message:
            return [], f"this identity may not create it: {error.message}"
        if stays(error, before, waits=False):
            return list(problems_with(error, component.template)), ""
        return [], error.message
    return [], ""


def _sentence(workload: Workload, index: int, problem: Problem) -> str:
    """Return a problem as a sentence, with the path of the field in the document."""
    from holdfast.errors import Problem
    from holdfast.formats import path_in

    path = path_in(workload, index, problem.path)
    return str(Problem(path, problem.message, problem.value, problem.allowed))
