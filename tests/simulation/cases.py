"""The scripts whose decisions are compared: in the pure simulation, on Temporal, and on a real cluster.

Each says the same three times. `decisions` is the only place where what is compared is made comparable.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from holdfast.formats import read
from holdfast.model import Cause, Reason, Status, Workload
from holdfast.simulation import Script, Simulation, read_script
from holdfast.simulation.script.read import Event

HERE = Path(__file__).parent
GOLDEN = HERE / "golden"


@dataclass(frozen=True)
class Case:
    """A script, the workload it happens to, and the rows whose defaults it shows."""

    name: str
    document: str
    rows: tuple[str, ...]
    only: str = ""
    """Why it is simulated and not enacted on a real cluster; empty where it is."""
    factor: float = 20.0
    """How much faster it is lived on a real cluster; less where what happens must come before a short wait is over."""

    def workload(self, cluster: str = "simulated", namespace: str | None = None) -> Workload:
        text = (HERE / "workloads" / f"{self.document}.yaml").read_text()
        (workload,) = read(text, cluster=cluster, namespace=namespace)
        return workload

    @property
    def script(self) -> Script:
        return read_script((HERE / "scripts" / f"{self.name}.yaml").read_text(), f"script {self.name}")


MONITORED = "tests/e2e/nodes/test_lost_nodes.py has the nodes and the monitor for it"
CASES = (
    Case("healed-within-grace", "deployment", ("A3",), "whether the watch sees it without the replacement is chance"),
    Case("failed-pod-reset", "pods", ("A3",)),
    Case("retry-limit-exceeded", "pods", ("A9",)),
    Case("admission-grace", "job", ("A4",), factor=8.0),
    Case("warmup-grace", "pods", ("A5",), factor=8.0),
    Case("missing-component", "job", ("A6",)),
    Case("job-failed", "job", ("A7",)),
    Case("exit-codes", "exit-codes", ("A15",)),
    Case("suspended-in-grace", "pods", ("A11",), factor=8.0),
    Case("suspended-in-pause", "pods", ("A11",), factor=8.0),
    Case("forceful-deletion", "pods", ("A8",)),
    Case("success-ttl", "job", ("A13",)),
    Case("held-after-failure", "held", ("A12",)),
    Case("blind-over-grace", "pods", ("U1",)),
    Case("preempted", "pods", ("A11", "U8")),
    Case("prologue-exhausted", "allocation", ("L16",)),
    Case("image-comes-late", "allocation", ("L16",), "a registry's moment is as short as how long it takes to see it"),
    Case("volume-never-comes", "allocation", ("L16",), "a kubelet's two minutes are not ours to shorten"),
    Case("requeued-by-operator", "allocation", ("L25", "L27")),
    Case("node-down", "allocation", ("L4",), MONITORED),
    Case("node-broken", "allocation", ("L8",), MONITORED),
    Case("walltime-extended", "walltime", ("L18",)),
    Case("parked-in-place", "parked", ("J14",)),
    Case("preempted-within", "saves", ("L32",), "no pod on a fake node saves its state"),
    Case("probe-fails", "service", ("L28", "L29"), "no pod on a fake node has an address that answers"),
    Case("sensitive-held", "sensitive", ("L7",), MONITORED),
)


def parameters(level: str, cases: Iterable[Case] = CASES) -> list[ParameterSet]:
    """Return the cases as parameters that carry their rows."""
    return [
        pytest.param(case, id=case.name, marks=[pytest.mark.row(row, level=level) for row in case.rows])
        for case in cases
    ]


MARKS = {
    "created": Reason.SUBMISSION_SUCCEEDED,
    "running": Reason.SUFFICIENT_PODS_READY,
    "gone": Reason.DELETION_COMPLETE,
}
"""The cause by which a workflow says that an attempt has reached a mark."""
Stored = tuple[datetime, tuple[int, int, int], Event]


def in_store(script: Script, causes: Iterable[Cause], begun: datetime, factor: float = 1.0) -> list[Stored]:
    """Return what a script has in store, and when, as far as its marks have been reached; all its times divided."""
    found: list[Stored] = []
    causes = list(causes)
    for index, event in enumerate(script.events):
        step = event.at if event.every is None else event.every
        assert step is not None
        reason = MARKS[event.since or "running"]
        marks = {cause.attempt: cause.time for cause in causes if cause.reason is reason}
        for attempt, mark in ({0: begun} if event.attempt is None else marks).items():
            if event.attempt in {None, "each", attempt}:
                turns = range(event.times or 1)
                found += [(mark + step * (turn + 1) / factor, (index, attempt, turn), event) for turn in turns]
    return sorted(found, key=lambda each: each[:2])


Decision = tuple[int, str, str, str]
_RULE = re.compile(r"\brule ([A-Za-z0-9-]+)")


def decisions(causes: Iterable[Cause]) -> list[Decision]:
    """Return what was decided: each cause's attempt, the phase it was decided in, its reason, and the rule it names.

    What is left out, since it says how something was observed and not what was decided: the time and wording of each;
    and DeletionBlocked, which tells again what is left of a removal whenever that has changed.
    """
    return [
        (cause.attempt, cause.phase.value, cause.reason.value, rule[1] if (rule := _RULE.search(cause.message)) else "")
        for cause in causes
        if cause.reason is not Reason.DELETION_BLOCKED
    ]


@dataclass(frozen=True)
class Verdict:
    """What a life came to."""

    outcome: str
    reason: str
    executions: int
    restarts: int
    budgets: tuple[tuple[str, int], ...]

    @classmethod
    def of(cls, simulation: Simulation) -> Verdict:
        summary = simulation.summary
        assert summary.outcome is not None
        budgets = tuple((one.name, one.used) for one in summary.budgets)
        return cls(summary.outcome.value, summary.reason, summary.attempts, summary.restarts, budgets)

    @classmethod
    def told(cls, status: Status) -> Verdict:
        budgets = tuple((one.name, one.used) for one in status.budgets)
        return cls(status.phase.value, status.reason.value, status.executions, status.restarts, budgets)
