"""The ledger of lives on the simulated clock, whose times are known, and of recorded histories (row P5)."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.model import Action, ActionKind, Component, Kind, Replacement, Workload
from holdfast.model.life.ledger import Bucket, Ledger
from holdfast.past import Story, story_of
from holdfast.past.ledger import ledger_of
from tests.past.recorded import NAMES, runs, story
from tests.past.test_simulated_lives import document, lived, script

NOW = datetime(2100, 1, 1, tzinfo=UTC)
TOLD = {
    "healed-within-grace deployment": "starting 10 productive 60 starting 10 productive 170 removing 5",
    "failed-pod-reset pods": "starting 10 lost 60 detecting 60 removing 5 pausing 90 starting 10 productive 60",
    "admission-grace job": "starting 60 detecting 60 pausing 90 starting 10 productive 60 removing 5",
    "warmup-grace pods": "starting 300 detecting 60 pausing 90 starting 10 productive 60 removing 5",
    "missing-component job": "starting 10 lost 60 removing 5 pausing 90 starting 10 productive 60",
    "suspended-in-pause pods": "starting 10 lost 60 detecting 60 removing 5 pausing 30 suspended 150 starting 10 "
    "productive 60",
    "forceful-deletion pods": "starting 10 lost 60 detecting 60 removing 600 pausing 90 starting 10 productive 60 "
    "removing 5",
    "success-ttl job": "starting 10 productive 60",
    "held-after-failure held": "starting 10 lost 60 detecting 60",
    "blind-over-grace pods": "starting 10 lost 60 detecting 240 removing 5 pausing 90 starting 10 productive 60 "
    "removing 5",
    "preempted pods": "starting 10 lost 60 removing 5 suspended 60 starting 10 productive 60",
    "image-comes-late allocation": "starting 2 detecting 38 productive 60",
    "node-down allocation": "starting 10 lost 60 detecting 90 removing 5 queued 5 starting 10 productive 60",
    "parked-in-place parked": "starting 10 lost 60 removing 5 suspended 415 starting 10 productive 230",
    "preempted-within saves": "starting 10 lost 60 checkpointing 10 removing 5 suspended 60 starting 10 productive 60 "
    "checkpointing 30 removing 5 suspended 60 starting 10 productive 60",
    "probe-fails service": "starting 10 productive 370 removing 5 queued 5 starting 10 productive 60 removing 5",
    "sensitive-held sensitive": "starting 10 lost 60 detecting 330 suspended 210 starting 10 productive 60",
}
"""For each script and the workload that it happens to: the ledger, in seconds."""


def counted(lived: Story) -> Ledger:
    return ledger_of(lived, NOW)


def told(ledger: Ledger) -> str:
    return " ".join(f"{span.bucket.value} {span.milliseconds / 1000:g}" for span in ledger.spans)


def happened(document: Workload, *events: str, pods: str = "") -> Ledger:
    text = f"pods: {{{pods}}}\n" if pods else ""
    return counted(lived(document, text + "events:\n" + "".join(f"- {{{one}}}\n" for one in events)))


@pytest.mark.row("P5", level="pure")
@pytest.mark.parametrize("case", TOLD)
def test_P5_each_bucket_is_as_long_as_the_simulated_cluster_took(case: str):
    happening, workload = case.split()
    ledger = counted(lived(document(workload), script(happening)))
    assert told(ledger) == TOLD[case]
    assert sum(ledger.milliseconds.values()) == ledger.age


@pytest.mark.row("P5", level="pure")
def test_P5_the_price_of_a_failure_has_its_class_and_its_node():
    ledger = counted(lived(document("pods"), script("failed-pod-reset")))
    first, *paid, last = ledger.spans
    assert {(one.cause, one.node) for one in paid} == {("App", "node-1")}
    assert (first.cause, last.cause) == ("", "")
    assert [(one.bucket, one.milliseconds) for one in ledger.charges] == [
        (Bucket.PAUSING, 90_000),
        (Bucket.DETECTING, 60_000),
        (Bucket.LOST, 60_000),
        (Bucket.STARTING, 10_000),
        (Bucket.REMOVING, 5_000),
    ]
    assert ledger.goodput == 60 / 295


@pytest.mark.row("P5", level="pure")
def test_P5_only_what_came_after_the_last_save_is_lost():
    ledger = happened(
        document("saves"),
        "attempt: 1, at: 5m, checkpoint: {}",
        "attempt: 1, at: 10m, fail: {exitCode: 1}",
    )
    assert told(ledger) == "starting 10 productive 300 checkpointing 30 lost 270"
    assert {one.cause for one in ledger.spans if one.bucket is Bucket.CHECKPOINTING} == {"CheckpointRequested"}
    assert not ledger.notes


@pytest.mark.row("P5", level="pure")
def test_P5_a_suspension_after_a_save_loses_nothing():
    ledger = happened(
        document("saves"),
        "attempt: 1, at: 5m, suspend: {}",
        "at: 20m, resume: {}",
        "attempt: 2, at: 1m, succeed: {}",
    )
    assert ledger.milliseconds[Bucket.LOST] == 0
    assert ledger.milliseconds[Bucket.PRODUCTIVE] == 360_000


def test_what_a_service_has_served_is_not_lost_and_the_ledger_says_so():
    spec = document("pods")
    story = lived(spec, script("failed-pod-reset"))
    served = dataclasses.replace(story, spec=spec.model_copy(update={"kind": Kind.SERVICE}))
    served.turns = [dataclasses.replace(turn, spec=served.spec) for turn in story.turns]
    assert counted(served).milliseconds[Bucket.LOST] == 0
    assert "It is a service" in counted(served).notes[0]
    assert "declares no checkpoint" in counted(story).notes[0]


def test_a_workload_goes_on_without_pods_whose_failure_its_rules_ignore():
    spec = document("pods")
    policy = spec.policy.model_copy(update={"rules": (), "default": Action(kind=ActionKind.IGNORE)})
    ledger = happened(
        spec.model_copy(update={"policy": policy}),
        "attempt: 1, at: 1m, fail: {component: worker-0, exitCode: 1}",
        "attempt: 1, at: 5m, cancel: {}",
    )
    assert told(ledger) == "starting 10 productive 300 removing 5"


def test_a_component_alone_that_is_made_again_loses_nothing_and_all_together_lose_what_they_did():
    spec = document("pods")
    again = Replacement(failed=True, backoff=timedelta(seconds=30))
    policy = spec.policy.model_copy(update={"replacement": again})
    spec = spec.model_copy(update={"policy": policy})
    fails = [f"attempt: 1, at: {at}, fail: {{component: worker-0, exitCode: 1}}" for at in ("1m", "75s")]
    alone = happened(spec, *fails, "attempt: 1, at: 5m, cancel: {}")
    waits = "productive 5 detecting 15"  # The second time it waits for the back-off, since the first one.
    assert told(alone) == f"starting 10 productive 60 starting 10 {waits} starting 10 productive 200 removing 5"
    assert {(one.cause, one.node) for one in alone.spans if one.bucket is Bucket.DETECTING} == {("App", "node-4")}
    both = happened(spec, "attempt: 1, at: 1m, fail: {pods: all, exitCode: 1}", "attempt: 1, at: 5m, cancel: {}")
    assert told(both) == "starting 10 lost 60 starting 10 productive 230 removing 5"


def test_a_workload_without_pods_loses_nothing_while_it_lives():
    template = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}}
    spec = document("pods").model_copy(update={"components": (Component(name="settings", template=template),)})
    ledger = happened(spec, "at: 5m, cancel: {}")
    assert ledger.milliseconds[Bucket.LOST] == 0


def test_what_a_person_cancels_is_not_lost():
    ledger = happened(document("pods"), "attempt: 1, at: 1m, cancel: {}")
    assert told(ledger) == "starting 10 productive 60 removing 5"


def test_time_in_which_a_failed_workload_was_kept_counts_once_it_is_retried():
    spec = document("held")
    fails = "attempt: 1, at: 1m, fail: {exitCode: 1}"
    kept = happened(spec, fails)
    again = happened(spec, fails, "at: 3m, retry: {}", "attempt: 2, at: 1m, succeed: {}")
    assert again.spans[: len(kept.spans)] == kept.spans
    held = again.spans[len(kept.spans)]
    assert (held.bucket, held.milliseconds) == (Bucket.SUSPENDED, 180_000 - kept.age)


def test_a_workload_submitted_suspended_is_suspended_from_the_start():
    spec = document("pods").model_copy(update={"suspend": True})
    ledger = happened(spec, "at: 10m, resume: {}", "attempt: 1, at: 1m, succeed: {}")
    assert told(ledger) == "suspended 600 starting 10 productive 60"


def test_devices_and_pods_are_those_that_the_queue_counts():
    spec = document(
        "pods", **{"command: [train]": "command: [train], resources: {limits: {nvidia.com/gpu: 4, cpu: 2}}"}
    )
    ledger = happened(spec, "attempt: 1, at: 1m, succeed: {}")
    assert (ledger.pods, ledger.devices) == (2, {"nvidia.com/gpu": 8})


@pytest.mark.row("P5", level="pure")
@pytest.mark.parametrize("name", NAMES)
async def test_P5_the_ledger_of_a_recorded_history_adds_up_through_all_its_runs(name: str):
    found = await story(name)
    ledger = counted(found)
    assert sum(ledger.milliseconds.values()) == ledger.age > 0
    assert ledger.begun_at <= found.runs[0].began_at
    assert ledger.ended
    assert found.ended_at is not None
    assert ledger.until <= found.ended_at
    assert ledger_of(found, datetime(2200, 1, 1, tzinfo=UTC)) == ledger, "years later it is the same"


async def test_a_life_whose_beginning_is_no_longer_kept_is_counted_from_there_on():
    kept = await runs("continue-as-new")
    whole = counted(story_of(kept))
    rest = counted(story_of(kept[1:]))
    assert rest.age < whole.age
    assert sum(rest.milliseconds.values()) == rest.age
    assert rest.until == whole.until
    assert rest.spans[-1] == whole.spans[-1]
    assert any("oldest run that Temporal keeps" in note for note in rest.notes)


async def test_a_life_whose_last_runs_are_missing_has_not_ended():
    kept = await runs("continue-as-new")
    ledger = counted(story_of(kept[:1]))
    assert not ledger.ended
    assert sum(ledger.milliseconds.values()) == ledger.age
    assert any("the next run is not among the histories" in note for note in ledger.notes)


async def test_a_workload_that_runs_is_counted_up_to_now():
    found = await story("reset")
    task = next(index for index, turn in enumerate(found.turns) if turn.after.phase.value == "Running")
    turns = found.turns[: task + 1]
    open_run = dataclasses.replace(found.runs[-1], ended_at=None, closed="")
    going = dataclasses.replace(found, runs=(open_run,), turns=turns, state=turns[-1].after)
    now = turns[-1].at + timedelta(hours=1)
    ledger = ledger_of(going, now)
    assert not ledger.ended
    assert ledger.spans[-1].bucket is Bucket.PRODUCTIVE
    assert ledger.spans[-1].milliseconds >= 3_600_000
    assert abs(ledger.until - now) < timedelta(milliseconds=1)
