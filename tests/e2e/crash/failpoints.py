"""The crash harness: finds every point at which a scenario's worker could die, and lives the scenario once for each.

python -m tests.e2e.crash.failpoints      sums up what `make test-crash` has run (reports/crash)
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path
from typing import Any

from holdfast.activities.kube.errors import Unreachable
from holdfast.worker.failpoints import EXIT_CRASHED, Passing
from holdfast.worker.runtime.settings import ENV_FAILPOINT, ENV_FAILPOINT_TRACE
from tests.e2e.crash.asking import Asking
from tests.e2e.ground.site import Site, Worker, open_site
from tests.e2e.ground.space import open_space
from tests.e2e.lives.queued_lives import queued
from tests.e2e.lives.scenarios import BY_NAME, EntityScenario, Scenario
from tests.e2e.witness import invariants

REPORTS = Path("reports/crash")
PAIRS = 16
"""How many runs with two crashes are sampled of each scenario."""
RUN_SECONDS = 300.0
SLICES = 8
"""Into how many tests a scenario's runs are divided, so that several processes share them."""
ROUNDS = "elastic-rounds"
"""What a gang's rounds are called, which are lived on the real node (test_elastic_crashes.py)."""

Crashes = tuple[Passing, ...]
"""Where the worker dies, and where the one that is started then does."""


@dataclass(frozen=True)
class Outcome:
    """What one run came to."""

    scenario: str
    crashes: str
    wanted: int
    happened: int
    seconds: float
    problem: str = ""

    @property
    def reached(self) -> bool:
        """Whether the worker died wherever it was to."""
        return self.happened == self.wanted


class Mortal:
    """A worker that dies at a failpoint, and is started again by who watches it; then without, or with another."""

    def __init__(
        self,
        site: Site,
        crashes: Crashes,
        trace: Path | None = None,
        settings: Mapping[str, str] | None = None,
        asking: Asking | None = None,
    ) -> None:
        self._site = site
        self._asking = asking
        self._settings = settings or {}
        self._rest = list(crashes)
        self._trace = trace
        self.crashes: list[datetime] = []
        self.worker = self._launch()

    def _launch(self) -> Worker:
        point = str(self._rest.pop(0)) if self._rest else ""
        environment = {**self._settings, ENV_FAILPOINT: point, ENV_FAILPOINT_TRACE: str(self._trace or "")}
        return self._site.launch(kubeconfig=None, **environment)

    async def watch_over(self) -> None:
        """Start another whenever it dies at a failpoint; where an entity lives, that is asked before.

        Raises:
            AssertionError: if it ends in another way.
        """
        while True:
            await asyncio.sleep(0.02)
            code = self.worker.process.poll()
            if code is None:
                continue
            assert code == EXIT_CRASHED, f"the worker ended with {code}: {self.worker.log.read_text()[-4000:]}"
            self.crashes.append(datetime.now(UTC))
            if self._asking is not None:
                await self._asking.between()
            self.worker = self._launch()

    async def during(self, life: Coroutine[Any, Any, None]) -> None:
        """Keep it for as long as something lasts, then stop it."""
        keeper, living = asyncio.create_task(self.watch_over()), asyncio.create_task(life)
        try:
            await asyncio.wait({keeper, living}, return_when=asyncio.FIRST_COMPLETED)
            await (living if living.done() else keeper)
        finally:
            for task in (living, keeper):
                task.cancel()
            await asyncio.gather(living, keeper, return_exceptions=True)
            if self.worker.process.poll() is None:
                await asyncio.to_thread(self.worker.stop)


async def live(
    site: Site, scenario: Scenario | EntityScenario, crashes: Crashes = (), trace: Path | None = None
) -> int:
    """Live a scenario once, with these crashes, and check all invariants; return how many crashes happened.

    Args:
        site: where; it needs no worker.
        scenario: what to live.
        crashes: where the worker, and those that come after it, die.
        trace: where to write all points that are passed before it has ended.

    Raises:
        AssertionError: if an invariant is broken, or the scenario does not come to its end.
    """
    if isinstance(scenario, EntityScenario):
        return await live_entity(site, scenario, crashes, trace)
    mortal = Mortal(site, crashes, trace and trace.with_suffix(".all"), scenario.settings)

    async def life() -> None:
        async with open_space(site) as space:
            document = scenario.document()
            handle = await space.submit(await queued(space, document, scenario.quota) if scenario.quota else document)
            await scenario.script(space, handle)
            status = await space.ended(handle)
            if trace is not None:
                _keep(trace)
            await invariants.check(space, scenario, handle, status, mortal.crashes)

    await mortal.during(life())
    return len(mortal.crashes)


async def live_entity(site: Site, scenario: EntityScenario, crashes: Crashes, trace: Path | None) -> int:
    """Live a scenario of an entity, as `live` does, on a site of its own."""
    directory = Path(tempfile.mkdtemp(dir=site.directory))
    async with open_site(site.stack, directory, temporal_address=site.temporal_address, prefix="e") as own:
        lived = scenario.life(own)
        asking = Asking(own.client, lived.entities)
        async with lived.opened(), asking.over():
            mortal = Mortal(own, crashes, trace and trace.with_suffix(".all"), lived.settings, asking)

            async def life() -> None:
                async with open_space(own) as space:
                    await lived.live(space)
                    if trace is not None:
                        _keep(trace)
                    await asking.answered()
                    await lived.check(space)
                    await invariants.check_entity(space)

            await mortal.during(life())
        if crashes:
            print(f"MEASURED {asking.asked} workflows asked before a restart, {asking.due} timers fell due before it")
    return len(mortal.crashes)


def _keep(trace: Path) -> None:
    """Keep the points passed so far: those of the worker's own end are none of the scenario."""
    trace.write_text(trace.with_suffix(".all").read_text())


async def run(site: Site, scenario: Scenario | EntityScenario, crashes: Crashes) -> Outcome:
    """Live a scenario with these crashes, and say what it came to."""
    return await outcome_of(scenario.name, crashes, _live(site, scenario, crashes))


async def outcome_of(name: str, crashes: Crashes, life: Coroutine[Any, Any, int]) -> Outcome:
    """Say what a life with these crashes came to, which returns how many of them happened."""
    begun, happened, problem = time.monotonic(), len(crashes), ""
    try:
        happened = await asyncio.wait_for(life, RUN_SECONDS)
    except (AssertionError, TimeoutError, Unreachable) as error:
        problem = str(error) or type(error).__name__
    told = ", then ".join(map(str, crashes))
    return Outcome(name, told, len(crashes), happened, time.monotonic() - begun, problem)


async def _live(site: Site, scenario: Scenario | EntityScenario, crashes: Crashes) -> int:
    """Live it, and once more if the harness itself could not reach the API server: that tells nothing of the worker."""
    with contextlib.suppress(Unreachable):
        return await live(site, scenario, crashes)
    return await live(site, scenario, crashes)


# --- which


async def points_of(site: Site, scenario: Scenario | EntityScenario, shared: Path) -> list[Passing]:
    """Return the points that a scenario passes, in their order: found by living it once, by whoever comes first."""
    return await points_in(shared, scenario.name, lambda trace: live(site, scenario, trace=trace))


async def points_in(shared: Path, name: str, lives: Callable[[Path], Coroutine[Any, Any, int]]) -> list[Passing]:
    """Return the points that a life passes, which is lived by whoever comes first and writes them to a file."""
    known = shared / f"points-{name}"
    with (shared / f"points-{name}.lock").open("w") as lock:
        await asyncio.to_thread(fcntl.flock, lock, fcntl.LOCK_EX)
        if not known.exists():
            known.with_suffix(".all").unlink(missing_ok=True)  # Of whoever tried before, in vain.
            await asyncio.wait_for(lives(known.with_suffix(".new")), RUN_SECONDS)
            known.with_suffix(".new").rename(known)
    return [Passing.parse(line) for line in dict.fromkeys(known.read_text().splitlines())]


def pairs_of(points: Sequence[Passing], count: int = PAIRS) -> list[Crashes]:
    """Return a sample of two crashes in one run, the same for the same points; the second life counts anew."""
    both = [(first, second) for first, second in combinations(range(len(points)), 2)]
    chosen = random.Random(len(points)).sample(both, min(count, len(both)))
    return [(points[first], _anew(points, first, second)) for first, second in chosen]


def _anew(points: Sequence[Passing], first: int, second: int) -> Passing:
    """Return a point as a worker counts it that was started after another had died at an earlier one."""
    before = sum(1 for each in points[: first + 1] if each.point == points[second].point)
    return Passing(points[second].point, points[second].number - before)


def share(points: Sequence[Passing], index: int, of: int) -> list[Crashes]:
    """Return the runs of one slice: every point and every sampled pair is in exactly one."""
    runs: list[Crashes] = [(point,) for point in points]
    return [*runs, *pairs_of(points)][index::of]


# --- what came of it


def record(outcomes: Iterable[Outcome], name: str) -> None:
    """Write down outcomes, to be summed up."""
    REPORTS.mkdir(parents=True, exist_ok=True)
    (REPORTS / f"{name}.json").write_text(json.dumps([asdict(one) for one in outcomes], indent=1))


def recorded() -> list[Outcome]:
    """Return all that is written down."""
    return [Outcome(**one) for path in sorted(REPORTS.glob("*.json")) for one in json.loads(path.read_text())]


def summary(outcomes: Sequence[Outcome]) -> tuple[list[str], bool]:
    """Sum up: the lines to print, and whether everything that had to be shown was."""
    lines: list[str] = []
    fine = bool(outcomes)
    for scenario in sorted({one.scenario for one in outcomes}):
        own = [one for one in outcomes if one.scenario == scenario]
        counts = Counter("broke an invariant" if one.problem else _word(one) for one in own)
        lines.append(f"{scenario}: {len(own)} runs: " + ", ".join(f"{n} {what}" for what, n in sorted(counts.items())))
        fine = fine and any(one.reached and not one.problem for one in own)
    for one in outcomes:
        if one.problem:
            lines.append(f"broken: {one.scenario} with {one.crashes}: {one.problem.splitlines()[0]}")
        elif not one.reached:
            lines.append(f"not reached: {one.scenario} with {one.crashes}")
    points = Counter(one.scenario for one in outcomes if one.wanted == 1)
    lines.append("points by scenario: " + ", ".join(f"{name} {count}" for name, count in sorted(points.items())))
    singles, pairs = (sum(1 for one in outcomes if one.wanted == count) for count in (1, 2))
    missed = sum(1 for one in outcomes if not one.reached and not one.problem)
    broken = sum(1 for one in outcomes if one.problem)
    scenarios = len({one.scenario for one in outcomes})
    lines.append(
        f"{singles} failpoints and {pairs} pairs of {scenarios} scenarios: {len(outcomes)} runs, "
        f"{missed} not reached, {broken} broke an invariant"
    )
    return lines, fine and not broken


def _word(one: Outcome) -> str:
    return "held" if one.reached else "not reached"


def main() -> int:
    """Print the sum of what was run; return the exit code."""
    outcomes = recorded()
    lines, fine = summary(outcomes)
    print("\n".join(lines))
    missing = sorted({*BY_NAME, ROUNDS} - {one.scenario for one in outcomes})
    if missing:
        print(f"not run: {', '.join(missing)}")
    return 0 if fine and not missing else 1


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        sys.exit(main())
