"""A restarted JobSet never mixes attempts, whichever restart strategy it names (row J11)."""

from __future__ import annotations

import pytest

from holdfast.formats.jobset import reader
from holdfast.model import OperationKind, Stage
from tests.e2e.peers.jobsets import jobset as document
from tests.e2e.peers.jobsets import replicated
from tests.policy.lives.elements import Elements


@pytest.mark.row("J11", level="pure")
@pytest.mark.parametrize("strategy", [None, "Recreate", "BlockingRecreate"])
def test_J11_nothing_of_the_next_attempt_is_made_before_all_of_the_last_is_proven_gone(strategy: str | None) -> None:
    policy = {"maxRestarts": 2} | ({"restartStrategy": strategy} if strategy else {})
    given = document("train", replicated("driver"), replicated("workers", replicas=2), failurePolicy=policy)
    life = Elements(spec=reader.read(given, cluster="dev"))
    life.settle()
    life.pods(running=1)
    life.hold = {OperationKind.REMOVE}
    life.says(driver="Failed")
    life.settle()
    assert life.state.attempt is not None
    assert (life.attempt, life.state.attempt.stage) == (1, Stage.REMOVING)
    begun = len(life.ran)
    life.after(minutes=9)
    assert (life.attempt, len(life.ran)) == (1, begun), "it waits for the proof, and for nothing else"
    life.hold.clear()
    life.finish()
    life.settle()
    assert life.attempt == 2
    assert life.state.used == {"restart": 1}
