"""JobSets that are refused, where and why; those that the published admission lets pass are told apart."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from holdfast.formats.jobset.document import EXCLUSIVE, FAIL_ON, NODE_SELECTOR
from holdfast.formats.published import LABEL_QUEUE
from tests.formats.documents import PODS, Json
from tests.formats.jobset.jobsets import jobset_of, replicated


def failing(**rule: Any) -> Json:
    """Return a JobSet with one rule."""
    return jobset_of(failurePolicy={"rules": [{"action": "FailJobSet", **rule}]})


def in_place(**job: Any) -> Json:
    """Return a JobSet that restarts in place, as the published admission accepts it, with these fields of its Job."""
    fit = {"backoffLimit": 2**31 - 1, "podReplacementPolicy": "Failed", "completions": 2, "parallelism": 2}
    return jobset_of(replicated(job={**fit, **job}), failurePolicy={"restartStrategy": "InPlaceRestart"})


def _pods(**spec: Any) -> Json:
    """Return what a Job's spec has for pods with these fields."""
    return {"template": {"spec": {**PODS["spec"], **spec}}}


AGENT: Json = {
    "name": "agent",
    "image": "holdfast",
    "restartPolicy": "Always",
    "restartPolicyRules": [{"action": "RestartAllContainers"}],
    "startupProbe": {"httpGet": {"path": "/barrier-is-down", "port": 8081}},
}


def agent_and_program(agent_env: Any = None, program_env: Any = None, *, beside: bool = True) -> Json:
    """Return the pods of an in-place JobSet: an agent beside the program or not, each with these variables."""
    (program,) = PODS["spec"]["containers"]
    agents = [{**AGENT, "env": agent_env or []}] if beside else []
    return _pods(initContainers=agents, containers=[{**program, "env": program_env or []}])


WORKER = [{"name": "POD_NAME", "value": "x"}, {"name": "WORKER_COMMAND", "value": "train"}]


def ordered(*depends: tuple[str, str]) -> Json:
    """Return a JobSet of a, b, c whose b depends on these."""
    wanted = [{"name": name, "status": status} for name, status in depends]
    return jobset_of(replicated("a"), replicated("b", dependsOn=wanted), replicated("c"))


def claim(name: str, **metadata: Any) -> Json:
    """Return the template of a claim."""
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return {"metadata": {"name": name, **metadata}, "spec": spec}


def claiming(*claims: Json, mounts: tuple[str, ...] = ("data",), volumes: Any = None, **policy: Any) -> Json:
    """Return a JobSet with these claims in one policy, whose container mounts volumes of these names."""
    (container,) = PODS["spec"]["containers"]
    mounted = [{"name": name, "mountPath": f"/{name}"} for name in mounts]
    pods = _pods(containers=[{**container, "volumeMounts": mounted}], **({"volumes": volumes} if volumes else {}))
    return jobset_of(replicated(job=pods), volumeClaimPolicies=[{"templates": list(claims), **policy}])


IN_PLACE_ATTEMPT = "jobset.sigs.k8s.io/in-place-restart-attempt"
INDEXED = {"completions": 4, "parallelism": 4}
QUEUED = {LABEL_QUEUE: "team"}
J = "spec.replicatedJobs[0]"
V = "spec.volumeClaimPolicies[0].templates[0]"
R = "spec.failurePolicy.rules[0]"
CYCLE = jobset_of(
    replicated("a"),
    replicated("b", dependsOn=[{"name": "c", "status": "Ready"}]),
    replicated("c", dependsOn=[{"name": "b", "status": "Ready"}]),
)


class Refused(NamedTuple):
    """A JobSet and what is said of it."""

    document: Json
    path: str
    """Of the field that is told."""
    says: str | None
    """Part of what is told; None where nothing is: it is accepted."""
    alone: str = ""
    """Why it is refused here although the published admission lets it pass; empty where that refuses it too."""


_CASES: Final[list[tuple[Any, ...]]] = [
    (jobset_of(replicated("w" * 60)), f"{J}.name", "makes a Job name of 68 characters"),
    (jobset_of(replicated("w" * 55, replicas=10)), f"{J}.name", None),
    (jobset_of(replicated("w" * 55, replicas=11)), f"{J}.name", "makes a Job name of 64 characters"),
    (jobset_of(replicated("w" * 47, job=INDEXED)), f"{J}.name", None),
    (jobset_of(replicated("w" * 48, job=INDEXED)), f"{J}.name", "makes a pod name of 64 characters"),
    (jobset_of(replicated("w" * 49, job={"completionMode": "NonIndexed", **INDEXED})), f"{J}.name", None),
    (jobset_of(name="1st"), f"{J}.name", "makes a Job name that is none"),
    (jobset_of(name="a.b"), f"{J}.name", "makes a Job name that is none"),
    (jobset_of(replicated("Workers")), f"{J}.name", "expected a DNS label"),
    (jobset_of(replicated("")), f"{J}.name", "expected a DNS label", "its Jobs would be part of no replicated job"),
    (jobset_of(replicated("a"), replicated("a")), "spec.replicatedJobs[1].name", "is the name of"),
    (jobset_of(replicated(groupName="G")), f"{J}.groupName", "expected a DNS label"),
    (jobset_of(replicated(groupName="1g")), f"{J}.groupName", "expected a DNS label"),
    (jobset_of(replicated(groupName="")), f"{J}.groupName", "expected a DNS label"),
    (jobset_of(replicated(replicas=-1)), f"{J}.replicas", "at least 0", "nothing can come of it"),
    (jobset_of(replicated(replicas=2**31)), f"{J}.replicas", "less than or equal to"),
    (
        jobset_of(replicated(replicas=10_001)),
        f"{J}.replicas",
        "less than or equal to 10000",
        "one component has at most so many copies",
    ),
    (
        jobset_of(replicated(replicas=3000, job={"parallelism": 900_000})),
        f"{J}.replicas",
        "parallelism of 900000 is more than 2147483647",
    ),
    (
        jobset_of(replicated(job={"parallelism": -1})),
        f"{J}.template.spec.parallelism",
        "at least 0",
        "no Job would be created",
    ),
    (jobset_of(replicated(job={"template": {}})), f"{J}.template.spec.template", "pod template"),
    ({**jobset_of(), "spec": {}}, "spec.replicatedJobs", "at least one", "it would never end"),
    (
        ordered(("b", "Ready")),
        "spec.replicatedJobs[1].dependsOn[0].name",
        "is the replicated job itself",
        "it would never start",
    ),
    (ordered(("c", "Ready")), "spec.replicatedJobs[1].dependsOn[0].name", "comes later"),
    (ordered(("x", "Ready")), "spec.replicatedJobs[1].dependsOn[0].name", "names no replicated job"),
    (ordered(("a", "Ready"), ("a", "Complete")), "spec.replicatedJobs[1].dependsOn[1].name", "is given twice"),
    (ordered(("a", "Done")), "spec.replicatedJobs[1].dependsOn[0].status", "allowed values"),
    (ordered(*[("a", "Ready")] * 6), "spec.replicatedJobs[1].dependsOn", "at most 5"),
    (CYCLE, "spec.replicatedJobs[1].dependsOn[0].name", "a cycle"),
    (
        jobset_of(replicated("a", dependsOn=[{"name": "a", "status": "Ready"}])),
        f"{J}.dependsOn",
        "cannot be given for the first",
    ),
    (
        {
            **ordered(("a", "Ready")),
            "spec": {**ordered(("a", "Ready"))["spec"], "startupPolicy": {"startupPolicyOrder": "InOrder"}},
        },
        "spec.replicatedJobs[1].dependsOn",
        "cannot stand beside",
    ),
    (jobset_of(startupPolicy={"startupPolicyOrder": "Odd"}), "spec.startupPolicy.startupPolicyOrder", "allowed"),
    (jobset_of(network={"subdomain": "a.b"}), "spec.network.subdomain", "Service's name"),
    (jobset_of(network={"subdomain": "1a"}), "spec.network.subdomain", "Service's name"),
    (jobset_of(network={"subdomain": "a" * 64}), "spec.network.subdomain", "Service's name"),
    (jobset_of(successPolicy={"operator": "Most"}), "spec.successPolicy.operator", "allowed values"),
    (
        jobset_of(successPolicy={"operator": "Any", "targetReplicatedJobs": ["x"]}),
        "spec.successPolicy.targetReplicatedJobs[0]",
        "names no replicated job",
    ),
    (failing(action="Restart"), f"{R}.action", "allowed values"),
    (failing(onJobFailureReasons=["Odd"]), f"{R}.onJobFailureReasons[0]", "allowed values"),
    (
        failing(onJobFailureReasons=["FailedIndexes", "FailedIndexes"]),
        f"{R}.onJobFailureReasons[1]",
        "is given twice",
        "row J6",
    ),
    (failing(targetReplicatedJobs=["x"]), f"{R}.targetReplicatedJobs[0]", "names no replicated job"),
    (failing(targetReplicatedJobs=["workers"] * 2), f"{R}.targetReplicatedJobs[1]", "is given twice", "row J6"),
    (
        failing(onJobFailureMessagePatterns=["a", "a"]),
        f"{R}.onJobFailureMessagePatterns[1]",
        "is given twice",
        "row J6",
    ),
    (failing(name="1a"), f"{R}.name", "the pattern"),
    (failing(name="a,"), f"{R}.name", "the pattern"),
    (failing(name="a-b"), f"{R}.name", "the pattern"),
    (failing(name="a" * 129), f"{R}.name", "at most 128"),
    (failing(name="a\n"), f"{R}.name", "the pattern"),
    (
        jobset_of(failurePolicy={"rules": [{"name": "a", "action": "FailJobSet"}] * 2}),
        "spec.failurePolicy.rules[1].name",
        "is the name of spec.failurePolicy.rules[0] too",
    ),
    (
        jobset_of(
            failurePolicy={"rules": [{"name": "failurePolicyRule1", "action": "FailJobSet"}, {"action": "FailJobSet"}]}
        ),
        "spec.failurePolicy.rules[1].name",
        "is the name of",
    ),
    (jobset_of(failurePolicy={"restartStrategy": "Odd"}), "spec.failurePolicy.restartStrategy", "allowed values"),
    (
        in_place(**agent_and_program(program_env=WORKER, beside=False)),
        f"{J}.template.spec.template.spec.containers[0].env[1].name",
        "expected `holdfast agent in-place` as a sidecar",
        "JobSet's agent runs the program itself",
    ),
    (
        in_place(**agent_and_program(WORKER)),
        f"{J}.template.spec.template.spec.initContainers[0].env[1].name",
        "expected `holdfast agent in-place` as a sidecar",
        "JobSet's agent runs the program itself",
    ),
    (
        in_place(template={**PODS, "metadata": {"annotations": {IN_PLACE_ATTEMPT: "0"}}}),
        f"{J}.template.spec.template.metadata.annotations[{IN_PLACE_ATTEMPT}]",
        "expected none",
        "it would lift the barrier",
    ),
    (in_place(backoffLimit=6), f"{J}.template.spec.backoffLimit", "expected 2147483647"),
    (in_place(podReplacementPolicy=None), f"{J}.template.spec.podReplacementPolicy", "expected Failed"),
    (in_place(completions=3), f"{J}.template.spec.completions", "completions and parallelism, both the same"),
    (in_place(parallelism=None), f"{J}.template.spec.completions", "completions and parallelism, both the same"),
    (jobset_of(coordinator={"replicatedJob": "x"}), "spec.coordinator.replicatedJob", "names no replicated job"),
    (
        jobset_of(replicated(job=INDEXED), coordinator={"replicatedJob": "workers", "jobIndex": 1}),
        "spec.coordinator.jobIndex",
        "expected 0 to 0",
    ),
    (
        jobset_of(replicated(job=INDEXED), coordinator={"replicatedJob": "workers", "podIndex": 4}),
        "spec.coordinator.podIndex",
        "expected 0 to 3",
    ),
    (
        jobset_of(replicated(job=INDEXED), coordinator={"replicatedJob": "workers", "podIndex": -1}),
        "spec.coordinator.podIndex",
        "expected 0 to 3",
    ),
    (jobset_of(coordinator={"replicatedJob": "workers"}), "spec.coordinator.replicatedJob", "no indexed pods"),
    (
        jobset_of(replicated(job=INDEXED), coordinator={"replicatedJob": "workers"}, network={"subdomain": "a" * 50}),
        "spec.coordinator",
        "makes a label of 68 characters",
    ),
    (jobset_of(ttlSecondsAfterFinished=-1), "spec.ttlSecondsAfterFinished", "greater than or equal to 0"),
    (jobset_of(replicas=3), "spec.replicas", "is not a field here"),
    (jobset_of(replicated(paralelism=2)), f"{J}.paralelism", "is not a field here"),
    (jobset_of(suspend="yes"), "spec.suspend", "true or false"),
    (
        jobset_of(replicated(job={"template": {**PODS, "metadata": {"annotations": {EXCLUSIVE: 5}}}})),
        f"{J}.template.spec.template.metadata.annotations[{EXCLUSIVE}]",
        "expected a text",
    ),
    (
        jobset_of(annotations={FAIL_ON: "FirstPod"}),
        f"metadata.annotations[{FAIL_ON}]",
        "expected Failed or FailureTarget",
        "the annotation is Holdfast's own",
    ),
    (
        jobset_of(annotations={EXCLUSIVE: "a rack"}),
        f"{J}.template.metadata.annotations[{EXCLUSIVE}]",
        "label key 'a rack'",
        "no node can have such a label, so its pods would be refused",
    ),
    (
        jobset_of(replicated("w" * 30), name="j" * 25, annotations={EXCLUSIVE: "rack", NODE_SELECTOR: ""}),
        f"{J}.name",
        "makes a node's label of 66 characters",
        "no node can have such a label",
    ),
    (
        jobset_of(replicated(job=_pods(tolerations={})), annotations={EXCLUSIVE: "rack"}),
        f"{J}.template.spec.template.spec.tolerations",
        "expected a list",
    ),
    (
        jobset_of(replicated(job=_pods(affinity={"podAffinity": []})), annotations={EXCLUSIVE: "rack"}),
        f"{J}.template.spec.template.spec.affinity.podAffinity",
        "expected an object",
    ),
    (
        jobset_of(replicated("a"), replicated("b", replicas=1025), failurePolicy={"rules": [{"action": "RestartJob"}]}),
        "spec.replicatedJobs[1].replicas",
        "expected at most 1024 beside the actions RestartJob and RestartJobAndIgnoreMaxRestarts",
    ),
    (
        jobset_of(replicated(metadata={"labels": QUEUED})),
        f"{J}.template.metadata.labels[{LABEL_QUEUE}]",
        "give the JobSet itself the queue",
        "Kueue would admit each Job by itself (row F10)",
    ),
    (
        jobset_of(replicated(job={"template": {**PODS, "metadata": {"labels": QUEUED}}})),
        f"{J}.template.spec.template.metadata.labels[{LABEL_QUEUE}]",
        "give the JobSet itself the queue",
        "Kueue would admit each Job by itself (row F10)",
    ),
    (
        claiming(claim("data"), mounts=("other",)),
        f"{V}.metadata.name",
        "is mounted by no container: expected a volumeMount of this name",
    ),
    (
        claiming(claim("data"), claim("data")),
        "spec.volumeClaimPolicies[0].templates[1].metadata.name",
        f"is the name of {V} too",
    ),
    (
        claiming(claim("data", namespace="other")),
        f"{V}.metadata.namespace",
        "expected none: a claim is made in the namespace of its JobSet",
    ),
    (
        claiming(claim("d" * 58), mounts=("d" * 58,)),
        f"{V}.metadata.name",
        "makes a claim's name of 64 characters: expected at most 63",
    ),
    (
        claiming(claim("my.data"), mounts=("my.data",)),
        f"{V}.metadata.name",
        "is also a volume's name: expected a DNS label",
        "the Jobs that it makes are refused, since no volume can have this name",
    ),
    (
        claiming(claim("data"), volumes=[{"name": "data", "emptyDir": {}}]),
        f"{J}.template.spec.template.spec.volumes[0].name",
        f"is the name of {V} too",
    ),
    (
        claiming(claim("data"), retentionPolicy={"whenDeleted": "Keep"}),
        "spec.volumeClaimPolicies[0].retentionPolicy.whenDeleted",
        "is not one of the allowed values",
    ),
    (
        jobset_of(annotations={"holdfast.dev/profile": "streams"}),
        "metadata.annotations[holdfast.dev/profile]",
        "is decided by",
        "a profile is no field of JobSet",
    ),
    (
        {**jobset_of(), "metadata": {"generateName": "x-"}},
        "metadata.name",
        "is required",
        "a workload is known by its name",
    ),
]
CASES: Final = [Refused(*each) for each in _CASES]
