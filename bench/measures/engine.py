"""How many steps a second the pure engine takes: what a property test, a replay and a busy worker all pay for.

A step is one workflow task without its I/O: what came is folded in, `advance` decides, the operation is begun.
Measured over whole random lives (`tests/policy/lives/script.py`), of which only the engine's own time counts, and over
one healthy life, as most are.
"""

from __future__ import annotations

import time
from random import Random

from bench.ground import Ground
from tests.policy.laws.laws import Violation
from tests.policy.lives.flow import Flow
from tests.policy.lives.life import Life
from tests.policy.lives.play import Play
from tests.policy.lives.script import walk

NAME = "engine"
LIVES = 150


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


async def measure(ground: Ground, lives: int = LIVES) -> None:
    """Measure random and healthy lives; it needs no server."""
    for repeat in range(ground.options.repeats):
        values = random_lives(ground, lives) | healthy_lives(lives)
        ground.record("Holdfast", values, size={"lives": lives}, repeat=repeat)


def random_lives(ground: Ground, lives: int) -> dict[str, float]:
    """Return the steps a second of the engine alone, and with its small cluster and the oracle."""
    begun = time.process_time()
    with Stopwatch() as watch:
        for seed in range(lives):
            play = Play()
            try:
                walk(play, Random(seed), 60)
                play.ends_well()
            except Violation as violation:
                ground.say(f"life {seed}: {violation}")
    whole = time.process_time() - begun
    return {"steps_per_s": watch.steps / watch.seconds, "steps_with_oracle_per_s": watch.steps / whole}


def healthy_lives(lives: int) -> dict[str, float]:
    """Return the milliseconds of a whole life with one reset."""
    begun = time.process_time()
    for _ in range(lives):
        life = Life().runs()
        life.sees(running=1, failed=1).after(seconds=60).after(seconds=90).sees(running=2)
        life.sees(succeeded=2, complete=True)
    return {"life_ms": (time.process_time() - begun) / lives * 1e3}
