"""Completion at the prompt of a shell: quick, and silent if Temporal does not answer (row E6)."""

from __future__ import annotations

import asyncio
import importlib
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import typer

from holdfast.cli.common import kubectl

if TYPE_CHECKING:
    from holdfast.client import Holdfast

T = TypeVar("T")

_PATIENCE_FOR_KUBECTL: Final = 1.5
"""Seconds that a prompt of kubectl's plugin waits for kubectl, which is a process of its own."""
PATIENCE: Final = 0.4
"""Seconds that Temporal may take, its connection included."""
LOOKED_AT: Final = 500
"""The number of workloads, in the order of Temporal, whose names and namespaces are offered."""


def workloads(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete NAME or NAMESPACE/NAME; outside the chosen namespace, a name comes with its namespace."""
    here = ctx.params.get("namespace")

    async def ask(holdfast: Holdfast) -> list[str]:
        current = here or kubectl.namespace() or "default"
        found = holdfast.list(cluster=_cluster(ctx), limit=LOOKED_AT)
        return [one.name if one.namespace == current else f"{one.namespace}/{one.name}" async for one in found]

    return _asked(ctx, ask, incomplete)


def namespaces(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete the Kubernetes namespace of a workload."""

    async def ask(holdfast: Holdfast) -> list[str]:
        return [one.namespace async for one in holdfast.list(cluster=_cluster(ctx), limit=LOOKED_AT)]

    return _asked(ctx, ask, incomplete)


def queues(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete the name of an admission queue."""
    importlib.import_module("holdfast.client.entities.queue")  # It takes time, and patience is for Temporal.

    async def ask(holdfast: Holdfast) -> list[str]:
        return [one.name for one in await holdfast.queues()]

    return _asked(ctx, ask, incomplete)


def phases(incomplete: str) -> list[str]:
    """Complete a phase."""
    from holdfast.model import Phase

    return [phase for phase in (*Phase, "Starting") if phase.startswith(incomplete)]


def settings(incomplete: str) -> list[str]:
    """Complete the KEY of KEY=VALUE."""
    from holdfast.formats import NAMES

    return [f"{name}=" for name in NAMES if name.startswith(incomplete)]


def _cluster(ctx: typer.Context) -> str | None:
    return ctx.params.get("cluster") or os.environ.get("HOLDFAST_CLUSTER") or None


def _asked(ctx: typer.Context, ask: Callable[[Holdfast], Awaitable[list[str]]], incomplete: str) -> list[str]:
    """Return what Temporal knows that begins so; nothing if it is slow, away, or refuses: a prompt shows no errors."""
    from holdfast.client import Holdfast

    given: dict[str, Any] = ctx.params

    async def go() -> list[str]:
        async with asyncio.timeout(PATIENCE):
            async with Holdfast.connect(given.get("address"), given.get("temporal_namespace"), _cluster(ctx)) as one:
                return await ask(one)

    try:
        kubectl.connect(given.get("cluster"), given.get("address"), _PATIENCE_FOR_KUBECTL)
        found = asyncio.run(go())
    except Exception:
        return []
    return sorted({one for one in found if one.startswith(incomplete)})
