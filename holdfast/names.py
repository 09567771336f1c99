"""Names that outlive a process: labels, annotations, ids, queues, signals. Persisted names are API."""

from __future__ import annotations

import hashlib
import re
from typing import Final

GROUP: Final = "holdfast.dev"
VERSION: Final = "v1"

# Labels, on every object and pod a workload owns. `uid` labels are label-safe; names go into annotations.
LABEL_INSTALLATION: Final = f"{GROUP}/installation"
LABEL_WORKLOAD_UID: Final = f"{GROUP}/workload-uid"
LABEL_ATTEMPT: Final = f"{GROUP}/attempt"
LABEL_COMPONENT: Final = f"{GROUP}/component"
LABEL_COPY: Final = f"{GROUP}/copy"
LABEL_LAUNCH: Final = f"{GROUP}/launch"
LABEL_GRAPH: Final = f"{GROUP}/graph"
LABEL_GRAPH_NODE: Final = f"{GROUP}/graph-node"
LABEL_GRAPH_TASK: Final = f"{GROUP}/graph-task"
LABEL_SHARD: Final = f"{GROUP}/shard"
LABEL_NAMESPACE_ENABLED: Final = f"{GROUP}/enabled"

# Annotations.
ANNOTATION_WORKLOAD: Final = f"{GROUP}/workload"
ANNOTATION_SENT_HASH: Final = f"{GROUP}/sent-hash"
ANNOTATION_CONFIG_HASH: Final = f"{GROUP}/config-hash"
ANNOTATION_RENDEZVOUS_CA: Final = f"{GROUP}/rendezvous-ca"
"""The authority of the gang's rendezvous, PEM, on each pod of the gang; the pod reads it as a file (row X9)."""
ANNOTATION_ENDED: Final = f"{GROUP}/ended"
PATCH_CREATES: Final = "preparation-creates"
"""The patch of workloads' workflows from which on a preparation may create (record 0065)."""
ANNOTATION_REMOVAL: Final = f"{GROUP}/removal-begun"
"""Marks the anchor with the reset that has begun to remove an attempt (record 0086)."""
PATCH_RESETS: Final = "reset-looks-and-removes"
"""The patch from which on a look may go on to the removal (record 0086). It includes `PATCH_CREATES`."""
PATCH_WAITS: Final = "anchor-shows-a-wait"
"""The patch from which on a report may make the Anchor (record 0096). It includes `PATCH_RESETS`."""
PATCH_SLEEPS: Final = "suspended-jobsets-are-created"
"""The patch from which on an applied JobSet that begins suspended is created so (record 0102)."""
CHANGE_VERSION: Final = "TemporalChangeVersion"
"""The search attribute in which Temporal's SDK writes the patches of a run."""
ANNOTATION_TURN: Final = f"{GROUP}/turn"
ANNOTATION_PARKED: Final = f"{GROUP}/parked"
ANNOTATION_RUN_AS: Final = f"{GROUP}/run-as"
ANNOTATION_EVIDENCE: Final = f"{GROUP}/evidence"
"""On a namespace, `true`: workers may keep the logs of pods that failed there (row P3)."""
ANNOTATION_NODE: Final = f"node.{GROUP}"
"""On a node, followed by `/` and the installation whose node monitor wrote it."""
TAINT_NODE: Final = f"down.{GROUP}"
"""Likewise: on a node that is or was Down, until its health check has passed."""
LABEL_FAULT: Final = f"fault.{GROUP}"
"""Likewise: a label of a node with broken hardware, since no affinity can select a taint or a condition (row D21)."""
TAINT_QUARANTINE: Final = f"quarantine.{GROUP}"
"""Likewise: on a node that is to be wiped, until that is proven done (row L15)."""
ANNOTATION_FENCED: Final = f"fenced.{GROUP}"
"""Likewise: on a node whose power is proven to be off."""
TAINT_OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"
"""Kubernetes' own: no process of the node's pods is left, so they may be removed by force."""
ANNOTATION_REDFISH: Final = f"{GROUP}/redfish"
"""On a node: the URL of its ComputerSystem, if the worker's template does not give it."""
NODE_LEASES: Final = "kube-node-lease"
"""The namespace of Kubernetes' own node leases."""

# Annotations of pods that are asked to save their state: the request, and their answer to it.
ANNOTATION_CHECKPOINT_REQUEST: Final = f"{GROUP}/checkpoint-request"
ANNOTATION_CHECKPOINT_REASON: Final = f"{GROUP}/checkpoint-reason"
ANNOTATION_CHECKPOINT_DEADLINE: Final = f"{GROUP}/checkpoint-deadline"
ANNOTATION_CHECKPOINT_STATE: Final = f"{GROUP}/checkpoint-state"
ANNOTATION_CHECKPOINT_URI: Final = f"{GROUP}/checkpoint-uri"
ANNOTATION_CHECKPOINT_MESSAGE: Final = f"{GROUP}/checkpoint-message"
ANNOTATION_CHECKPOINT_ANSWERS: Final = f"{GROUP}/checkpoint-answers"
"""The number of the request that the answer belongs to."""
ANNOTATION_CHECKPOINT_BEGUN: Final = f"{GROUP}/checkpoint-begun"
"""Written by the worker: the number of the request for which it has seen the pod InProgress."""
ANNOTATION_STEP: Final = f"{GROUP}/step"
"""A pod's own word of its step, as JSON (row P1)."""
ANNOTATION_RESUME_FROM: Final = f"{GROUP}/resume-from"

# Annotations of pods whose programs start together (row J24); their agent reads the first two as files.
ANNOTATION_RESTART_REQUEST: Final = f"{GROUP}/in-place-restart-request"
"""The in-place restart attempt that the pod is to reach: where programs run at a lower one, the agent restarts it."""
ANNOTATION_IN_PLACE_ATTEMPT: Final = "jobset.sigs.k8s.io/in-place-restart-attempt"
"""JobSet's own: the in-place restart attempt at which the pod's programs may run."""
IN_PLACE_ORDERS: Final = {"request": ANNOTATION_RESTART_REQUEST, "attempt": ANNOTATION_IN_PLACE_ATTEMPT}
"""The files of the agent, each with the annotation that it shows."""
IN_PLACE_ORDERS_DIRECTORY: Final = f"/var/run/{GROUP}/in-place-restart"
IN_PLACE_ATTEMPT_FILE: Final = f"{IN_PLACE_ORDERS_DIRECTORY}/attempt"
IN_PLACE_RESUME_FILE: Final = f"{IN_PLACE_ORDERS_DIRECTORY}/resume-from"
IN_PLACE_MEMORY_DIRECTORY: Final = f"/var/lib/{GROUP}/in-place-restart"
ANNOTATION_RESTARTS_SEEN: Final = f"{GROUP}/in-place-restarts-seen"
"""How often the pod's agent had been restarted when the pod's programs were last allowed to start."""
ANNOTATION_RESTART_REMINDER: Final = f"{GROUP}/in-place-restart-reminder"
"""How often the kubelet was reminded of the pod's orders: any change has it write the files of the agent anew."""

WRITTEN_IN_LIFE: Final = frozenset(
    {
        ANNOTATION_ENDED,
        ANNOTATION_TURN,
        ANNOTATION_PARKED,
        ANNOTATION_CHECKPOINT_REQUEST,
        ANNOTATION_CHECKPOINT_REASON,
        ANNOTATION_CHECKPOINT_DEADLINE,
        ANNOTATION_CHECKPOINT_STATE,
        ANNOTATION_CHECKPOINT_URI,
        ANNOTATION_CHECKPOINT_MESSAGE,
        ANNOTATION_CHECKPOINT_ANSWERS,
        ANNOTATION_CHECKPOINT_BEGUN,
        ANNOTATION_RESTART_REQUEST,
        ANNOTATION_IN_PLACE_ATTEMPT,
        ANNOTATION_RESTARTS_SEEN,
        ANNOTATION_RESTART_REMINDER,
    }
)
"""Annotations that objects and pods get while they live, never from a template: each would pass for an answer."""

ANNOTATION_LIFE: Final = f"{GROUP}/life"
"""On the custom resource of a workload: its own uid. A copied or restored resource has the uid of another (F7)."""

ANNOTATION_CREATED_BY: Final = f"{GROUP}/created-by"
"""On such a resource: its creator, as the API server knows it. Only its admission policy writes this (row F13)."""
ANNOTATION_CHANGED_BY: Final = f"{GROUP}/changed-by"
"""On such a resource: the user who last changed its spec."""

FINALIZER: Final = f"{GROUP}/workload"
MANAGED_BY: Final = f"{GROUP}/holdfast"
FIELD_MANAGER: Final = "holdfast"
EVENT_SOURCE: Final = "holdfast"

# Custom resources: the anchor (one per workload) and the attempt (owner of one attempt's components).
API_VERSION: Final = f"{GROUP}/{VERSION}"
ANCHOR_KIND: Final = "Anchor"
ATTEMPT_KIND: Final = "Attempt"
GRAPH_KIND: Final = "Graph"
"""The kind of a document only: no such object is created."""
QUEUE_KIND: Final = "Queue"
"""Likewise."""
ATTEMPT_PLURAL: Final = "attempts"

RUN_AS_DEFAULT: Final = "holdfast-runner"
RUN_AS_ALLOWED: Final = "allowed"
WORKER_SERVICE_ACCOUNT: Final = "holdfast-worker"
WORKER_NAMESPACE: Final = "holdfast-system"
CONNECTION: Final = "holdfast-connection"
"""The ConfigMap there that tells whoever has only a kubeconfig how to reach Temporal (row F18)."""

# Environment that a workload's containers receive.
ENV_CODEC_KEYS: Final = "HOLDFAST_CODEC_KEYS"
"""The key file that encrypts what Temporal stores: of workers, commands and clients."""
ENV_CODEC_ACCEPT_PLAINTEXT: Final = "HOLDFAST_CODEC_ACCEPT_PLAINTEXT"
ENV_ATTEMPT: Final = "HOLDFAST_ATTEMPT"
ENV_WORKLOAD_UID: Final = "HOLDFAST_WORKLOAD_UID"
ENV_RESUME_FROM: Final = "HOLDFAST_RESUME_FROM"
ENV_RESUME_FROM_FILE: Final = "HOLDFAST_RESUME_FROM_FILE"
"""The file with the checkpoint to resume from, where pods restart in place: it changes without a new pod (row J25)."""
ENV_IN_PLACE_ATTEMPT_FILE: Final = "HOLDFAST_IN_PLACE_RESTART_ATTEMPT_FILE"
"""The file with the in-place restart attempt of the pod: unlike the attempt, it changes without a new pod (row J24)."""

# Environment of a member's agent, and the audience of its token (docs/decisions/0030-rendezvous.md).
ENV_RENDEZVOUS: Final = "HOLDFAST_RENDEZVOUS"
"""The URL of its rendezvous, without the path; its host may resolve to several addresses."""
ENV_RENDEZVOUS_TOKEN: Final = "HOLDFAST_RENDEZVOUS_TOKEN_FILE"  # noqa: S105 - a name
ENV_RENDEZVOUS_CA: Final = "HOLDFAST_RENDEZVOUS_CA_FILE"
"""The authority that signed the certificate of its rendezvous; not set: the public ones."""
ENV_MEMBER: Final = "HOLDFAST_MEMBER"
ENV_ROLE: Final = "HOLDFAST_ROLE"
ENV_POD_UID: Final = "HOLDFAST_POD_UID"
ENV_POD_ADDRESS: Final = "HOLDFAST_POD_ADDRESS"
ENV_NODE: Final = "HOLDFAST_NODE"
RENDEZVOUS_AUDIENCE: Final = f"rendezvous.{GROUP}"

# Temporal: workflow types.
WORKLOAD_WORKFLOW: Final = "Workload"
CLUSTER_WATCH_WORKFLOW: Final = "ClusterWatch"
NODE_MONITOR_WORKFLOW: Final = "NodeMonitor"
RENDEZVOUS_WORKFLOW: Final = "Rendezvous"
GRAPH_WORKFLOW: Final = "Graph"
QUEUE_WORKFLOW: Final = "Queue"
BROKER_WORKFLOW: Final = "CheckpointBroker"
PROVISIONER_WORKFLOW: Final = "Provisioner"

# Temporal: signals, queries, updates of the workload workflow.
SIGNAL_SUSPEND: Final = "suspend"
SIGNAL_RESUME: Final = "resume"
SIGNAL_PREEMPT: Final = "preempt"
SIGNAL_CANCEL: Final = "cancel"
SIGNAL_RETRY: Final = "retry"
SIGNAL_OBSERVE: Final = "observe"
SIGNAL_NODES: Final = "nodes"
SIGNAL_REQUEUE: Final = "requeue"
QUERY_STATUS: Final = "status"
QUERY_EXPLAIN: Final = "explain"
STALE: Final = "something has just come that no workflow task has taken in yet: ask again"
"""How a query fails that sees events before the workflow task that takes them in."""
UPDATE_POLICY: Final = "update_policy"
UPDATE_COMPONENTS: Final = "update_components"
UPDATE_EXTEND: Final = "extend_walltime"
UPDATE_STRIP: Final = "strip_finalizers"
UPDATE_CHECKPOINT: Final = "checkpoint"
UPDATE_SCALE: Final = "scale"

# Temporal: signals, queries, updates of a gang's rendezvous; and its signal to the workload.
SIGNAL_ATTEMPT: Final = "attempt"
SIGNAL_END: Final = "end"
SIGNAL_GANG: Final = "gang"
UPDATE_ATTACH: Final = "attach"
UPDATE_ANNOUNCE: Final = "announce"
UPDATE_RESIZE: Final = "resize"
UPDATE_EVICT: Final = "evict"
QUERY_ORDERS: Final = "orders"

# Temporal: the signal from workloads to their graph; and the signal from the graph to them.
SIGNAL_NEWS: Final = "news"
SIGNAL_GRAPH: Final = "graph"

# Temporal: update of a queue and of a broker; the signal from a queue to its workloads, which send `news` to it.
UPDATE_CONFIGURE: Final = "configure"
SIGNAL_QUEUE: Final = "queue"

# Temporal: updates of a provisioner; signals from the node monitor to it, and from it to the node monitor.
UPDATE_REQUEST: Final = "request"
UPDATE_CHECK: Final = "check"
SIGNAL_FENCE: Final = "fence"
SIGNAL_WITHDRAW: Final = "withdraw"
SIGNAL_FENCED: Final = "fenced"

# Temporal: activities.
ACTIVITY_REHEARSE: Final = "rehearse"
ACTIVITY_PROBE: Final = "probe"
ACTIVITY_FOLLOW: Final = "follow_progress"
ACTIVITY_SCALE: Final = "scale"
ACTIVITY_WATCH: Final = "watch"
ACTIVITY_WATCH_NODES: Final = "watch_nodes"
ACTIVITY_LOOK_NODES: Final = "look_nodes"
ACTIVITY_MARK_NODES: Final = "mark_nodes"
ACTIVITY_BEGIN_GANG: Final = "begin_gang"
ACTIVITY_GANG_HUB: Final = "gang_hub"
ACTIVITY_LOOK_QUEUE: Final = "look_queue"
ACTIVITY_WEIGH: Final = "weigh_checkpoints"
ACTIVITY_ASK: Final = "ask_checkpoint"
ACTIVITY_ENLIST: Final = "enlist_node"
ACTIVITY_PROVISION: Final = "provision_node"
ACTIVITY_CHECK_PROVISIONER: Final = "check_provisioner"

# Temporal: search attributes. Keywords unless said otherwise.
SA_PHASE: Final = "HoldfastPhase"
SA_REASON: Final = "HoldfastReason"
SA_CLUSTER: Final = "HoldfastCluster"
SA_NAMESPACE: Final = "HoldfastNamespace"
SA_NAME: Final = "HoldfastName"
SA_KIND: Final = "HoldfastKind"
SA_QUEUE: Final = "HoldfastQueue"
SA_SUBMITTED: Final = "HoldfastSubmitted"  # Bool
SA_ATTEMPT: Final = "HoldfastAttempt"  # Int
SA_RESTARTS: Final = "HoldfastRestarts"  # Int

SEARCH_ATTRIBUTES: Final[dict[str, str]] = {
    SA_PHASE: "Keyword",
    SA_REASON: "Keyword",
    SA_CLUSTER: "Keyword",
    SA_NAMESPACE: "Keyword",
    SA_NAME: "Keyword",
    SA_KIND: "Keyword",
    SA_QUEUE: "Keyword",
    SA_SUBMITTED: "Bool",
    SA_ATTEMPT: "Int",
    SA_RESTARTS: "Int",
}

# Metrics of workflows. The worker's metrics page adds the unit as a suffix.
METRIC_FAILURES: Final = "holdfast_failures"
METRIC_REACTION: Final = "holdfast_failure_reaction"
METRIC_REMOVAL: Final = "holdfast_removal"
METRIC_SPENT: Final = "holdfast_workload_time"
METRIC_FORCED: Final = "holdfast_forced_deletions"
METRIC_HISTORY_EVENTS: Final = "holdfast_history_events"
METRIC_HISTORY_BYTES: Final = "holdfast_history_bytes"
METRIC_PREEMPTION: Final = "holdfast_preemption"
METRIC_GANG_RUN: Final = "holdfast_gang_run"
METRIC_PROBES_UNKNOWN: Final = "holdfast_probe_rounds_not_known"
METRIC_WALLTIME_CONFLICT: Final = "holdfast_checkpoint_walltime_conflict"
METRIC_QUEUE_WAITING: Final = "holdfast_queue_waiting"
METRIC_QUEUE_ADMITTED: Final = "holdfast_queue_admitted"
METRIC_PROVISIONER_PENDING: Final = "holdfast_provisioner_pending"
METRIC_PROVISIONER_AVAILABLE: Final = "holdfast_provisioner_available"
METRIC_PROVISIONER_OLDEST: Final = "holdfast_provisioner_oldest_pending_timestamp_seconds"

# Temporal: memo keys.
MEMO_UID: Final = "holdfast.uid"
MEMO_KIND: Final = "holdfast.kind"
MEMO_SPEC_HASH: Final = "holdfast.specHash"
MEMO_STATUS: Final = "holdfast.status"
MEMO_LABELS: Final = "holdfast.labels"
"""The labels of the workload, by which `list` selects it (row E3)."""
MEMO_SAVES: Final = "holdfast.saves"
"""Whether the workload can save its state."""
MEMO_GRAPH: Final = "holdfast.graph"
"""The graph that the workload belongs to."""
MEMO_APPLIED: Final = "holdfast.applied"
"""Whether the workload was created from a custom resource in the cluster."""
MEMO_QUEUED: Final = "holdfast.queued"
"""Whether a queue's workflow admits the workload."""
MEMO_REBUILT: Final = "holdfast.rebuilt"
"""Whether a worker prepared the memory that an entity was started with (row X3)."""
MEMO_CLOSING: Final = "holdfast.closing"
"""Whether a queue is told to end, so that it takes no more workloads (row L9)."""

# Temporal: error types a workload's workflow ends with.
ERROR_WORKLOAD_FAILED: Final = "WorkloadFailed"
ERROR_INVALID_WORKLOAD: Final = "InvalidWorkload"
ERROR_REFUSED: Final = "Refused"
ERROR_CLUSTER_MISMATCH: Final = "ClusterMismatch"
ERROR_NO_POD_REACHED: Final = "NoPodReached"
ERROR_UNREACHABLE: Final = "ClusterUnreachable"
ERROR_CONFLICT: Final = "ObjectConflict"
ERROR_FOREIGN_ATTEMPT: Final = "ForeignAttempt"
ERROR_SUBMISSION_TIMEOUT: Final = "SubmissionTimeout"
ERROR_STALE_HUB: Final = "StaleHub"
ERROR_INVALID_GRAPH: Final = "InvalidGraph"
ERROR_GRAPH_FAILED: Final = "GraphFailed"
ERROR_INVALID_QUEUE: Final = "InvalidQueue"
ERROR_INVALID_BROKER: Final = "InvalidBroker"
ERROR_INVALID_INPUT: Final = "InvalidInput"
"""The same for an entity that no document begins: a rendezvous, a node monitor, a provisioner."""

# Temporal: task queues.
QUEUE_WORKFLOWS: Final = "holdfast"
SHARDS: Final = 256

DNS_LABEL: Final = re.compile(r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\Z")
API_VERSION_FORM: Final = re.compile(
    r"([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[a-z0-9]([-a-z0-9]*[a-z0-9])?\Z"
)
"""An object's `apiVersion`: a version, `v1`, or a group and a version, `batch/v1`."""
KIND_FORM: Final = re.compile(r"[A-Za-z]([-A-Za-z0-9]*[A-Za-z0-9])?\Z")
"""An object's `kind`."""
DNS_SUBDOMAIN: Final = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\Z")


KINDS_IN_IDS: Final = ("jobset",)
"""Kinds of custom resources that stand in workflow ids: such a workload is not one of the same name (row F7)."""


def kind_in_id(kind: str) -> str:
    """Return how a workflow id names the kind of a workload's custom resource; empty if it does not."""
    return kind.lower() if kind.lower() in KINDS_IN_IDS else ""


def workflow_id(cluster: str, namespace: str, name: str, kind: str = "") -> str:
    """Return the workflow id of a workload: `workload/<cluster>/<namespace>/<name>`.

    Args:
        cluster: Its cluster.
        namespace: Its Kubernetes namespace.
        name: Its name.
        kind: The kind of its custom resource, if one stands for it: `workload/<cluster>/<namespace>/jobset/<name>`.
    """
    place = "/".join(filter(None, (namespace, kind_in_id(kind), name)))
    return f"workload/{cluster}/{place}"


def workflow_ids(cluster: str, namespace: str, name: str) -> list[str]:
    """Return the workflow ids that a workload may have of which a person says NAME, or KIND/NAME."""
    kind, _, own = name.rpartition("/")
    return [workflow_id(cluster, namespace, own, one) for one in ((kind,) if kind else ("", *KINDS_IN_IDS))]


def is_own_manager(managed_by: str) -> bool:
    """Whether a document's `managedBy` names an installation of Holdfast."""
    group, _, name = managed_by.partition("/")
    return group == GROUP and bool(DNS_LABEL.match(name))


def copy_name(name: str, index: int) -> str:
    """Return the name of one copy of a component's object: `<name>-<index>`."""
    return f"{name}-{index}"


def copy_index(name: str, base: str, copies: int) -> int | None:
    """Return the index of the copy that a name belongs to; None if it belongs to none of this many."""
    start, _, index = name.rpartition("-")
    known = start == base and index.isdecimal() and int(index) < copies
    return int(index) if known and copy_name(base, int(index)) == name else None


def parse_workflow_id(workflow_id: str) -> tuple[str, str, str]:
    """Split a workload's workflow id into cluster, namespace and name.

    Raises:
        ValueError: if it is not of the form `workload/<cluster>/<namespace>/[<kind>/]<name>`.
    """
    parts = workflow_id.split("/")
    named = len(parts) == 5 and parts[3] in KINDS_IN_IDS
    if not (named or len(parts) == 4) or parts[0] != "workload" or not all(parts):
        raise ValueError(
            f"{workflow_id!r} is not a workload's id: expected workload/<cluster>/<namespace>/[<kind>/]<name>"
        )
    return parts[1], parts[2], parts[-1]


def name_of(workflow_id: str) -> str:
    """Return a workload's `<namespace>/[<kind>/]<name>`, as commands take it, from its workflow id."""
    return workflow_id.split("/", 2)[2]


def watch_workflow_id(cluster: str) -> str:
    """Return the id of the workflow that keeps a cluster's watch alive."""
    return f"cluster-watch/{cluster}"


def node_monitor_id(cluster: str) -> str:
    """Return the id of the workflow that records the state of a cluster's nodes."""
    return f"node-monitor/{cluster}"


def rendezvous_id(cluster: str, namespace: str, name: str) -> str:
    """Return the id of the workflow in which the members of a workload's gang meet."""
    return f"rendezvous/{cluster}/{namespace}/{name}"


def graph_id(cluster: str, namespace: str, name: str) -> str:
    """Return the id of the workflow of a graph of workloads."""
    return f"graph/{cluster}/{namespace}/{name}"


def broker_id(cluster: str) -> str:
    """Return the id of the workflow of a cluster's checkpoint broker."""
    return f"checkpoint-broker/{cluster}"


def provisioner_id(cluster: str) -> str:
    """Return the id of the workflow that boots, wipes and powers off a cluster's nodes."""
    return f"provisioner/{cluster}"


def queue_id(cluster: str, queue: str) -> str:
    """Return the id of the workflow of an admission queue."""
    return f"queue/{cluster}/{queue}"


def parse_queue_id(workflow_id: str) -> tuple[str, str]:
    """Return the cluster and the name of the queue whose workflow has this id.

    Raises:
        ValueError: if it is not the id of a queue.
    """
    kind, cluster, queue = workflow_id.split("/")
    if kind != "queue":
        raise ValueError(f"{workflow_id!r} is no queue's workflow id")
    return cluster, queue


def node_annotation(installation: str) -> str:
    """Return the annotation in which an installation's monitor records the state of a node."""
    return f"{ANNOTATION_NODE}/{installation}"


def node_taint(installation: str) -> str:
    """Return the taint with which an installation's monitor keeps new pods off a node."""
    return f"{TAINT_NODE}/{installation}"


def fault_label(installation: str) -> str:
    """Return the label that an installation's monitor sets on every node with broken hardware."""
    return f"{LABEL_FAULT}/{installation}"


def quarantine_taint(installation: str) -> str:
    """Return the taint with which an installation keeps new pods off a node that is to be wiped."""
    return f"{TAINT_QUARANTINE}/{installation}"


def fenced_annotation(installation: str) -> str:
    """Return the annotation with which an installation marks a node whose power is proven to be off."""
    return f"{ANNOTATION_FENCED}/{installation}"


def queue_cluster(cluster: str) -> str:
    """Return the task queue of a cluster's short activities."""
    return f"{QUEUE_WORKFLOWS}/{cluster}"


def queue_wait(cluster: str) -> str:
    """Return the task queue of a cluster's long waits (removal proofs, checkpoints)."""
    return f"{QUEUE_WORKFLOWS}/{cluster}/wait"


def queue_probe(cluster: str) -> str:
    """Return the task queue of a cluster's probes: they last as long as their services, and must not block waits."""
    return f"{QUEUE_WORKFLOWS}/{cluster}/probe"


def queue_watch(cluster: str) -> str:
    """Return the task queue of a cluster's watch."""
    return f"{QUEUE_WORKFLOWS}/{cluster}/watch"


def queue_gangs(cluster: str) -> str:
    """Return the task queue of a cluster's gangs: each holds a slot for as long as it runs."""
    return f"{QUEUE_WORKFLOWS}/{cluster}/gangs"


def queue_admission(cluster: str, queue: str) -> str:
    """Return the task queue of one admission queue's workflow: if no worker serves it, only that queue pauses."""
    return f"{QUEUE_WORKFLOWS}/{cluster}/queue/{queue}"


def shard_of(workload_uid: str) -> int:
    """Return the shard (0..255) that watches a workload; the same uid always has the same shard."""
    return hashlib.sha256(workload_uid.encode()).digest()[0]


def anchor_name(workload: str) -> str:
    """Return the name of a workload's anchor object: the workload's own name."""
    return workload


def attempt_name(workload: str, attempt: int, kind: str = "") -> str:
    """Return the name of the owner object of one attempt, at most 253 characters.

    Args:
        workload: The name of the workload.
        attempt: The number of the attempt.
        kind: The kind of the workload's custom resource, if one stands for it.
    """
    suffix = "-".join(filter(None, (f"-a{attempt}", kind_in_id(kind))))
    return workload[: 253 - len(suffix)].rstrip("-.") + suffix
