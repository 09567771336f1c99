"""What there is in the simulated cluster: attempts' owners, components, pods; and how they look to an observer."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, cast

from holdfast import names
from holdfast.activities.facts.objects import JobFacts, ObjectFacts, TrueCondition
from holdfast.activities.facts.pods import PodFacts, PodState, pod_facts
from holdfast.formats.pods import PathProblem, pod_template
from holdfast.model import Component
from holdfast.model.calls.cluster import PlannedComponent
from holdfast.simulation.script.events import Fail, LaunchFails, ProbeFails

JOB_BACKOFF_LIMIT = 6
"""As batch/v1 has it where a Job does not say."""
UID = "simulated"
"""The workload's."""


@dataclass(slots=True, eq=False)
class Pod:
    """One pod."""

    name: str
    thing: Thing
    created: datetime
    state: PodState = PodState.PENDING
    node: str = ""
    deleting: datetime | None = None
    forced: bool = False
    stubborn: bool = False
    """Whether it ignores its deletion until that is forced."""
    finalizer: str = ""
    ended: datetime | None = None
    fail: Fail | None = None
    """How it failed."""
    scheduled: datetime | None = None
    """Since when it has a node."""
    index: int | None = None
    """Its completion index, where its Job is Indexed."""
    restarts: int = 0
    """How often its kubelet has started a container of it again in place."""
    crashes: int = 0
    """How often in a row one has ended without success."""
    pausing: bool = False
    """Whether its kubelet waits before it starts the container again (CrashLoopBackOff)."""
    runs_since: datetime | None = None
    launch: LaunchFails | None = None
    """Why its node cannot start it."""
    mute: ProbeFails | None = None
    """Why it does not answer its probe."""
    asked: int = 0
    """The number of the last request to save its state."""
    asked_at: datetime | None = None
    template: int = 0
    """Of which of its component's pod templates it was made."""

    @property
    def finished(self) -> bool:
        """Whether its processes have ended."""
        return self.state in {PodState.SUCCEEDED, PodState.FAILED}

    @property
    def active(self) -> bool:
        """Whether it runs or is to run."""
        return not self.finished and self.deleting is None

    def facts(self, revision: int) -> PodFacts:
        """Return what an observer reads of it, by the same function that reads a real pod."""
        metadata: dict[str, Any] = {
            "uid": self.name,
            "name": self.name,
            "namespace": "simulated",
            "labels": {
                names.LABEL_WORKLOAD_UID: UID,
                names.LABEL_ATTEMPT: str(self.thing.attempt),
                names.LABEL_COMPONENT: self.thing.component.name,
                names.LABEL_COPY: "" if self.thing.index is None else str(self.thing.index),
            },
            "creationTimestamp": written(self.created),
            "resourceVersion": str(revision),
        }
        if self.deleting is not None:
            metadata["deletionTimestamp"] = written(self.deleting)
        return pod_facts({"metadata": metadata, "spec": {"nodeName": self.node}, "status": self.status()})

    def status(self) -> dict[str, Any]:
        """Return its status as a kubelet writes it."""
        phase = {PodState.PENDING: "Pending", PodState.RUNNING: "Running", PodState.SUCCEEDED: "Succeeded"}
        if self.launch is not None:
            return self._unstarted(self.launch)
        if self.fail is None or self.ended is None:
            return {"phase": phase.get(self.state, "Failed")}
        terminated = {"exitCode": self.fail.exit_code, "reason": self.fail.reason, "finishedAt": written(self.ended)}
        status: dict[str, Any] = {"phase": "Failed", "containerStatuses": [{"state": {"terminated": terminated}}]}
        if self.fail.pod_reason:
            status["reason"] = self.fail.pod_reason
        if self.fail.disruption:
            condition = {"type": "DisruptionTarget", "status": "True", "reason": self.fail.disruption}
            status["conditions"] = [{**condition, "lastTransitionTime": written(self.ended)}]
        return status

    def _unstarted(self, launch: LaunchFails) -> dict[str, Any]:
        """Return the status of one that its node cannot start, as a kubelet writes it."""
        status: dict[str, Any] = {
            "phase": "Failed" if self.state is PodState.FAILED else "Pending",
            "startTime": written(self.scheduled or self.created),
        }
        waits = {"name": "main", "state": {"waiting": {"reason": "PodInitializing"}}}
        match launch.reason:
            case "FailedMount":
                condition = {"type": "PodReadyToStartContainers", "status": "False"}
                return {**status, "conditions": [condition], "containerStatuses": [waits]}
            case "InitError":
                ended = {"exitCode": launch.exit_code or 1, "reason": "Error"}
                if self.ended is not None:
                    ended["finishedAt"] = written(self.ended)
                init = {"name": "init", "state": {"terminated": ended}}
                return {**status, "initContainerStatuses": [init], "containerStatuses": [waits]}
            case reason:
                return {**status, "containerStatuses": [{"name": "main", "state": {"waiting": {"reason": reason}}}]}


@dataclass(slots=True)
class IndexFailures:
    """How often the pods of one index of a Job have failed."""

    last: datetime
    counted: int = 0
    """Without those that the pod failure policy ignores."""
    total: int = 0


@dataclass(slots=True)
class JobMemory:
    """What a Job's controller keeps in its status and in the annotations of its pods."""

    started: datetime | None = None
    """When it was resumed last; None: it began when it was made."""
    deadline: datetime | None = None
    """When its deadline is, where that is looked at by itself."""
    done: set[int] = field(default_factory=set[int])
    """Indexes that have succeeded; of a Job without indexes one number below 0 for each pod that has."""
    indexes: dict[int, IndexFailures] = field(default_factory=dict[int, IndexFailures])
    failed_indexes: set[int] = field(default_factory=set[int])
    fails_job: str = ""
    """What the Job says, once its pod failure policy has failed it."""


@dataclass(slots=True, eq=False)
class Thing:
    """A component's object, or one copy of it, as one attempt made it."""

    component: Component
    plan: PlannedComponent
    """Of this object alone."""
    attempt: int
    uid: str
    created: datetime
    launch: int = 0
    index: int | None = None
    """Which copy it is, where its component has copies."""
    shuns: frozenset[str] = frozenset()
    """Nodes that its pods must not be placed on."""
    dislikes: frozenset[str] = frozenset()
    """Nodes that its pods are placed on only where no other has room."""
    deleting: datetime | None = None
    suspended: bool = False
    gone: bool = False
    conditions: list[TrueCondition] = field(default_factory=list[TrueCondition])
    made: int = 0
    """Pods that it has made."""
    failed: list[datetime] = field(default_factory=list[datetime])
    """When pods of it failed, or were deleted by another hand, since one succeeded."""
    failures: int = 0
    """How many did in all."""
    counted: set[str] = field(default_factory=set[str])
    """Which pods have been counted, by name."""
    job: JobMemory = field(default_factory=JobMemory)
    giving_up: TrueCondition | None = None
    """What it will say of itself once its pods are gone."""
    scaled: int | None = None
    """How many pods another hand has made its spec ask for."""
    template: int = 0
    """How often another hand has changed its pod template."""

    @property
    def wanted(self) -> int:
        """How many pods its spec asks for."""
        return self.plan.expected_pods if self.scaled is None else self.scaled

    @property
    def name(self) -> str:
        """The object's name."""
        return self.plan.object_name

    @property
    def title(self) -> str:
        """What a person calls it."""
        return self.component.title if self.index is None else f"{self.plan.kind} {self.name}"

    @property
    def settled(self) -> bool:
        """Whether its controller has nothing more to do with it."""
        return bool(self.conditions) or self.gone or self.deleting is not None

    @property
    def spec(self) -> dict[str, Any]:
        """What its template's spec says."""
        return cast("dict[str, Any]", self.component.template.get("spec") or {})

    @property
    def pod_spec(self) -> dict[str, Any] | None:
        """The spec of its pods, of the first pod set where there are several; None where it has none."""
        for pod_set in self.component.pod_sets:
            try:
                return pod_template(self.component.template, pod_set.path)["spec"]
            except PathProblem:
                continue
        return None

    @property
    def restart_policy(self) -> str:
        """What a kubelet does about a container of its pods that has ended."""
        spec = self.pod_spec
        return str(spec.get("restartPolicy", "Always")) if spec is not None else "Never"

    @property
    def restarts_in_place(self) -> bool:
        """Whether a kubelet starts a container of its pods again that has ended."""
        return self.restart_policy == "Always"

    def say(self, verdict: TrueCondition) -> None:
        """Have its controller write a condition."""
        self.conditions.append(verdict)

    def _words(self) -> tuple[tuple[str, str], ...]:
        """Return what it says by fields of its status, where its kind does not speak by conditions."""
        rule, said = self.component.status, {one.type for one in self.conditions}
        return tuple((one.path, one.equals) for one in (*rule.succeeded_when, *rule.failed_when) if str(one) in said)

    @property
    def _job(self) -> JobFacts | None:
        """What a Job says of its failures and its suspension: what else it counts is read off its pods."""
        if self.suspended:
            return JobFacts(wanted=1, good=0, active=0, suspended=True)
        if not self.failures or self.index is not None:
            return None
        limit = int(self.spec.get("backoffLimit", JOB_BACKOFF_LIMIT))
        return JobFacts(wanted=1, good=0, active=0, suspended=False, failed=self.failures, limit=limit)

    def facts(self, owner_uid: str, revision: int) -> ObjectFacts:
        """Return what an observer reads of it."""
        return ObjectFacts(
            uid=self.uid,
            name=self.name,
            owner_uids=(owner_uid,),
            deleting=self.deleting is not None,
            created=self.created,
            submitted=False,
            conditions=tuple(self.conditions),
            revision=revision,
            words=self._words(),
            job=self._job,
            wanted=self.scaled,
        )


@dataclass(slots=True, eq=False)
class Owner:
    """What owns an attempt."""

    attempt: int
    uid: str
    created: datetime
    submitted: bool = False
    ended: bool = False
    """Whether its workload has ended."""
    suspended: bool = False
    """Whether it is suspended in place."""
    parked: bool = False
    """Whether it was proven to have no pod, while it is suspended."""
    deleting: datetime | None = None

    def facts(self, revision: int) -> ObjectFacts:
        """Return what an observer reads of it."""
        return ObjectFacts(
            uid=self.uid,
            name=self.uid,
            owner_uids=(),
            deleting=self.deleting is not None,
            created=self.created,
            submitted=self.submitted,
            ended=self.ended,
            suspended=self.suspended,
            parked=self.parked,
            conditions=(),
            revision=revision,
        )


def written(instant: datetime) -> str:
    """Return a time as Kubernetes writes it."""
    return instant.isoformat().replace("+00:00", "Z")
