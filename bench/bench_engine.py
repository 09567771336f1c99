"""How many steps a second the pure engine takes: what a property test, a replay and a busy worker all pay for.

A step is one workflow task without its I/O: what came is folded in, `advance` decides, the operation is begun. Measured
over whole random lives (`tests/policy/script.py`), of which only the engine's own time counts, and over one healthy
life, as most are.
"""

from __future__ import annotations

import os
import time
from random import Random

from tests.policy.flow import Flow
from tests.policy.laws import Violation
from tests.policy.life import Life
from tests.policy.play import Play
from tests.policy.script import walk

LIVES = int(os.environ.get("BENCH_LIVES", "150"))


class Stopwatch:
    """Counts the engine's steps and their time."""

    def __init__(self) -> None:
        self.steps = 0
        self.seconds = 0.0
        self._decided = Flow._decided  # pyright: ignore[reportPrivateUsage]

    def __enter__(self) -> Stopwatch:
        decided, clock = self._decided, time.process_time_ns

        def timed(flow: Flow, *task: object) -> object:
            begun = clock()
            try:
                return decided(flow, *task)  # type: ignore[arg-type]
            finally:
                self.seconds += (clock() - begun) / 1e9
                self.steps += 1

        Flow._decided = timed  # type: ignore[method-assign,assignment]
        return self

    def __exit__(self, *_: object) -> None:
        Flow._decided = self._decided  # type: ignore[method-assign]


def random_lives() -> None:
    begun = time.process_time()
    with Stopwatch() as watch:
        for seed in range(LIVES):
            play = Play()
            try:
                walk(play, Random(seed), 60)
                play.ends_well()
            except Violation as violation:
                print(f"life {seed}: {violation}")
    whole = time.process_time() - begun
    print(
        f"{LIVES} random lives: {watch.steps} engine steps, {watch.steps / watch.seconds:,.0f} a second of its own "
        f"time; with cluster and oracle {watch.steps / whole:,.0f} a second"
    )


def healthy_lives() -> None:
    begun, steps = time.process_time(), 0
    for _ in range(LIVES):
        life = Life().runs()
        life.sees(running=1, failed=1).after(seconds=60).after(seconds=90).sees(running=2)
        life.sees(succeeded=2, complete=True)
        steps += len(life.ran)
    took = time.process_time() - begun
    each = took / LIVES * 1e3
    print(f"{LIVES} lives with one reset: {steps} operations, {steps / took:,.0f} a second, {each:.2f} ms a life")


if __name__ == "__main__":
    random_lives()
    healthy_lives()
