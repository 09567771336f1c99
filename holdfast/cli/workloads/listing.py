"""The `list` command: which workloads there are, selected, sorted, and cut only where it says so (row E3)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from holdfast.cli.common import complete, kubectl, screen
from holdfast.cli.common.options import AllNamespaces, Columns, Namespace, Place, WideFormat, grouped, session
from holdfast.cli.common.output import emit, say
from holdfast.cli.common.silence import READ, warn

if TYPE_CHECKING:
    from holdfast.client import Holdfast, Summary

_NAMED: Final = 3
"""How many workloads whose workflow was ended from outside are named."""
_AGAIN: Final = 2.0
"""Seconds between two readings of `--watch`."""
_STARTING: Final = "Starting"
"""The first start of a workload, which Kubernetes and Temporal know as Resuming."""
_RUNNING: Final = "Running"
"""Temporal's word for a workflow that has not ended."""
_IDS: Final = 200
"""How many workloads Temporal is asked about at once."""


class Sort(StrEnum):
    """What a list is sorted by."""

    AGE = "age"
    NAME = "name"
    PHASE = "phase"
    RESTARTS = "restarts"


@dataclass(frozen=True, slots=True)
class Selection:
    """Selects workloads by what they are and how they are."""

    selector: Annotated[
        str | None,
        typer.Option(
            "--selector",
            "-l",
            help="Only with these labels: team=x,tier!=test,zone in (a,b),!spot.",
            show_default=False,
        ),
    ] = None
    phase: Annotated[
        str | None,
        typer.Option("--phase", help="Only in this phase.", show_default=False, autocompletion=complete.phases),
    ] = None
    queue: Annotated[
        str | None,
        typer.Option("--queue", help="Only of this queue.", show_default=False, autocompletion=complete.queues),
    ] = None

    def terms(self) -> dict[str, Any]:
        """Return the arguments with which `select` selects so.

        Raises:
            typer.BadParameter: if there is no such phase, or the selector is not of the form that is read.
        """
        from holdfast.model.selector import Selector

        try:
            labels = Selector.of(self.selector) if self.selector is not None else None
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--selector") from None
        return {"phase": _phase(self.phase), "queue": self.queue, "labels": labels}


@dataclass(frozen=True, slots=True)
class Everywhere(Place):
    """Identifies the Temporal that a list is of, and the cluster if it is of one alone."""

    cluster: Annotated[
        str | None,
        typer.Option(
            "--cluster",
            help="Only of this cluster. Default: of all; of `kubectl holdfast`: that of its context.",
            show_default=False,
        ),
    ] = None


_ALL: Final = Everywhere()


@dataclass(frozen=True, slots=True)
class Listing:
    """The workloads that match, sorted, and what could not be shown."""

    found: tuple[Summary, ...]
    cut: bool = False
    """Whether there are more than `READ_MAXIMUM`; what follows those is not among them, whatever its place."""
    foreign: tuple[str, ...] = ()
    """Workflows of the same type that Holdfast did not begin (row D54)."""
    earlier: int = 0
    """How many runs match, but are not shown because the same workload was run again."""

    def notes(self, limit: int) -> list[str]:
        """Return what a list of at most `limit` leaves out, a sentence each."""
        from holdfast.cli.common.render import ended_outside
        from holdfast.client.summary import abandoned
        from holdfast.model.words import counted

        notes: list[str] = []
        # After a reset in Temporal, the life goes on in a run of its own.
        lives = {(each.workflow_id, each.uid) for each in self.found if each.uid and not ended_outside(each)}
        over = [one for one in self.found[:limit] if ended_outside(one) and (one.workflow_id, one.uid) not in lives]
        for one in over[:_NAMED]:
            notes.append(f"{one.namespace}/{one.name}: {abandoned(ended_outside(one))}")
        total = f"{len(self.found):,}"
        if self.cut:
            notes.append(
                f"showing {min(limit, len(self.found)):,} of more than {total} workloads, sorted among the {total} "
                "that Temporal lists first: select fewer (--phase, -n, --queue, --running)"
            )
        elif len(self.found) > limit:
            notes.append(f"showing {limit:,} of {total} workloads: --limit shows more")
        if self.earlier:
            runs = counted(self.earlier, "earlier run of the same workload", "earlier runs of the same workloads")
            notes.append(f"left out: {runs}: --closed shows {'it' if self.earlier == 1 else 'them'}")
        if self.foreign:
            some = ", ".join(self.foreign[:3]) + (", ..." if len(self.foreign) > 3 else "")
            notes.append(
                f"left out: {counted(len(self.foreign), 'workflow')} of type Workload that Holdfast did not begin "
                f"({some})"
            )
        return notes


def list_(
    selection: Selection,
    namespace: Namespace = None,
    everywhere: AllNamespaces = False,
    running: Annotated[
        bool | None,
        typer.Option("--running/--closed", help="Only those alive, or only those over.", show_default=False),
    ] = None,
    query: Annotated[
        str | None,
        typer.Option("--query", help="A condition in Temporal's list filter language.", show_default=False),
    ] = None,
    sort: Annotated[
        Sort, typer.Option("--sort", help="Youngest first, by name or phase, or most restarts first.")
    ] = Sort.AGE,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Show at most so many.")] = 100,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Then print a line for each change, until Ctrl-C.")
    ] = False,
    place: Everywhere = _ALL,
    output: WideFormat = Columns.TABLE,
) -> None:
    """List workloads, youngest first."""
    if everywhere and namespace is not None:
        raise typer.BadParameter(f"expected no --namespace {namespace} with it", param_hint="--all-namespaces")
    within = None if everywhere else namespace or kubectl.namespace()
    terms: dict[str, Any] = {**selection.terms(), "namespace": within, "running": running, "query": query}

    async def go() -> None:
        async with session(place) as holdfast:

            async def read() -> Listing:
                return await select(holdfast, sort, cluster=place.cluster or kubectl.cluster(), **terms)

            listing = await read()
            if any(each.execution == _RUNNING for each in listing.found):
                await _warn_if_unserved(holdfast)
            _print(listing, limit, output, stream=watch)
            if watch:
                await _follow(listing, read, limit, output)

    asyncio.run(go())


def add_to(app: typer.Typer, panel: str) -> None:
    """Add this file's command."""
    app.command("list", rich_help_panel=panel)(grouped(list_))


async def select(
    holdfast: Holdfast,
    sort: Sort,
    *,
    phase: str | None = None,
    running: bool | None = None,
    query: str | None = None,
    **terms: Any,
) -> Listing:
    """Return the workloads that match, sorted, each by its latest run; with `query`, or over, by all of its runs.

    The terms are those of `Holdfast.list`, and the phase may be Starting.
    """
    from holdfast.cli.common.render import phase_word
    from holdfast.client.session import READ_MAXIMUM
    from holdfast.model import Phase

    foreign: list[str] = []
    searched = Phase.RESUMING if phase == _STARTING else phase
    matching = holdfast.list(
        phase=searched, running=running, query=query, **terms, limit=READ_MAXIMUM + 1, foreign=foreign.append
    )
    found = [each async for each in matching]
    cut, found = len(found) > READ_MAXIMUM, found[:READ_MAXIMUM]
    if phase == _STARTING:
        found = [each for each in found if phase_word(each) == phase]
    runs = len(found)
    if running is None and query is None:
        narrow = phase is not None or any(terms.get(each) is not None for each in ("queue", "labels"))
        found = await _latest(holdfast, found, narrow=narrow)
    return Listing(ordered(found, sort), cut, tuple(foreign), runs - len(found))


async def _latest(holdfast: Holdfast, found: Sequence[Summary], *, narrow: bool) -> list[Summary]:
    """Return the runs that no other of the same workload follows.

    Args:
        holdfast: Where the others are looked up.
        found: The runs that match.
        narrow: Whether one that has ended may match where the one that follows it does not.
    """
    from holdfast.client.session import quoted

    latest: dict[str, Summary] = {}

    def note(each: Summary) -> None:
        latest[each.workflow_id] = max(latest.get(each.workflow_id, each), each, key=_begun)

    for each in found:
        note(each)
    over = [each.workflow_id for each in latest.values() if narrow and each.execution != _RUNNING]
    for start in range(0, len(over), _IDS):
        ids = ", ".join(map(quoted, over[start : start + _IDS]))
        async for each in holdfast.list(query=f"WorkflowId IN ({ids})"):
            note(each)
    return [each for each in found if latest[each.workflow_id].run_id == each.run_id]


def _begun(each: Summary) -> tuple[bool, datetime]:
    """Return the sort key of a workload's runs: at most one runs, and it is the last."""
    return each.execution == _RUNNING, each.started_at


def ordered(found: Sequence[Summary], sort: Sort) -> tuple[Summary, ...]:
    """Return workloads in an order that does not depend on how they were found."""
    first: dict[Sort, Callable[[Summary], Any]] = {
        Sort.AGE: lambda one: -one.since.timestamp(),
        Sort.NAME: lambda one: one.name,
        Sort.PHASE: lambda one: one.phase,
        Sort.RESTARTS: lambda one: -one.restarts,
    }
    return tuple(
        sorted(found, key=lambda one: (first[sort](one), -one.since.timestamp(), one.namespace, one.name, one.run_id))
    )


def _print(listing: Listing, limit: int, output: Columns, *, stream: bool) -> None:
    from holdfast.cli.common import render

    shown = listing.found[:limit]
    for note in listing.notes(limit):
        say(note, err=True)
    if stream and output in {Columns.JSON, Columns.YAML}:
        for each in shown:
            say(_line(each))
        return
    table = render.summaries(shown, datetime.now(UTC), wide=output is Columns.WIDE)
    emit([each.model_dump(mode="json") for each in shown], output.output, lambda: table)


async def _follow(first: Listing, read: Callable[[], Any], limit: int, output: Columns) -> None:
    """Print each workload that has changed, or no longer matches, as kubectl does; as JSON, a document a line."""
    from holdfast.client.patience import Patience

    patience, before = Patience(), first
    while True:
        await asyncio.sleep(_AGAIN)
        after = await patience.ask(read)
        for each, gone in changes(before, after):
            if output in {Columns.TABLE, Columns.WIDE}:
                with screen.wide(screen.columns()):
                    row = row_below(first.found[:limit], each, datetime.now(UTC), wide=output is Columns.WIDE)
                say(row + ("  (no longer matches)" if gone else ""))
            elif not gone:
                say(_line(each))
        before = after


def row_below(above: Sequence[Summary], each: Summary, now: datetime, *, wide: bool) -> str:
    """Return a workload's row as it stands below a table; where the terminal folds that table, laid out by itself."""
    from holdfast.cli.common import render

    laid_out = render.summaries([*above, each], now, wide=wide).splitlines()
    if len(laid_out) == len(above) + 2:
        return laid_out[-1]
    with screen.wide(None):
        return render.summaries([each], now, wide=wide).splitlines()[-1]


def changes(before: Listing, after: Listing) -> list[tuple[Summary, bool]]:
    """Return each workload that is new or differs, then each that no longer matches, as it was, with True."""
    runs = {each.run_id: each for each in before.found}
    lives = {(each.workflow_id, each.uid): each for each in before.found if each.uid}
    there = {each.workflow_id for each in after.found}

    def differs(each: Summary) -> bool:
        known = runs.get(each.run_id) or lives.get((each.workflow_id, each.uid))
        # A workflow that has continued as new is another run of the same life.
        run = {"run_id": each.run_id, "started_at": each.started_at}
        return known is None or known.model_copy(update=run) != each

    new = [(each, False) for each in after.found if differs(each)]
    # If not all could be read, one that is not among them may still match.
    return new + [(each, True) for each in before.found if each.workflow_id not in there and not after.cut]


def _line(each: Summary) -> str:
    return json.dumps(each.model_dump(mode="json"), ensure_ascii=False)


async def _warn_if_unserved(holdfast: Holdfast) -> None:
    """Warn on standard error if no worker polls for workloads: the list then shows what was last recorded."""
    from temporalio.service import RPCError

    from holdfast import names
    from holdfast.client.silence import Silence
    from holdfast.worker.runtime.pollers import how_to_serve, polled

    try:
        found = await polled(holdfast.client, names.QUEUE_WORKFLOWS)
    except RPCError:
        return  # A user who may list workflows may lack the permission for this request.
    if not found.served:
        why = f"no worker answers: {found.sentence(datetime.now(UTC))}"
        warn(Silence(why=why, remedy=how_to_serve("workflows")), READ)


def _phase(given: str | None) -> str | None:
    from holdfast.model import Phase

    if given is None:
        return None
    for phase in (_STARTING, *Phase):
        if phase.lower() == given.lower():
            return str(phase)
    raise typer.BadParameter(f"{given!r}: expected one of {_STARTING}, {', '.join(Phase)}", param_hint="--phase")
