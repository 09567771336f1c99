"""The label restart-attempt of a JobSet's Jobs: how often all of them were restarted, as its status says (J11, J14)."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.activities.objects.make import is_made_alike
from holdfast.formats.jobset import reader
from holdfast.formats.jobset.status import status
from holdfast.model import Attempt, OperationKind, State, SuspendMode
from holdfast.model.calls.cluster import CreateInput, ReplaceInput
from holdfast.policy.status.explain import status_of
from holdfast.policy.values.edit import edit
from holdfast.policy.values.events import Resumed, Suspended
from holdfast.workflows.operations.dispatch import call_of
from tests.activities.objects.test_inject import injected
from tests.e2e.peers.jobsets import P, jobset, replicated
from tests.policy.lives.elements import Elements

ROW = pytest.mark.row
LABEL = f"{P}restart-attempt"


def life(suspend: SuspendMode = SuspendMode.IN_PLACE) -> Elements:
    document = jobset("train", replicated("a", replicas=2), replicated("b"), failurePolicy={"maxRestarts": 3})
    spec = reader.read(document, cluster="dev")
    deletion = edit(spec.policy.deletion, suspend=suspend)
    one = Elements(spec=spec.model_copy(update={"policy": edit(spec.policy, deletion=deletion)}))
    one.state = edit(one.state, shows_waits=True)  # As every run does that begins now.
    return one.up()


def sent(one: Elements) -> Any:
    return call_of(one.spec, one.state, "uid", one.now).argument


def told(one: Elements) -> dict[str, Any]:
    return status(one.spec, status_of(one.spec, one.state, one.now, "uid"))


def labels(one: Elements, given: CreateInput | ReplaceInput) -> dict[str, set[str]]:
    """Return the label of each replicated job's Jobs, and of their pods, as they would be made."""
    found: dict[str, set[str]] = {}
    for component in given.components:
        if component.copies is None:
            continue
        made = injected(
            component,
            attempt=given.attempt,
            launch=given.launches.get(component.name, 0),
            copy_index=0,
            restarts=given.restarts.get(component.name),
        )
        pod = made["spec"]["template"]["metadata"]
        found[component.name] = {one[LABEL] for one in (made["metadata"]["labels"], pod["labels"], pod["annotations"])}
    return found


def held_at_creation(one: Elements) -> Elements:
    """Let the next attempt wait while it creates its Jobs."""
    one.hold = {OperationKind.CREATE}
    return one


@ROW("J14", level="pure")
@ROW("J11", level="pure")
def test_J14_a_resumption_after_a_suspension_that_deletes_is_no_restart():
    one = held_at_creation(life(SuspendMode.DELETE))
    one.tell(Suspended())
    assert one.state.phase == "Suspended"
    one.tell(Resumed())
    assert (one.attempt, told(one)["restarts"]) == (2, 0)
    assert labels(one, sent(one)) == {"a": {"0"}, "b": {"0"}}
    one.hold.clear()
    one.finish()
    one.settle()
    held_at_creation(one.up()).says(b="Failed")
    assert (one.attempt, told(one)["restarts"]) == (3, 1)
    assert labels(one, sent(one)) == {"a": {"1"}, "b": {"1"}}


@ROW("J11", level="pure")
def test_J11_after_restarts_alone_nothing_is_sent_of_them():
    one = held_at_creation(life()).says(b="Failed")
    assert (one.attempt, told(one)["restarts"]) == (2, 1)
    assert sent(one).restarts == {}, "the attempt tells it"
    assert labels(one, sent(one)) == {"a": {"1"}, "b": {"1"}}


@ROW("J11", level="pure")
@ROW("J17", level="pure")
def test_J11_a_job_that_somebody_deleted_is_made_again_and_nothing_was_restarted():
    one = life()
    one.hold = {OperationKind.REPLACE}
    one.deleted("a")
    assert (one.state.restarts, one.launches()) == (0, {"a": 1})
    assert labels(one, sent(one)) == {"a": {"0"}}
    assert told(one)["restarts"] == 0
    assert "RestartingJobSet" not in [each["type"] for each in told(one).get("conditions", [])]
    one.hold.clear()
    one.finish()
    one.settle()
    held_at_creation(one.up()).says(b="Failed")
    assert (one.attempt, told(one)["restarts"]) == (2, 1)
    assert labels(one, sent(one)) == {"a": {"1"}, "b": {"1"}}


@ROW("J11", level="pure")
def test_J11_what_an_earlier_release_made_of_an_attempt_is_taken_for_it():
    component = next(each for each in life().spec.components if each.name == "a")
    found = injected(component, config_hash="h", copy_index=1)
    wanted = injected(component, config_hash="h", copy_index=1, restarts=0)
    assert (found["metadata"]["labels"][LABEL], wanted["metadata"]["labels"][LABEL]) == ("1", "0")
    assert is_made_alike(found, wanted)


@ROW("J11", level="pure")
def test_J11_the_memory_of_a_life_of_restarts_alone_is_what_it_was():
    one = life().says(b="Failed")
    attempt: Attempt | None = one.state.attempt
    assert attempt is not None
    assert not {"unlike_restarts", "missed"} & attempt.model_dump().keys()
    assert State.model_validate(one.state.model_dump()) == one.state
    assert edit(attempt, missed={"a": 1}).model_dump()["missed"] == {"a": 1}
