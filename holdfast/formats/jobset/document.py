"""The JobSet document's own shape, as strict as the API server about fields and types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, NamedTuple, cast

from pydantic import Field

from holdfast.formats.published import MetadataPart, Part
from holdfast.formats.text import Json, inside

API_VERSION: Final = "jobset.x-k8s.io/v1alpha2"
KIND: Final = "JobSet"
GROUP_KIND: Final = ("jobset.x-k8s.io", KIND)
CONTROLLER: Final = "jobset.sigs.k8s.io/jobset-controller"
PREFIX: Final = "jobset.sigs.k8s.io/"
"""Prefix of the labels and annotations on child Jobs and pods."""

FAIL_ON: Final = "holdfast.dev/failOn"
"""Annotation of a JobSet: the condition from which on a Job counts as failed."""
FAILED: Final = "Failed"
FAILURE_TARGET: Final = "FailureTarget"
"""The condition that comes before `Failed`, which waits until the last pod of the Job has ended."""
JOBSET_NAME: Final = f"{PREFIX}jobset-name"
EXCLUSIVE: Final = "alpha.jobset.sigs.k8s.io/exclusive-topology"
"""The label of nodes whose values are topology domains: one Job a domain, and one domain a Job (row J21)."""
NODE_SELECTOR: Final = "alpha.jobset.sigs.k8s.io/node-selector"
"""Beside it, whatever its value: somebody has labelled and tainted the nodes for each Job."""
NAMESPACED_JOB: Final = "alpha.jobset.sigs.k8s.io/namespaced-job"
NO_SCHEDULE: Final = "alpha.jobset.sigs.k8s.io/no-schedule"
"""The label and the taint of those nodes."""

IN_PLACE: Final = "InPlaceRestart"
DISABLE_IN_PLACE: Final = f"{PREFIX}disable-in-place-restart"
"""Annotation of a JobSet, whatever its value: it restarts as if its strategy were Recreate (row J24)."""

INT32_MAXIMUM: Final = 2**31 - 1
Int32 = Annotated[int, Field(ge=-(2**31), le=INT32_MAXIMUM)]

FailureAction = Literal[
    "FailJobSet",
    "RestartJobSet",
    "RestartJobSetAndIgnoreMaxRestarts",
    "RestartJob",
    "RestartJobAndIgnoreMaxRestarts",
    "RestartReplicatedJob",
    "FailJob",
]
"""The five published actions, and two of Holdfast's own (row J19)."""
RESTARTS_JOB: Final[frozenset[FailureAction]] = frozenset({"RestartJob", "RestartJobAndIgnoreMaxRestarts"})
"""The actions that restart the failed Job alone (row J23)."""
JobFailureReason = Literal[
    "BackoffLimitExceeded", "DeadlineExceeded", "FailedIndexes", "MaxFailedIndexesExceeded", "PodFailurePolicy"
]


class JobTemplatePart(Part):
    """The Job template of each copy; its `spec` is the Job's own, which the API server validates."""

    metadata: MetadataPart | None = None
    spec: dict[str, Any]


class DependsOnPart(Part):
    """A replicated job, and the status it must have before this one is created."""

    name: str
    status: Literal["Ready", "Complete"]


class ReplicatedJobPart(Part):
    """One Job template, and the number of Jobs created from it."""

    name: str
    groupName: str | None = None
    template: JobTemplatePart
    replicas: Int32 | None = None
    dependsOn: Annotated[list[DependsOnPart], Field(max_length=5)] | None = None


class SuccessPolicyPart(Part):
    """Which replicated jobs must succeed."""

    operator: Literal["All", "Any"]
    targetReplicatedJobs: list[str] | None = None


class StartupPolicyPart(Part):
    """The order in which the replicated jobs start."""

    startupPolicyOrder: Literal["AnyOrder", "InOrder"]


class RulePart(Part):
    """What to do about a failed Job."""

    name: str | None = None
    action: FailureAction
    onJobFailureReasons: list[JobFailureReason] | None = None
    onJobFailureMessagePatterns: list[str] | None = None
    targetReplicatedJobs: list[str] | None = None


class FailurePolicyPart(Part):
    """What to do about failed Jobs; the first rule that matches decides."""

    maxRestarts: Int32 | None = None
    restartStrategy: Literal["Recreate", "BlockingRecreate", "InPlaceRestart"] | None = None
    rules: list[RulePart] | None = None


class NetworkPart(Part):
    """How pods are resolved by name."""

    enableDNSHostnames: bool | None = None
    subdomain: str | None = None
    publishNotReadyAddresses: bool | None = None


class CoordinatorPart(Part):
    """Which pod is the coordinator."""

    replicatedJob: str
    jobIndex: int | None = None
    podIndex: int | None = None


class ClaimTemplatePart(Part):
    """One claim; its `spec` is the claim's own, which the API server validates, and its status is not read."""

    apiVersion: Literal["v1"] | None = None
    kind: Literal["PersistentVolumeClaim"] | None = None
    metadata: MetadataPart
    spec: dict[str, Any] = {}
    status: Any = None


class RetentionPolicyPart(Part):
    """What becomes of claims when the JobSet is deleted."""

    whenDeleted: Literal["Delete", "Retain"] | None = None


class VolumeClaimPolicyPart(Part):
    """Claims that the replicated jobs share, and what becomes of them."""

    templates: Annotated[list[ClaimTemplatePart], Field(max_length=50)] | None = None
    retentionPolicy: RetentionPolicyPart | None = None

    @property
    def retains(self) -> bool:
        """Whether the claims stay when the JobSet is deleted."""
        return self.retentionPolicy is not None and self.retentionPolicy.whenDeleted == "Retain"


class SpecPart(Part):
    """The spec of a JobSet."""

    replicatedJobs: list[ReplicatedJobPart] | None = None
    network: NetworkPart | None = None
    successPolicy: SuccessPolicyPart | None = None
    failurePolicy: FailurePolicyPart | None = None
    startupPolicy: StartupPolicyPart | None = None
    suspend: bool | None = None
    coordinator: CoordinatorPart | None = None
    managedBy: str | None = None
    ttlSecondsAfterFinished: Annotated[int, Field(ge=0, le=INT32_MAXIMUM)] | None = None
    volumeClaimPolicies: Annotated[list[VolumeClaimPolicyPart], Field(max_length=50)] | None = None


class JobSet(Part):
    """The whole document; its status is not read."""

    apiVersion: str
    kind: str
    metadata: MetadataPart
    spec: SpecPart
    status: Any = None


class Exclusive(NamedTuple):
    """How the Jobs of a replicated job are kept apart."""

    topology: str
    """The label of nodes whose values are the domains."""
    marked: str | None
    """The value of the annotation that says so where nodes are labelled and tainted for each Job; else None."""

    @property
    def labelled(self) -> bool:
        """Whether nodes are labelled and tainted for each Job, so that pods select them."""
        return self.marked is not None


class Shape:
    """A JobSet with the published defaults filled in: names, counts and groups, as labels and checks need them."""

    def __init__(
        self, name: str, spec: SpecPart, namespace: str = "", annotations: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.namespace = namespace
        self.spec = spec
        self.annotations = annotations
        self.jobs: tuple[ReplicatedJobPart, ...] = tuple(spec.replicatedJobs or ())
        network = spec.network or NetworkPart()
        self.dns = network.enableDNSHostnames is not False
        self.publish_not_ready = network.publishNotReadyAddresses is not False
        self.subdomain = network.subdomain or name
        self.in_order = spec.startupPolicy is not None and spec.startupPolicy.startupPolicyOrder == "InOrder"

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the replicated jobs, in their order."""
        return tuple(job.name for job in self.jobs)

    def job_name(self, job: ReplicatedJobPart, index: int) -> str:
        """Return the name of a child Job."""
        return f"{self.name}-{job.name}-{index}"

    def exclusive(self, job: ReplicatedJobPart) -> Exclusive | None:
        """Return which topology domains the Jobs of a replicated job have to themselves (row J21).

        A Job's annotations decide: those of its template, before those of a JobSet that asks. Where they do not ask,
        those of its pods' template do.
        """
        own, common = job.template.metadata, self.annotations or {}
        found: Mapping[str, str] = {
            **(common if EXCLUSIVE in common else {}),
            **((own.annotations if own is not None else None) or {}),
        }
        if EXCLUSIVE not in found:
            found = pod_annotations(job) or {}
        return Exclusive(found[EXCLUSIVE], found.get(NODE_SELECTOR)) if EXCLUSIVE in found else None

    @property
    def fail_on(self) -> str:
        """Return the condition from which on a Job counts as failed (row J27)."""
        return (self.annotations or {}).get(FAIL_ON, FAILED)

    @property
    def restarts_jobs(self) -> bool:
        """Whether a rule restarts the failed Job alone (row J23)."""
        rules = self.spec.failurePolicy.rules or () if self.spec.failurePolicy is not None else ()
        return any(rule.action in RESTARTS_JOB for rule in rules)

    @property
    def in_place(self) -> bool:
        """Whether its restart strategy is InPlaceRestart (row J24)."""
        failure = self.spec.failurePolicy
        return failure is not None and failure.restartStrategy == IN_PLACE

    @property
    def may_restart_in_place(self) -> bool:
        """Whether that strategy is not disabled by its annotation."""
        return self.in_place and DISABLE_IN_PLACE not in (self.annotations or {})

    def coordinator(self) -> str | None:
        """Return the coordinator's address, `<jobset>-<job>-<index>-<pod>.<subdomain>`, if there is one."""
        one = self.spec.coordinator
        if one is None:
            return None
        return f"{self.name}-{one.replicatedJob}-{one.jobIndex or 0}-{one.podIndex or 0}.{self.subdomain}"

    def before(self, job: ReplicatedJobPart, group: str | None = None) -> int:
        """Return how many Jobs come before a replicated job's first Job, in one group or in all."""
        total = 0
        for one in self.jobs:
            if one is job:
                break
            total += replicas(one) if group in {None, group_name(one)} else 0
        return total

    def total(self, group: str | None = None) -> int:
        """Return how many Jobs there are, in one group or in all."""
        return sum(replicas(one) for one in self.jobs if group in {None, group_name(one)})


def replicas(job: ReplicatedJobPart) -> int:
    """Return how many Jobs are created from a replicated job."""
    return 1 if job.replicas is None else job.replicas


def group_name(job: ReplicatedJobPart) -> str:
    """Return the group a replicated job belongs to."""
    return "default" if job.groupName is None else job.groupName


def pod_annotations(job: ReplicatedJobPart) -> Mapping[str, str] | None:
    """Return the annotations of a replicated job's pod template, as far as they have that shape."""
    found: Any = inside(job.template.spec, "template", "metadata", "annotations")
    return cast("Mapping[str, str]", found) if isinstance(found, dict) else None


def listed(job: ReplicatedJobPart, field: str) -> list[Json]:
    """Return the objects of a list in the spec of a replicated job's pods, such as `containers`."""
    return objects(inside(job.template.spec, "template", "spec", field))


def objects(found: Any) -> list[Json]:
    """Return the objects of a list in a pod template, which is any JSON until the API server validates it."""
    each = cast("list[Any]", found) if isinstance(found, list) else []
    return [one for one in each if isinstance(one, dict)]


def indexed(job: ReplicatedJobPart) -> bool:
    """Whether a replicated job's pods have completion indexes."""
    return job.template.spec.get("completionMode") in (None, "Indexed")
