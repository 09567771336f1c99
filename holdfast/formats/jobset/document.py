"""The JobSet document's own shape, as strict as the API server about fields and types."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import Field

from holdfast.formats.published import MetadataPart, Part

API_VERSION: Final = "jobset.x-k8s.io/v1alpha2"
KIND: Final = "JobSet"
GROUP_KIND: Final = ("jobset.x-k8s.io", KIND)
CONTROLLER: Final = "jobset.sigs.k8s.io/jobset-controller"
PREFIX: Final = "jobset.sigs.k8s.io/"
"""Prefix of the labels and annotations on child Jobs and pods."""

EXCLUSIVE: Final = "alpha.jobset.sigs.k8s.io/exclusive-topology"
"""Requests one job per topology domain, which the published admission webhooks enforce."""

INT32_MAXIMUM: Final = 2**31 - 1
Int32 = Annotated[int, Field(ge=-(2**31), le=INT32_MAXIMUM)]

FailureAction = Literal[
    "FailJobSet", "RestartJobSet", "RestartJobSetAndIgnoreMaxRestarts", "RestartReplicatedJob", "FailJob"
]
"""The three published actions, and the two that the proposal defers (row J19)."""
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
    restartStrategy: Literal["Recreate", "BlockingRecreate"] | None = None
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


class JobSet(Part):
    """The whole document; its status is not read."""

    apiVersion: str
    kind: str
    metadata: MetadataPart
    spec: SpecPart
    status: Any = None


class Shape:
    """A JobSet with the published defaults filled in: names, counts and groups, as labels and checks need them."""

    def __init__(self, name: str, spec: SpecPart) -> None:
        self.name = name
        self.spec = spec
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


def indexed(job: ReplicatedJobPart) -> bool:
    """Whether a replicated job's pods have completion indexes."""
    return job.template.spec.get("completionMode") in (None, "Indexed")
