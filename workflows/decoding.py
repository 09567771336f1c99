"""Drops and logs signals that a workflow cannot decode: such a signal must not stop the workflow for good.

Temporal's SDK converts a signal's arguments to the handler's types only if their number is right, and never a null. It
passes on anything else as it is. A signal with an argument missing, or with an object in place of a text, is easily
sent by hand; it would fail the workflow task, and Temporal would retry that task for ever. An update with a validator
needs no such guard: the SDK refuses an update that it cannot decode.
"""

from __future__ import annotations

import inspect
from functools import lru_cache, partial
from typing import Any, Final, get_type_hints

from temporalio import workflow
from temporalio.worker import (
    HandleSignalInput,
    Interceptor,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
)

with workflow.unsafe.imports_passed_through():
    from pydantic import TypeAdapter, ValidationError

UNFIT: Final = "unfit"
"""Name of the workflow method that is called for a dropped signal, with the signal's name and the reason."""


class Unfit(Exception):
    """The arguments do not fit a handler."""


def fitted(handler: Any, given: list[Any]) -> list[Any]:
    """Return the given arguments, converted to a handler's types.

    Raises:
        Unfit: if there are too many or too few, or one has another type.
    """
    parameters, adapters = _taken(handler.func if isinstance(handler, partial) else handler)
    least = sum(one.default is inspect.Parameter.empty for one in parameters)
    if not least <= len(given) <= len(parameters):
        words = ", ".join(one.name for one in parameters) or "nothing"
        raise Unfit(f"{len(given)} values were given: expected {words}")
    found = list[Any]()
    for parameter, adapter, value in zip(parameters, adapters, given, strict=False):
        try:
            found.append(adapter.validate_python(value))
        except ValidationError as error:
            raise Unfit(f"{parameter.name}: {error.errors()[0]['msg']}") from None
    return found


@lru_cache(maxsize=256)
def _taken(function: Any) -> tuple[list[inspect.Parameter], list[TypeAdapter[Any]]]:
    parameters = [one for one in inspect.signature(function).parameters.values() if one.name != "self"]
    hints = get_type_hints(function)
    return parameters, [TypeAdapter(hints.get(one.name, Any)) for one in parameters]


class _Inbound(WorkflowInboundInterceptor):
    async def handle_signal(self, input: HandleSignalInput) -> None:
        handler: Any = workflow.get_signal_handler(input.signal)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        if handler is not None:
            try:
                input.args = fitted(handler, list(input.args))
            except Unfit as error:
                workflow.logger.warning("signal %s was dropped: %s", input.signal, error)
                of = handler.args[0] if isinstance(handler, partial) and handler.args else None
                unfit = getattr(of, UNFIT, None)
                if unfit is not None:
                    unfit(input.signal, str(error))
                return
        await super().handle_signal(input)


class Fitting(Interceptor):
    """Makes all workflows of a worker drop signals that they cannot decode."""

    def workflow_interceptor_class(self, input: WorkflowInterceptorClassInput) -> type[WorkflowInboundInterceptor]:
        """Return the interceptor that runs before each workflow's handlers."""
        return _Inbound
