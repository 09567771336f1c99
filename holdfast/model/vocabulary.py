"""The closed vocabularies: phases, reasons, classes, scopes. One enum feeds every reader, so that none can drift."""

from __future__ import annotations

from enum import StrEnum


class Kind(StrEnum):
    """The sort of work; profiles choose defaults by it."""

    BATCH = "batch"
    INTERACTIVE = "interactive"
    SERVICE = "service"


class Phase(StrEnum):
    """The phase of a workload's lifecycle (DESIGN: phases)."""

    PENDING = "Pending"
    RESUMING = "Resuming"
    RUNNING = "Running"
    FINISHING = "Finishing"
    CHECKPOINTING = "Checkpointing"
    RESETTING = "Resetting"
    SUSPENDING = "Suspending"
    SUSPENDED = "Suspended"
    TERMINATING = "Terminating"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CANCELLED = "Cancelled"

    @property
    def ended(self) -> bool:
        """Whether the workload's outcome is settled (its resources may still be held or being removed)."""
        return self in {Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED}


class Reason(StrEnum):
    """The reason for a phase or condition: conditions, Events, timers, the CLI and metrics all use it."""

    # pending
    BLOCKED = "Blocked"
    QUEUED = "Queued"
    STAGING = "Staging"
    HELD = "Held"
    ADMITTED = "Admitted"
    # towards running
    SUBMITTED = "Submitted"
    SUBMISSION_SUCCEEDED = "SubmissionSucceeded"
    SUBMISSION_FAILED = "SubmissionFailed"
    CREATING = "Creating"
    STARTING = "Starting"
    REPLACING = "Replacing"
    CONFIGURATION_CHANGED = "ConfigurationChanged"
    RESUMED = "Resumed"
    SUFFICIENT_PODS_READY = "SufficientPodsReady"
    INSUFFICIENT_PODS_READY = "InsufficientPodsReady"
    # what went wrong
    FOUND_FAILED_PODS = "FoundFailedPods"
    PODS_NOT_ADMITTED = "PodsNotAdmitted"
    PODS_NOT_RUNNING = "PodsNotRunning"
    MISSING_COMPONENT = "MissingComponent"
    FAILED_COMPONENT = "FailedComponent"
    CREATE_FAILED = "CreateFailed"
    NODE_DOWN = "NodeDown"
    NODE_STILL_DOWN = "NodeStillDown"
    NODE_LOST = "NodeLost"
    PROBE_FAILED = "ProbeFailed"
    NO_PROGRESS = "NoProgress"
    POISON_STEP = "PoisonStep"
    EXECUTIONS_EXCEEDED = "ExecutionsExceeded"
    RETRY_LIMIT_EXCEEDED = "RetryLimitExceeded"
    LAUNCH_LIMIT_EXCEEDED = "LaunchLimitExceeded"
    SUBMISSION_TIMEOUT = "SubmissionTimeout"
    REFUSED = "Refused"
    RULE_LIMIT_EXCEEDED = "RuleLimitExceeded"
    MAX_REQUEUE_EXCEEDED = "MaxRequeueExceeded"
    PROLOGUE_FAILURE_MAX_RETRIES = "PrologueFailureMaxRetries"
    WALLTIME_EXCEEDED = "WalltimeExceeded"
    SUCCESS_UNREACHABLE = "SuccessUnreachable"
    # data sets
    STAGED = "Staged"
    STORAGE_UNAVAILABLE = "StorageUnavailable"
    STAGING_FAILED = "StagingFailed"
    # how a gang ended
    MAX_RESTARTS_EXHAUSTED = "MaxRestartsExhausted"
    MAX_ROUNDS_EXHAUSTED = "MaxRoundsExhausted"
    EXIT_BARRIER_TIMEOUT = "ExitBarrierTimeout"
    JOIN_TIMEOUT = "JoinTimeout"
    MEMBER_FAILED = "MemberFailed"
    MEMBER_LOST = "MemberLost"
    # restarts in place
    POD_RESTARTED = "PodRestarted"
    RESTARTED_IN_PLACE = "RestartedInPlace"
    # requests
    SUSPEND_REQUESTED = "SuspendRequested"
    PREEMPTED = "Preempted"
    CANCEL_REQUESTED = "CancelRequested"
    RETRY_REQUESTED = "RetryRequested"
    REQUEUE_REQUESTED = "RequeueRequested"
    SIGNAL_NOT_UNDERSTOOD = "SignalNotUnderstood"
    WALLTIME_EXTENDED = "WalltimeExtended"
    ANCHOR_DELETED = "AnchorDeleted"
    DEPENDENCY_UNSATISFIABLE = "DependencyUnsatisfiable"
    POLICY_CHANGED = "PolicyChanged"
    BUDGET_RENEWED = "BudgetRenewed"
    SCALED = "Scaled"
    # checkpoints
    CHECKPOINT_REQUESTED = "CheckpointRequested"
    CHECKPOINT_EXTENDED = "CheckpointExtended"
    CHECKPOINT_COMPLETE = "CheckpointComplete"
    CHECKPOINT_PARTIAL = "CheckpointPartial"
    CHECKPOINT_DISCARDED = "CheckpointDiscarded"
    # removal
    DELETION_INITIATED = "DeletionInitiated"
    DELETION_FORCED = "DeletionForced"
    DELETION_BLOCKED = "DeletionBlocked"
    FINALIZERS_STRIPPED = "FinalizersStripped"
    DELETION_COMPLETE = "DeletionComplete"
    SUSPENDED_IN_PLACE = "SuspendedInPlace"
    RESETTING = "Resetting"
    REQUEUED = "Requeued"
    # recorded before it is done
    AUDITED = "Audited"
    # ends
    COMPLETED = "Completed"
    TTL_EXPIRED = "TTLExpired"
    HEALED = "Healed"


class FailureClass(StrEnum):
    """The kind of failure; rules match on it."""

    APP = "App"
    NODE_LOST = "NodeLost"
    HARDWARE = "Hardware"
    LAUNCH = "Launch"
    MISSING = "Missing"
    TIMEOUT = "Timeout"
    DEADLINE = "Deadline"
    PROBE = "Probe"
    NO_PROGRESS = "NoProgress"
    CHECKPOINT = "Checkpoint"
    UNKNOWN = "Unknown"


DEADLINE_EXCEEDED = "DeadlineExceeded"
"""Kubernetes' reason for a pod or Job that was ended by its `activeDeadlineSeconds`."""


class Scope(StrEnum):
    """The part of a workload that a failure, a budget or a restart concerns."""

    MEMBER = "Member"
    COMPONENT = "Component"
    GANG = "Gang"
    WORKLOAD = "Workload"


class ActionKind(StrEnum):
    """What a rule does with the failure it matched."""

    RESTART = "Restart"
    FAIL = "Fail"
    IGNORE = "Ignore"


class SuccessOperator(StrEnum):
    """How many of the components that success depends on must be complete (row J12)."""

    ALL = "All"
    ANY = "Any"


class AtEnd(StrEnum):
    """What stays of a workload in the cluster after success or failure, until its TTL or grace is over (row J12)."""

    ALL = "All"
    """All objects, whether they still run or not."""
    ACTIVE = "Active"
    """Objects that have ended, and objects without pods; active objects are deleted, and proven gone."""


class SuspendMode(StrEnum):
    """What happens to a workload's objects while it is suspended (row J14)."""

    DELETE = "Delete"
    """They are deleted and proven gone; a resumption starts the next attempt."""
    IN_PLACE = "InPlace"
    """They stay, suspended and proven to have no pods; a resumption continues the same attempt."""


class RestartMode(StrEnum):
    """How a restart of a whole workload begins (row J24)."""

    RECREATE = "Recreate"
    """Its objects are deleted and proven gone; then the next attempt is created."""
    IN_PLACE = "InPlace"
    """The containers of its pods are restarted where that is possible; everything else is recreated."""


class Parking(StrEnum):
    """The progress of an attempt's suspension in place (row J14)."""

    GOING = "Going"
    """Its objects are being suspended, and its pods are terminating."""
    PARKED = "Parked"
    """Its objects are suspended, and it is proven to have no pods."""
    COMING = "Coming"
    """Its objects are being resumed."""


class StartStatus(StrEnum):
    """The status that a component must have before another one is created (row J13)."""

    READY = "Ready"
    """All its expected pods run or have succeeded, or it is complete."""
    COMPLETE = "Complete"


class NodeAvoidance(StrEnum):
    """How a failure's node is treated once the workload is restarted (rows A17, U9)."""

    NEVER = "Never"
    """The node may be used again."""
    PREFER = "Prefer"
    """Other nodes are preferred while any has room: this never makes a pod unschedulable."""
    REQUIRE = "Require"
    """The node is not used, even if no other node has room."""


class Renewal(StrEnum):
    """When the use of a budget is forgiven, in addition to health (rows L16, L24)."""

    NEVER = "Never"
    REQUEUE = "Requeue"
    """When the workload returns to its queue."""


class InterruptedCreate(StrEnum):
    """How a creation is handled whose worker died before it finished (row S4)."""

    ADOPT = "Adopt"
    """Our existing objects are kept, and missing ones are added."""
    REPLACE = "Replace"
    """All objects are removed and created again as the next attempt, which charges no budget."""


class RefusedCreate(StrEnum):
    """How a creation is handled that the cluster refuses for a transient reason: a quota, a webhook, a right."""

    FAIL = "Fail"
    """It is retried for the admission grace, and then is a failure that the rules decide; a missing right is final."""
    WAIT = "Wait"
    """It stays in submission until it is accepted, or until the submission timeout (rows S2, S10)."""


class ConditionType(StrEnum):
    """The condition types of a status."""

    QUOTA_RESERVED = "QuotaReserved"
    RESOURCES_DEPLOYED = "ResourcesDeployed"
    SUBMITTED = "Submitted"
    PODS_READY = "PodsReady"
    UNHEALTHY = "Unhealthy"
    DELETING_RESOURCES = "DeletingResources"
