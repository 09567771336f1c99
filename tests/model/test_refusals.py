"""Each place in the model that refuses is reached by a document that is spoiled for its reason, and says it."""

from __future__ import annotations

import copy
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from holdfast.errors import problems_of
from holdfast.model import Workload, base
from tests.refusing import lines_run, missed, places

Spoiled = dict[str, Any]
NOT_OF_A_WORKLOAD = {
    "entities/broker.py",
    "entities/graph.py",
    "entities/queue.py",
    "gang/orders.py",
    "gang/packed.py",
    "gang/wire.py",
    "packed.py",
    "quantity.py",
    "selector.py",
}
"""What is no part of a workload's document: it has tests of its own beside this one."""
MODEL = Path(base.__file__).resolve().parent
FILES = sorted(
    path
    for path in MODEL.rglob("*.py")
    if path.relative_to(MODEL).as_posix() not in NOT_OF_A_WORKLOAD and path.parent.name != "calls"
)


def job(name: str = "train", **fields: Any) -> Spoiled:
    template = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}}
    return {"name": name, "template": template, "podSets": [{"path": "template.spec.template"}], **fields}


def of_template(**fields: Any) -> Spoiled:
    return {"components": [job(template={**job()["template"], **fields})]}


def policy(**fields: Any) -> Spoiled:
    return {"policy": fields}


def serving(components: Any = None, **probe: Any) -> Spoiled:
    """Return a service that is asked so; `components` are the probe's by name, or the workload's own."""
    own = isinstance(components, list) and isinstance(components[0], dict)
    asked = {"port": 80, **probe} | ({} if own or components is None else {"components": components})
    return {"lifecycle": {"kind": "Unbounded"}, "probe": asked} | ({"components": components} if own else {})


def scaler(**spec: Any) -> Spoiled:
    template = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "train"}}
    return {"name": "scaler", "template": {**template, "spec": spec}}


def rule(name: str = "r", **fields: Any) -> Spoiled:
    return {"name": name, **fields}


def config(name: str = "", **metadata: Any) -> Spoiled:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}}


INDEX, NAME = {"word": "Index"}, {"word": "Name"}
CLAIM: dict[str, Any] = {"name": "data", "spec": {}}
DATA = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "spec": {}}
POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "train"}}


def after(first: str, *others: str, status: str = "Ready") -> Spoiled:
    """Return train, serve, and none without pods; train waits for `first`, if that is another, and serve for others."""
    waits = [{"component": name, "status": status} for name in others]
    train = job(after=[{"component": first, "status": "Ready"}]) if first == "serve" else job()
    nothing = {"name": "none", "template": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "none"}}}
    return {"components": [train, job("serve", after=waits), nothing]}


def gang(*components: Spoiled, job_spec: Spoiled | None = None, **fields: Any) -> Spoiled:
    """Return a workload with a gang of one member at least; `job_spec` is of its Job, where there is nothing else."""
    template = {**job()["template"], "spec": job_spec or {}}
    return {"gang": {"min": 1, "max": 4, **fields}, "components": list(components) or [job(template=template)]}


MEMBER = {"name": "launch", "limit": None, "scope": "Member"}
RESTART = {"name": "restart", "limit": 3}
CORPUS = {"name": "corpus", "source": "s3://datasets/corpus", "path": "/data"}
DONE = {"path": "status.phase", "equals": "Done"}
NOTHING = {"name": "none", "template": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "none"}}}


def reads(*mounts: Spoiled, **pod: Any) -> Spoiled:
    """Return a Job whose pod, so spoiled, reads data sets."""
    template = {**job()["template"], "spec": {"template": {"spec": pod}}}
    component = job(template=template, podSets=[{"path": "template.spec.template"}])
    return {"components": [component], "mounts": [{**CORPUS, **one} for one in mounts]}


TABLE: list[tuple[Spoiled, str]] = [
    # Words of others.
    ({"source": {"api_version": "batch/v1\n", "kind": "Job"}}, "'batch/v1\\n': expected printable characters"),
    ({"policy": {"timings": {"retryPausePeriod": False}}}, "false is no duration: expected for example 30s"),
    # What a status says.
    (
        {"components": [job(status={"succeededWhen": [{"path": "spec.phase", "equals": "Done"}]})]},
        "components[0].status.succeededWhen[0].path: 'spec.phase': expected a field of the status",
    ),
    (
        {
            "components": [
                job(
                    status={
                        f"{word}When": [{"path": "status.phase", "equals": "Done"}] for word in ("succeeded", "failed")
                    }
                )
            ]
        },
        "status.phase is Done: cannot mean both that it has succeeded and that it has failed",
    ),
    # Data sets.
    (reads({"name": "Corpus"}), "mounts[0].name"),
    (reads({"source": "http://datasets"}), "mounts[0].source: 'http://datasets': expected s3://bucket/prefix"),
    (reads({"path": "data"}), "mounts[0].path: 'data': expected an absolute path"),
    (reads({"version": "latest"}), "mounts[0].version: 'latest': expected the 64 hexadecimal digits"),
    (reads({}, {"path": "/b"}), "mounts[1].name: 'corpus' is used twice"),
    (reads({}, {"name": "b"}), "mounts[1].path: '/data' is that of mount corpus, too"),
    (reads({"components": ["serve"]}), "mounts[0].components[0]: 'serve': expected a component with pods: train"),
    (reads({"components": ["train", "train"]}), "mounts[0].components[1]: 'train' is given twice"),
    ({"components": [NOTHING], "mounts": [CORPUS]}, "mounts[0]: no component brings pods that could read it"),
    (reads({}, volumes=[{"name": "holdfast-data-corpus"}]), "spec.volumes[0].name: 'holdfast-data-corpus' is the"),
    # The progress.
    ({"progress": {"source": "http"}}, "port: missing: source http asks each pod at its own address"),
    ({"progress": {"port": 80}}, "port: 80: expected none, since source annotation asks no endpoint"),
    ({"progress": {"source": "carrier pigeon"}}, "allowed: annotation, http"),
    ({"progress": {"source": "http", "port": 80, "path": "step me"}}, "progress.path"),
    ({"progress": {"period": "0s"}}, "period: 0s: expected at least 1s"),
    ({"progress": {"bound": "59s"}}, "bound: 59s: expected at least 1m, four periods"),
    ({"progress": {"firstStep": "1s"}}, "firstStep: 1s: expected at least 1m"),
    ({"progress": {"phaseBound": "1s"}}, "phaseBound: 1s: expected at least 1m"),
    ({"progress": {"multiple": 1}}, "progress.multiple"),
    ({"progress": {"components": ["serve"]}}, "progress.components[0]: 'serve': expected a component with pods: train"),
    (
        {"progress": {}, "components": [{"name": "c", "template": config("c")}]},
        "progress: expected a component with pods: none has any",
    ),
    (
        {
            "progress": {"source": "http", "port": 80},
            **of_template(spec={"template": {"spec": {"hostNetwork": True}}}),
        },
        "hostNetwork: the address of such pods is their node's, which is not asked for a step",
    ),
    # The checkpoint.
    ({"checkpoint": {"protocol": "http"}}, "port: missing: protocol http asks each pod at its own address"),
    ({"checkpoint": {"protocol": "annotation", "port": 80}}, "port: 80: expected none"),
    ({"checkpoint": {"protocol": "carrier pigeon"}}, "allowed: annotation, http"),
    ({"checkpoint": {"protocol": "http", "port": 80, "path": "save me"}}, "checkpoint.path"),
    ({"checkpoint": {"protocol": "http", "port": 0}}, "checkpoint.port"),
    ({"checkpoint": {"protocol": "annotation", "timeout": "0s"}}, "checkpoint.timeout"),
    (
        {"checkpoint": {"protocol": "annotation", "components": ["serve"]}},
        "checkpoint.components[0]: 'serve' names no component with pods: expected some of train",
    ),
    (
        {
            "checkpoint": {"protocol": "http", "port": 80},
            **of_template(spec={"template": {"spec": {"hostNetwork": True}}}),
        },
        "components[0].template.spec.template.spec.hostNetwork: the address of such pods is their node's, where nobody",
    ),
    (
        {"checkpoint": {"protocol": "annotation", "components": ["train", "train"]}},
        "[1]: 'train' is given twice",
    ),
    (
        {
            "components": [{"name": "c", "template": config("c")}],
            "checkpoint": {"protocol": "annotation"},
        },
        "checkpoint: no component brings pods that could be asked",
    ),
    # The workload.
    ({"name": "Bad_Name"}, "expected a Kubernetes name"),
    ({"queue": "no.dots"}, "expected a DNS label"),
    ({"uid": "a b"}, "expected at most 63 characters"),
    ({"labels": {"a b": "c"}}, "label key 'a b'"),
    ({"labels": {"a": "b c"}}, "label a: value 'b c'"),
    ({"source": {"api_version": "v1", "kind": "List", "labels": {"a": "b c"}}}, "source: label a: value 'b c'"),
    ({"components": [job(), job()]}, "components[1].name: 'train' is used twice"),
    (of_template(metadata={"name": "train", "namespace": "elsewhere"}), "is another namespace"),
    ({"components": [job(config=["nothing"])]}, "components[0].config: 'nothing' names no component without pods"),
    ({"components": [job(replacement={"charge": "x"})]}, "components[0].replacement.charge 'x'"),
    (of_template(spec={"x": "y" * 600 * 1024}), "expected at most 524,288"),
    ({"submittedAt": datetime(2026, 1, 31)}, "a time needs its zone"),  # noqa: DTZ001 - that it has none is refused
    ({"submittedAt": "0001-01-01T00:00:00+05:00"}, "a time must be within the years 1 to 9999 in UTC"),
    # A component.
    ({"components": [job(name="Bad_Name")]}, "expected a DNS label"),
    (of_template(kind=""), "template.kind: expected a text"),
    (of_template(kind="../Pod"), "template.kind: expected letters, digits and hyphens, a letter first, found '../Pod'"),
    (of_template(apiVersion="../healthz"), "template.apiVersion: expected a version as `v1` or `batch/v1`, found '../"),
    (of_template(apiVersion="../api/v1/pods?x=/y"), "template.apiVersion: expected a version as `v1` or `batch/v1`"),
    (of_template(apiVersion="a/b/v1"), "template.apiVersion: expected a version as `v1` or `batch/v1`"),
    (of_template(apiVersion="v1\n"), "template.apiVersion: expected a version as `v1` or `batch/v1`"),
    (of_template(metadata={}), "template.metadata.name: expected a name or a generateName"),
    ({"components": [job(podSets=[{"path": "spec.template"}])]}, "expected a path that starts with template"),
    ({"components": [job(podSets=[{"path": "template"}] * 2)]}, "podSets: path 'template' is given 2 times"),
    # Copies of a component.
    ({"components": [job(copyLabels={"a": INDEX})]}, "copyLabels: expected only beside copies"),
    ({"components": [job(copySelectors={"a": INDEX})]}, "copySelectors: expected only beside copies"),
    ({"components": [job(copies=2, copyLabels={"a b": INDEX})]}, "copyLabels: label key 'a b'"),
    ({"components": [job(copies=2, copyLabels={"holdfast.dev/copy": INDEX})]}, "labels of holdfast.dev are"),
    ({"components": [job(copies=2, copyLabels={"a": {"word": "Key", "offset": 1}})]}, "only Index has an offset"),
    ({"components": [job(copies=2, template=config("c" * 63), copyLabels={"a": NAME})]}, "is no label's value"),
    ({"components": [job(copies=2, template=config(generateName="c-"))]}, "copies are named by their index"),
    ({"components": [{**job("j" * 63), "copies": 2}]}, "has 65 characters: expected at most 63"),
    (
        {"components": [job(copies=2)], **policy(rules=[rule(action={"unit": "Member"})])},
        "is made again for its own failure only: expected match.scopes [Component]",
    ),
    (after("train", "nobody"), "components[1].after[0].component: 'nobody' names no component"),
    (after("train", "serve"), "components[1].after[0].component: 'serve' would wait for itself"),
    (after("train", "train", "train"), "components[1].after[1].component: 'train' is given twice"),
    (
        after("serve", "train"),
        "components[0].after[0].component: 'serve': these wait for each other",
    ),
    (after("none", "none", status="Complete"), "has no pods and says nothing of its end: expected status Ready"),
    # The workload's own claims.
    ({"volumeClaims": [CLAIM, CLAIM]}, "volumeClaims[1].name: 'data' is used twice"),
    ({"volumeClaims": [{**CLAIM, "name": "Data"}]}, "'Data': expected a Kubernetes name"),
    ({"volumeClaims": [{**CLAIM, "labels": {"a b": "c"}}]}, "label key 'a b'"),
    (
        {"components": [{"name": "data", "template": DATA}], "volumeClaims": [CLAIM]},
        "volumeClaims[0].name: 'data' is the name of a component's object too",
    ),
    # An elastic gang.
    (gang(min=5), "gang.min: 5: expected at most max, 4"),
    (gang(min=0), "gang.min"),
    (gang(spares=4093), "spares: 4093: expected at most 4092 beside max"),
    (gang(heartbeat="100ms"), "heartbeat: 0.1s: expected at least 1s"),
    (gang(lastCall="11m"), "last_call: 11m: expected at most the join timeout, 10m"),
    (
        gang(job(), job("serve")),
        "gang: its members are the pods of one component: expected exactly one with pods, found",
    ),
    (gang({"name": "c", "template": config("c")}), "expected exactly one with pods, found none"),
    (gang(job(template=POD)), "components[0].template.kind: 'v1 Pod': expected a batch/v1 Job"),
    (gang(job(copies=1)), "components[0].copies: 1: expected none: the members of a gang are the pods of one Job"),
    (gang(min=2), "components[0].podSets[0].replicas: 1: expected gang.min, 2"),
    (gang(job_spec={"parallelism": 4}), "components[0].template.spec.parallelism: 4: expected none: gang.max and"),
    (gang(job_spec={"completions": 2}), "components[0].template.spec.completions: 2: expected none: gang.max and"),
    (gang(job_spec={"completionMode": "NonIndexed"}), "completionMode: 'NonIndexed': expected Indexed, or none"),
    ({**gang(), "lifecycle": {"kind": "Reactive", "min": 1, "max": 3}}, "lifecycle.kind: 'Reactive': a gang's size"),
    ({**gang(), **policy(deletion={"suspend": "InPlace"})}, "policy.deletion.suspend: 'InPlace': expected Delete"),
    # The policy.
    (policy(rules=[rule(match={"components": ["nobody"]})]), "policy.rules[r].match.components: 'nobody'"),
    (policy(rules=[rule(action={"unit": "Member"})]), "are its controller's to make again"),
    (
        {
            "components": [job(copies=2049)],
            **policy(rules=[rule(match={"scopes": ["Component"]}, action={"unit": "Member"})]),
        },
        "2,049 copies may be made again alone, and each is remembered: expected at most 2,048",
    ),
    (policy(default={"unit": "Gang"}), "its rendezvous begins a new round by itself"),
    (policy(rules=[rule(match={"messagePattern": "("})]), "is no regular expression of RE2"),
    (policy(rules=[rule(name="a\tb")]), "rule name 'a\\tb': expected"),
    (policy(rules=[rule(), rule()]), "rule name 'r' is used 2 times"),
    (policy(budgets=[RESTART, RESTART]), "budget 'restart' is given 2 times"),
    (policy(budgets=[{**RESTART, "resetAfter": "0s"}]), "resetAfter: expected more than 0s"),
    (policy(budgets=[{**RESTART, "scope": "Component"}]), "expected Workload or Member"),
    (policy(budgets=[RESTART, MEMBER, {**MEMBER, "name": "b"}]), "at most one of scope Member, found launch, b"),
    (policy(default={"charge": "nothing"}), "charge 'nothing' names no budget"),
    (policy(default={"charge": "launch"}, budgets=[RESTART, MEMBER]), "expected a budget of scope Workload"),
    (policy(replacement={"charge": "restart"}), "replacement.charge 'restart': expected one of []"),
    (policy(default={"kind": "Fail", "limit": 1}), "limit: expected only where kind is Restart, found Fail"),
    (policy(rules=[rule("default")], default={"limit": 1}), "rule name 'default' is the default's own"),
    (policy(success={"components": ["nobody"]}), "policy.success.components[0]: 'nobody' names no component"),
    (policy(success={"components": ["train", "train"]}), "policy.success.components[1]: 'train' is given twice"),
    ({"components": [job(podSets=[])], **policy(success={"components": ["train"]})}, "complete as soon as it is there"),
    # How long it is to live, whether a person is asked first, and how often it may come back.
    ({"lifecycle": {"kind": "Bounded", "extendableTo": "1h"}}, "extendableTo: 1h: expected none, since a walltime of"),
    (
        {"lifecycle": {"kind": "Bounded", "walltime": "2h", "extendableTo": "1h"}},
        "extendableTo: 1h: expected at least the walltime, 2h",
    ),
    ({"lifecycle": {"kind": "Reactive", "min": 2, "max": 1}}, "max: 1: expected at least min, 2"),
    (
        {"lifecycle": {"kind": "Reactive", "min": 2, "max": 3}},
        "lifecycle.min: 2: expected 1, the pods of its",
    ),
    (
        {"lifecycle": {"kind": "Reactive", "min": 1, "max": 3}, "components": [job(), scaler(maxReplicas=4)]},
        "components[1].template.spec.maxReplicas: 4: expected at most lifecycle.max, 3",
    ),
    (
        {
            "lifecycle": {"kind": "Reactive", "min": 1, "max": 3},
            "components": [job(), scaler(minReplicas=0, maxReplicas=3)],
        },
        "components[1].template.spec.minReplicas: 0: expected at least lifecycle.min, 1",
    ),
    ({"lifecycle": {"kind": "Endless"}}, "lifecycle: "),
    # How it is asked whether it serves.
    ({"probe": {"port": 80}}, "probe: expected only where lifecycle is Unbounded or Reactive, found Bounded"),
    (serving(kind="HTTP", path="no-slash"), "path: 'no-slash': expected a path that begins with /"),
    (serving(kind="HTTP", path="/a\r\nHost: other"), "path: '/a\\r\\nHost: other': expected a path"),
    (serving(path="/healthz"), "path: '/healthz': expected only where kind is HTTP"),
    (serving(kind="exec"), "probe.kind: is not one of the allowed values"),
    (serving(host="metadata.google.internal"), "probe.host: is not a field here"),
    (serving(port=0), "probe.port: "),
    (serving(period="0s"), "period: 0s: expected at least 1s"),
    (serving(timeout="31s"), "timeout: 31s: expected at most the period, 30s"),
    (serving(failureThreshold=0), "probe.failureThreshold: "),
    (serving(components=["nobody"]), "probe.components[0]: 'nobody': expected a component with pods: train"),
    (
        serving(**of_template(spec={"template": {"spec": {"hostNetwork": True}}})),
        "components[0].template.spec.template.spec.hostNetwork: the address of such pods is their node's",
    ),
    (
        {"sensitive": True, **policy(replacement={"failed": True})},
        "policy.replacement: a sensitive workload is not",
    ),
    (
        {"sensitive": True, "components": [job(replacement={"deleted": True})]},
        "components[0].replacement: a sensitive workload is not run",
    ),
    (
        {"sensitive": True, **of_template(spec={"backoffLimit": 6})},
        "components[0].template.spec.backoffLimit: 6: expected 0",
    ),
    (
        {"sensitive": True, **gang(min=2, max=2, maxRestarts=1)},
        "gang.maxRestarts: 1: expected 0",
    ),
    (policy(default={"kind": "Fail", "requeue": True}), "requeue: expected only where kind is Restart and unit is W"),
    (
        {"components": [job(template=POD)], **policy(rules=[rule(action={"unit": "Component", "requeue": True})])},
        "found unit Component",
    ),
    (policy(budgets=[{**RESTART, "limit": 101, "maximum": 100}]), "limit: 101: expected at most 100"),
    (policy(budgets=[{**RESTART, "limit": None, "maximum": 100}]), "limit: no limit: expected at most 100"),
    (policy(deletion={"terminationGrace": "1.5s"}), "terminationGrace: 1.5s: expected whole seconds, at least 1s"),
    # Durations.
    (policy(timings={"failureGracePeriod": "soon"}), "'soon' is not a duration"),
    (policy(timings={"failureGracePeriod": "9999999999h"}), "is too long a duration"),
    (policy(timings={"failureGracePeriod": -60}), "a duration cannot be negative"),
    (policy(timings={"failureGracePeriod": timedelta(days=200_000)}), "is too long: expected at most"),
]
"""What is spoiled, and words of its refusal."""


def refusal(change: Spoiled) -> str:
    document = {"name": "train-llm", "cluster": "dev", "components": [job()], **copy.deepcopy(change)}
    with pytest.raises(ValidationError) as caught:
        Workload.model_validate(document)
    return "; ".join(str(problem) for problem in problems_of(caught.value, Workload))


@pytest.mark.row("U14", level="pure")
def test_each_place_that_refuses_is_reached_and_says_why() -> None:
    with lines_run(FILES) as run:
        told = [(refusal(change), words) for change, words in TABLE]
    assert not [(text, words) for text, words in told if words not in text]
    left = missed(places(FILES, {"ValueError"}), run)
    assert not left, f"nothing is refused at {left}: add a line to TABLE"
