"""Holdfast's settings as annotations of an AppWrapper: read as those of a JobSet are (row J25)."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.errors import InvalidWorkload
from holdfast.formats import read
from holdfast.formats.appwrapper.reader import DURATIONS
from holdfast.formats.settings import NAMES, TIMING_NAMES
from holdfast.model import Failure, FailureClass, NodeAvoidance, Reason, RestartMode, Scope
from holdfast.names import GROUP
from holdfast.policy.failures.rules import rule_on
from holdfast.profiles.rules import RESTART
from tests.formats.documents import PREFIX, appwrapper, one, refusal
from tests.formats.jobset.jobsets import jobset_of
from tests.formats.test_warnings import taken

pytestmark = pytest.mark.row("J25", level="pure")
NOW = datetime(2026, 1, 1, tzinfo=UTC)
VALUES = {
    "retryLimit": "7",
    "restartBudgetResetAfter": "24h",
    "restartMode": "InPlace",
    "ruleLimits": "{default: 2}",
    "rulePauses": "{default: 3s}",
    "priority": "7",
    "runAs": "builder",
    "allowMissingKinds": "true",
    "sensitive": "true",
    "mounts": "[{name: corpus, source: s3://datasets/corpus, path: /data}]",
    "walltime": "2h",
    "walltimeExtendableTo": "4h",
    "checkpoint": "http",
    "checkpointPort": "8080",
    "checkpointPath": "/save",
    "checkpointOnUnresponsive": "Kill",
    "checkpointComponents": "0-job-train",
    "progress": "http",
    "progressPort": "9470",
    "progressPath": "/step",
    "progressComponents": "0-job-train",
    "progressPeriod": "5s",
    "progressMultiple": "20",
    "progressPoisonLimit": "2",
    "progressExecutions": "9",
}
"""A value of each setting, where it is not 17 minutes."""
ELSEWHERE = {"queue": "gpus", "suspend": "true", "profile": "streams"}
NO_BUDGET = {"launchLimit": "3", "launchBudgetResetAfter": "1h"}
SETTINGS = {name: VALUES.get(name, "17m") for name in NAMES if name not in {*ELSEWHERE, *NO_BUDGET}}
"""Each setting that an AppWrapper may have."""


def annotated(settings: dict[str, str], **own: str) -> dict[str, Any]:
    """Return an AppWrapper with settings of Holdfast, and with annotations of its own."""
    ours = {f"{GROUP}/{name}": value for name, value in settings.items()}
    return appwrapper(annotations={**ours, **{f"{PREFIX}{name}": value for name, value in own.items()}})


def test_J25_each_setting_is_read_as_from_the_command_line() -> None:
    (asked,) = read(appwrapper(), cluster="dev", overrides=SETTINGS)
    found = one(annotated(SETTINGS))
    assert found == asked
    assert found.policy.restart_mode is RestartMode.IN_PLACE


@pytest.mark.parametrize("name", SETTINGS)
def test_J25_none_is_ignored(name: str) -> None:
    others = {key: value for key, value in SETTINGS.items() if key != name}
    with suppress(InvalidWorkload):  # Others need it: a port needs its protocol, for example.
        assert one(annotated(others)) != one(annotated(SETTINGS))


@pytest.mark.parametrize(
    ("settings", "path", "says"),
    [
        ({"restartMode": "Sideways"}, "restartMode", "allowed: Recreate, InPlace (found 'Sideways')"),
        ({"failureGracePeriod": "soon"}, "failureGracePeriod", "'soon' is not a duration"),
        ({"retryLimit": "many"}, "retryLimit", "expected a whole number from 0 to 1000000"),
        ({"launchLimit": "3"}, "launchLimit", "profile appwrapper has no launch budget"),
        ({"launchBudgetResetAfter": "1h"}, "launchBudgetResetAfter", "profile appwrapper has no launch budget"),
        ({"ruleLimits": "{nobody: 2}"}, "ruleLimits", "expected the name of a rule that restarts"),
        ({"checkpointPort": "80"}, "checkpointPort", "is only for what sets checkpoint, too"),
        ({"progress": "annotation", "progressComponents": "nobody"}, "progressComponents", "expected a component"),
        ({"checkpoint": "http"}, "checkpointPort", "missing: protocol http"),
        ({"priority": "11"}, "priority", "expected a whole number from 0 to 10"),
        ({"walltime": "2h", "walltimeExtendableTo": "1h"}, "walltimeExtendableTo", ""),
        ({"runAs": "No Account"}, "runAs", "expected a Kubernetes name"),
        ({"mounts": "[]"}, "mounts", "expected a list such as"),
    ],
)
def test_J25_a_wrong_value_is_refused_with_its_path(settings: dict[str, str], path: str, says: str) -> None:
    (problem,) = refusal(annotated(settings))
    assert problem.path.startswith(f"metadata.annotations[{GROUP}/{path}]")
    assert says in str(problem)


@pytest.mark.parametrize(("annotation", "field"), DURATIONS.items())
def test_J25_an_annotation_of_the_appwrapper_wins_and_the_other_is_named(annotation: str, field: str) -> None:
    (setting,) = [name for name, one_field in TIMING_NAMES.items() if one_field == field]
    own = annotation.removeprefix(PREFIX)
    for other in ("3s", "no duration"):
        ((workload,), warned) = taken(json.dumps(annotated({setting: other}, **{own: "2s"})))
        assert getattr(workload.policy.timings, field) == timedelta(seconds=2)
        assert warned == [
            f"metadata.annotations[{GROUP}/{setting}]: is ignored, since metadata.annotations[{annotation}] decides"
        ]


def test_J25_the_retry_limit_of_the_appwrapper_wins_too() -> None:
    ((workload,), warned) = taken(json.dumps(annotated({"retryLimit": "5"}, retryLimit="2")))
    assert workload.policy.budget("restart").limit == 2
    assert len(warned) == 1


@pytest.mark.parametrize(("name", "value"), ELSEWHERE.items())
def test_J25_what_an_appwrapper_decides_elsewhere_is_accepted_and_named(name: str, value: str) -> None:
    ((workload,), warned) = taken(json.dumps(annotated({name: value})))
    assert workload == one(appwrapper())
    (text,) = warned
    assert text.startswith(f"metadata.annotations[{GROUP}/{name}]: is ignored, since ")


def test_J25_a_misspelt_setting_is_accepted_and_named_with_the_nearest() -> None:
    misspelt = {f"{GROUP}/restartMod": "InPlace", f"{GROUP}/checkpoint-uri": "s3://x", f"{GROUP}/owner": "me"}
    for document in (appwrapper(annotations=misspelt), jobset_of(annotations=misspelt)):
        assert taken(json.dumps(document))[1] == [
            f"metadata.annotations[{GROUP}/restartMod]: is no setting, and is ignored: "
            f"did you mean {GROUP}/restartMode?"
        ]


@pytest.mark.parametrize(("mode", "rule"), [("InPlace", "pod-restarted"), ("Recreate", "failed-pods")])
def test_J25_a_pod_that_restarts_in_place_avoids_no_node_and_has_no_grace(mode: str, rule: str) -> None:
    failure = Failure(
        cls=FailureClass.APP, scope=Scope.MEMBER, reason=Reason.POD_RESTARTED, time=NOW, subject="train-0", node="n1"
    )
    ruling = rule_on(one(annotated({"restartMode": mode})).policy, failure)
    assert ruling.rule == rule
    assert (ruling.action.charge, ruling.action.grace) == (RESTART, mode == "Recreate")
    assert (ruling.action.avoid is NodeAvoidance.NEVER) is (mode == "InPlace")


def test_J25_the_rule_of_pods_that_restart_is_there_once() -> None:
    document = annotated({"restartMode": "InPlace"})
    (twice,) = read(document, cluster="dev", overrides={"restartMode": "InPlace"})
    assert [rule.name for rule in twice.policy.rules].count("pod-restarted") == 1
    assert twice == one(document)
