"""Which snapshots are believed, which are let fall, and which call for a look of one's own (rows A6, U1, U4)."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.model import Reason, State
from holdfast.policy.loop.fold import fold, observed
from holdfast.policy.values.edit import edit
from holdfast.policy.values.events import Cancelled, Observed
from tests.policy.lives.life import Life

ROW = pytest.mark.row
SECOND = timedelta(seconds=1)


def knows(revision: int = 50) -> Life:
    """A running workload whose latest snapshot, of now, has that revision."""
    life = Life().runs()
    life.revision = revision - 1
    life.tell(Observed(life.look()))
    assert life.state.observation is not None
    assert (life.state.observation.revision, life.state.observed_at) == (revision, life.now)
    return life


def believed(before: State, after: State, revision: int) -> bool:
    """Whether a snapshot was taken; if not, it is counted as let fall and what was known stays."""
    assert after.observation is not None
    if after.observation.revision == revision:
        assert after.dropped == before.dropped
        return True
    assert (after.observation, after.dropped) == (before.observation, before.dropped + 1)
    return False


@ROW("A6", level="pure")
@pytest.mark.parametrize(("revision", "taken"), [(51, True), (49, False)])
def test_A6_of_what_the_watch_says_only_the_newer_is_believed_and_the_older_looked_into(revision: int, taken: bool):
    life = knows(50)
    news = edit(life.look(), revision=revision)
    after = fold(life.state, Observed(news), life.now + SECOND)
    assert believed(life.state, after, revision) is taken
    assert after.in_doubt is not taken
    if taken:
        assert (after.observed_at, after.looked_at) == (life.now + SECOND, None)


@ROW("A6", level="pure")
@pytest.mark.parametrize(("begun", "taken"), [(-SECOND, False), (0 * SECOND, True), (SECOND, True)])
def test_A6_a_look_begun_after_the_last_snapshot_is_the_newer_whatever_its_revision(begun: timedelta, taken: bool):
    life = knows(50)
    look = edit(life.look(live=True), revision=3)
    after = observed(life.state, look, life.now + begun, life.now + 2 * SECOND)
    assert believed(life.state, after, 3) is taken
    if taken:
        assert (after.observed_at, after.looked_at) == (life.now + 2 * SECOND, life.now + begun)
        assert not after.in_doubt


@ROW("U4", level="pure")
@pytest.mark.parametrize(
    ("ours", "theirs", "taken"),
    [("owner-1", "owner-1", True), ("owner-1", "another", False), ("owner-1", "", True), ("", "another", True)],
)
def test_U4_what_hangs_under_another_owner_is_not_ours(ours: str, theirs: str, taken: bool):
    life = knows(50)
    assert life.state.attempt is not None
    life.state = edit(life.state, attempt=edit(life.state.attempt, owner_uid=ours))
    after = fold(life.state, Observed(edit(life.look(), revision=60, owner_uid=theirs)), life.now)
    assert believed(life.state, after, 60) is taken
    assert after.in_doubt is not taken, "only a look can tell"


def test_an_anchor_deleted_in_the_cluster_is_recorded_as_what_it_is_and_once():
    life = Life().runs()
    deleted = Observed(edit(life.look(), anchor_deleting=True))
    after = fold(life.state, deleted, life.now)
    assert (after.intent.cancel, after.intent.cancel_reason) == (True, Reason.ANCHOR_DELETED)
    assert (after.causes[-1].reason, after.causes[-1].message) == (
        Reason.ANCHOR_DELETED,
        "its deletion was asked for: its anchor was deleted in the cluster",
    )
    assert len(fold(after, deleted, life.now).causes) == len(after.causes)
    asked = fold(life.state, Cancelled("enough"), life.now)
    assert fold(asked, deleted, life.now).intent == asked.intent, "a person's word stands"
