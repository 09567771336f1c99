"""`holdfast report`: a workload's life as one page (row P7)."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.cluster.archive import From, archived
from holdfast.cli.common.options import HERE, Name, Namespace, Place, chosen, grouped, with_run
from holdfast.cli.common.silence import READ
from holdfast.errors import HoldfastError


def report(
    name: Name,
    output: Annotated[str, typer.Option("--output", "-o", help="The page to write, HTML; - is standard output.")],
    namespace: Namespace = None,
    place: Place = HERE,
    archive: From = None,
) -> None:
    """Write a workload's life as one page: attempts, phases, deadlines, causes, nodes. The page loads nothing.

    Like `history`, it reads Temporal's record: it works with every worker down, and after the workload has ended.
    """
    named = chosen(name, namespace)

    from holdfast.cli.page import html
    from holdfast.cli.page.timeline import timeline_of
    from holdfast.policy.status.explain import explain_of

    story = archived(archive, named, place) if archive else with_run(named, place, lambda run: run.story(), READ)
    now = datetime.now(UTC)
    explanation = None
    if story.known_until is None and story.state is not None and story.turns:
        explanation = explain_of(story.spec, story.state, story.turns[-1].at, now)
    text = html.report(timeline_of(story, now), now, explanation)
    if output == "-":
        sys.stdout.write(text)
        return
    try:
        Path(output).write_text(text, encoding="utf-8")
    except OSError as error:
        raise HoldfastError(f"--output {output}: cannot be written: {error.strerror or error}") from error
    typer.echo(f"{output}: the life of {named.namespace}/{named.name}; open it in a browser")


def add_to(app: typer.Typer, panel: str) -> None:
    """Add this file's command."""
    app.command(rich_help_panel=panel)(grouped(report))
