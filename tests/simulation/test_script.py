"""A script of failures is read strictly: what is wrong is named by its field, with what is allowed."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.errors import InvalidWorkload
from holdfast.simulation import read_script
from tests.policy.lives.life import workload
from tests.simulation.cases import CASES


def test_an_empty_script_is_one_in_which_nothing_happens():
    assert read_script("").events == ()


def test_times_repetitions_and_marks_are_read():
    script = read_script(
        """
        pods: {schedule: 1s, run: 6h}
        events:
        - {at: 10m, fail: {component: train, exitCode: 137}}
        - {every: 30m, times: 3, fail: {}}
        - {attempt: each, at: 5m, suspend: }
        """
    )
    assert script.pods.run == timedelta(hours=6)
    assert [each.what[0] for each in script.events] == ["fail", "fail", "suspend"]
    assert (script.events[0].at, script.events[0].every) == (timedelta(minutes=10), None)
    assert (script.events[1].at, script.events[1].every, script.events[1].times) == (None, timedelta(minutes=30), 3)


@pytest.mark.parametrize(
    ("text", "path", "said"),
    [
        ("[1]", "line 1", "expected an object"),
        ("a: 1\n---\nb: 2", "", "expected one document, found 2"),
        ("pods: {begin: 1s}", "pods.begin", "is not a field here"),
        ("pods: {start: soon}", "pods.start", "is not a duration"),
        ("pods: {start: -1s}", "pods.start", "is not a duration"),
        ("nodes: 0", "nodes", "greater than or equal to 1"),
        ("events: [{at: 1m}]", "events[0]", "exactly one of fail, succeed"),
        ("events: [{at: 1m, fail: {}, cancel: {}}]", "events[0]", "found fail, cancel"),
        ("events: [{fail: {}}]", "events[0]", "either at or every"),
        ("events: [{at: 1m, every: 1m, times: 2, fail: {}}]", "events[0]", "either at or every"),
        ("events: [{every: 1m, fail: {}}]", "events[0]", "every and times belong together"),
        ("events: [{every: 0s, times: 2, fail: {}}]", "events[0].every", "more than 0s"),
        ("events: [{at: 1m, since: created, fail: {}}]", "events[0].since", "give attempt too"),
        ("events: [{at: 1m, attempt: 0, fail: {}}]", "events[0].attempt", "each"),
        ("events: [{at: 1m, fail: {pods: some}}]", "events[0].fail.pods", "or all (found 'some')"),
        ("events: [{at: 1m, fail: {exitCode: 0}}]", "events[0].fail.exitCode", "greater than or equal to 1"),
        ("events: [{at: 1m, fail: {exitcode: 3}}]", "events[0].fail.exitcode", "did you mean exitCode"),
        ("events: [{at: 1m, refuse: {reason: Quota}}]", "events[0].refuse.reason", "QuotaExceeded"),
        ("events: [{at: 1m, blind: {}}]", "events[0].blind.for", "is required"),
        ("events: [{at: 1m, launchFails: {reason: Slow}}]", "events[0].launchFails.reason", "ErrImagePull"),
        (
            "events: [{at: 1m, launchFails: {exitCode: 3}}]",
            "events[0].launchFails.exitCode",
            "reason is InitError",
        ),
        ("events: [{at: 1m, nodeBroken: {}}]", "events[0].nodeBroken.node", "is required"),
        (
            "events: [{at: 1m, nodeBroken: {node: node-1, condition: Old}}]",
            "events[0].nodeBroken.condition",
            "ReadonlyFilesystem",
        ),
        (
            "events: [{at: 1m, probeFails: {status: 200}}]",
            "events[0].probeFails.status",
            "greater than or equal to 400",
        ),
        ("events: [{at: 1m, extend: {}}]", "events[0].extend.by", "is required"),
        ("events: [{at: 1m, extend: {by: 0s}}]", "events[0].extend.by", "expected more"),
        ("events: [{at: 1m, suspend: {within: 1m}}]", "events[0].suspend.within", "is not a field here"),
        ("events: [{at: 1m, preempt: {within: soon}}]", "events[0].preempt.within", "is not a duration"),
        ("events: [{at: 1m, requeue: {class: App}}]", "events[0].requeue.class", "Hardware"),
        (
            "events: [{at: 1m, requeue: {expectedRequeueCount: -1}}]",
            "events[0].requeue.expectedRequeueCount",
            "greater than or equal to 0",
        ),
    ],
)
def test_what_is_no_script_is_refused_by_its_field(text: str, path: str, said: str):
    with pytest.raises(InvalidWorkload) as error:
        read_script(text, "script failures.yaml")
    assert "script failures.yaml" in str(error.value)
    assert path in [problem.path for problem in error.value.problems], error.value
    assert said in str(error.value)


def test_components_and_nodes_must_be_there():
    script = read_script(
        "events: [{at: 1s, delete: {component: other}}, {at: 1s, nodeLost: {node: node-9}}, {at: 2s, fail: {}}]"
    )
    first, second = script.problems(workload())
    assert (first.path, first.value, first.allowed) == ("events[0].delete.component", "other", ("train",))
    assert (second.path, second.value) == ("events[1].nodeLost.node", "node-9")


def test_what_could_never_come_true_of_the_workload_is_refused():
    script = read_script(
        "events: [{at: 1s, probeFails: {}}, {at: 1s, extend: {by: 1h}}, {at: 1s, nodeBroken: {node: node-9}}, "
        "{at: 1s, launchFails: {node: node-0}}, {at: 1s, requeue: {node: other}}]"
    )
    found = script.problems(workload())
    assert [each.path for each in found] == [
        "events[0].probeFails",
        "events[1].extend",
        "events[2].nodeBroken.node",
        "events[3].launchFails.node",
        "events[4].requeue.node",
    ]
    assert "only where the workload has a probe" in str(found[0])
    assert "only where the workload has a walltime" in str(found[1])
    serves, walled = (next(case for case in CASES if case.document == name) for name in ("service", "walltime"))
    script = read_script("events: [{at: 1s, probeFails: {component: other}}, {at: 2s, probeFails: {status: 503}}]")
    (unknown,) = script.problems(serves.workload())
    assert (unknown.path, unknown.allowed) == ("events[0].probeFails.component", ("serve",))
    script = read_script("events: [{at: 1s, extend: {by: 2m}}, {at: 1s, extend: {by: 3m}}]")
    (too_long,) = script.problems(walled.workload())
    assert (too_long.path, too_long.value) == ("events[1].extend.by", "3m")
    assert "expected at most 2m" in str(too_long)
