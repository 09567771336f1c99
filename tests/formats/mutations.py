"""Spoiled AppWrappers: mutations of the valid ones, the same for the same seed.

A directed mutation (`DIRECTED`) spoils one thing that is refused, or allowed, for its own reason; a blind one takes
out, retypes or adds something anywhere in the tree. Each is a text, as its author would submit it.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from holdfast.formats.pods import ANNOTATION_STATUS
from holdfast.names import API_VERSION, GRAPH_KIND, GROUP, QUEUE_KIND
from tests.formats.corpus import appwrapper, config_map, corpus, declared, job, pod, pytorch_job
from tests.formats.documents import LABEL, PREFIX, Json, copy

Place = tuple[Any, ...]
Spoil = Callable[[random.Random], Json | str]


@dataclass(frozen=True)
class Mutant:
    """One spoiled document, and what was done to it."""

    name: str
    text: str
    asked: dict[str, str] = field(default_factory=dict[str, str])


def places(value: Any, at: Place = ()) -> Iterator[Place]:
    """Yield where each value inside another stands."""
    if at:
        yield at
    keys: Any = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield from places(value[key], (*at, key))


def put(document: Any, place: Place, value: Any) -> Any:
    """Put a value at a place, making the objects on the way."""
    here = document
    for step in place[:-1]:
        if isinstance(here, dict) and step not in here:
            here[step] = {}
        here = here[step]
    here[place[-1]] = value
    return document


C0 = ("spec", "components", 0)
T0 = (*C0, "template")
PODS = (*T0, "spec", "template")
MAIN = (*PODS, "spec", "containers", 0)


def of_job(*place: Any, value: Any) -> Spoil:
    return lambda _: put(appwrapper("train", {"template": job()}), place, value)


def of_declared(*place: Any, value: Any) -> Spoil:
    return lambda _: put(appwrapper("train", declared(job(), ("template.spec.template", 2))), place, value)


def of_pod(*place: Any, value: Any) -> Spoil:
    return lambda _: put(appwrapper("train", {"template": pod()}), (*T0, *place), value)


def annotated(key: str, value: Any) -> Spoil:
    return of_job("metadata", "annotations", value={PREFIX + key: value})


def with_setting(name: str, value: str) -> Spoil:
    return of_job("metadata", "annotations", value={f"{GROUP}/{name}": value})


def text(change: Callable[[str], str]) -> Spoil:
    return lambda _: change(yaml.safe_dump(appwrapper("train", {"template": job()}), sort_keys=False))


def components(*given: Json) -> Spoil:
    return lambda _: appwrapper("train", *copy(list(given)))


def _wrapped(_: random.Random) -> Json:
    return appwrapper("train", {"template": appwrapper("inner", {"template": job()})})


def _laughs(_: random.Random) -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 8)]
    return "\n".join(lines)


def _restarting(**fields: Any) -> Json:
    rules = [{"name": "r", "action": "RestartJobSet"}]
    jobs = [{"name": "a", "replicas": 1, "template": {"spec": job()["spec"]}}]
    spec = {"replicatedJobs": jobs, "failurePolicy": {"maxRestarts": 3, "rules": rules}, **fields}
    return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "set"}, "spec": spec}


def _reruns_init(_: random.Random) -> Json:
    first = [{"name": "first", "image": "i", "restartPolicy": "OnFailure"}]
    spoiled = put(appwrapper("train", {"template": job()}), (*PODS, "spec", "initContainers"), first)
    return put(spoiled, ("metadata", "annotations"), {f"{GROUP}/sensitive": "true"})


def _two_torches(_: random.Random) -> Json:
    return appwrapper("train", declared(pytorch_job(), ("template.spec.pytorchReplicaSpecs.Master.template", 1)))


JOBS = "template.spec.template"
UNKNOWN: Json = {"apiVersion": "test.holdfast.dev/v1", "kind": "Gizmo", "metadata": {"name": "g"}, "spec": {}}
SECRET: Json = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"a": "b"}}

DIRECTED: dict[str, Spoil] = {
    # --- the document
    "another version": of_job("apiVersion", value="workload.codeflare.dev/v1beta1"),
    "no kind": of_job("kind", value=""),
    "a tag of another kind of value": lambda _: "kind: Job\nspec: !!map [a]\n",
    "a tag that claims a word": lambda _: "kind: Job\nspec: {suspend: !!bool perhaps}\n",
    "a number without measure": lambda _: f"kind: Job\nspec: {{parallelism: {'9' * 5000}}}\n",
    "a graph among workloads": lambda _: {"apiVersion": API_VERSION, "kind": GRAPH_KIND, "metadata": {"name": "etl"}},
    "a queue among workloads": lambda _: {"apiVersion": API_VERSION, "kind": QUEUE_KIND, "metadata": {"name": "gpus"}},
    "no name": of_job("metadata", "name", value=""),
    "a generated name": of_job("metadata", value={"generateName": "train-"}),
    "a bad name": of_job("metadata", "name", value="Bad_Name"),
    "a long name": of_job("metadata", "name", value="x" * 64),
    "a name of another type": of_job("metadata", "name", value=7),
    "a bad queue": of_job("metadata", "labels", value={"kueue.x-k8s.io/queue-name": "no.dots"}),
    "another namespace than asked for": of_job("metadata", "namespace", value="elsewhere"),
    "an unknown field of the document": of_job("spec", "componets", value=[]),
    "an unknown field far from any": of_job("spec", "zzz", value=1),
    "no components": of_job("spec", "components", value=[]),
    "components of another type": of_job("spec", "components", value="x"),
    "no spec": of_job("spec", value=None),
    "a component that is nothing": of_job(*C0, value=None),
    "a foreign manager": of_job("spec", "managedBy", value="kueue.x-k8s.io/multikueue"),
    "suspend of another type": of_job("spec", "suspend", value="yes please"),
    "nested": _wrapped,
    "more than eight pod sets": components(*({"template": pod(f"p{n}")} for n in range(9))),
    "no pods at all": components({"template": config_map()}),
    "more than any workload has": components(
        *({"template": config_map(f"c{n}")} for n in range(256)), {"template": pod()}
    ),
    "too large": of_job(*T0, "metadata", "annotations", value={"example.com/a": "x" * (600 * 1024)}),
    "two of one name": components({"template": job()}, {"template": config_map()}, {"template": job()}),
    "a secret": components({"template": SECRET}, {"template": job()}),
    "a kind the cluster lacks": components({"template": UNKNOWN}, {"template": job()}),
    "a kind of no namespace": components(
        {"template": {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}}}, {"template": job()}
    ),
    "a kind that may not be created": components(
        {"template": {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a"}}}, {"template": job()}
    ),
    # --- status rules
    "status rules that are no JSON": of_job(*T0, "metadata", "annotations", value={ANNOTATION_STATUS: "nonsense"}),
    "status rules of another word": of_job(*T0, "metadata", "annotations", value={ANNOTATION_STATUS: '{"done": {}}'}),
    "status rules without a value": of_job(*T0, "metadata", "annotations", value={ANNOTATION_STATUS: '{"failed": {}}'}),
    "status rules of a known kind": of_job(
        *T0,
        "metadata",
        "annotations",
        value={ANNOTATION_STATUS: '{"failed": {"path": "status.phase", "equals": "Broken"}}'},
    ),
    # --- annotations
    "a duration that is none": annotated("failureGracePeriodDuration", "soon"),
    "a duration without end": annotated("warmupGracePeriodDuration", "999999999h"),
    "a negative duration": annotated("retryPausePeriodDuration", "-5m"),
    "a negative TTL": annotated("successTTLDuration", "-5m"),
    "a retry limit that is none": annotated("retryLimit", "many"),
    "a retry limit beyond all": annotated("retryLimit", "2147483648"),
    "exit codes that are none": annotated("terminalExitCodes", "1, 256"),
    "exit codes of both sorts": of_job(
        "metadata",
        "annotations",
        value={f"{PREFIX}terminalExitCodes": "1, 2", f"{PREFIX}retryableExitCodes": "2"},
    ),
    "an annotation that is none": annotated("failureGracePeriod", "1m"),
    "an annotation of another type": annotated("retryLimit", 3),
    # --- settings of Holdfast
    "a setting": with_setting("restartMode", "InPlace"),
    "a setting of another value": with_setting("restartMode", "Sideways"),
    "a setting that is none": with_setting("restartMod", "InPlace"),
    "a setting that the document decides": with_setting("queue", "No.Queue"),
    "a setting of a budget that is none": with_setting("launchLimit", "3"),
    "a setting of a rule that is none": with_setting("ruleLimits", "{nobody: 2}"),
    "a setting without the one that it is for": with_setting("checkpointPort", "8080"),
    "a setting for a component that is none": of_job(
        "metadata",
        "annotations",
        value={f"{GROUP}/progress": "annotation", f"{GROUP}/progressComponents": "nobody"},
    ),
    "a setting beside the annotation that decides": of_job(
        "metadata", "annotations", value={f"{GROUP}/retryLimit": "many", f"{PREFIX}retryLimit": "2"}
    ),
    # --- pod sets
    "a path that is none": of_declared(*C0, "podSets", 0, "path", value="spec.template"),
    "a path that leads nowhere": of_declared(*C0, "podSets", 0, "path", value="template.spec.pods"),
    "a path beyond a list": of_declared(*C0, "podSets", 0, "path", value="template.spec.template[3]"),
    "a path to no pods": of_declared(*C0, "podSets", 0, "path", value="template.metadata"),
    "a path to other pods": lambda _: put(
        put(
            appwrapper("train", declared(job(), (JOBS, 2), infos=False)),
            (*T0, "spec", "spare"),
            job()["spec"]["template"],
        ),
        (*C0, "podSets", 0, "path"),
        "template.spec.spare",
    ),
    "a queue of its own": of_job(*T0, "metadata", "labels", value={"kueue.x-k8s.io/queue-name": "team"}),
    "a queue of its JobSet's Jobs": lambda _: put(
        appwrapper("train", {"template": _restarting(failurePolicy={})}),
        (*T0, "spec", "replicatedJobs", 0, "template", "metadata"),
        {"labels": {"kueue.x-k8s.io/queue-name": "team"}},
    ),
    "restarts of its own": lambda _: appwrapper("train", {"template": _restarting()}),
    "run twice": lambda _: appwrapper("train", {"template": _restarting(managedBy="holdfast.dev/holdfast")}),
    "a path given twice": lambda _: appwrapper("train", declared(job(), (JOBS, 2), (JOBS, 2), infos=False)),
    "a pod set that is missing": _two_torches,
    "other replicas": of_declared(*C0, "podSets", 0, "replicas", value=5),
    "negative replicas": of_declared(*C0, "podSets", 0, "replicas", value=-1),
    "replicas of another type": of_declared(*C0, "podSets", 0, "replicas", value="2"),
    "a million and one": lambda _: put(copy(corpus()["deployment"]), (*T0, "spec", "replicas"), 10**7),
    "a count that is none": of_job(*T0, "spec", "parallelism", value=-2),
    "infos for nobody": of_declared(*C0, "podSetInfos", value=[{}, {}]),
    "infos of another type": of_declared(*C0, "podSetInfos", 0, "labels", value={"a": 1}),
    "an info that contradicts": of_declared(*C0, "podSetInfos", 0, "nodeSelector", value={"holdfast.dev/node": "real"}),
    "an info with a bad effect": of_declared(
        *C0, "podSetInfos", 0, "tolerations", value=[{"key": "a", "effect": "NoWay"}]
    ),
    "an info with a bad label": of_declared(*C0, "podSetInfos", 0, "labels", value={"a b": "c"}),
    "a gate without a name": of_declared(*C0, "podSetInfos", 0, "schedulingGates", value=[{}]),
    "an unknown field of an info": of_declared(*C0, "podSetInfos", 0, "nodeSelectors", value={}),
    # --- components
    "a component in another namespace": of_job(*T0, "metadata", "namespace", value="elsewhere"),
    "another's label": of_job(*T0, "metadata", "labels", value={LABEL: "other"}),
    "another's label on pods": of_job(*PODS, "metadata", "labels", value={LABEL: "other"}),
    "a label that is Holdfast's": of_job(*T0, "metadata", "labels", value={"holdfast.dev/attempt": "9"}),
    "labels of another type": of_job(*T0, "metadata", "labels", value="x"),
    "an owner": of_job(*T0, "metadata", "ownerReferences", value=[{"kind": "Job", "name": "x", "uid": "y"}]),
    "no apiVersion": of_job(*T0, "apiVersion", value=None),
    "no kind of component": of_job(*T0, "kind", value=5),
    "no metadata": of_job(*T0, "metadata", value=None),
    "no name of component": of_job(*T0, "metadata", value={}),
    "a component's name of another type": of_job(*T0, "metadata", "name", value=7),
    "a component's bad name": of_job(*T0, "metadata", "name", value="Bad_Name"),
    "a component's name that is generated": of_job(*T0, "metadata", value={"generateName": "train-"}),
    "no containers": of_job(*PODS, "spec", "containers", value=[]),
    "a container that is nothing": of_job(*MAIN, value=None),
    "env of another type": of_job(*MAIN, "env", value="A=B"),
    "an env whose name is a list": of_job(*MAIN, "env", value=[{"name": ["a"], "value": "x"}]),
    "tolerations of another type": of_declared(*PODS, "spec", "tolerations", value="all"),
    # --- what only the API server knows
    "a wrong enum": of_job(*PODS, "spec", "restartPolicy", value="Sometimes"),
    "an enum of another type": of_job(*PODS, "spec", "restartPolicy", value=True),
    "a misspelt field": of_job(*T0, "spec", "backofLimit", value=3),
    "a misspelt field of a container": of_job(*MAIN, "imagePolicy", value="Always"),
    "a number out of range": of_job(*MAIN, "ports", 0, "containerPort", value=99999),
    "a number that is text": of_job(*T0, "spec", "backoffLimit", value="3"),
    "a number with a fraction": of_job(*T0, "spec", "backoffLimit", value=1.5),
    "a bad quantity": of_job(*MAIN, "resources", "requests", "cpu", value="lots"),
    "a request above its limit": of_job(*MAIN, "resources", "requests", "memory", value="1Gi"),
    "a bad size": of_job(*PODS, "spec", "volumes", 0, "emptyDir", "sizeLimit", value="huge"),
    "a bad label": of_job(*PODS, "metadata", "labels", value={"a b": "c"}),
    "a label of another type": of_job(*PODS, "metadata", "labels", value={"example.com/n": 5}),
    "sensitive work whose init container runs again": _reruns_init,
    "a bad annotation key": of_pod("metadata", "annotations", value={"a b": "c"}),
    "annotations too large": of_pod("metadata", "annotations", value={"a": "x" * 300_000}),
    "a bad env name": of_job(*MAIN, "env", 0, "name", value="A=B"),
    "an env value of another type": of_job(*MAIN, "env", 0, "value", value=3),
    "a volume of nothing": of_job(*PODS, "spec", "volumes", 1, "configMap", value={}),
    "a volume twice": of_job(*PODS, "spec", "volumes", 1, "name", value="scratch"),
    "a mount of no volume": of_job(*MAIN, "volumeMounts", 0, "name", value="other"),
    "a probe on no port": of_job(*MAIN, "livenessProbe", "httpGet", "port", value=[]),
    "an account that is missing": of_pod("spec", "serviceAccountName", value="nobody"),
    "a priority class that is missing": of_pod("spec", "priorityClassName", value="nope"),
    "a bad finalizer": of_pod("metadata", "finalizers", value=["bad"]),
    "a time that is none": of_pod("metadata", "creationTimestamp", value="yesterday"),
    "a bad toleration": of_pod("spec", "tolerations", value=[{"key": "a", "effect": "NoWay"}]),
    "a selector of others": lambda _: put(
        copy(corpus()["deployment"]), (*T0, "spec", "selector", "matchLabels"), {"app": "other"}
    ),
    "no selector": lambda _: put(copy(corpus()["deployment"]), (*T0, "spec", "selector"), None),
    "a custom resource's misspelt field": lambda _: put(copy(corpus()["raycluster"]), (*T0, "spec", "headGroup"), {}),
    "a custom resource's wrong type": lambda _: put(copy(corpus()["jobset"]), (*T0, "spec", "suspend"), "no"),
    "a custom resource's missing field": lambda _: put(
        copy(corpus()["rayjob"]), (*T0, "spec", "rayClusterSpec", "workerGroupSpecs", 0, "groupName"), None
    ),
    # --- text
    "no text": text(lambda _: ""),
    "only a comment": text(lambda _: "# nothing\n---\n"),
    "a list": text(lambda _: "- a\n- b\n"),
    "not YAML": text(lambda good: good + "\n  bad: [\n"),
    "a tab": text(lambda good: good.replace("  ", "\t", 1)),
    "a key given twice": text(lambda good: good + "spec: {}\n"),
    "a key that is a list": text(lambda good: good + "[a, b]: c\n"),
    "a key that is nothing": text(lambda good: good + "? \n: c\n"),
    "an anchor": text(lambda good: good.replace("metadata:", "metadata: &m", 1) + "status: *m\n"),
    "a merge": text(lambda good: "x: &x {apiVersion: y}\n" + good + "<<: *x\n"),
    "an alias of itself": text(lambda good: good + "status: &a [*a]\n"),
    "an unknown alias": text(lambda good: good + "status: *nobody\n"),
    "an alias bomb": _laughs,
    "too deep": text(lambda _: "[" * 1500),
    "too long": text(lambda _: "a: " + "x" * (9 * 1024 * 1024)),
    "binary": text(lambda good: good + "status: !!binary aGk=\n"),
    "a Python object": text(lambda good: good + "status: !!python/object:os.system {}\n"),
    "not a number": text(lambda good: good + "status: .nan\n"),
    "a number without end": text(lambda good: good + "status: {rev: 51e845}\n"),
    "a control character": text(lambda good: good + "status: \x07\n"),
    "several documents": text(lambda good: good + "---\n" + good.replace("name: train\n", "name: other\n", 1)),
    "one name for two": text(lambda good: "---\n".join([good.replace("name: train", "generateName: train-", 1)] * 2)),
    "twice the same document": text(lambda good: good + "---\n" + good),
    "a list of documents": lambda _: {"apiVersion": "v1", "kind": "List", "items": ["x"]},
    "no kind that is known": text(lambda _: "a: b\n"),
    "JSON": lambda _: json.dumps(appwrapper("train", {"template": job()}), indent=2),
    "an odd letter": of_job(*MAIN, "env", 0, "value", value="\U0001f40b \u202e \u0000"),
    "half a letter": lambda _: json.dumps(
        put(appwrapper("train", {"template": job()}), (*MAIN, "env", 0, "value"), "\ud83d")
    ),
    "a number of base 60": text(lambda good: good.replace("EPOCHS", "12:30:00")),
    "yes for a text": text(lambda good: good.replace("value: '3'", "value: yes")),
}

ODD: tuple[Any, ...] = (
    None, True, 0, -1, 3.5, "", "x", "Bad_Name", "a b", "1h", "5Gi", [], [None], ["x"], [{}], {}, {"a": None}, {"a": 1},
    {"spec": {}}, 10**20, "\u00fc" * 80, "x" * 300,
)  # fmt: skip


def blind(source: random.Random, document: Json) -> tuple[str, Json]:
    """Spoil one to three values somewhere in a document."""
    done: list[str] = []
    for _ in range(source.choice((1, 1, 1, 2, 3))):
        found = list(places(document))
        if not found:
            break
        place = source.choice(found)
        inner: Any = document
        for step in place[:-1]:
            inner = inner[step]
        where = "/".join(str(step) for step in place)
        match source.randrange(3):
            case 0:
                del inner[place[-1]]
                done.append(f"without {where}")
            case 1:
                inner[place[-1]] = copy(source.choice(ODD))
                done.append(f"odd {where}")
            case _ if isinstance(inner[place[-1]], dict):
                inner[place[-1]][source.choice(("zzz", "imag", "replica", "Spec"))] = copy(source.choice(ODD))
                done.append(f"more in {where}")
            case _:
                inner[place[-1]] = [copy(inner[place[-1]])]
                done.append(f"a list for {where}")
    return "; ".join(done), document


def mutants(count: int, seed: int = 5) -> list[Mutant]:
    """Return so many mutants: each directed one, then blind ones of the whole corpus in turn."""
    source = random.Random(seed)
    found: list[Mutant] = []
    for name, spoil in DIRECTED.items():
        asked = {"name": "other"} if name in {"several documents", "one name for two"} else {}
        found.append(_mutant(name, spoil(source), asked))
    good = list(corpus().items())
    while len(found) < count:
        name, document = good[len(found) % len(good)]
        what, spoiled = blind(source, copy(document))
        # JSON is YAML too, and is written much faster.
        found.append(Mutant(f"{name}: {what}", json.dumps(spoiled, ensure_ascii=False)))
    return found[:count]


def _mutant(name: str, spoiled: Json | str, asked: dict[str, str]) -> Mutant:
    if isinstance(spoiled, str):
        return Mutant(name, spoiled, asked)
    return Mutant(name, yaml.safe_dump(spoiled, sort_keys=False, allow_unicode=True), asked)
