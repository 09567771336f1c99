"""`holdfast demo`: show a workload's life on the local stack, with an injected failure and its recovery."""

from __future__ import annotations

import asyncio
import os
import secrets
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final
from urllib.parse import quote

import typer

from holdfast.cli.common.options import EXIT_FAILED, EXIT_UNREACHABLE
from holdfast.cli.demo import elastic as demo_elastic
from holdfast.cli.demo import progress as demo_progress
from holdfast.cli.demo.setup import NAMESPACE, enabled, indented, named, say, worker
from holdfast.errors import HoldfastError, WorkloadNotFound

if TYPE_CHECKING:
    from holdfast.client import Holdfast, Run, StatusView
    from holdfast.local import Stack

_DEADLINE: Final = 180.0
_RUN_BEFORE_FAILURE: Final = 3.0


def demo(
    name: Annotated[str, typer.Option("--name", help="The local stack to use.")] = "dev",
    keep: Annotated[bool, typer.Option("--keep", help="Leave the demo's worker running too.")] = False,
    elastic: Annotated[
        bool, typer.Option("--elastic", help="Elastic training in real containers instead. Needs root, on Linux.")
    ] = False,
    progress: Annotated[
        bool,
        typer.Option("--progress", help="A training that hangs, in a real container, instead. Needs root, on Linux."),
    ] = False,
) -> None:
    """See it work: a real Temporal and Kubernetes on this machine, a workload, a failure, and its recovery."""
    if elastic and progress:
        raise typer.BadParameter("is another demo than --elastic: expected one of them", param_hint="--progress")

    from holdfast.cli.demo.dev import ProgressLines
    from holdfast.local import Stack, StackError

    lines = ProgressLines()
    say(f"1. A real Temporal and a real Kubernetes on this machine (stack {name})")
    try:
        stack = Stack.up(name, progress=lines, real_node=True if elastic or progress else None, encrypted=True)
        lines.end()
        if stack.state.given_kubeconfig:
            raise HoldfastError(
                f"stack {name} uses a cluster that was given, where no failure can be injected: "
                "holdfast demo --name demo"
            )
        say(
            f"   Kubernetes  {stack.kubeconfig}\n"
            f"   Temporal    {stack.temporal_address}\n"
            f"   Temporal UI {stack.temporal_ui}, which decrypts what Temporal stores"
        )
        os.environ.update({key: value for key, value in stack.environment.items() if key.startswith("HOLDFAST_CODEC_")})
        if elastic:
            healed = demo_elastic.elastic(stack, keep)
        else:
            healed = demo_progress.progress(stack, keep, lines) if progress else _on(stack, keep)
    except StackError as error:
        lines.end()
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(EXIT_UNREACHABLE) from None
    if not healed:
        raise typer.Exit(EXIT_FAILED)


def add_to(app: typer.Typer, panel: str) -> None:
    """Add this file's command."""
    app.command(rich_help_panel=panel)(demo)


def _on(stack: Stack, keep: bool) -> bool:
    from holdfast.local.identity import worker_kubeconfig

    say("\n2. A worker, with no more rights than deploy/ grants it")
    asyncio.run(enabled(stack))
    with worker(stack, worker_kubeconfig(stack), keep) as log:
        try:
            status, run = asyncio.run(_live(stack))
        except TimeoutError:
            say(f"   not done after {_DEADLINE:.0f} s; the worker's log: {log}")
            return False
    healed = status.phase.value == "Succeeded" and status.status.restarts == 1
    outcome = "Succeeded after one reset" if healed else f"{status.phase.value} after {status.status.restarts} resets"
    link = f"{stack.temporal_ui}/namespaces/default/workflows/{quote(run.workflow_id, safe='')}"
    say(
        f"\n{outcome}: {run.namespace}/{run.name}\n"
        f"   its whole life     {link}\n"
        f'   for this shell     eval "$(holdfast dev env{named(stack)})"\n'
        f"   ask about it       holdfast history {run.namespace}/{run.name}\n"
        f"   clean up           holdfast dev down{named(stack)} --purge"
    )
    return healed


async def _live(stack: Stack) -> tuple[StatusView, Run]:
    from holdfast.cli.common import render
    from holdfast.cli.workloads.watch import Seen
    from holdfast.client import Holdfast
    from holdfast.model import Phase

    environment, name = stack.environment, f"train-llm-{secrets.token_hex(2)}"
    async with (
        asyncio.timeout(_DEADLINE),
        Holdfast.connect(environment["TEMPORAL_ADDRESS"], environment["TEMPORAL_NAMESPACE"], stack.name) as holdfast,
    ):
        say(f"\n3. An AppWrapper: a Job of 4 pods in namespace {NAMESPACE}\n\n   $ kubectl apply -f {name}.yaml")
        say(indented(await asyncio.to_thread(_applied, stack, name)))
        run = await _begun(holdfast, name)
        say(f"   workflow {run.workflow_id}\n")
        seen, failed, explained = Seen(), False, set[str]()
        while True:
            view = await run.status()
            for line in seen.news(view.status):
                say(f"   {line}")
            if view.phase is Phase.RUNNING and not failed and _since(view) > _RUN_BEFORE_FAILURE:
                pod = await asyncio.to_thread(_break, stack, run)
                failed = True
                say(f"\n4. A failure: pod {pod} is made to exit 137, as if out of memory\n")
            moment = "grace" if _unhealthy(view) else "reset" if view.phase is Phase.RESETTING else ""
            if failed and moment and moment not in explained:
                explained.add(moment)
                told = render.explanation(await run.explain(), datetime.now(UTC))
                say(f"\n   $ holdfast explain {run.namespace}/{run.name}\n" + indented(told) + "\n")
            if view.phase.ended:
                if view.phase is Phase.CANCELLED:
                    return view, run
                told = f"--for=jsonpath={{.status.phase}}={view.phase.value}"
                await asyncio.to_thread(
                    stack.kubectl, "wait", told, f"appwrapper/{name}", "--namespace", NAMESPACE, "--timeout=30s"
                )
                shown = ("get", "appwrapper", name, "--namespace", NAMESPACE)
                say(f"\n   $ kubectl {' '.join(shown)}\n{indented(await asyncio.to_thread(stack.kubectl, *shown))}")
                return view, run
            await asyncio.sleep(0.3)


def _applied(stack: Stack, name: str) -> str:
    """Apply the demo's AppWrapper, and return the output of kubectl."""
    import yaml

    document = yaml.safe_load(Path(__file__).with_name("demo.yaml").read_text())
    document["metadata"] |= {"name": name, "namespace": NAMESPACE}
    return stack.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(document, sort_keys=False))


async def _begun(holdfast: Holdfast, name: str) -> Run:
    """Wait until a worker has started an AppWrapper's workflow, and return its run."""
    while True:
        try:
            return await holdfast.get(name, NAMESPACE)
        except WorkloadNotFound:
            await asyncio.sleep(0.1)


def _break(stack: Stack, run: Run) -> str:
    """Make one running pod fail, and return its name."""
    from holdfast import names

    selector = f"{names.LABEL_WORKLOAD_UID}={run.uid}"
    listed = stack.kubectl("get", "pods", "-n", run.namespace, "-l", selector, "-o", "name")
    pod = sorted(listed.split())[0]
    stack.kubectl(
        "annotate",
        pod,
        "-n",
        run.namespace,
        f"{names.GROUP}/kwok-exit-code=137",
        f"{names.GROUP}/kwok-reason=OOMKilled",
        f"{names.GROUP}/kwok-fail=0s",
    )
    return pod.removeprefix("pod/")


def _unhealthy(view: StatusView) -> bool:
    return any(condition.type.value == "Unhealthy" and condition.status for condition in view.status.conditions)


def _since(view: StatusView) -> float:
    return (datetime.now(UTC) - view.status.since).total_seconds()
