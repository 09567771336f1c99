"""What each command that reads prints, for lives of the real engine, as a terminal of a given width shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from typer.testing import CliRunner

from holdfast import names
from holdfast.cli.app import app
from holdfast.cli.cluster import doctor
from holdfast.cli.cluster.checks import Check, missing_attributes
from holdfast.cli.common import render, screen
from holdfast.cli.common.options import Chosen
from holdfast.cli.entities import broker_text, graph_text, node_text, queue_text
from holdfast.cli.submission import apply, plan
from holdfast.cli.workloads import history_text
from holdfast.cli.workloads.listing import Listing
from holdfast.cli.workloads.simulation_text import simulation_text
from holdfast.cli.workloads.watch import Seen
from holdfast.client.silence import Silence
from holdfast.client.summary import Summary
from holdfast.client.views import ExplanationView, StatusView, explanation_from
from holdfast.model import NodeBook, OperationKind, Phase, Workload
from holdfast.model.words import printable
from holdfast.past.ledger import end_of, ledger_of
from holdfast.policy.entities import graph as graphs
from holdfast.policy.loop.difference import changes
from holdfast.policy.nodes.provisioner_status import status as provisioner_status
from holdfast.policy.status.explain import explain_of, status_of
from holdfast.policy.values.events import OperationRefused, Suspended
from holdfast.simulation import read_script, simulate
from holdfast.worker.runtime.pollers import Polled, how_to_serve
from tests.cli.text import test_broker_text, test_gang_text, test_node_text, test_plan, test_queue_text
from tests.cli.text.test_render import NOW, life_read
from tests.past.test_simulated_lives import document, lived, script
from tests.policy.entities import test_graph
from tests.policy.lives.life import Life
from tests.policy.loop import test_difference

WIDTHS: Final = (60, 100, 160)
GOLDEN: Final = Path(__file__).parent / "golden"


def shown(text: Callable[[], str], width: int) -> str:
    """Return a text as a terminal of that width shows it, without colour; each line ends in a line feed."""
    with screen.wide(width):
        return screen.folded(printable(text())) + "\n"


def _explained(life: Life) -> str:
    view = ExplanationView(explanation=explain_of(life.spec, life.state, life.now), fresh=True)
    return render.explanation(view, life.now)


def _status(life: Life, *, wide: bool = False) -> str:
    told = status_of(life.spec, life.state, life.now, "6f1a4c5e-0b7d-4c89-9d0e-2a7f53f1b1c4")
    return render.status(StatusView(status=told, fresh=True), life.now, wide=wide)


def _starting() -> Life:
    return Life().settle().sees(running=0, pending=2)


def _unhealthy() -> Life:
    return Life().runs().sees(running=1, failed=1)


def _insufficient() -> Life:
    return Life().runs().sees(running=1, pending=1)


def _resetting() -> Life:
    life = _unhealthy()
    life.hold = {OperationKind.REMOVE}
    return life.after(minutes=1).settle()


def _refused() -> Life:
    life = Life(hold={OperationKind.PREPARE}).settle()
    why = "namespace default is not enabled for Holdfast: run `holdfast namespace enable default`"
    life.tell_result(OperationRefused("Refused", why))
    return life.settle()


def _suspended() -> Life:
    life = Life().runs()
    life.tell(Suspended("making room for a larger job"))
    return life.settle()


def _stale() -> str:
    life = _unhealthy()
    told = explanation_from(status_of(life.spec, life.state, life.now, "u-1"))
    last, now = life.now + timedelta(seconds=10), life.now + timedelta(minutes=4, seconds=50)
    polled = Polled(names.QUEUE_WORKFLOWS, last=last)
    silence = Silence(why=f"no worker answers: {polled.sentence(now)}", since=last, remedy=how_to_serve("workflows"))
    return render.explanation(ExplanationView(explanation=told, fresh=False, silence=silence), now)


def _in_a_gang() -> str:
    life = Life().runs()
    told = status_of(life.spec, life.state, life.now, "u-1")
    gang = test_gang_text.status(
        why="local rank 0 of train-1-x exited 3",
        absent={"train-2-k": "it was preempted"},
        present=2,
        participants=2,
    )
    return render.status(StatusView(status=told, fresh=True, gang=gang), life.now)


def _watched() -> str:
    life, seen = Life(), Seen()
    lines = list[str]()
    for step in (
        lambda: life.settle(),
        lambda: life.after(seconds=10).runs(),
        lambda: life.after(minutes=5).sees(running=1, failed=1),
        lambda: _held_up(life).after(minutes=1).settle(),
        lambda: _let_go(life).settle(),
    ):
        step()
        lines += seen.news(status_of(life.spec, life.state, life.now, "u-1"))
    return "\n".join(lines)


def _held_up(life: Life) -> Life:
    life.hold = {OperationKind.REMOVE}
    return life


def _let_go(life: Life) -> Life:
    life.hold = set()
    life.after(seconds=5).finish()
    return life


def _summary(name: str, phase: str, reason: str, **changes: object) -> Summary:
    fields: dict[str, object] = {
        "workflow_id": f"workload/dev/research/{name}",
        "run_id": "r",
        "cluster": "dev",
        "namespace": "research",
        "name": name,
        "kind": "AppWrapper",
        "phase": phase,
        "reason": reason,
        "attempt": 1,
        "started_at": NOW - timedelta(hours=5, minutes=2),
        "execution": "Running",
    }
    return Summary.model_validate({**fields, **changes})


def _list() -> str:
    listing = Listing(
        (
            _summary("train-llm-70b-with-long-context", "Resetting", "FoundFailedPods", attempt=2, restarts=1),
            _summary("sweep-17", "Resuming", "Submitted", kind="JobSet"),
            _summary("sweep-16", "Running", "SufficientPodsReady", kind="JobSet", attempt=3, restarts=2),
            _summary("old", "Failed", "RetryLimitExceeded", execution="Completed", attempt=4, restarts=3),
            _summary("lost", "Running", "SufficientPodsReady", execution="Terminated"),
        )
    )
    return "\n".join([*listing.notes(100), render.summaries(listing.found, NOW)])


def _queue() -> str:
    lines = (
        test_queue_text.line("now", 0, "admitted in cycle 6"),
        test_queue_text.line("next", 1, test_queue_text.WAITS),
    )
    return queue_text.shown(test_queue_text.status(lines=lines), NOW)


def _node() -> str:
    told = provisioner_status(test_node_text.fencing(), set(), NOW)
    return node_text.shown("dev", NodeBook(nodes={"node-3": test_node_text.down()}, total=9), told, NOW)


def _graph() -> str:
    life = test_graph.Life(
        test_graph.node("extract"),
        test_graph.node("train", "extract", tasks=3),
        test_graph.node("report", "train", "extract:Any"),
    )
    life.end("extract", Phase.SUCCEEDED)
    return graph_text.drawn(graphs.status(life.graph, life.state))


def _doctor() -> str:
    return doctor.text(
        [
            Check("temporal", True, "127.0.0.1:7233, namespace default"),
            missing_attributes("default", {"HoldfastPhase": "Keyword", "HoldfastQueue": "Keyword"}),
        ]
    )


def _training() -> Workload:
    return document("pods").model_copy(update={"name": "train"})


def _goodput() -> str:
    real = lived(_training(), script("failed-pod-reset"))
    return history_text.ledger(ledger_of(real, end_of(real)))


def _simulated() -> str:
    return simulation_text(simulate(_training(), read_script(script("failed-pod-reset"))))


def _plan() -> str:
    return plan.text([test_plan.with_pods(1), test_plan.with_pods(15000, "large")])


def _applied() -> str:
    found = changes(test_difference.BEFORE, test_difference.with_image("registry.example.com/team/busybox:1.37"))
    named = Chosen("research", "train")
    return apply.text(apply.Applied(named, "changed", found.differences, found.again), dry_run=True)


def helped(*path: str, width: int | None = None) -> str:
    """Return the help of a command."""
    columns = str(width or screen.width())
    result = CliRunner().invoke(app, [*path, "--help"], prog_name="holdfast", env={"COLUMNS": columns, "TERM": "dumb"})
    assert result.exit_code == 0, path
    return "\n".join(line.rstrip() for line in result.output.strip().splitlines())


def commands(command: Any, *path: str) -> Iterator[tuple[str, ...]]:
    """Yield the words that name each command, those of groups among them."""
    yield path
    for name, below in sorted(getattr(command, "commands", {}).items()):
        yield from commands(below, *path, name)


SCREENS: Final[Mapping[str, Callable[[], str]]] = {
    "list": _list,
    "status-starting": lambda: _status(_starting()),
    "status-unhealthy": lambda: _status(_unhealthy()),
    "status-unhealthy-wide": lambda: _status(_unhealthy(), wide=True),
    "status-insufficient": lambda: _status(_insufficient()),
    "status-resetting": lambda: _status(_resetting()),
    "status-refused": lambda: _status(_refused()),
    "status-gang": _in_a_gang,
    "explain-starting": lambda: _explained(_starting()),
    "explain-unhealthy": lambda: _explained(_unhealthy()),
    "explain-resetting": lambda: _explained(_resetting()),
    "explain-refused": lambda: _explained(_refused()),
    "explain-suspended": lambda: _explained(_suspended()),
    "explain-stale": _stale,
    "history": lambda: history_text.history(life_read()),
    "watch": _watched,
    "queue-show": _queue,
    "queue-list": lambda: queue_text.listed([test_queue_text.status()]),
    "broker": lambda: broker_text.shown(test_broker_text.status(), NOW),
    "node": _node,
    "graph": _graph,
    "doctor": _doctor,
    "goodput": _goodput,
    "simulate": _simulated,
    "plan": _plan,
    "apply": _applied,
    "help": helped,
}
"""By name: the command, and the state that it shows."""


def main() -> None:
    """Write the golden screens again, to be read before they are committed: `python -m tests.cli.text.screens`."""
    for name, text in SCREENS.items():
        for width in WIDTHS:
            (GOLDEN / f"{name}-{width}.txt").write_text(shown(text, width))


if __name__ == "__main__":
    main()
