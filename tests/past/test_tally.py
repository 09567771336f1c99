"""What the metrics count of a life, attempt by attempt, is what its ledger says of the whole (row P5)."""

from __future__ import annotations

from collections import Counter

import pytest

from holdfast.model.life.ledger import Bucket, totals
from holdfast.past import Story
from holdfast.past.ledger import moments_of
from holdfast.policy.loop.measures import is_over, moments
from holdfast.policy.status.ledger import Moment, Tally, spans_of
from tests.past.recorded import NAMES, story
from tests.past.test_ledger import TOLD
from tests.past.test_simulated_lives import document, lived, script

pytestmark = pytest.mark.row("P5", level="pure")


def tallied(life: Story) -> tuple[Counter[Bucket], int]:
    """Return what the metrics of a whole life add up to, in milliseconds, and how often they were recorded."""
    first = life.runs[0]
    tally, before = Tally(first.began_at), first.carried
    if before is not None:
        tally.take([Moment(first.began_at, life.spec, before)])
    found, records = Counter[Bucket](), 0
    for turn in life.turns:
        tally.take(moments(turn.spec, turn.folded, turn.taken, turn.after, turn.at))
        if before is not None and is_over(before, turn.after):
            found.update(tally.settled(turn.at))
            records += 1
        before = turn.after
    found.update(tally.settled(life.turns[-1].at))
    return found, records


def counted(life: Story) -> dict[Bucket, int]:
    spans = spans_of(life.runs[0].began_at, moments_of(life), life.turns[-1].at)
    return {bucket: spent for bucket, spent in totals(spans).items() if spent}


@pytest.mark.parametrize("name", NAMES)
async def test_P5_the_metrics_of_a_recorded_life_add_up_to_its_ledger(name: str):
    life = await story(name)
    assert tallied(life)[0] == counted(life)


@pytest.mark.parametrize("case", TOLD)
def test_P5_the_metrics_of_a_simulated_life_add_up_to_its_ledger(case: str):
    happening, workload = case.split()
    life = lived(document(workload), script(happening))
    assert tallied(life)[0] == counted(life)


def test_P5_each_attempt_is_counted_when_it_is_gone():
    life = lived(document("pods"), script("failed-pod-reset"))
    assert life.state is not None
    assert life.state.executions == 2
    assert tallied(life)[1] == 2, "both attempts are gone"
