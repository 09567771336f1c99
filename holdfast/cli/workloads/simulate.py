"""Simulate a policy: a workload's life on virtual time, with the failures of a script."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.common.options import HERE, Format, Namespace, Output, Place, grouped
from holdfast.cli.common.output import emit
from holdfast.cli.submission.files import Set, overrides, read_file, text_of
from holdfast.cli.workloads.compare import compare
from holdfast.cli.workloads.submit import As, WithSettings
from holdfast.errors import InvalidWorkload

if TYPE_CHECKING:
    from datetime import timedelta

    from holdfast.model import Workload
    from holdfast.simulation import Script


def simulate(
    file: Annotated[
        str | None,
        typer.Argument(
            help="The workload, as `submit` takes it; - is standard input.", metavar="FILE", show_default=False
        ),
    ] = None,
    script: Annotated[
        str | None,
        typer.Option("--script", help="What goes wrong, when: see examples/scripts/failures.yaml.", show_default=False),
    ] = None,
    history: Annotated[
        list[str] | None,
        typer.Option(
            "--history",
            help="Instead of FILE and --script: what really happened to this workload; or a file that "
            "`temporal workflow show --output json` wrote (once for each run of one workload).",
            show_default=False,
        ),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            "--policy", help="With --history: the other policy, or what of it is to differ.", show_default=False
        ),
    ] = None,
    settings: Set = None,
    until: Annotated[
        str | None, typer.Option("--until", help="When to end: 12h, 7d. Default: the script's own.", show_default=False)
    ] = None,
    name: As = None,
    namespace: Namespace = None,
    place: Place = HERE,
    output: Format = Output.TABLE,
) -> None:
    """Show what Holdfast would decide, and when, given a script of failures. Runs on virtual time, without any server.

    Times are counted from the submission. The same files always give the same output. The exit code is 0 whatever the
    workload's outcome.

    With --history: show what another policy would have decided about what really happened, point by point, with its own
    budget figures. The output marks where the other policy would first have decided otherwise and reality took another
    way.
    """
    if history:
        if file is not None or script is not None or until is not None or name is not None:
            raise typer.BadParameter("goes with --policy and --set, not with a script", param_hint="--history")
        compare(history, policy, settings, namespace, place, output)
        return
    if file is None or script is None or policy is not None:
        raise typer.BadParameter("expected FILE and --script, or --history and --policy", param_hint="FILE")
    if file == "-" and script == "-":
        raise typer.BadParameter("only one of FILE and --script can be standard input", param_hint="--script")
    end = _until(until)
    found = read_file(file, place.cluster or "simulated", namespace, name, overrides(settings))
    if len(found) != 1:
        raise typer.BadParameter(f"one workload is expected, and {len(found)} are given", param_hint="FILE")
    from holdfast.simulation import refused
    from holdfast.simulation import simulate as simulated

    if problems := refused(found[0]):
        raise InvalidWorkload(problems, f"workload {found[0].name}")
    result = simulated(found[0], _read(script, found[0]), until=end)
    from holdfast.cli.workloads import simulation_text as simulated_text

    emit(result.model_dump(mode="json"), output, lambda: simulated_text.simulation_text(result))


def add_to(app: typer.Typer, panel: str) -> None:
    """Add this file's command."""
    app.command(cls=WithSettings, rich_help_panel=panel)(grouped(simulate))


def _until(text: str | None) -> timedelta | None:
    from holdfast.model import parse_duration

    if text is None:
        return None
    try:
        return parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--until") from None


def _read(file: str, spec: Workload) -> Script:
    """Read a script and check it against the workload.

    Raises:
        HoldfastError: if the file cannot be read, or it is not a script for this workload.
    """
    from holdfast.simulation import read_script

    script = read_script(text_of(file), f"script {file}")
    if problems := script.problems(spec):
        raise InvalidWorkload(problems, f"script {file}")
    return script
