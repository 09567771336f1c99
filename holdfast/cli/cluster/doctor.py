"""`holdfast doctor`: check that everything that workloads need is there, and say what to do if not."""

from __future__ import annotations

import asyncio
import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.common import kubectl
from holdfast.cli.common.options import (
    EXIT_REFUSED,
    EXIT_UNREACHABLE,
    HERE,
    Context,
    Format,
    Kubeconfig,
    Output,
    Place,
    grouped,
)
from holdfast.cli.common.output import emit

if TYPE_CHECKING:
    from holdfast.cli.cluster.checks import Check


def doctor(
    fix: Annotated[bool, typer.Option("--fix", help="Add the search attributes that Temporal lacks.")] = False,
    place: Place = HERE,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: Format = Output.TABLE,
) -> None:
    """Check connections, versions, RBAC, CRDs, search attributes, workers and trust; say what to do about each."""
    from holdfast.cli.cluster import checks, trust
    from holdfast.cli.cluster.about import versions

    kubectl.connect(place.cluster, place.address)
    named = place.cluster or os.environ.get("HOLDFAST_CLUSTER") or None

    async def go() -> list[Check]:
        found = [checks.Check("versions", True, ", ".join(f"{key} {value}" for key, value in versions().items()))]
        uids = checks.Uids()
        found += [
            check async for check in checks.temporal(place.address, place.temporal_namespace, named, fix=fix, uids=uids)
        ]
        config = kubeconfig or os.environ.get("KUBECONFIG")
        found += [check async for check in checks.kubernetes(config, context, uids)]
        found += [checks.binding(named, uids.bound, uids.here)] if named else []
        found += [check async for check in checks.store(named)]
        found += [check async for check in checks.evidence(named)]
        found += trust.local(place.address)
        return found

    found = asyncio.run(go())
    emit([asdict(check) for check in found], output, lambda: text(found))
    if any(check.unreachable for check in found):
        raise typer.Exit(EXIT_UNREACHABLE)
    if not all(check.good or check.unknown for check in found):
        raise typer.Exit(EXIT_REFUSED)


def text(found: list[Check]) -> str:
    """Return the checks as text for people."""
    lines: list[str] = []
    for check in found:
        word = "warning" if check.warns else "ok" if check.good else "unknown" if check.unknown else "NOT OK"
        lines.append(f"{word:<8}{check.name:<20} {check.found}")
        if check.remedy and (check.warns or not check.good):
            first, *others = check.remedy.splitlines()
            lines += [f"{'':<29}try: {first}", *(f"{'':<29}{other}" for other in others)]
    return "\n".join(lines)


def add_to(app: typer.Typer, panel: str) -> None:
    """Add this file's command."""
    app.command(rich_help_panel=panel)(grouped(doctor))
