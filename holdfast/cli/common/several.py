"""One command for several workloads: all are asked at once, each is said on a line, the worst exit code counts (E3)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Final, Generic, TypeVar

import typer

from holdfast.cli.common import complete
from holdfast.cli.common.options import Chosen, NotInTime, Output, Place, chosen, exit_code_of, session
from holdfast.cli.common.output import emit
from holdfast.cli.common.silence import attended
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.client import Holdfast, Run

T = TypeVar("T")
Names = Annotated[
    list[str],
    typer.Argument(
        help="The workloads: NAME, or NAMESPACE/NAME.", metavar="NAME...", autocompletion=complete.workloads
    ),
]
_AT_ONCE: Final = 16
"""How many requests are under way at a time. One that was accepted and is waited for does not count.

Once it is known that no worker answers, none counts: all of them wait for the same workers.
"""


def _never() -> float | None:
    return None


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """What became of the request to one workload: its value, or the error."""

    named: Chosen
    value: T | None
    error: HoldfastError | None = None

    @property
    def code(self) -> int:
        """The exit code, if this were the only workload."""
        return exit_code_of(self.error) if self.error is not None else 0


def named_by(given: Sequence[str], namespace: str | None) -> list[Chosen]:
    """Read several names; one that is given twice counts once."""
    return list(dict.fromkeys(chosen(name, namespace) for name in given))


def ask_each(
    named: Sequence[Chosen],
    place: Place,
    ask: Callable[[Run], Awaitable[T]],
    said: Callable[[Answer[T]], None] | None = None,
    then: str = "",
    uids: Mapping[Chosen, str] | None = None,
    until: Callable[[], float | None] = _never,
) -> list[Answer[T]]:
    """Ask all workloads at once, and return their answers in the order of the names.

    Args:
        named: The workloads.
        place: The cluster and the Temporal.
        ask: Asks one; an error that it raises is that workload's answer.
        said: Called with each answer as soon as it is there.
        then: What happens once a worker answers, printed if none does; empty if the answer itself says so.
        uids: The submissions that are meant, if not whichever has the name.
        until: When time is up for all of them, as the loop's clock has it; None: never. Who asks heeds it itself.
    """

    async def go() -> list[Answer[T]]:
        turns, warning = _Turns(asyncio.Semaphore(_AT_ONCE), until), _Warning(then)
        async with session(place) as holdfast:

            async def one(target: Chosen) -> Answer[T]:
                answer: Answer[T]
                try:
                    value = await _asked(holdfast, target, ask, turns, warning, (uids or {}).get(target, ""))
                    answer = Answer(target, value)
                except HoldfastError as error:
                    answer = Answer(target, None, error)
                if said is not None:
                    said(answer)
                return answer

            return await asyncio.gather(*(one(target) for target in named))

    return asyncio.run(go())


@dataclass(frozen=True, slots=True)
class _Turns:
    """The turns to ask, of which so many are taken at a time."""

    at_once: asyncio.Semaphore
    until: Callable[[], float | None]

    @asynccontextmanager
    async def of(self, target: Chosen) -> AsyncGenerator[None]:
        """Wait for a turn, and hold it inside.

        Raises:
            NotInTime: if time is up before its turn has come.
        """
        try:
            async with asyncio.timeout_at(self.until()):
                await self.at_once.acquire()
        except TimeoutError:
            where = f"{target.namespace}/{target.name}"
            raise NotInTime(f"{where}: nothing was asked of it: time was up before its turn had come") from None
        try:
            yield
        finally:
            self.at_once.release()


class _Warning:
    """The warning that no worker answers, given once: all wait for the same workers."""

    def __init__(self, then: str) -> None:
        self._then = then
        self.given = asyncio.Event()

    async def of(self, run: Run) -> str:
        """Return it for the first workload that has not ended; empty for all others."""
        if not self._then:
            return ""
        try:
            ended = (await run.recorded()).closed
        except HoldfastError:
            return ""
        then, self._then = ("", self._then) if ended else (self._then, "")
        return then


async def _asked(
    holdfast: Holdfast,
    target: Chosen,
    ask: Callable[[Run], Awaitable[T]],
    turns: _Turns,
    warning: _Warning,
    uid: str,
) -> T:
    taken = asyncio.Event()
    async with turns.of(target):
        # Selected without a kind in its id: it is not the other one that has its name.
        name = target.name if "/" in target.name or not uid else f"appwrapper/{target.name}"
        run = await holdfast.get(name, target.namespace)
        run = replace(run, uid=uid or run.uid, taken=taken.set)
        then = await warning.of(run)
        work = asyncio.ensure_future(attended(run, ask(run), then, warning.given) if then else ask(run))
        over = [asyncio.ensure_future(event.wait()) for event in (taken, warning.given)]
        await asyncio.wait({work, *over}, return_when=asyncio.FIRST_COMPLETED)
        for each in over:
            each.cancel()
    return await work


def say_error(answer: Answer[Any]) -> None:
    """Print an error as the command line does, on standard error."""
    from holdfast.model.words import printable

    typer.secho(printable(f"Error: {answer.error}"), err=True, fg=typer.colors.RED)


def emit_all(answers: Sequence[Answer[T]], output: Output, document: Callable[[T], Any], *, many: bool = False) -> None:
    """Print answers for programs: one workload's document, or a list of them, in which an error has the field `error`.

    Args:
        answers: The answers.
        output: JSON or YAML. Text for people has been printed line by line.
        document: Returns the document of a value.
        many: Whether it is a list even of one.
    """
    if output is Output.TABLE:
        return
    if len(answers) == 1 and not many:
        if answers[0].value is not None:
            emit(document(answers[0].value), output, str)
        return
    emit(
        [
            document(one.value)
            if one.value is not None
            else {"namespace": one.named.namespace, "name": one.named.name, "error": str(one.error)}
            for one in answers
        ],
        output,
        str,
    )


def leave(answers: Sequence[Answer[Any]], *codes: int) -> None:
    """End the command with the worst exit code, if any is not 0."""
    if worst := max([*(one.code for one in answers), *codes], default=0):
        raise typer.Exit(worst)
