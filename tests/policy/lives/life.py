"""A workload's life on virtual time: the pure engine, with a cluster that is only a few numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from holdfast.model import (
    ActionKind,
    Answers,
    Component,
    ComponentView,
    Failure,
    FailureClass,
    Interval,
    Limits,
    Match,
    Observation,
    OperationKind,
    Phase,
    PodCounts,
    Policy,
    Reason,
    Remnant,
    Rule,
    Scope,
    State,
    StatusRule,
    Timings,
    Workload,
)
from holdfast.model.calls.barrier import Lifted
from holdfast.model.calls.cluster import (
    Checkpointed,
    Cleared,
    Created,
    Parked,
    Prepared,
    Removed,
    Replaced,
    Reported,
    Unparked,
)
from holdfast.model.calls.stage import Staged
from holdfast.model.life.data import DataSet
from holdfast.model.spec.policy import Action
from holdfast.policy.loop.fold import fold, observed
from holdfast.policy.loop.operations import begin
from holdfast.policy.loop.reset import begin_reset
from holdfast.policy.values.edit import edit
from holdfast.policy.values.events import Event, Observed, OperationInterrupted
from holdfast.policy.values.steps import End, Interrupt, Run, Sleep, Step
from tests.policy.lives.advanced import advance

START = datetime(2026, 1, 1, tzinfo=UTC)

RULES = (
    Rule(name="missing", match=Match(classes=(FailureClass.MISSING,)), action=Action(grace=False)),
    Rule(
        name="component",
        match=Match(classes=(FailureClass.APP,), scopes=(Scope.COMPONENT,)),
        action=Action(grace=False),
    ),
    Rule(
        name="launch",
        match=Match(classes=(FailureClass.LAUNCH,)),
        action=Action(kind=ActionKind.FAIL, charge=None, grace=False),
    ),
)


def workload(pods: int = 2, timings: dict[str, Any] | None = None, **fields: Any) -> Workload:
    template = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"}, "spec": {}}
    component = Component(
        name="train",
        template=template,
        pod_sets=({"path": "template.spec.template", "replicas": pods},) if pods else (),  # type: ignore[arg-type]
        status=StatusRule(complete=("Complete",), failed=("Failed",)),
    )
    policy = fields.pop("policy", None) or Policy(rules=RULES, timings=Timings(**(timings or {})))
    return Workload(name="train-llm", cluster="dev", components=(component,), policy=policy, **fields)


@dataclass
class Life:
    """The engine and its clock. Operations end well at once unless `hold` names their kind."""

    spec: Workload = field(default_factory=workload)
    limits: Limits = field(default_factory=Limits)
    now: datetime = START
    hold: set[OperationKind] = field(default_factory=set)
    stubborn: bool = False
    """Whether graceful removal does not get rid of it."""
    undying: bool = False
    """Whether even forced removal does not."""
    closed: bool = False
    """Whether the namespace is not enabled."""
    ran: list[tuple[OperationKind, int, datetime]] = field(default_factory=list)
    phases: list[Phase] = field(default_factory=list)
    states: list[State] = field(default_factory=list)
    step: Step | None = None
    revision: int = 1
    view: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.state = State(since=self.now, policy=self.spec.policy)
        if self.spec.suspend:
            self.state = edit(self.state, intent=edit(self.state.intent, suspend=True))

    # --- driving

    def settle(self) -> Life:
        """Advance until the engine waits for time, for news, for a held operation, or is at its end."""
        for _ in range(200):
            self.state, self.step = advance(self.spec, self.state, self.now)
            self._note()
            match self.step:
                case Run() as run:
                    begun = begin_reset if run.kind is OperationKind.RESET else begin
                    self.state = begun(self.spec, self.state, run, self.now)
                    number = self.state.attempt.number if self.state.attempt else 0
                    self.ran.append((run.kind, number, self.now))
                    self._note()
                    if run.kind not in self.hold:
                        self.finish()
                case Interrupt():
                    operation = self.state.operation
                    assert operation is not None
                    self.state = edit(self.state, operation=edit(operation, interrupted=True))
                    if operation.kind is OperationKind.RESET:
                        return self  # Whether its removal has begun is for the test to say.
                    self.state = fold(self.state, OperationInterrupted(), self.now)
                case Sleep() | End():
                    return self
        raise AssertionError(f"the engine does not come to rest: {self.state.phase}, {self.step}")

    def _note(self) -> None:
        self.states.append(self.state)
        if not self.phases or self.phases[-1] is not self.state.phase:
            self.phases.append(self.state.phase)

    def finish(self) -> Life:
        """Let the operation under way end as the little cluster would have it."""
        operation = self.state.operation
        assert operation is not None
        match operation.kind:
            case OperationKind.PREPARE:
                self.tell_result(
                    Prepared(
                        cluster_uid="cluster",
                        anchor_uid="anchor",
                        owner_uid=f"owner-{operation.attempt}",
                        limits=self.limits,
                    )
                )
            case OperationKind.STAGE:
                self.tell_result(self.staged())
            case OperationKind.CREATE:
                self.view = {"pending": self.spec.expected_pods}
                self.tell_result(Created())
            case OperationKind.REPLACE:
                self.view = {"pending": self.spec.expected_pods}
                self.tell_result(Replaced())
            case OperationKind.CLEAR:
                self.tell_result(Cleared(done=True))
            case OperationKind.BARRIER:
                self.view = {"running": self.spec.expected_pods}
                self.tell_result(Lifted(done=True))
            case OperationKind.PARK:
                self.tell_result(Parked(done=True))
            case OperationKind.UNPARK:
                self.tell_result(Unparked(done=True))
            case OperationKind.CHECKPOINT:
                self.answers(done=self.view.get("running", 0), finished=self.view.get("succeeded", 0))
                return self
            case OperationKind.OBSERVE:
                self.state = fold(self.state, Reported(), self.now)
                self.state = observed(self.state, self.look(live=True), operation.since, self.now)
            case OperationKind.REMOVE | OperationKind.FORCE_REMOVE:
                stuck = self.undying or (self.stubborn and operation.kind is OperationKind.REMOVE)
                remnants = (Remnant(kind="Pod", name="train-0", finalizers=("example.com/hold",)),) if stuck else ()
                if stuck:
                    assert operation.until is not None
                    self.now = max(self.now, operation.until)
                self.tell_result(Removed(gone=not stuck, remnants=remnants, remnants_total=len(remnants)))
            case OperationKind.REPORT:
                self.tell_result(Reported(anchored=operation.anchors and not self.closed))
        self._note()
        return self

    def staged(self, **fields: Any) -> Staged:
        """Return what a staging comes to: all lies ready, if nothing else is said."""
        if not fields:
            known = {one.mount: one for one in self.state.staging.sets} if self.state.staging is not None else {}
            fresh = {
                one.name: DataSet(mount=one.name, digest="d" * 64, files=3, bytes=2048) for one in self.spec.mounts
            }
            fields = {"sets": tuple({**fresh, **known}.values()), "fetched": 0 if known else 2048}
        return Staged(**fields)

    def tell_result(self, event: Event) -> None:
        self.state = fold(self.state, event, self.now)

    def answers(self, *, blind: tuple[Interval, ...] = (), uri: str = "s3://saved/1", **counts: Any) -> Life:
        """Let the request under way come back, with so many pods done, working, silent or failed."""
        request = self.state.checkpoint
        assert request is not None
        count = {name: value for name, value in counts.items() if isinstance(value, int)}
        alive = sum(value for name, value in count.items() if name != "finished")
        told = Answers(at=self.now, running=alive, uri=uri if count.get("done") else "", **counts)
        self.tell_result(Checkpointed(answers=told, blind=blind))
        self._note()
        return self

    def tell(self, event: Event) -> Life:
        """Deliver a signal, then settle."""
        self.state = fold(self.state, event, self.now)
        return self.settle()

    def after(self, **span: float) -> Life:
        """Let time pass, waking at every deadline on the way."""
        end = self.now + timedelta(**span)
        while isinstance(self.step, Sleep) and self.step.until is not None and self.step.until <= end:
            self.now = max(self.now, self.step.until)
            self.settle()
        self.now = max(self.now, end)
        return self.settle()

    # --- the little cluster

    def look(self, *, live: bool = False, blind: tuple[Interval, ...] = ()) -> Observation:
        attempt = self.state.attempt
        assert attempt is not None
        self.revision += 1
        view = dict(self.view)
        found, failed, complete = view.pop("found", True), view.pop("job_failed", False), view.pop("complete", False)
        exit_code = view.pop("exit_code", 1)
        nodes, marked = view.pop("nodes", ("node-7",)), view.pop("marked", ())
        stuck, starting = view.pop("stuck", 0), view.pop("starting", None)
        cls, why = FailureClass(view.pop("cls", "App")), view.pop("why", "Error")
        message, ending = view.pop("message", ""), view.pop("ending", None)
        pods = PodCounts(expected=self.spec.expected_pods, **view)
        failures: list[Failure] = []
        common: dict[str, Any] = {"component": "train", "attempt": attempt.number, "time": self.now}
        if not found:
            failures.append(Failure(cls="Missing", scope="Component", reason=Reason.MISSING_COMPONENT, **common))  # type: ignore[arg-type]
        if failed:
            failures.append(Failure(cls="App", scope="Component", reason="BackoffLimitExceeded", **common))  # type: ignore[arg-type]
        for index in range(min(pods.failed, 16)):
            failures.append(
                Failure(
                    cls=cls,
                    scope="Member",  # type: ignore[arg-type]
                    reason=why,
                    exit_code=exit_code if cls is FailureClass.APP else None,
                    subject=f"train-{index}",
                    node=nodes[index % len(nodes)],
                    message=message,
                    **common,
                )
            )
        for index, node in enumerate(marked):
            failures.append(
                Failure(
                    cls="Hardware",  # type: ignore[arg-type]
                    scope="Member",  # type: ignore[arg-type]
                    reason="NodeMarkedForEviction",
                    subject=f"train-{index}",
                    node=node,
                    message="label example.com/health=EVICT",
                    **common,
                )
            )
        return Observation(
            workload_uid="uid",
            attempt=attempt.number,
            owner_uid=attempt.owner_uid,
            at=self.now,
            live=live,
            revision=self.revision,
            components={
                "train": ComponentView(
                    found=found,
                    failed=failed,
                    complete=complete or (not self.spec.expected_pods),
                    pods=pods,
                    starting=starting,
                    ending=ending,
                )
            },
            failures=tuple(failures),
            failures_total=len(failures),
            stuck=tuple(
                Failure(
                    cls=FailureClass.LAUNCH,
                    scope=Scope.MEMBER,
                    reason="ErrImagePull",
                    message="container main: no such image",
                    subject=f"train-{index}",
                    node=nodes[index % len(nodes)],
                    stuck=True,
                    **common,
                )
                for index in range(stuck)
            ),
            blind=blind,
        )

    def sees(self, *, blind: tuple[Interval, ...] = (), **view: Any) -> Life:
        """The cluster changes, and the watch says so."""
        self.view = view
        return self.tell(Observed(self.look(blind=blind)))

    def runs(self) -> Life:
        """Come to Running."""
        return self.settle().sees(running=self.spec.expected_pods)

    # --- looking back

    @property
    def attempt(self) -> int:
        return self.state.attempt.number if self.state.attempt else 0

    @property
    def waits_for(self) -> str:
        return self.step.why if isinstance(self.step, Sleep) else ""

    @property
    def ended(self) -> Phase | None:
        return self.step.outcome if isinstance(self.step, End) else None

    def kinds(self) -> list[str]:
        return [kind.value for kind, _, _ in self.ran]
