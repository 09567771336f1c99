"""Configures log lines: JSON or console, through structlog, each with its workload, attempt and workflow."""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import Any, Literal, TextIO, cast

import structlog
from structlog.contextvars import bound_contextvars, merge_contextvars
from structlog.stdlib import ProcessorFormatter
from structlog.typing import Processor
from temporalio import activity, workflow
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from holdfast import names
from holdfast.model import words

# Noisy at level info, and of no use to an operator.
_QUIET = ("aiohttp.access", "asyncio", "kubernetes")


def configure(
    format: Literal["json", "console"] = "json",
    level: Literal["debug", "info", "warning", "error"] = "info",
    stream: TextIO | None = None,
) -> None:
    """Send every log line of this process, ours or a library's, to one stream in one format."""
    shared: list[Processor] = [
        merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(allow=("attempt", "workload")),
        _temporal,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    last: list[Processor] = [ProcessorFormatter.remove_processors_meta]
    out = stream or sys.stderr
    if format == "json":
        # Without the frames' variables: they hold documents and credentials, and take more time than all decisions.
        frames = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
        last += [structlog.processors.ExceptionRenderer(frames), structlog.processors.JSONRenderer()]
    else:
        plain = structlog.dev.plain_traceback
        last += [_on_one_line, structlog.dev.ConsoleRenderer(colors=out.isatty(), exception_formatter=plain)]
    handler = logging.StreamHandler(out)
    handler.setFormatter(ProcessorFormatter(foreign_pre_chain=shared, processors=last))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
    # The line's fields hold this info; the message need not repeat it.
    workflow.logger.workflow_info_on_message = False
    activity.logger.activity_info_on_message = False
    structlog.configure(
        processors=[*shared[:4], *shared[5:], ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )


def _on_one_line(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Keep what others say from moving the cursor, or passing for a line of its own (row X14); JSON does so itself."""
    for key, value in event.items():
        if isinstance(value, str) and key not in {"exception", "stack"}:
            event[key] = words.plain(value)
    return event


def of_workflow(workflow_id: str) -> dict[str, str]:
    """Return the fields of a line about a workflow: its id, and its workload where the id is a workload's."""
    fields = {"workflow_id": workflow_id}
    try:
        _, namespace, name = names.parse_workflow_id(workflow_id)
    except ValueError:
        return fields
    return {**fields, "workload": f"{namespace}/{name}"}


def _temporal(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    record = event.get("_record")
    for key in ("temporal_workflow", "temporal_activity"):
        details = cast("dict[str, Any] | None", getattr(record, key, None))
        if details is None:
            continue
        for field, value in of_workflow(str(details.get("workflow_id", ""))).items():
            event.setdefault(field, value)
        if key == "temporal_activity":
            event.setdefault("activity", details.get("activity_type"))
            event.setdefault("try", details.get("attempt"))
    return event


class LogContext(Interceptor):
    """Binds an activity's workload, attempt and workflow to every line logged while it runs."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        """Put the binding around each activity."""
        return _Bound(next)


class _Bound(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        info = activity.info()
        fields: dict[str, Any] = of_workflow(info.workflow_id) if info.workflow_id else {}
        attempt = getattr(input.args[0], "attempt", None) if input.args else None
        if attempt is not None:
            fields["attempt"] = attempt
        with bound_contextvars(**fields, activity=info.activity_type):
            return await super().execute_activity(input)
