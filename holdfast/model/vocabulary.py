"""The closed vocabularies: phases, reasons, classes, scopes. One enum feeds every reader, so that none can drift."""

from __future__ import annotations

from enum import StrEnum


class Kind(StrEnum):
    """What sort of work this is; profiles choose defaults by it."""

    BATCH = "batch"
    INTERACTIVE = "interactive"
    SERVICE = "service"


class Phase(StrEnum):
    """Where a workload's life stands (DESIGN: phases)."""

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
    """Why a phase or condition is what it is: conditions, Events, timers, the CLI and metrics all read this."""

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
    # what a gang came to
    MAX_RESTARTS_EXHAUSTED = "MaxRestartsExhausted"
    MAX_ROUNDS_EXHAUSTED = "MaxRoundsExhausted"
    EXIT_BARRIER_TIMEOUT = "ExitBarrierTimeout"
    JOIN_TIMEOUT = "JoinTimeout"
    MEMBER_FAILED = "MemberFailed"
    MEMBER_LOST = "MemberLost"
    # what was asked for
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
    # what is written down before it is done
    AUDITED = "Audited"
    # ends
    COMPLETED = "Completed"
    TTL_EXPIRED = "TTLExpired"
    HEALED = "Healed"


class FailureClass(StrEnum):
    """What kind of failure it is; rules match on it."""

    APP = "App"
    NODE_LOST = "NodeLost"
    HARDWARE = "Hardware"
    LAUNCH = "Launch"
    MISSING = "Missing"
    TIMEOUT = "Timeout"
    DEADLINE = "Deadline"
    PROBE = "Probe"
    CHECKPOINT = "Checkpoint"
    UNKNOWN = "Unknown"


DEADLINE_EXCEEDED = "DeadlineExceeded"
"""Kubernetes' own word for a pod or Job that was ended by its `activeDeadlineSeconds`."""


class Scope(StrEnum):
    """How much of a workload a failure, a budget or a restart concerns."""

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
    """How many of the components that success looks at must be complete (row J12)."""

    ALL = "All"
    ANY = "Any"


class AtEnd(StrEnum):
    """What of a workload stays in the cluster, once it has succeeded or failed, until that time is over (row J12)."""

    ALL = "All"
    """All of it, whether it runs on or not."""
    ACTIVE = "Active"
    """What has ended itself, and what brings no pods; what is still active is deleted, and proven gone."""


class SuspendMode(StrEnum):
    """What becomes of a workload's objects while it is suspended (row J14)."""

    DELETE = "Delete"
    """They are deleted and proven gone; what is resumed is the next attempt."""
    IN_PLACE = "InPlace"
    """They stay, suspended and proven to have no pods; what is resumed is the same attempt."""


class Parking(StrEnum):
    """How far an attempt is that is suspended in place (row J14)."""

    GOING = "Going"
    """Its objects are being suspended, and its pods go."""
    PARKED = "Parked"
    """Its objects are suspended, and it is proven that no pod of it is left."""
    COMING = "Coming"
    """Its objects are being resumed."""


class StartStatus(StrEnum):
    """What a component must be before another one is created (row J13)."""

    READY = "Ready"
    """All its expected pods run or have succeeded, or it is complete."""
    COMPLETE = "Complete"


class NodeAvoidance(StrEnum):
    """What becomes of a failure's node once the workload is made again (rows A17, U9)."""

    NEVER = "Never"
    """It may be chosen again."""
    PREFER = "Prefer"
    """Others are preferred while there are any with room: this never makes a pod unschedulable."""
    REQUIRE = "Require"
    """It is not chosen, even where no other has room."""


class Renewal(StrEnum):
    """When what was used of a budget is forgiven, beside health (rows L16, L24)."""

    NEVER = "Never"
    REQUEUE = "Requeue"
    """As the workload goes back to its queue."""


class InterruptedCreate(StrEnum):
    """What becomes of a creation that its worker did not live to end (row S4)."""

    ADOPT = "Adopt"
    """What is there and is ours is kept, what is missing is added."""
    REPLACE = "Replace"
    """All of it is removed and made again as the next attempt, charged to no budget."""


class RefusedCreate(StrEnum):
    """What becomes of a creation that the cluster refuses for a reason that may pass: a quota, a webhook, a right."""

    FAIL = "Fail"
    """It is borne for the admission grace, then it is a failure on which the rules decide; a missing right is final."""
    WAIT = "Wait"
    """It stays in submission until it is let, or until the submission timeout (rows S2, S10)."""


class ConditionType(StrEnum):
    """The conditions a status carries."""

    QUOTA_RESERVED = "QuotaReserved"
    RESOURCES_DEPLOYED = "ResourcesDeployed"
    SUBMITTED = "Submitted"
    PODS_READY = "PodsReady"
    UNHEALTHY = "Unhealthy"
    DELETING_RESOURCES = "DeletingResources"
