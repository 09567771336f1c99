"""Commands that change what a workload does: suspend, resume, checkpoint, end, extend, resize it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.common.options import (
    EXIT_FAILED,
    HERE,
    Format,
    Name,
    Namespace,
    Output,
    Place,
    chosen,
    grouped,
    with_run,
)
from holdfast.cli.common.output import emit
from holdfast.cli.common.silence import ASKED, ONLY_BY_A_WORKER
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.client import Run, StatusView

Reason = Annotated[str, typer.Option("--reason", help="Why, for its history: as if a stranger will read it.")]
Wait = Annotated[bool, typer.Option("--wait", help="Return only when it is done.")]
Timeout = Annotated[
    str | None,
    typer.Option("--timeout", help="With --wait: give up after so long, for example 5m.", show_default=False),
]


@dataclass(frozen=True, slots=True)
class Wish:
    """A request to a workload, and how long to wait for its result."""

    name: Name
    namespace: Namespace = None
    reason: Reason = ""
    wait: Wait = False
    timeout: Timeout = None


def suspend(wish: Wish, place: Place = HERE, output: Format = Output.TABLE) -> None:
    """Remove a workload from the cluster until proven gone, and keep it for `resume`."""
    _steer("suspend", wish, place, output)


def resume(wish: Wish, place: Place = HERE, output: Format = Output.TABLE) -> None:
    """Put a suspended or preempted workload back."""
    _steer("resume", wish, place, output)


def preempt(
    wish: Wish,
    within: Annotated[
        str | None,
        typer.Option(
            "--within",
            help="Wait so long for its checkpoint, not as long as it says; 0s: not at all.",
            show_default=False,
        ),
    ] = None,
    place: Place = HERE,
    output: Format = Output.TABLE,
) -> None:
    """Make room for another workload: save its state, then suspend it. Not a failure; charges no budget."""
    _steer("preempt", wish, place, output, _seconds(within, "--within"))


def checkpoint(wish: Wish, place: Place = HERE, output: Format = Output.TABLE) -> None:
    """Have a workload save its state and run on; its next attempt continues from there."""
    _steer("checkpoint", wish, place, output)


def cancel(wish: Wish, place: Place = HERE, output: Format = Output.TABLE) -> None:
    """End a workload: remove everything until proven gone."""
    _steer("cancel", wish, place, output)


def retry(wish: Wish, place: Place = HERE, output: Format = Output.TABLE) -> None:
    """Try again now: skip a pause, revive a failed workload, or run a finished one once more."""
    _steer("retry", wish, place, output)


def strip_finalizers(
    name: Name,
    namespace: Namespace = None,
    reason: Reason = "",
    place: Place = HERE,
    output: Format = Output.TABLE,
) -> None:
    """Strip the finalizers of objects that a forced removal cannot delete. The cleanup they stand for is not done.

    `explain` names them. Allowed only while the removal is being forced.
    """
    named = chosen(name, namespace)

    async def strip(run: Run) -> StatusView:
        await run.strip_finalizers(reason)
        return await run.recorded()

    view = with_run(named, place, strip, ONLY_BY_A_WORKER)
    emit(
        view.model_dump(mode="json"),
        output,
        lambda: f"finalizers are being taken off what is left of {named.namespace}/{named.name}",
    )


def extend(
    name: Name,
    by: Annotated[str, typer.Argument(help="How much longer, for example 1h.")],
    namespace: Namespace = None,
    reason: Reason = "",
    place: Place = HERE,
    output: Format = Output.TABLE,
) -> None:
    """Extend a workload's walltime, as far as its `lifecycle.extendableTo` allows."""
    named = chosen(name, namespace)
    status = with_run(named, place, lambda run: run.extend(by, reason), ONLY_BY_A_WORKER)

    def said() -> str:
        until = status.walltime_until
        end = f"it may run until {until:%Y-%m-%d %H:%M:%S} UTC" if until is not None else "each attempt may run longer"
        return f"{named.namespace}/{named.name}: {end}"

    emit(status.model_dump(mode="json"), output, said)


def scale(
    name: Name,
    size: Annotated[str, typer.Argument(metavar="N | MIN:MAX", help="How many members, for example 4, or 2:8.")],
    namespace: Namespace = None,
    reason: Reason = "",
    place: Place = HERE,
    output: Format = Output.TABLE,
) -> None:
    """Change the size of an elastic gang while it runs: its members meet in a new round, and no restart is charged.

    N is the highest number of members; MIN:MAX also sets the lowest number with which it still runs.
    """
    named, (fewest, highest) = chosen(name, namespace), _size(size)
    least, most = with_run(named, place, lambda run: run.scale(highest, fewest, reason), ONLY_BY_A_WORKER)
    emit(
        {"min": least, "max": most},
        output,
        lambda: (
            f"{named.namespace}/{named.name}: its gang is to have {f'{least} to {most}' if least != most else most}"
            f" member{'s' if most > 1 else ''}"
        ),
    )


def _size(text: str) -> tuple[int | None, int]:
    least, colon, most = text.rpartition(":")
    if not most.isdecimal() or not (least.isdecimal() or not colon):
        raise typer.BadParameter(f"{text!r}: expected a number of members, as 4, or a range, as 2:8", param_hint="SIZE")
    return (int(least) if colon else None), int(most)


def add_to(app: typer.Typer, panel: str) -> None:
    """Add this file's commands."""
    commands: tuple[Callable[..., None], ...] = (
        suspend,
        resume,
        preempt,
        checkpoint,
        cancel,
        retry,
        extend,
        scale,
        strip_finalizers,
    )
    for command in commands:
        app.command(rich_help_panel=panel)(grouped(command))
    app.command("delete", hidden=True)(grouped(cancel))


def _steer(verb: str, wish: Wish, place: Place, output: Output, within: float | None = None) -> None:
    named, wait, timeout = chosen(wish.name, wish.namespace), wish.wait, wish.timeout
    seconds = _seconds(timeout, "--timeout")
    if seconds is not None and not wait:
        raise typer.BadParameter("is for --wait", param_hint="--timeout")

    taken = list[bool]()

    async def steered(run: Run) -> StatusView:
        async with asyncio.timeout(seconds):
            return await _ask(replace(run, taken=lambda: taken.append(True)), verb, wish.reason, wait, within)

    from holdfast.model import CheckpointState, Phase

    try:
        then = ONLY_BY_A_WORKER if verb == "checkpoint" else ASKED
        view = with_run(named, place, steered, then)
    except TimeoutError:
        if not taken:
            raise HoldfastError(
                f"{named.namespace}/{named.name}: nobody has answered within {timeout}, so that it is not known "
                f"whether {verb} was asked for: `holdfast explain {named.namespace}/{named.name}` says what holds"
            ) from None
        raise HoldfastError(
            f"{named.namespace}/{named.name}: {verb} was asked for, but is not done after {timeout}: "
            f"`holdfast explain {named.namespace}/{named.name}` says what it waits for"
        ) from None
    emit(
        view.model_dump(mode="json"),
        output,
        lambda: (
            f"{named.namespace}/{named.name} {view.phase.value}: {view.status.message}"
            if wait
            else f"{verb} asked of {named.namespace}/{named.name}"
        ),
    )
    last = view.status.checkpoint
    lost = verb == "checkpoint" and last is not None and last.state is not CheckpointState.COMPLETE
    if wait and (view.phase is Phase.FAILED or lost):
        raise typer.Exit(EXIT_FAILED)


async def _ask(run: Run, verb: str, reason: str, wait: bool, within: float | None) -> StatusView:
    if verb == "retry":
        return await (await run.retry(reason, wait=wait)).recorded()
    if verb == "preempt":
        patience = timedelta(seconds=within) if within is not None else None
        return await run.preempt(reason, within=patience, wait=wait)
    verbs: dict[str, Callable[..., Awaitable[StatusView]]] = {
        "suspend": run.suspend,
        "resume": run.resume,
        "checkpoint": run.checkpoint,
        "cancel": run.cancel,
    }
    return await verbs[verb](reason, wait=wait)


def _seconds(timeout: str | None, option: str) -> float | None:
    if timeout is None:
        return None
    from holdfast.model import parse_duration

    try:
        return parse_duration(timeout).total_seconds()
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None
