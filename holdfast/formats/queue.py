"""Admission queues in their own documents: `kind: Queue`, as an operator writes them (row L9)."""

from __future__ import annotations

from typing import Any, Final

from pydantic import ValidationError

from holdfast import names
from holdfast.errors import InvalidWorkload, Problem, problems_of
from holdfast.formats.text import Document, Json, as_json, documents, inside, is_queue
from holdfast.model.entities.queue import Queue

_FIELDS: Final = ("apiVersion", "kind", "metadata", "spec")
_SPEC_FIELDS: Final = ("quota", "strategy", "stopPolicy")


def read_queues(text: str, *, cluster: str) -> tuple[Queue, ...]:
    """Read admission queues: all of them are valid, or nothing is accepted.

    Args:
        text: One document of kind Queue, or several; YAML or JSON.
        cluster: The cluster whose workloads they admit.

    Raises:
        InvalidWorkload: with the problems found, each with its path and what is allowed there.
    """
    found = documents(text)
    if not found:
        raise InvalidWorkload([Problem("", f"expected a document of kind {names.QUEUE_KIND}, found none")], "the text")
    queues = tuple(_queue(Document(as_json(one.content), one.line), cluster) for one in found)
    taken = set[str]()
    for one in queues:
        if one.name in taken:
            raise InvalidWorkload([Problem("metadata.name", "stands in two documents", one.name)], "the text")
        taken.add(one.name)
    return queues


def _queue(document: Document, cluster: str) -> Queue:
    content, problems = document.content, list[Problem]()
    if not is_queue(content):
        allowed = (f"{names.API_VERSION} {names.QUEUE_KIND}",)
        found = f"{content.get('apiVersion')} {content.get('kind')}"
        raise InvalidWorkload([Problem("kind", "is no admission queue", found, allowed)], str(document))
    problems += [Problem(key, "is not a field here", allowed=_FIELDS) for key in content if key not in _FIELDS]
    if content.get("apiVersion") != names.API_VERSION:
        problems.append(Problem("apiVersion", "is not accepted", content.get("apiVersion"), (names.API_VERSION,)))
    given: Any = content.get("spec", {})
    if not isinstance(given, dict):
        raise InvalidWorkload([*problems, Problem("spec", "expected an object", given)], str(document))
    fields: Json = {}
    for key, value in given.items():  # pyright: ignore[reportUnknownVariableType] JSON
        if key in _SPEC_FIELDS:
            fields[key] = value
        else:
            problems.append(Problem(f"spec.{key}", "is not a field here", allowed=_SPEC_FIELDS))
    name: Any = inside(content, "metadata", "name")
    if name is None:
        problems.append(Problem("metadata.name", "expected the queue's name"))
    try:
        queue = Queue.model_validate({**fields, "name": name if name is not None else "x", "cluster": cluster})
    except ValidationError as error:
        problems += [_placed(one) for one in problems_of(error, Queue, "")]
        raise InvalidWorkload(problems, str(document)) from None
    if problems:
        raise InvalidWorkload(problems, str(document))
    return queue


def _placed(problem: Problem) -> Problem:
    """Return a problem under the document's path: the name is in the metadata, the rest in the spec."""
    path = problem.path.lstrip(".")
    where = "metadata.name" if path == "name" else path if path == "cluster" else f"spec.{path}"
    return Problem(where, problem.message, problem.value, problem.allowed)
