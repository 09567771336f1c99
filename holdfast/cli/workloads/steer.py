"""Commands that change what named workloads do: checkpoint, retry, extend, resize them; and how a request is sent."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.common import progress
from holdfast.cli.common.live import LiveLine
from holdfast.cli.common.options import (
    EXIT_FAILED,
    HERE,
    Chosen,
    Format,
    Name,
    Namespace,
    NotInTime,
    Output,
    Place,
    Timeout,
    chosen,
    grouped,
    seconds,
    with_run,
)
from holdfast.cli.common.output import emit, say
from holdfast.cli.common.several import Answer, Names, ask_each, emit_all, leave, named_by, say_error
from holdfast.cli.common.silence import ASKED, ONLY_BY_A_WORKER

if TYPE_CHECKING:
    from holdfast.client import Run, StatusView

Reason = Annotated[str, typer.Option("--reason", help="Why, for its history: as if a stranger will read it.")]
Wait = Annotated[bool, typer.Option("--wait", help="Return only when it is done.")]


@dataclass(frozen=True, slots=True)
class Wish:
    """A request to workloads, and how long to wait for its result."""

    namespace: Namespace = None
    reason: Reason = ""
    wait: Wait = False
    timeout: Timeout = None


def checkpoint(names: Names, wish: Wish, place: Place = HERE, output: Format = Output.TABLE) -> None:
    """Have workloads save their state and run on; their next attempt continues from there."""
    steer("checkpoint", named_by(names, wish.namespace), wish, place, output)


def retry(names: Names, wish: Wish, place: Place = HERE, output: Format = Output.TABLE) -> None:
    """Try again now: skip a pause, revive failed workloads, or run finished ones once more."""
    steer("retry", named_by(names, wish.namespace), wish, place, output)


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
    seconds(by, "BY")  # What is no duration is refused at once, and not only once a worker answers.
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
        checkpoint,
        retry,
        extend,
        scale,
        strip_finalizers,
    )
    for command in commands:
        app.command(rich_help_panel=panel)(grouped(command))


def steer(
    verb: str,
    named: Sequence[Chosen],
    wish: Wish,
    place: Place,
    output: Output,
    *,
    within: float | None = None,
    uids: Mapping[Chosen, str] | None = None,
) -> None:
    """Send a request to workloads, print each answer, and end with the worst exit code.

    Args:
        verb: The command.
        named: The workloads.
        wish: The reason, and how long to wait.
        place: The cluster and the Temporal.
        output: How to print the answers.
        within: Seconds for the checkpoint before a preemption.
        uids: The submissions that are meant, if not whichever has the name.
    """
    limit = seconds(wish.timeout, "--timeout")
    if limit is not None and not wish.wait:
        raise typer.BadParameter("is for --wait", param_hint="--timeout")
    waiting: dict[Chosen, Run] = {}
    done: list[Chosen] = []
    line = LiveLine(sys.stderr, wanted=wish.wait)
    showing: list[asyncio.Task[None]] = []

    @cache
    def until() -> float | None:
        """Return when time is up for all of them: it counts from the first turn on."""
        return asyncio.get_running_loop().time() + limit if limit is not None else None

    async def steered(run: Run) -> StatusView:
        target, accepted = Chosen(run.namespace, run.name), run.taken

        def taken() -> None:
            accepted()
            waiting[target] = run
            if not showing:
                showing.append(asyncio.create_task(progress.show(line, waiting, done, verb, len(named))))

        try:
            async with asyncio.timeout_at(until()):
                return await _ask(replace(run, taken=taken), verb, wish.reason, wish.wait, within)
        except TimeoutError:
            raise await _late(run, verb, str(wish.timeout), taken=target in waiting) from None
        finally:
            waiting.pop(target, None)

    def said(answer: Answer[StatusView]) -> None:
        from holdfast.cli.common.render import phase_word
        from holdfast.model.words import with_note

        line.erase()
        done.append(answer.named)
        if answer.value is None:
            say_error(answer)
        elif output is Output.TABLE:
            where, view = f"{answer.named.namespace}/{answer.named.name}", answer.value
            phase = phase_word(view.status)
            # The message of some phases begins with their own word: once is enough.
            told = view.status.message.removeprefix(phase.lower()).removeprefix(": ")
            state = with_note(f"{where} {phase}", told)
            say(state if wish.wait else f"{verb} asked of {where}")

    then = ONLY_BY_A_WORKER if verb == "checkpoint" else ASKED
    answers = ask_each(named, place, steered, said, then, uids, until)
    line.erase()
    emit_all(answers, output, lambda view: view.model_dump(mode="json"), many=uids is not None)
    failed = wish.wait and any(one.value is not None and _is_failed(verb, one.value) for one in answers)
    leave(answers, EXIT_FAILED if failed else 0)


async def _late(run: Run, verb: str, limit: str, *, taken: bool) -> NotInTime:
    where = f"{run.namespace}/{run.name}"
    if not taken:
        return NotInTime(
            f"{where}: nobody has answered within {limit}, so that it is not known whether {verb} was asked for: "
            f"`holdfast explain {where}` says what holds"
        )
    seen = await progress.last_look(run)
    return NotInTime(progress.late(where, limit, seen, what=f"{verb} was asked for, but is not done"))


def _is_failed(verb: str, view: StatusView) -> bool:
    from holdfast.model import CheckpointState, Phase

    last = view.status.checkpoint
    lost = verb == "checkpoint" and last is not None and last.state is not CheckpointState.COMPLETE
    # What is cancelled keeps its outcome.
    return (verb != "cancel" and view.phase is Phase.FAILED) or lost


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
