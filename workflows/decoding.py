"""What is said to a workflow in a form that it cannot take is let fall with a word: it must stop nobody for good.

Temporal's SDK fits what a signal brings to its handler's types only where their number is right, and nothing that is
null. Whatever else came is handed on: a signal without what it needs, or with an object where a text is wanted, as is
soon sent by hand, fails the workflow's task, and that task is tried again for ever. An update needs no such guard where
it has a validator: what that cannot take is refused.
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
"""The method of a workflow that is told what was let fall: the signal's name, and why."""


class Unfit(Exception):
    """What was given is not what a handler takes."""


def fitted(handler: Any, given: list[Any]) -> list[Any]:
    """Return what was given as a handler's types have it.

    Raises:
        Unfit: if it is too much, too little or something else.
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
                workflow.logger.warning("signal %s was let fall: %s", input.signal, error)
                of = handler.args[0] if isinstance(handler, partial) and handler.args else None
                unfit = getattr(of, UNFIT, None)
                if unfit is not None:
                    unfit(input.signal, str(error))
                return
        await super().handle_signal(input)


class Fitting(Interceptor):
    """Lets each of a worker's workflows take only what fits."""

    def workflow_interceptor_class(self, input: WorkflowInterceptorClassInput) -> type[WorkflowInboundInterceptor]:
        """Return what stands before each workflow."""
        return _Inbound
