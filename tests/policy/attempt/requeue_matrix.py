"""Every requeue policy with every cause, lifecycle and sensitivity, decided by the engine: docs/requeue.md prints it.

`python -m tests.policy.attempt.requeue_matrix > docs/requeue.md` renews the page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from itertools import product
from typing import Any

from holdfast.model import Bounded, Failure, FailureClass, Lifecycle, Reactive, Scope, Unbounded
from holdfast.policy.loop.advance import decisions
from holdfast.policy.values.decision import Decision, Fail, Hold, Ignore, Restart, Wait
from holdfast.policy.values.edit import edit
from holdfast.profiles import lattice
from tests.policy.lives.life import Life, workload

PODS = 2
LIFECYCLES: dict[str, Lifecycle] = {
    "Bounded(1 h)": Bounded(walltime=timedelta(hours=1)),
    "Bounded(0)": Bounded(),
    "Unbounded": Unbounded(),
    "Reactive(2, 4)": Reactive(min=PODS, max=4),
}
POLICIES = {
    "never": lattice.INTERACTIVE,
    "on_node_failure": lattice.BATCH,
    "always": lattice.SERVICE,
}


@dataclass(frozen=True)
class Cause:
    """One thing that befalls a running workload."""

    name: str
    befalls: Callable[[Life], None]
    used: tuple[tuple[str, int], ...] = ()
    """What of its budgets is used up by then."""
    fits: Callable[[Lifecycle], bool] = lambda _: True


def failed(
    cls: FailureClass, scope: Scope = Scope.MEMBER, reason: str = "Error", **fields: Any
) -> Callable[[Life], None]:
    """Return what shows a failure of this kind, confirmed by a live look."""

    def befalls(life: Life) -> None:
        assert life.state.attempt is not None
        life.view = {"running": PODS}
        component = "train" if scope is not Scope.WORKLOAD else ""
        given: dict[str, Any] = {"component": component, "attempt": life.attempt, "time": life.now, **fields}
        failure = Failure(cls=cls, scope=scope, reason=reason, subject="train-0", node="node-7", **given)
        seen = edit(life.look(), failures=(failure,), failures_total=1)
        # Late enough for the grace of what a clock tells.
        life.state = edit(life.state, observation=seen, observed_at=life.now)
        life.state = next(decisions(life.spec, life.state, life.now)).after
        life.now += timedelta(minutes=2)
        life.state = edit(life.state, looked_at=life.now)

    return befalls


def walltime(life: Life) -> None:
    """Let its walltime be over, as confirmed by a live look."""
    life.view = {"running": PODS}
    life.now += timedelta(hours=1)
    life.state = edit(life.state, observation=life.look(live=True), observed_at=life.now, looked_at=life.now)


def lacks_pods(span: timedelta) -> Callable[[Life], None]:
    """Return what lets one pod be gone, neither failed nor brought back, for as long; confirmed by a live look."""

    def befalls(life: Life) -> None:
        life.view = {"running": PODS - 1}
        life.state = edit(life.state, observation=life.look(), observed_at=life.now)
        life.state = next(decisions(life.spec, life.state, life.now)).after
        life.now += span
        life.state = edit(life.state, observation=life.look(live=True), observed_at=life.now, looked_at=life.now)

    return befalls


def _bounded(life: Lifecycle) -> bool:
    return isinstance(life, Bounded) and bool(life.walltime)


CAUSES = (
    Cause("application exits ≠ 0", failed(FailureClass.APP, exit_code=1)),
    Cause("component says it failed", failed(FailureClass.APP, Scope.COMPONENT, "BackoffLimitExceeded")),
    Cause("node lost (agent, partition)", failed(FailureClass.NODE_LOST, reason="NodeLost")),
    Cause("hardware", failed(FailureClass.HARDWARE, reason="NodeMarkedForEviction")),
    Cause("prologue fails", failed(FailureClass.LAUNCH, reason="UnexpectedAdmissionError")),
    Cause("prologue fails, retries used up", failed(FailureClass.LAUNCH, reason="Topology"), (("launch", 3),)),
    Cause("component is gone", failed(FailureClass.MISSING, Scope.COMPONENT, "MissingComponent")),
    Cause("a pod has gone, 59 s ago", lacks_pods(timedelta(seconds=59))),
    Cause("a pod has gone, 60 s ago", lacks_pods(timedelta(seconds=60))),
    Cause("probe fails", failed(FailureClass.PROBE), fits=lambda life: not isinstance(life, Bounded)),
    Cause("a deadline of its own", failed(FailureClass.DEADLINE, reason="DeadlineExceeded")),
    Cause("nobody knows", failed(FailureClass.UNKNOWN)),
    Cause("application exits, requeues used up", failed(FailureClass.APP, exit_code=1), (("restart", 3),)),
    Cause("node lost, requeues used up", failed(FailureClass.NODE_LOST, reason="NodeLost"), (("restart", 3),)),
    Cause("walltime is over", walltime, fits=_bounded),
    Cause("walltime is over, requeues used up", walltime, (("restart", 3),), fits=_bounded),
)


@dataclass(frozen=True)
class Cell:
    """One combination, and what the engine decides."""

    policy: str
    cause: str
    lifecycle: str
    sensitive: bool
    decision: Decision

    @property
    def word(self) -> str:
        """What it comes to, in a word or two."""
        match self.decision:
            case Restart(requeue=True):
                return f"requeue (rule {self.decision.rule})"
            case Restart():
                return f"again, elsewhere (rule {self.decision.rule})"
            case Fail():
                return f"Failed {self.decision.reason.value}"
            case Hold():
                return f"Held (rule {self.decision.rule})"
            case Ignore() | Wait():
                return "goes on"
            case _:
                return type(self.decision).__name__


def cells() -> Iterator[Cell]:
    """Yield every combination that there can be, decided."""
    for (policy, given), cause, (name, life), sensitive in product(
        POLICIES.items(), CAUSES, LIFECYCLES.items(), (False, True)
    ):
        if not cause.fits(life):
            continue
        spec = workload(PODS, policy=given, lifecycle=life, sensitive=sensitive)
        one = Life(spec).runs()
        one.state = edit(one.state, used=dict(cause.used))
        cause.befalls(one)
        taken = next(decisions(one.spec, one.state, one.now))
        yield Cell(policy, cause.name, name, sensitive, taken.decision)


def page() -> str:
    """Return the table as Markdown: one line for each cause and kind of lifecycle that are decided alike."""
    found: dict[tuple[str, str, bool], dict[str, str]] = {}
    for cell in cells():
        found.setdefault((cell.cause, cell.lifecycle, cell.sensitive), {})[cell.policy] = cell.word
    lines: dict[tuple[str, bool, tuple[str, ...]], list[str]] = {}
    for (cause, lifecycle, sensitive), words in found.items():
        lines.setdefault((cause, sensitive, tuple(words[name] for name in POLICIES)), []).append(lifecycle)
    head = ("cause", "lifecycle", "sensitive", *(f"`{name}`" for name in POLICIES))
    rows = [
        (cause, "every one" if len(of) == len(LIFECYCLES) else ", ".join(of), "yes" if sensitive else "no", *words)
        for (cause, sensitive, words), of in lines.items()
    ]
    table = [head, tuple("---" for _ in head), *rows]
    body = "\n".join(f"| {' | '.join(row)} |" for row in table)
    return f"{_INTRODUCTION}\n{body}\n"


_INTRODUCTION = """\
# What brings a workload back to its queue

The profiles `lattice-interactive`, `lattice-batch` and `lattice-service` are Lattice's requeue policies `never`,
`on_node_failure` and `always`. This table is every policy with every cause, lifecycle and sensitivity, as the engine
decides it: `python -m tests.policy.attempt.requeue_matrix` prints it, and a test compares it. `holdfast explain NAME`
names the rule that decided.

- **requeue**: the attempt is removed and proven gone, its quota is released, and the workload goes back to its queue
  with the submission time it had. It is charged to the `restart` budget: 3 by default, at most 100.
- **goes on**: nothing is done about it, so far. Pods of a service that have gone, and have not failed, may be being
  replaced one by one by their own controller, or be drained: it has the failure grace of a minute for that (rules
  absent-pods and displaced-pods).
- **again, elsewhere**: the node would not start it. Others are tried, charged to the `launch` budget, which a requeue
  renews.
- **Held**: sensitive work is not run again without a person's word: `holdfast retry` or `holdfast cancel`.
- **Failed**: final. A walltime that is over stands above all rules.

A failure that cannot befall a lifecycle has no line: no walltime where there is none, no probe on what is Bounded.
"""


if __name__ == "__main__":
    print(page(), end="")
