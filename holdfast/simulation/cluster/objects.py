"""The objects of the simulated cluster: owners of attempts, components and pods, and the facts an observer reads."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, cast

from holdfast import names
from holdfast.activities.facts.objects import JobFacts, ObjectFacts, TrueCondition
from holdfast.activities.facts.pods import PodFacts, PodState, pod_facts
from holdfast.formats.pods import PathProblem, pod_template
from holdfast.model import Component
from holdfast.model.calls.cluster import PlannedComponent
from holdfast.simulation.script.events import Fail, LaunchFails, ProbeFails

JOB_BACKOFF_LIMIT = 6
"""The default of batch/v1."""
_USUAL_GRACE = timedelta(seconds=30)
"""The grace of a pod whose spec does not say."""
_GRACE_MAXIMUM = 10**9
UID = "simulated"
"""The uid of the workload."""


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
    """Whether it ignores its deletion until the deletion is forced."""
    finalizer: str = ""
    ended: datetime | None = None
    fail: Fail | None = None
    """How it failed."""
    scheduled: datetime | None = None
    """When it got its node."""
    index: int | None = None
    """Its completion index, where its Job is Indexed."""
    restarts: int = 0
    """How often its kubelet has restarted a container in place."""
    crashes: int = 0
    """How often in a row a container has failed."""
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
    """The number of the pod template that it was created from."""

    @property
    def finished(self) -> bool:
        """Whether its processes have ended."""
        return self.state in {PodState.SUCCEEDED, PodState.FAILED}

    @property
    def active(self) -> bool:
        """Whether it runs or will run."""
        return not self.finished and self.deleting is None

    def facts(self, revision: int) -> PodFacts:
        """Return the facts an observer reads, from the same function that reads a real pod."""
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
            metadata["deletionTimestamp"] = written(self.deleting + self.thing.grace)
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
        """Return the status of a pod that its node cannot start, as a kubelet writes it."""
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
    """Failures, without those that the pod failure policy ignores."""
    total: int = 0


@dataclass(slots=True)
class JobMemory:
    """The state that a Job's controller keeps in the Job's status and in annotations of its pods."""

    started: datetime | None = None
    """When it was last resumed; None: it started when it was created."""
    deadline: datetime | None = None
    """The deadline for which a sync is already scheduled."""
    done: set[int] = field(default_factory=set[int])
    """Indexes that have succeeded; for a Job without indexes, one negative number for each pod that has."""
    indexes: dict[int, IndexFailures] = field(default_factory=dict[int, IndexFailures])
    failed_indexes: set[int] = field(default_factory=set[int])
    fails_job: str = ""
    """The Job's message, once its pod failure policy has failed it."""


@dataclass(slots=True, eq=False)
class Thing:
    """A component's object, or one copy of it, as created for one attempt."""

    component: Component
    plan: PlannedComponent
    """The plan of this object alone."""
    attempt: int
    uid: str
    created: datetime
    launch: int = 0
    index: int | None = None
    """Which copy it is, where its component has copies."""
    shuns: frozenset[str] = frozenset()
    """Nodes that its pods must not be placed on."""
    dislikes: frozenset[str] = frozenset()
    """Nodes that its pods are placed on only if no other node is free."""
    deleting: datetime | None = None
    suspended: bool = False
    gone: bool = False
    conditions: list[TrueCondition] = field(default_factory=list[TrueCondition])
    made: int = 0
    """How many pods it has created."""
    failed: list[datetime] = field(default_factory=list[datetime])
    """When its pods failed, or were deleted by another client, since a pod last succeeded."""
    failures: int = 0
    """How many failures counted in all; the pod failure policy may ignore some."""
    counted: set[str] = field(default_factory=set[str])
    """The names of pods that have been counted."""
    job: JobMemory = field(default_factory=JobMemory)
    giving_up: TrueCondition | None = None
    """The condition that it will set once its pods are gone."""
    scaled: int | None = None
    """The number of pods that another client has set in its spec."""
    template: int = 0
    """How often another client has changed its pod template."""

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
        """Its name in messages."""
        return self.component.title if self.index is None else f"{self.plan.kind} {self.name}"

    @property
    def settled(self) -> bool:
        """Whether its controller has nothing more to do with it."""
        return bool(self.conditions) or self.gone or self.deleting is not None

    @property
    def spec(self) -> dict[str, Any]:
        """The spec of its template."""
        return cast("dict[str, Any]", self.component.template.get("spec") or {})

    @property
    def pod_spec(self) -> dict[str, Any] | None:
        """The spec of its pods, or of the first pod set if there are several; None without pods."""
        for pod_set in self.component.pod_sets:
            try:
                return pod_template(self.component.template, pod_set.path)["spec"]
            except PathProblem:
                continue
        return None

    @property
    def grace(self) -> timedelta:
        """How long its pods may take to end once they are deleted."""
        given = (self.pod_spec or {}).get("terminationGracePeriodSeconds")
        return timedelta(seconds=given) if isinstance(given, int) and given <= _GRACE_MAXIMUM else _USUAL_GRACE

    @property
    def restart_policy(self) -> str:
        """The restartPolicy of its pods; `Never` without pods."""
        spec = self.pod_spec
        return str(spec.get("restartPolicy", "Always")) if spec is not None else "Never"

    @property
    def restarts_in_place(self) -> bool:
        """Whether a kubelet always restarts a container that has ended."""
        return self.restart_policy == "Always"

    def say(self, verdict: TrueCondition) -> None:
        """Add a condition, as its controller does."""
        self.conditions.append(verdict)

    def _words(self) -> tuple[tuple[str, str], ...]:
        """Return the status fields that it sets, for a kind that reports its end by fields and not by conditions."""
        rule, said = self.component.status, {one.type for one in self.conditions}
        return tuple((one.path, one.equals) for one in (*rule.succeeded_when, *rule.failed_when) if str(one) in said)

    @property
    def _job(self) -> JobFacts | None:
        """The failures and the suspension in a Job's status; its other counts are read from its pods."""
        if self.suspended:
            return JobFacts(wanted=1, good=0, active=0, suspended=True)
        if not self.failures or self.index is not None:
            return None
        given, completions = self.spec.get("backoffLimit"), self.spec.get("completions")
        limit = int(given) if given is not None else JOB_BACKOFF_LIMIT
        return JobFacts(
            wanted=1,
            good=0,
            active=0,
            suspended=False,
            failed=self.failures,
            limit=limit,
            completions=int(completions) if completions is not None else None,
        )

    def facts(self, owner_uid: str, revision: int) -> ObjectFacts:
        """Return the facts an observer reads."""
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
    """The owner object of an attempt."""

    attempt: int
    uid: str
    created: datetime
    submitted: bool = False
    ended: bool = False
    """Whether its workload has ended."""
    suspended: bool = False
    """Whether it is suspended in place."""
    parked: bool = False
    """Whether it is suspended and was proven to have no pods."""
    deleting: datetime | None = None

    def facts(self, revision: int) -> ObjectFacts:
        """Return the facts an observer reads."""
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
