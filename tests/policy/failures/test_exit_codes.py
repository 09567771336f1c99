"""Rules read the exit codes of every container of a pod, in the order of the AppWrapper controller (row D19)."""

from __future__ import annotations

from itertools import permutations, product
from typing import Any

import pytest

from holdfast.policy.failures.rules import rulings
from holdfast.profiles.appwrapper import POLICY
from holdfast.profiles.rules import with_exit_codes
from tests.activities.facts.test_snapshot import look
from tests.activities.shapes import pod, stamp

pytestmark = pytest.mark.row("D19", level="pure")


def container(name: str, code: int) -> dict[str, Any]:
    reason = "Error" if code else "Completed"
    return {"name": name, "state": {"terminated": {"exitCode": code, "reason": reason, "finishedAt": stamp(9)}}}


def rule_for(*codes: int, init: tuple[int, ...] = (), terminal: set[int] | None = None, retryable: Any = ()) -> str:
    """Return the rule that decides on a pod whose containers ended with these codes."""
    status: dict[str, Any] = {"containerStatuses": [container(f"c{n}", code) for n, code in enumerate(codes)]}
    if init:
        status["initContainerStatuses"] = [container(f"i{n}", code) for n, code in enumerate(init)]
    (failure,) = look(pod("train-0", "Failed", **status)).failures
    return rulings(with_exit_codes(POLICY, terminal or set(), retryable), [failure])[0].rule


def published(*codes: int, terminal: set[int], retryable: set[int]) -> bool:
    """Return whether the AppWrapper controller calls such a failure terminal: its loops over a pod's containers."""
    found = False
    for code in codes:
        if terminal and code in terminal and code != 0:
            found = True
        if retryable and code not in retryable and code != 0:
            found = True
    return found


@pytest.mark.parametrize("codes", [*permutations((1, 3)), *permutations((0, 1, 3)), (3, 1, 1)])
def test_D19_any_container_may_bear_the_terminal_code(codes: tuple[int, ...]):
    assert rule_for(*codes, terminal={3}) == "terminal-exit-codes"


@pytest.mark.parametrize("codes", list(permutations((137, 1))))
def test_D19_any_container_may_bear_the_code_that_is_not_retryable(codes: tuple[int, ...]):
    assert rule_for(*codes, retryable=(137,)) == "retryable-exit-codes"


@pytest.mark.parametrize("codes", list(permutations((3, 137))))
def test_D19_terminal_beats_retryable_in_whichever_container(codes: tuple[int, ...]):
    assert rule_for(*codes, terminal={3}, retryable=(3, 137)) == "terminal-exit-codes"


def test_D19_of_two_init_containers_and_a_container_each_is_read():
    for first, second, main in permutations((1, 2, 3)):
        assert rule_for(main, init=(first, second), terminal={3}) == "terminal-exit-codes"


def test_D19_as_the_published_controller_decides_it():
    for codes in product((0, 1, 3, 137), repeat=3):
        if not any(codes):
            continue
        for terminal, retryable in product((set[int](), {3}, {1, 3}), (set[int](), {137}, {3, 137})):
            decided = rule_for(*codes, terminal=terminal, retryable=retryable).endswith("exit-codes")
            assert decided is published(*codes, terminal=terminal, retryable=retryable), (codes, terminal, retryable)


def test_D19_a_sidecar_that_the_kubelet_ended_with_the_pod_is_not_read():
    """Kubernetes does not judge a pod by init containers that restart always, and ends them after the others."""
    raw = pod("train-0", "Failed", containerStatuses=[container("main", 137)])
    raw["spec"]["initContainers"] = [{"name": "log", "restartPolicy": "Always"}, {"name": "fetch"}]
    raw["status"]["initContainerStatuses"] = [container("log", 143), container("fetch", 0)]
    (failure,) = look(raw).failures
    assert rulings(with_exit_codes(POLICY, (), (137,)), [failure])[0].rule == "failed-pods"


def test_D19_the_failure_names_every_code():
    (failure,) = look(pod("train-0", "Failed", containerStatuses=[container("a", 1), container("b", 3)])).failures
    assert failure.sentence() == "train-0 exited 1 and 3 on node-7"
