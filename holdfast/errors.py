"""All errors that Holdfast raises, in one hierarchy; each says what was expected, what was found, and what to do."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, cast, get_args

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError
    from pydantic_core import ErrorDetails

    from holdfast.model import Phase, Status


class NotGiven(Enum):
    """Marks a value that was not given, since None may be one; it keeps its identity between processes."""

    NOT_GIVEN = "not given"


NOT_GIVEN: Final[Any] = NotGiven.NOT_GIVEN

_VALUE_LENGTH = 80
_EXPECTED: Final = {
    "bool_type": "expected true or false",
    "bool_parsing": "expected true or false",
    "dict_type": "expected an object",
    "int_type": "expected a whole number",
    "int_parsing": "expected a whole number",
    "list_type": "expected a list",
    "model_type": "expected an object",
    "model_attributes_type": "expected an object",
    "string_type": "expected text",
    "tuple_type": "expected a list",
}
_PLAIN_KEY = re.compile(r"^[A-Za-z_][A-Za-z0-9_-]*$")
_LEADING_PATH = re.compile(r"^((?:[a-z][A-Za-z0-9_]*)(?:\.[A-Za-z0-9_-]+|\[[^\]]*\])*): (.+)$", re.DOTALL)


class HoldfastError(Exception):
    """Root of all errors that Holdfast raises."""


class Undecodable(HoldfastError):
    """A payload cannot be decoded with the keys of this process. Nothing is known of it, and nothing is decided."""


class DocumentWarning(UserWarning):
    """A part of a document that has no effect here, and is accepted anyway (row D29)."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem with a submitted document.

    Attributes:
        path: The field, as its author would write it: `spec.components[0].podSets[1].path`.
        message: What was expected.
        value: What was found; left out if the field is missing.
        allowed: The allowed values, if they can be listed.
    """

    path: str
    message: str
    value: Any = NOT_GIVEN
    allowed: tuple[str, ...] = ()

    def __str__(self) -> str:
        text = f"{self.path}: {self.message}" if self.path else self.message
        if self.allowed:
            text += f"; allowed: {', '.join(self.allowed)}"
        if self.value is not NOT_GIVEN:
            text += f" (found {describe(self.value)})"
        return text


def describe(value: Any) -> str:
    """Return a short text for a value in a message: of a mapping or list only its size, since it may hold anything."""
    if isinstance(value, dict):
        return f"an object with {len(value)} fields"  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(value, list | tuple | set | frozenset):
        return f"a list of {len(value)}"  # pyright: ignore[reportUnknownArgumentType]
    text = json.dumps(value) if value is None or isinstance(value, bool) else repr(value)
    return text if len(text) <= _VALUE_LENGTH else text[: _VALUE_LENGTH - 1] + "…"


class InvalidWorkload(HoldfastError):
    """The submitted document cannot be run as it is; `problems` says where and why, one line each."""

    def __init__(self, problems: Iterable[Problem], source: str = "") -> None:
        """Create the error.

        Args:
            problems: What is wrong, at least one.
            source: The document that was read: `AppWrapper train (line 12)`.
        """
        self.problems: tuple[Problem, ...] = tuple(problems)
        self.source = source
        super().__init__(source, self.problems)

    def __str__(self) -> str:
        count = len(self.problems)
        head = f"{self.source or 'the workload'} cannot be accepted: {count} problem{'' if count == 1 else 's'}"
        return "\n".join([head, *(f"  {problem}" for problem in self.problems)])


class ManagedElsewhere(HoldfastError):
    """The document names another controller in `managedBy`: that controller manages it, and Holdfast ignores it."""

    def __init__(self, name: str, manager: str) -> None:
        self.name = name
        self.manager = manager
        super().__init__(name, manager)

    def __str__(self) -> str:
        return (
            f"{self.name} is ignored: spec.managedBy says it is managed by {self.manager}; "
            f"to run it with Holdfast, take that field out"
        )


class SpecConflict(HoldfastError):
    """A workload of this name is already running with another specification."""

    def __init__(self, workflow_id: str, running: str = "", submitted: str = "") -> None:
        """Create the error; `running` and `submitted` are the two spec hashes."""
        self.workflow_id = workflow_id
        self.running = running
        self.submitted = submitted
        super().__init__(workflow_id, running, submitted)

    def __str__(self) -> str:
        hashes = f" (running {self.running}, submitted {self.submitted})" if self.running and self.submitted else ""
        return (
            f"{self.workflow_id} runs already with another specification{hashes}: "
            f"cancel it first, or submit this one under another name"
        )


class NotReachable(HoldfastError):
    """A server did not answer."""

    def __init__(self, what: str, address: str, remedy: str, detail: str = "", passing: bool = False) -> None:
        """Create the error.

        Args:
            what: Which server: `Temporal`, `Kubernetes`.
            address: The address that was tried.
            remedy: What to try.
            detail: The transport's error message.
            passing: Whether it may answer again by itself, so that a waiting caller can keep waiting.
        """
        self.what = what
        self.address = address
        self.remedy = remedy
        self.detail = detail
        self.passing = passing
        super().__init__(what, address, remedy, detail, passing)

    def __str__(self) -> str:
        detail = f" ({self.detail})" if self.detail else ""
        return f"cannot reach {self.what} at {self.address}{detail}: {self.remedy}"


class NotAnswering(HoldfastError):
    """No worker answers for a workflow; messages sent to the workflow are not lost."""


class WorkloadNotFound(HoldfastError):
    """No workload of this id is known, neither running nor ended."""

    def __init__(self, workflow_id: str, remedy: str = "see `holdfast list` for those there are") -> None:
        self.workflow_id = workflow_id
        self.remedy = remedy
        super().__init__(workflow_id, remedy)

    def __str__(self) -> str:
        return f"no workload {self.workflow_id} is known: {self.remedy}"


class AlreadyEnded(HoldfastError):
    """The workload has ended, so that it accepts no more requests."""

    def __init__(self, workflow_id: str, outcome: str = "", remedy: str = "") -> None:
        """Create the error; `outcome` is the phase it ended in, `remedy` what runs it anew if that is special."""
        self.workflow_id = workflow_id
        self.outcome = outcome
        self.remedy = remedy
        super().__init__(workflow_id, outcome, remedy)

    def __str__(self) -> str:
        how = f": {self.outcome}" if self.outcome else ""
        remedy = self.remedy or "submit it with --again (again=True) or retry it"
        return f"{self.workflow_id} has ended{how}; to run it anew, {remedy}"


class WorkloadFailed(HoldfastError):
    """The workload ended as Failed; `status` is its final status."""

    def __init__(self, status: Status) -> None:
        self.status = status
        super().__init__(status)

    def __str__(self) -> str:
        status = self.status
        why = status.message or (status.failure.sentence() if status.failure is not None else "")
        text = f"{status.name} failed: {status.reason.value}"
        if why:
            text += f": {why}"
        return f"{text} (attempt {status.attempt}, restarts {status.restarts})"


class EndedFirst(HoldfastError):
    """The workload ended before it reached what somebody waited for; `phase` is the phase it ended in."""

    def __init__(self, where: str, phase: Phase, message: str = "") -> None:
        self.where = where
        self.phase = phase
        self.message = message
        super().__init__(where, phase, message)

    @property
    def failed(self) -> bool:
        """Whether it ended as Failed."""
        return self.phase.value == "Failed"

    def __str__(self) -> str:
        return f"{self.where} ended {self.phase.value} before that was reached: {self.message}"


def field_path(loc: Sequence[str | int], prefix: str = "") -> str:
    """Return a location as a user would write it: `components[0].template`, `annotations[example.com/key]`."""
    path = prefix
    for part in loc:
        if isinstance(part, int) or not _PLAIN_KEY.match(part):
            path += f"[{part}]"
        else:
            path += f".{part}" if path else part
    return path


def one_line(error: ValidationError, model: type[BaseModel] | None = None) -> str:
    """Return a validation error of pydantic as one line: each field, what is expected there, and what was found."""
    return "; ".join(map(str, problems_of(error, model)))


def problems_of(error: ValidationError, model: type[BaseModel] | None = None, prefix: str = "") -> tuple[Problem, ...]:
    """Convert a validation error of pydantic into problems.

    Args:
        error: The error that pydantic raised.
        model: The model that was validated against; with it, the problem of an unknown field lists the known ones.
        prefix: The path of the validated value in the document.
    """
    found: dict[str, Problem] = {}
    for index, details in enumerate(error.errors(include_url=False)):
        problem = _problem(details, model, prefix)
        # Each member of a union reports its own error for the same field. The last and widest one counts.
        found[problem.path or str(index)] = problem
    return tuple(found.values())


def truths(given: Any, read: Any, prefix: str = "") -> Iterator[Problem]:
    """Yield a problem for each `true` or `false` that a model has read as a number, which the API server never does.

    The models themselves accept it: a workload that is under way must stay readable.

    Args:
        given: The document, as its author wrote it.
        read: What was read from it: a model, or a value of one.
        prefix: The path of the document.
    """
    if isinstance(given, bool):
        if isinstance(read, int | float) and not isinstance(read, bool):
            yield Problem(prefix, _EXPECTED["int_type"], given)
    elif isinstance(given, list) and isinstance(read, list | tuple):
        pairs = zip(cast("list[Any]", given), cast("Sequence[Any]", read), strict=False)
        for index, (one, value) in enumerate(pairs):
            yield from truths(one, value, field_path((index,), prefix))
    elif isinstance(given, dict):
        written = cast("dict[str, Any]", given)
        for key, value in _values(read):
            if key in written:
                yield from truths(written[key], value, field_path((key,), prefix))


def _values(read: Any) -> Iterator[tuple[str, Any]]:
    """Yield the values of a model by the names of its fields, each by its alias too, or those of a mapping."""
    from pydantic import BaseModel

    if isinstance(read, BaseModel):
        for name, field in type(read).model_fields.items():
            for key in dict.fromkeys((field.alias or name, name)):
                yield key, getattr(read, name)
    elif isinstance(read, Mapping):
        yield from cast("Mapping[str, Any]", read).items()


def _problem(details: ErrorDetails, model: type[BaseModel] | None, prefix: str) -> Problem:
    loc, kind, context = _written(details["loc"], model), details["type"], details.get("ctx", {})
    value = details["input"]
    if kind == "value_error":
        message = str(context.get("error", details["msg"]))
        inner = _LEADING_PATH.match(message)
        if inner:
            here = field_path(loc, prefix)
            return Problem(f"{here}.{inner[1]}" if here else inner[1], inner[2])
        return Problem(field_path(loc, prefix), message)
    if kind == "missing":
        return Problem(field_path(loc, prefix), "is required")
    if kind in {"enum", "literal_error"}:
        expected = str(context.get("expected", ""))
        allowed = tuple(re.findall(r"'([^']*)'", expected)) or tuple(re.split(r", | or ", expected))
        return Problem(field_path(loc, prefix), "is not one of the allowed values", value, allowed)
    if kind == "extra_forbidden":
        known = _fields_at(model, loc[:-1])
        near = difflib.get_close_matches(str(loc[-1]), known, n=1)
        message = f"is not a field here; did you mean {near[0]}?" if near else "is not a field here"
        return Problem(field_path(loc, prefix), message, allowed=tuple(known))
    message = _EXPECTED.get(kind) or details["msg"].replace("Input should be", "expected")
    if kind == "string_type" and isinstance(value, bool | int | float):
        message += ": write it in quotes"
    return Problem(field_path(loc, prefix), message, value)


def _fields_at(model: type[BaseModel] | None, loc: Sequence[str | int]) -> list[str]:
    """Return the field names of the model at a location."""
    for part in loc:
        if model is not None and isinstance(part, str):
            model = _fields(model).get(part, (part, None))[1]
    return list(dict.fromkeys(alias for alias, _ in _fields(model).values())) if model is not None else []


def _written(loc: tuple[str | int, ...], model: type[BaseModel] | None) -> tuple[str | int, ...]:
    """Return a location as its author wrote it: fields by their aliases, without the names of union members."""
    if model is None:
        return loc
    written: list[str | int] = []
    for part in loc:
        if isinstance(part, str):
            fields = _fields(model) if model is not None else {}
            if part not in fields and written and isinstance(written[-1], int) and model is None:
                break
            part, model = fields.get(part, (part, None))
        written.append(part)
    return tuple(written)


def _fields(model: type[BaseModel]) -> dict[str, tuple[str, type[BaseModel] | None]]:
    """Return a model's fields by name and by alias: the alias of each, and the model inside it if there is one."""
    found: dict[str, tuple[str, type[BaseModel] | None]] = {}
    for name, field in model.model_fields.items():
        entry = (field.alias or name, _model_in(field.annotation))
        found[entry[0]] = entry
        found[name] = entry
    return found


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """Return the model inside an annotation such as `tuple[Rule, ...] | None`."""
    from pydantic import BaseModel

    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := _model_in(part)) is not None), None)
