"""The Temporal plugin: what a client, a worker or a Replayer needs to handle workloads, and nothing more.

Client plugins propagate to every worker made from that client, so by default (`roles=()`) it only sets the data
converter. A worker that runs workloads names the role "workflows".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Final, Literal, get_args

from temporalio.contrib.pydantic import PydanticPayloadConverter
from temporalio.converter import DataConverter, DefaultPayloadConverter
from temporalio.plugin import SimplePlugin
from temporalio.worker import Interceptor, WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from holdfast.errors import HoldfastError

Role = Literal["workflows"]

PASSTHROUGH: Final = ("holdfast.model", "holdfast.policy", "holdfast.names")
"""Pure packages that the sandbox takes from the host: loading them once halves the memory of a cached workflow."""


class HoldfastPlugin(SimplePlugin):
    """Makes a Temporal client, worker or Replayer able to handle workloads.

    Example:
        ```python
        # A program that starts, signals and queries workloads, and the program's own workers.
        client = await Client.connect("localhost:7233", plugins=[HoldfastPlugin()])

        # A worker that runs workloads: it inherits the plugin of its client.
        client = await Client.connect("localhost:7233", plugins=[HoldfastPlugin(["workflows"])])
        worker = Worker(client, task_queue="holdfast")

        # Recorded histories.
        replayer = Replayer(workflows=[], plugins=[HoldfastPlugin(["workflows"])])
        ```

    If both a client and its worker get the plugin, each setting is still applied only once (the SDK warns).
    """

    def __init__(self, roles: Iterable[Role] = ()) -> None:
        """Create the plugin.

        Args:
            roles: The roles of a worker: "workflows" adds the workload workflows, and passes their modules to the
                sandbox. Without a role a worker gets only the data converter. Activities that access a cluster need
                that cluster's permissions and settings: `holdfast worker` runs them.

        Raises:
            HoldfastError: if a role is unknown.
        """
        chosen = (roles,) if isinstance(roles, str) else tuple(roles)
        known = get_args(Role)
        for role in chosen:
            if role not in known:
                raise HoldfastError(f"roles: {role!r}: expected some of {', '.join(known)}")
        runs_workflows = "workflows" in chosen
        super().__init__(  # pyright: ignore[reportUnknownMemberType] its activities are partly typed
            "holdfast.HoldfastPlugin",
            data_converter=with_pydantic,
            workflows=_with_workflows if runs_workflows else None,
            workflow_runner=with_passthrough if runs_workflows else None,
            interceptors=_fitting() if runs_workflows else None,
        )


def with_pydantic(converter: DataConverter | None) -> DataConverter:
    """Return the converter with pydantic's payload converter; keep its codec and failure converter.

    Raises:
        HoldfastError: if the user's own payload converter would be lost.
    """
    if converter is None:
        return DataConverter(payload_converter_class=PydanticPayloadConverter)
    own = converter.payload_converter_class
    if own is DefaultPayloadConverter:
        return dataclasses.replace(converter, payload_converter_class=PydanticPayloadConverter)
    if issubclass(own, PydanticPayloadConverter):
        return converter
    raise HoldfastError(
        f"data_converter.payload_converter_class: {own.__name__} cannot be kept: expected the default, or a subclass "
        "of temporalio.contrib.pydantic.PydanticPayloadConverter"
    )


def with_passthrough(runner: WorkflowRunner | None) -> WorkflowRunner:
    """Return the runner with the rule of `FailingOnce`; its sandbox takes Holdfast's pure modules from the host."""
    from holdfast.runner import with_failing_once  # A client does not need it.

    ruled = with_failing_once(runner or SandboxedWorkflowRunner())
    if not isinstance(ruled, SandboxedWorkflowRunner):
        return ruled
    return dataclasses.replace(ruled, restrictions=ruled.restrictions.with_passthrough_modules(*PASSTHROUGH))


def _fitting() -> list[Interceptor]:
    from holdfast.workflows.decoding import Fitting  # A client does not need it.

    return [Fitting()]


def _with_workflows(existing: Sequence[type] | None) -> Sequence[type]:
    from holdfast.workflows.versioning import DECLARED  # A client needs none of them.

    present = list(existing or [])
    return present + [workflow for workflow in DECLARED if workflow not in present]
