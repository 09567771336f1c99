"""The Temporal plugin: what a client, a worker or a Replayer needs to handle workloads, and nothing more.

Client plugins propagate to every worker made from that client, so by default (`roles=()`) it only sets the data
converter. A worker that runs workloads names the role "workflows".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, Literal, get_args

from temporalio.client import ClientConfig
from temporalio.contrib.pydantic import PydanticPayloadConverter
from temporalio.converter import DataConverter, DefaultFailureConverter, DefaultPayloadConverter
from temporalio.plugin import SimplePlugin
from temporalio.worker import Interceptor, WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from holdfast.codec.codec import Codec
from holdfast.codec.failures import Failures
from holdfast.codec.options import encrypts, from_environment, options
from holdfast.errors import HoldfastError
from holdfast.stale import AsksAgain

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

    def __init__(self, roles: Iterable[Role] = (), codec_keys: Path | None = None) -> None:
        """Create the plugin.

        Args:
            roles: The roles of a worker: "workflows" adds the workload workflows, and passes their modules to the
                sandbox. Without a role a worker gets only the data converter. Activities that access a cluster need
                that cluster's permissions and settings: `holdfast worker` runs them.
            codec_keys: A key file: payloads are encrypted with it. None: that of HOLDFAST_CODEC_KEYS, if it is set. A
                codec of the client's own is kept, and HOLDFAST_CODEC_KEYS has no effect then.

        Raises:
            HoldfastError: if a role is unknown, or a key file cannot be used.
        """
        chosen = (roles,) if isinstance(roles, str) else tuple(roles)
        known = get_args(Role)
        for role in chosen:
            if role not in known:
                raise HoldfastError(f"roles: {role!r}: expected some of {', '.join(known)}")
        runs_workflows = "workflows" in chosen
        self._given = codec_keys
        self._options = options(codec_keys) if codec_keys is not None else from_environment()
        super().__init__(  # pyright: ignore[reportUnknownMemberType] its activities are partly typed
            "holdfast.HoldfastPlugin",
            data_converter=self._converter,
            workflows=_with_workflows if runs_workflows else None,
            workflow_runner=with_passthrough if runs_workflows else None,
            interceptors=[AsksAgain(), *(_of_workflows() if runs_workflows else ())],
        )

    def configure_client(self, config: ClientConfig) -> ClientConfig:
        """Set the data converter and, with it, that headers go through the same codec.

        Raises:
            HoldfastError: if the client's own payload converter, or its own codec, would be lost.
        """
        before = config["data_converter"]
        config = super().configure_client(config)
        if encrypts(config["data_converter"]) and not encrypts(before):
            config["header_codec_behavior"] = max(
                config["header_codec_behavior"], self._options["header_codec_behavior"]
            )
        return config

    def _converter(self, converter: DataConverter | None) -> DataConverter:
        return with_codec(with_pydantic(converter), self._options["data_converter"], must=self._given is not None)


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


def with_codec(converter: DataConverter, ours: DataConverter, *, must: bool = False) -> DataConverter:
    """Return the converter with our codec and failure converter; keep those that it has of its own.

    Args:
        converter: the client's.
        ours: has our codec.
        must: whether a codec of the client's own is an error: a key file was given in the same call.

    Raises:
        HoldfastError: in that case.
    """
    codec = converter.payload_codec
    if codec is not None and not (isinstance(codec, Codec) and codec.keys is None):
        if must:
            raise HoldfastError("codec_keys: expected without a payload codec in the client's data_converter")
        return converter
    failures = converter.failure_converter_class
    if failures in {DefaultFailureConverter, Failures}:
        failures = ours.failure_converter_class
    return dataclasses.replace(converter, payload_codec=ours.payload_codec, failure_converter_class=failures)


def with_passthrough(runner: WorkflowRunner | None) -> WorkflowRunner:
    """Return the runner with the rule of `FailingOnce`; its sandbox takes Holdfast's pure modules from the host."""
    from holdfast.runner import with_failing_once  # A client does not need it.

    ruled = with_failing_once(runner or SandboxedWorkflowRunner())
    if not isinstance(ruled, SandboxedWorkflowRunner):
        return ruled
    return dataclasses.replace(ruled, restrictions=ruled.restrictions.with_passthrough_modules(*PASSTHROUGH))


def _of_workflows() -> list[Interceptor]:
    from holdfast.workflows.decoding import Fitting  # A client needs neither.
    from holdfast.workflows.describing import Describing

    return [Fitting(), Describing()]


def _with_workflows(existing: Sequence[type] | None) -> Sequence[type]:
    from holdfast.workflows.versioning import DECLARED  # A client needs none of them.

    present = list(existing or [])
    return present + [workflow for workflow in DECLARED if workflow not in present]
