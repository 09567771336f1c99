"""A worker killed at each request of a whole life, answered or not: nothing twice, nothing lost (row A19)."""

from __future__ import annotations

from collections import Counter

import pytest

from holdfast.model import Phase
from tests.fakes.ledger import Kind
from tests.policy.lives.play import Play

ROW = pytest.mark.row
STATIONS = ("runs", "was reset", "suspended", "runs again", "ended")


class Fated(Play):
    """A life in which the worker dies once, at a request that is counted from the beginning."""

    def __init__(self, at: int = 0, *, arrives: bool = False) -> None:
        self._at = at
        self._arrives = arrives
        self.requests = 0
        super().__init__()

    def acts(self, requests: int) -> None:
        for _ in range(requests):
            self.tasks()
            if self.flow.request() is not None:
                self.requests += 1
                if self.requests == self._at:
                    self._dies()
            super().acts(1)

    def _dies(self) -> None:
        self.worker_dies(last_request=self._arrives, stays=False)
        if self._arrives:
            self.late_request_lands()
        self.replay()
        self.worker_comes()


def lived(play: Play) -> list[tuple[Phase, int, int, int]]:
    """Live through a start, a reset, a suspension, a resumption and a cancellation; return what each came to."""
    came: list[tuple[Phase, int, int, int]] = []

    def station(seconds: float) -> None:
        play.goes_on(seconds)
        state = play.flow.state
        came.append((state.phase, state.executions, state.restarts, sum(state.used.values())))

    station(60)
    play.weather.replaces = False
    play.pod_ends(0, 1)
    play.goes_on(30)
    play.weather.replaces = True
    station(240)
    play.suspend()
    station(60)
    play.resume()
    station(60)
    play.cancel()
    station(120)
    assert play.flow.ended is Phase.CANCELLED
    play.weather.settles()
    assert not play.cluster.alive, "something is left"
    return came


def made(play: Play) -> Counter[tuple[Kind, int, str]]:
    """Return how often each owner and component was made, of each attempt."""
    return Counter((one.kind, one.attempt, one.component) for one in play.cluster.all if one.kind is not Kind.POD)


@ROW("A19", level="pure")
@pytest.mark.parametrize("arrives", [False, True], ids=["not-sent", "sent-and-unanswered"])
def test_A19_a_worker_killed_at_any_request_loses_nothing_and_repeats_nothing(arrives: bool):
    calm = Fated()
    course = lived(calm)
    phases = [Phase.RUNNING, Phase.RUNNING, Phase.SUSPENDED, Phase.RUNNING, Phase.CANCELLED]
    assert [one[0] for one in course] == phases, dict(zip(STATIONS, course, strict=True))
    assert course[-1][1:] == (3, 1, 1)
    print(f"MEASURED {calm.requests} requests")
    for at in range(1, calm.requests + 1):
        play = Fated(at, arrives=arrives)
        assert lived(play) == course, f"the worker died at request {at}"
        assert made(play) == made(calm), f"the worker died at request {at}"
