"""The tables of the report: one per measure. Data."""

from __future__ import annotations

from bench.measures.profile import OWNERS, REST
from bench.report.tables import Column, Layout

RUNNING = Column("running_s", "all running", "s", ratio=True)
ENDED = Column("ended_s", "told to end, until all recorded", "s", ratio=True)
SHARES = (Column("cpu_share", "CPU"), Column("cpu_temporal_share", "Temporal's CPU"))
CORES = {
    "workers": "workers",
    "temporal": "Temporal",
    "kube-apiserver": "API server",
    "etcd": "etcd",
    "kube-controller-manager": "controllers",
    "kube-scheduler": "scheduler",
    "kwok": "KWOK",
    "all": "all of these",
}
"""Whose busy cores are told, and how they are called."""

START = Layout(
    "start",
    "N two-pod workloads (a, g)",
    "From the first request until every pod has run, and until every workload is recorded as running (a Job's ready "
    "pods, an AppWrapper's phase, Temporal's list); then, all pods being told to succeed, until every workload is "
    "recorded as ended (a Job's condition, an AppWrapper's phase, Temporal's list). Requests: the system's "
    "own, over a whole life with its removal, Events included. CPU: of the cluster, of Temporal and of the "
    "system, until all have ended.",
    (
        Column("submitted_s", "handed in", "s"),
        RUNNING,
        Column("recorded_s", "all recorded as running", "s", ratio=True),
        ENDED,
        Column("requests", "API requests a life"),
        Column("requests_events", "of them Events"),
        *(Column(f"requests_{sort}", f"other {sort}") for sort in ("writes", "gets", "lists", "reviews")),
        Column("cpu_s", "CPU", "s", ratio=True),
        Column("cpu_worker_s", "of it the worker", "s"),
        Column("cpu_temporal_s", "Temporal", "s"),
        Column("cpu_kube-apiserver_s", "API server", "s"),
        Column("peak_worker_mib", "worker, at most", "MiB"),
        Column("peak_controller_mib", "controller, at most", "MiB"),
    ),
    base="plain",
)
APPLIED = Layout(
    "applied",
    "N AppWrappers by one kubectl apply, under Kueue (F12)",
    "Kueue admits fifty at a time; each is a Job of one pod that runs for two seconds. From the beginning of the apply "
    "until it returns, and until every AppWrapper is Succeeded. Twice: those with more than one pod. Requests: the "
    "system's own, over a whole life with its removal, Events included; Kueue's are not among them.",
    (
        Column("submitted_s", "applied", "s"),
        Column("ended_s", "all succeeded", "s"),
        Column("failed", "failed"),
        Column("twice", "ran twice"),
        Column("requests", "API requests a life"),
        Column("requests_events", "of them Events"),
        Column("cpu_s", "CPU", "s"),
        Column("cpu_worker_s", "of it the worker", "s"),
        Column("cpu_controller_s", "the controller", "s"),
        Column("cpu_temporal_s", "Temporal", "s"),
    ),
    smoked=False,
)
LATENCY = Layout(
    "latency",
    "From failure to decision (b)",
    "Zero failure grace. From the audit log's time of a pod's failure to the decision (of Holdfast the workflow "
    "task in its history, of AppWrapper the phase Resetting), and to the first request that acts on it: median / "
    "p99 / most.",
    (
        Column("decided_s", "decided", "s", tail=True),
        Column("acted_s", "acted on", "s", tail=True),
        Column("failures", "failures a run"),
        Column("missing", "never decided"),
    ),
)
REMOVAL = Layout(
    "removal",
    "Suspension and removal (c, d)",
    "From the first request until a watch of the bench's own sees no pod (suspended), or neither pod nor Job "
    "(removed). Plain is foreground deletion. Recorded: the AppWrapper is gone, the workflow is closed. Of the removal "
    "are the requests, for each workload and without Events, and the CPU, for all of them.",
    (
        Column("suspended_s", "suspended", "s"),
        Column("resumed_s", "resumed, all running", "s"),
        Column("asked_s", "asked for", "s"),
        Column("removed_s", "removed", "s", ratio=True),
        Column("recorded_s", "recorded", "s", ratio=True),
        Column("requests", "requests"),
        Column("requests_controllers", "Kubernetes' controllers' and KWOK's"),
        Column("cpu_s", "CPU", "s", ratio=True),
        Column("cpu_worker_s", "of it the worker", "s"),
        Column("cpu_temporal_s", "Temporal", "s"),
        Column("cpu_kube-apiserver_s", "API server", "s"),
    ),
    base="plain",
)
CRASH = Layout(
    "crash",
    "The controller killed in N failure graces (e)",
    "Killed with -9 while all are in their grace, started again when the graces are over. From the start of the new "
    "process to its readiness, and to the first and the last reset, by the audit log. Late: the latest reset, after it "
    "fell due, or after the restart if that is later. Killed with its watch, Holdfast gives anew what nobody saw of a "
    "grace; with the watch in a process of its own, which lives on, they go on. Early: before the grace was over.",
    (
        Column("ready_s", "ready", "s"),
        Column("first_s", "first reset", "s"),
        Column("last_s", "last reset", "s"),
        Column("late_s", "late by at most", "s"),
        Column("early", "early"),
        Column("missing", "never"),
        Column("twice", "twice"),
    ),
)
IDLE = Layout(
    "idle",
    "N idle workloads (f)",
    "Running, and nothing happens. Memory above the empty controller; CPU as a share of one core; requests about "
    "the namespace of the workloads, for each workload, and all others of the controller together; Temporal's "
    "history events for each workload. A day is the hour extrapolated.",
    (
        Column("empty_mib", "empty", "MiB"),
        Column("memory_mib", "with N", "MiB"),
        Column("memory_per_1000_mib", "per 1,000", "MiB"),
        *SHARES,
        Column("requests_per_hour", "requests an hour, each"),
        Column("requests_per_day", "a day, each"),
        Column("controller_requests_per_hour", "all of the controller's, an hour"),
        Column("events_per_hour", "history events an hour, each"),
        Column("events_per_day", "a day, each"),
    ),
)
CLI = Layout(
    "cli",
    "What a command costs (E13)",
    "`holdfast --help`, `holdfast list` and `holdfast status NAME` beside one running workload, each from the start of "
    "its process to its end, in turn. CPU is the command's own.",
    (
        Column("help_s", "--help", "s"),
        Column("help_cpu_s", "its CPU", "s"),
        Column("list_s", "list", "s"),
        Column("list_cpu_s", "its CPU", "s"),
        Column("status_s", "status", "s"),
        Column("status_cpu_s", "its CPU", "s"),
    ),
)
GANG = Layout(
    "gang",
    "A gang restarted (h)",
    "One failed pod of a JobSet with ten pods a Job, from its failing to the first pod of the next attempt, and "
    "until all run. Every run is one restart of the same JobSet. Plain are its Jobs alone: once the bench "
    "sees the failed pod, it deletes them in the foreground, and creates them again when they are gone.",
    (
        Column("start_s", "start", "s"),
        Column("first_s", "first new pod", "s"),
        Column("whole_s", "all run again", "s", ratio=True),
        Column("memory_mib", "resident", "MiB"),
        Column("peak_mib", "at most", "MiB"),
        Column("events", "history events a restart"),
    ),
    base="JobSet",
)
EXCLUSIVE = Layout(
    "exclusive",
    "A rack for each Job (J21)",
    "A JobSet of Jobs with ten pods each, whose topology is a label of two nodes: from its creation, or from the "
    "failing of a pod (restart 1), until all pods run. Moved: pods that were made and deleted before. Refused: "
    "creations of pods that a webhook refused. Misplaced: Jobs that are not alone in one rack.",
    (
        Column("whole_s", "all run", "s", ratio=True),
        Column("moved", "moved"),
        Column("refused", "refused"),
        Column("misplaced", "misplaced"),
    ),
    base="JobSet",
)
HISTORY = Layout(
    "history",
    "What a life costs in history (i)",
    "One life with one reset, zero failure grace, 1 s retry pause. Budgets: 42 events to Succeeded, 40 a reset.",
    (
        Column("events_to_succeeded", "events to Succeeded"),
        Column("events_of_reset", "events of a reset"),
        Column("events_of_life", "all events"),
        Column("actions_of_reset", "Temporal actions of a reset"),
        Column("actions_of_life", "all actions"),
        Column("bytes_at_running", "bytes at Running"),
        Column("bytes_of_life", "bytes of all"),
        Column("running_s", "submitted, until recorded as running", "s"),
        Column("reset_s", "failed, until Running", "s"),
    ),
)
CROWD = Layout(
    "crowd",
    "Ten thousand idle workloads on one worker (j)",
    "One-pod workloads, added step by step. At the end: memory gained in the idle time, CPU as a share of one "
    "core, and of timers that came due then by how much they fired late, and were acted on late: median / p99 / "
    "most.",
    (
        Column("memory_mib", "resident", "MiB"),
        Column("above_empty_mib", "above the empty worker", "MiB"),
        Column("gained_mib", "gained while idle", "MiB"),
        *SHARES,
        Column("fired_late_s", "fired late", "s", tail=True),
        Column("late_s", "acted on late", "s", tail=True),
    ),
)
NODES = Layout(
    "nodes",
    "A tenth of the nodes lose power (l)",
    "Two-pod workloads on nodes whose leases are renewed every 10 s; a tenth of the nodes falls silent at once. "
    "Decided: from the moment at which the monitor of nodes found one Down until the workload's own decision, by both "
    "histories: median / p99 / most. Touched: workloads that had no pod there, and were changed. Then so many are "
    "only watched.",
    (
        Column("affected", "affected"),
        Column("late_s", "decided", "s", tail=True),
        Column("missing", "never decided"),
        Column("twice", "decided twice"),
        Column("touched", "touched"),
        Column("silence_s", "silent until Down, at most", "s"),
        Column("monitor_events_each", "monitor's history events an affected workload"),
        Column("workload_events_each", "its own"),
        Column("idle_share", "CPU, few nodes"),
        Column("cpu_share", "CPU, so many"),
        Column("above_idle_mib", "memory above few", "MiB"),
    ),
)
WORKERS = Layout(
    "workers",
    "One worker process against several (k)",
    "N two-pod workloads as above. The other columns are the cores that each process kept busy from the first "
    "request until all had ended: what is near its limit is what is full.",
    (
        RUNNING,
        Column("started_per_s", "workloads a second"),
        ENDED,
        *(Column(f"{name}_cores", heading) for name, heading in CORES.items()),
    ),
)
AGENTS = Layout(
    "agents",
    "The agents of one gang (m)",
    "Simulated agents with real tokens and long polls meet, are left alone for a minute, lose one of them, and meet "
    "again. Updates are what the rendezvous is told, many members at a time. CPU: of the worker; at rest as a share of "
    "one core.",
    (
        Column("joined_s", "all in a round", "s"),
        Column("join_updates", "updates for it"),
        Column("cpu_join_s", "CPU for it", "s"),
        Column("quiet_updates", "updates at rest"),
        Column("cpu_steady_share", "CPU at rest"),
        Column("formed_again_s", "one is lost, until the others are in a new round", "s"),
        Column("updates", "updates in all"),
        Column("events", "history events"),
        Column("history_kib", "history", "KiB"),
    ),
)
ROUNDS = Layout(
    "rounds",
    "A member of a gang is killed (m)",
    "Real containers on this machine's kubelet. The agent of one member is killed with -9: from then until workers of "
    "the others, or of all, run in a new round, as the kernel has them. Of that the last call takes 1 s. Charged: "
    "restarts of members and of the workload, of which a lost member is none.",
    (
        Column("start_s", "submitted, until all run", "s"),
        Column("again_s", "killed, until a new round runs", "s"),
        Column("whole_s", "until all run", "s"),
        Column("rounds", "rounds"),
        Column("charged", "charged"),
        Column("events", "history events of the rendezvous"),
    ),
)
INPLACE = Layout(
    "inplace",
    "A program of a JobSet is killed (J25)",
    "Real containers on this machine's kubelet; each run is one restart of one workload. One program is killed with "
    "-9: from then until all programs run at the next attempt, as the kernel has them. In place, the kubelet restarts "
    "all containers of the pods, each of which has an agent. Recreated, new pods run the program alone. In a gang, the "
    "agent of each pod starts the program anew. JobSet: its own controller, with its gate and its own agent.",
    (
        Column("start_s", "submitted, until all run", "s"),
        Column("whole_s", "killed, until all run again", "s", ratio=True),
        Column("pods_kept", "pods kept"),
    ),
    base="Holdfast, recreated",
)
ENGINE = Layout(
    "engine",
    "The pure engine",
    "CPU time of one core: random lives under crashes, outages and people's wishes, and a healthy life with one reset.",
    (
        Column("steps_per_s", "steps a second, alone"),
        Column("steps_with_oracle_per_s", "with its small cluster and the oracle"),
        Column("life_ms", "a life with a reset", "ms"),
    ),
)
PROFILE = Layout(
    "profile",
    "Whose the worker's time is",
    "Samples of the worker while N two-pod workloads live and are removed. A sample is its innermost known function's; "
    "the milliseconds are CPU of the worker, a life. Sampling takes some of it.",
    (
        Column("life_ms", "a life", "ms"),
        *(Column(f"{owner}_ms", owner, "ms") for owner in (*(owner for owner, _ in OWNERS), REST)),
    ),
    smoked=False,
)

LAYOUTS = (
    *(START, APPLIED, LATENCY, REMOVAL, CRASH, IDLE, CLI, GANG, EXCLUSIVE, HISTORY, PROFILE),
    *(CROWD, NODES, WORKERS, AGENTS, ROUNDS, INPLACE, ENGINE),
)
