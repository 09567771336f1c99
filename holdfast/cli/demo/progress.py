"""`holdfast demo --progress`: a training on a real kubelet hangs; its stacks are kept, and it goes on from its save."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast.cli.demo.setup import NAMESPACE, enabled, free_port, indented, named, say, worker
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from collections.abc import Generator

    from holdfast.client import Run, StatusView
    from holdfast.local import Stack

FILE: Final = "progress.yaml"
_DEADLINE: Final = 240.0
_SAVE_AFTER: Final = 4.0
"""Seconds after which the demo asks the running training to save; it does not hang before."""


def progress(stack: Stack, keep: bool, lines: Callable[[str], None]) -> bool:
    """Run the training on a stack with a real node, and return whether it ended after one restart."""
    from holdfast.local.identity import worker_kubeconfig

    say("\n2. A worker, and an S3 store in which it keeps evidence of failures")
    asyncio.run(enabled(stack, evidence=True))
    folder = Path("/var/tmp") / f"holdfast-progress-{secrets.token_hex(8)}"  # noqa: S108 - its name is random
    try:
        with _store(stack, keep, lines) as settings, worker(stack, worker_kubeconfig(stack), keep, settings) as log:
            try:
                return asyncio.run(_Demo(stack, settings, folder).live())
            except TimeoutError:
                say(f"   not done after {_DEADLINE:.0f} s; the worker's log: {log}")
                return False
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _store(stack: Stack, keep: bool, lines: Callable[[str], None]) -> Generator[dict[str, str]]:
    """Run an S3 server for as long as the worker, and yield the settings of who writes or reads evidence."""
    from holdfast.local.extras.store import BUCKET, StoreServer
    from holdfast.local.programs.resolve import resolve
    from holdfast.local.programs.tools import STORE_TOOLS

    (program,) = resolve(STORE_TOOLS, lines).values()
    server = StoreServer(stack.directory / "demo-store", program, free_port())
    server.start()
    try:
        yield {**server.environment, "HOLDFAST_EVIDENCE_STORE": f"s3://{BUCKET}/evidence"}
    finally:
        if not keep:
            server.kill()


class _Demo:
    """One life of the training."""

    def __init__(self, stack: Stack, settings: Mapping[str, str], folder: Path) -> None:
        self._stack = stack
        self._folder = folder
        own = {key: value for key, value in os.environ.items() if not key.startswith(("HOLDFAST_", "TEMPORAL_"))}
        self._environment = own | stack.environment | dict(settings) | {"KUBECONFIG": str(stack.kubeconfig)}

    async def live(self) -> bool:
        """Show the whole life, and return whether it went as it should."""
        from holdfast.client import Holdfast

        environment = self._stack.environment
        address, namespace = environment["TEMPORAL_ADDRESS"], environment["TEMPORAL_NAMESPACE"]
        async with asyncio.timeout(_DEADLINE), Holdfast.connect(address, namespace, self._stack.name) as holdfast:
            say("\n3. A training of 250 steps: from step 120 on, its data loader waits for ever\n")
            run = await holdfast.submit(self._workload())
            view = await self._follow(run)
        name = f"{NAMESPACE}/{run.name}"
        say("\n4. Where it hung: the stacks of its threads were taken before its pod was deleted")
        stacks = await self._show("logs", name, "--attempt", "1")
        say("\n5. Where it went on: after the step that it had saved")
        logs = await self._show("logs", name)
        say("\n6. What it cost")
        await self._show("goodput", name)
        page = self._stack.directory / "demo-progress.html"
        await self._show("report", name, "-o", str(page))
        saved = re.search(r"attempt 2 begins after step [1-9]", logs) is not None
        as_it_should = view.phase.value == "Succeeded" and view.status.restarts == 1
        healed = as_it_should and saved and "in wait_for_shard" in stacks
        outcome = "Succeeded after one restart" if healed else f"NOT AS IT SHOULD: {view.phase.value}"
        say(
            f"\n{outcome}: {name}\n"
            f"   its life as a page {page}\n"
            f"   clean up           holdfast dev down{named(self._stack)} --purge"
        )
        return healed

    async def _follow(self, run: Run) -> StatusView:
        """Show what happens until it has ended; ask it to save before it hangs."""
        from holdfast.cli.common import render
        from holdfast.cli.workloads.watch import Seen

        seen, saves, explained = Seen(), False, False
        while True:
            view = await run.status()
            for line in seen.news(view.status):
                say(f"   {line}")
            running = (datetime.now(UTC) - view.status.since).total_seconds() if view.phase.value == "Running" else 0.0
            if running > _SAVE_AFTER and not saves:
                saves = True
                say(f"\n   $ holdfast checkpoint {NAMESPACE}/{run.name}\n")
                await run.checkpoint()
            if view.phase.value == "Resetting" and not explained:
                explained = True
                told = render.explanation(await run.explain(), datetime.now(UTC))
                say(f"\n   $ holdfast explain {NAMESPACE}/{run.name}\n{indented(told)}\n")
            if view.phase.ended:
                return view
            await asyncio.sleep(0.3)

    def _workload(self) -> Any:
        """Read the published example, with a folder of its own for what it saves."""
        import yaml

        from holdfast import formats

        document = yaml.safe_load(Path(__file__).with_name(FILE).read_text(encoding="utf-8"))
        title = f"hangs-{secrets.token_hex(2)}"
        document["metadata"]["name"] = title
        job, code = (one["template"] for one in document["spec"]["components"])
        job["metadata"]["name"] = code["metadata"]["name"] = title
        volumes = {one["name"]: one for one in job["spec"]["template"]["spec"]["volumes"]}
        volumes["code"]["configMap"]["name"] = title
        volumes["saves"]["hostPath"]["path"] = str(self._folder)
        return formats.read(yaml.safe_dump(document), cluster=self._stack.name, namespace=NAMESPACE)[0]

    async def _show(self, *arguments: str) -> str:
        """Run a command as a person would, and show and return what it prints."""
        said = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-m", "holdfast", *arguments],
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        say(f"\n   $ holdfast {' '.join(arguments)}\n{indented(said.stdout)}")
        if said.returncode:
            raise HoldfastError(f"holdfast {arguments[0]} has exited {said.returncode}")
        return said.stdout
