"""The `apply` command: submit what is not there, and change what may change of what is (row E3)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from holdfast.cli.common.ask import Yes
from holdfast.cli.common.options import (
    HERE,
    Chosen,
    Context,
    Format,
    Kubeconfig,
    Namespace,
    Output,
    Place,
    grouped,
    session,
)
from holdfast.cli.common.output import say
from holdfast.cli.common.several import Answer, emit_all, leave, say_error
from holdfast.cli.common.silence import BEGUN, ONLY_BY_A_WORKER, attended
from holdfast.cli.submission.files import Files, Set, overrides, read_all
from holdfast.cli.submission.namespace_check import refuse_closed
from holdfast.cli.submission.plan import agree
from holdfast.errors import HoldfastError, WorkloadNotFound, describe

if TYPE_CHECKING:
    from holdfast.client import Holdfast, Run
    from holdfast.model import Phase, Workload
    from holdfast.policy.loop.difference import Changes, Difference

_SHOWN: Final = 50
"""How many fields of a workload are listed."""
_REPLICAS: Final = (
    "`kubectl scale` changes the replicas of a component while it runs, up to what was submitted; `holdfast apply` "
    "changes the size of a gang"
)
_INSTEAD: Final = {
    "suspend": "`holdfast suspend` and `holdfast resume` change it",
    "lifecycle": "`holdfast extend` gives it more time, within its own limit",
}
"""What changes a field that `apply` cannot change; anything else needs a new submission."""


@dataclass(frozen=True, slots=True)
class Applied:
    """What became of one workload: `submitted`, `changed` or `unchanged`, and the fields that differed."""

    named: Chosen
    result: str
    differences: tuple[Difference, ...] = ()
    again: tuple[str, ...] = ()
    """The components that are made again, in a dry run those that would be."""
    phase: Phase | None = None
    """Its phase when it was compared with its file; None if it is submitted."""


def apply(
    files: Files,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what differs, and change nothing.")] = False,
    settings: Set = None,
    namespace: Namespace = None,
    reason: Annotated[str, typer.Option("--reason", help="Why, for its history.")] = "",
    yes: Yes = False,
    place: Place = HERE,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: Format = Output.TABLE,
) -> None:
    """Make workloads as their files say: submit those that are not there, and change those that differ.

    Waits, budgets, limits and pauses of rules, the size of a gang and components can change while a workload runs; it
    keeps its pods where they do not differ. If anything else differs, nothing of that workload is changed.
    """
    workloads, graphs = read_all(files, place.required(), namespace, None, overrides(settings))
    if graphs:
        raise typer.BadParameter("a graph cannot be changed: `holdfast submit` continues it", param_hint="FILE")

    async def go() -> list[Answer[Applied]]:
        async with session(place) as holdfast:
            there = [await _looked_up(holdfast, one) for one in workloads]
            new = [one for one, run in zip(workloads, there, strict=True) if run is None]
            if new and not dry_run:
                agree(new, plan=False, yes=yes)
                await refuse_closed(holdfast, new, kubeconfig, context)
            answers: list[Answer[Applied]] = []
            for one, run in zip(workloads, there, strict=True):
                named = Chosen(one.namespace, one.name)
                answer: Answer[Applied]
                try:
                    if isinstance(run, HoldfastError):
                        raise run
                    answer = Answer(named, await _apply(holdfast, run, one, reason, dry_run=dry_run))
                except HoldfastError as error:
                    answer = Answer(named, None, error)
                answers.append(answer)
                _say(answer, output, dry_run=dry_run)
            for one in new[:1] if not dry_run else ():  # One is enough: all wait for the same workers.
                with suppress(HoldfastError):  # What became of each is known; here only a warning would be lost.
                    run = await _find(holdfast, one)
                    if run is not None:
                        await attended(run, asyncio.sleep(0), BEGUN)
            return answers

    answers = asyncio.run(go())
    emit_all(answers, output, _document, many=True)
    leave(answers)


def add_to(app: typer.Typer, panel: str) -> None:
    """Add this file's command."""
    app.command(rich_help_panel=panel)(grouped(apply))


async def _find(holdfast: Holdfast, wanted: Workload) -> Run | None:
    try:
        return await holdfast.get(wanted.name, wanted.namespace, wanted.cluster)
    except WorkloadNotFound:
        return None


async def _looked_up(holdfast: Holdfast, wanted: Workload) -> Run | HoldfastError | None:
    """Return the workload's run, or why it cannot be told which it is: that holds up no other one."""
    try:
        return await _find(holdfast, wanted)
    except HoldfastError as error:
        return error


async def _apply(holdfast: Holdfast, run: Run | None, wanted: Workload, reason: str, *, dry_run: bool) -> Applied:
    from holdfast.client.found import check_removal
    from holdfast.client.found import describe as described
    from holdfast.policy.loop.difference import changes

    named = Chosen(wanted.namespace, wanted.name)
    if run is None:
        if not dry_run:
            await holdfast.submit(wanted)
        return Applied(named, "submitted")
    current, where = await run.in_force(), f"{wanted.namespace}/{wanted.name}"
    if current.source.generation is not None:
        raise HoldfastError(f"{where} is a {current.source.kind} of the cluster: change it with kubectl")
    description = await described(run.client, run.place, run.workflow_id)
    if description is not None:
        await check_removal(run.client, run.place, where, description)
    found, view = changes(current, wanted), await run.recorded()
    if not found.differences:
        return Applied(named, "unchanged", phase=view.phase)
    if view.closed:
        raise HoldfastError(
            f"{where} has ended and differs from its file: `holdfast submit FILE --again` runs it as the file says"
        )
    if found.fixed:
        raise HoldfastError(refusal(where, found))
    if dry_run:
        return Applied(named, "changed", found.differences, found.again, view.phase)
    again = await attended(run, _change(run, found, reason), ONLY_BY_A_WORKER)
    return Applied(named, "changed", found.differences, again, view.phase)


async def _change(run: Run, found: Changes, reason: str) -> tuple[str, ...]:
    """Send the changes, and return the components that are made again; an error says which were in force before it."""
    done: list[str] = []
    again: tuple[str, ...] = ()
    try:
        if found.policy is not None:
            await run.update_policy(found.policy.model_copy(update={"note": reason}))
            done.append("policy")
        if found.scale is not None:
            await run.scale(found.scale.max, found.scale.min, reason)
            done.append("gang")
        if found.components is not None:
            again = await run.update_components(found.components.model_copy(update={"note": reason}))
    except HoldfastError as error:
        if not done:
            raise
        raise HoldfastError(f"{error}; changed before that: {', '.join(done)}") from error
    return again


def refusal(where: str, found: Changes) -> str:
    """Return why a workload is not changed: each field that cannot change, and what can be done instead."""
    whole = dict.fromkeys(
        _REPLICAS if one.path.endswith(".replicas") else _INSTEAD.get(one.path.partition(".")[0], "")
        for one in found.fixed
    )
    texts = [text for text in whole if text]
    if not texts or _REPLICAS in texts:
        anew = f"cancel it, and submit the file anew: `holdfast cancel {where} --wait`, `holdfast submit FILE --again`"
        texts.append(f"or {anew}" if texts else anew)
    return (
        f"{where} is not changed, since these fields cannot change while it exists:\n{listed(found.fixed)}\n"
        f"{'; '.join(texts)}"
    )


def listed(differences: Sequence[Difference]) -> str:
    """Return the fields that differ, one a line: `  policy.timings.failureGracePeriod: '1m' → '30s'`."""
    lines = [f"  {one.path}: {_value(one.before)} → {_value(one.after)}" for one in differences[:_SHOWN]]
    if len(differences) > _SHOWN:
        lines.append(f"  and {len(differences) - _SHOWN:,} more")
    return "\n".join(lines)


def _value(value: Any) -> str:
    from holdfast.policy.loop.difference import ABSENT, HIDDEN

    return "none" if value is ABSENT else HIDDEN if value is HIDDEN else describe(value)


def _document(applied: Applied) -> dict[str, Any]:
    """Return it for programs; a value that is not there is null."""
    from holdfast.policy.loop.difference import ABSENT

    return {
        "namespace": applied.named.namespace,
        "name": applied.named.name,
        "result": applied.result,
        "phase": applied.phase.value if applied.phase is not None else None,
        "again": list(applied.again),
        "differences": [
            {
                "path": one.path,
                "before": None if one.before is ABSENT else one.before,
                "after": None if one.after is ABSENT else one.after,
            }
            for one in applied.differences
        ],
    }


def _say(answer: Answer[Applied], output: Output, *, dry_run: bool) -> None:
    if answer.value is None:
        say_error(answer)
        return
    if output is not Output.TABLE:
        return
    say(text(answer.value, dry_run=dry_run))


def recreated(components: Sequence[str], *, dry_run: bool = False) -> str:
    """Say which components are made again: `component main and its pods are re-created`."""
    many = len(components) > 1
    named = f"component{'s' if many else ''} {', '.join(components)} and {'their' if many else 'its'} pods"
    return f"{named} {'would be' if dry_run else 'are'} re-created"


def text(applied: Applied, *, dry_run: bool) -> str:
    """Return what became of a workload, then the fields that differ, one a line."""
    result = f"would be {applied.result}" if dry_run and applied.result != "unchanged" else applied.result
    what = f": {recreated(applied.again, dry_run=dry_run)}" if applied.again else ""
    if applied.result == "unchanged" and applied.phase is not None and applied.phase.ended:
        what = f": it has ended ({applied.phase.value}); `holdfast submit FILE --again` runs it once more"
    head = f"{applied.named.namespace}/{applied.named.name} {result}{what}"
    return "\n".join([head, *([listed(applied.differences)] if applied.differences else [])])
