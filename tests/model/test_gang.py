"""What a gang may be asked to be; and how large its memory is."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from holdfast.model.gang.state import Gang, GangState
from tests.policy.lives.gang import Meeting


def test_defaults_are_the_published_ones() -> None:
    one = Gang(min=1, max=2)
    assert (one.last_call, one.join_timeout, one.finalization_barrier, one.keep_alive) == (
        timedelta(seconds=30),
        timedelta(seconds=600),
        timedelta(seconds=300),
        timedelta(seconds=15),
    )
    assert (one.max_restarts, one.max_rounds, one.spares) == (3, None, 0)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"min": 3, "max": 2}, "min: 3: expected at most max, 2"),
        ({"min": 0}, "greater than or equal to 1"),
        ({"max": 4097}, "less than or equal to 4096"),
        ({"max": 4096, "spares": 1}, "spares: 1: expected at most 0 beside max"),
        ({"lastCall": "11m"}, "last_call: 11m: expected at most the join timeout, 10m"),
        ({"heartbeat": "100ms"}, "heartbeat: 0.1s: expected at least 1s"),
        ({"joinTimeout": "0s", "lastCall": "0s"}, "join_timeout: 0s: expected at least 1s"),
        ({"keepAliveAttempts": 1}, "greater than or equal to 2"),
        ({"maxRestarts": -1}, "greater than or equal to 0"),
        ({"maxRounds": 0}, "greater than or equal to 1"),
        ({"roundsWindow": "0s"}, "rounds_window: 0s: expected at least 1s"),
    ],
)
def test_what_no_gang_can_be_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Gang.model_validate({"min": 1, "max": 4, **given})


def test_what_a_rendezvous_remembers_comes_back_from_json_as_it_was() -> None:
    one = Meeting(high=3, max_rounds=9).start("a", "b", "c").fails("b").obey().state
    assert GangState.model_validate_json(one.model_dump_json()) == one


def test_the_memory_of_1000_members_fits_one_payload() -> None:
    one = Meeting(high=1000).start(*[f"train-worker-{number}" for number in range(1000)]).state
    assert one.round == 1
    assert len(one.model_dump_json(exclude_defaults=True)) < 600_000
