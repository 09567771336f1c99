"""Holdfast's own document: `kind: Workload` with its fields under `spec`, or the model's plain JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, cast

from pydantic import ValidationError

from holdfast import names
from holdfast.errors import InvalidWorkload, ManagedElsewhere, Problem, problems_of, truths
from holdfast.formats.native_resource import KIND, RESOURCE
from holdfast.formats.nesting import nested
from holdfast.formats.pods import infer, status_problems, status_rule, twin_problem
from holdfast.formats.published import LABEL_QUEUE, queue_in, queues_under, warn, without_queue
from holdfast.formats.registry import Context, Format
from holdfast.formats.settings import known_name, unhyphenated
from holdfast.formats.text import Document, Json, inside
from holdfast.model import Policy, Source, Status, Workload
from holdfast.profiles.manifests import POLICY
from holdfast.profiles.torchelastic import POLICY as GANG_POLICY

SCHEMA_VERSION: Final = "schemaVersion"
REQUESTED: Final = (
    *("kind", "queue", "priority", "components", "suspend", "runAs", "allowMissingKinds", "lifecycle", "probe"),
    *("progress", "sensitive", "policy", "checkpoint", "mounts", "volumeClaims", "gang"),
)
"""The fields of the model that `spec` of a custom resource may set; others are Holdfast's, or stand in `metadata`."""
MANAGED_BY: Final = "managedBy"
"""The field of `spec` that is the custom resource's alone."""
SOURCE: Final = Source(api_version=names.API_VERSION, kind=KIND)


def _knows(document: Json) -> bool:
    if document.get("kind") == KIND and str(document.get("apiVersion", "")).startswith(f"{names.GROUP}/"):
        return True
    return SCHEMA_VERSION in document and "apiVersion" not in document


def _read(documents: Sequence[Document], context: Context) -> list[Workload]:
    return [_read_one(document, context) for document in documents]


def _read_one(document: Document, context: Context) -> Workload:
    content, problems = dict(document.content), list[Problem]()
    wrapped = "apiVersion" in content
    prefix = ""
    if wrapped:
        content, prefix = _unwrapped(content, problems), "spec"
    namespace = context.namespace_beside(content.get("namespace"))
    for key, asked in (("cluster", context.cluster), ("namespace", namespace), ("name", context.name)):
        found = content.get(key)
        if asked is not None and found is not None and found != asked:
            where = f"metadata.{key}" if wrapped and key != "cluster" else f"{prefix}.{key}".lstrip(".")
            problems.append(Problem(where, f"expected {asked!r}, as asked for", found))
        elif asked is not None:
            content[key] = asked
    if problems:
        raise InvalidWorkload(problems, str(document))
    least = inside(content, "gang", "min")
    usual = POLICY.profile if content.get("gang") is None else GANG_POLICY.profile
    content["policy"] = _policy(content.get("policy", {}), context, usual)
    content["components"] = _components(content.get("components"), least if isinstance(least, int) else None)
    problems += _component_problems(content["components"], prefix)
    if problems:
        raise InvalidWorkload(problems, str(document))
    content.setdefault("source", SOURCE.model_dump(mode="json"))
    try:
        workload = Workload.model_validate(content)
    except ValidationError as error:
        raise InvalidWorkload(problems_of(error, Workload, prefix), str(document)) from None
    if wrong := tuple(truths(content, workload, prefix)):
        raise InvalidWorkload(wrong, str(document))
    return workload


def _policy(given: Any, context: Context, usual: str) -> Any:
    """Return the policy with omitted fields filled in from the profile it names, or else from the usual one."""
    if not isinstance(given, dict):
        return given
    policy = cast("Json", given)
    profile = context.profiles.get(str(policy.get("profile", usual)))
    return policy if profile is None else policy_over(profile, policy)


def policy_over(policy: Policy, given: Json) -> Json:
    """Return the `policy` section of a document with omitted fields filled in from another policy.

    Waits are filled in one by one, and so are the fields of a budget that the other policy has, too.
    """
    base: Json = policy.model_dump(mode="json")
    timings = given.get("timings")
    if isinstance(timings, dict):
        # The model's own JSON repeats the other policy's period: only a different period was set by the document.
        grace = cast("Json", timings).get("failureGracePeriod", base["timings"]["failureGracePeriod"])
        if grace != base["timings"]["failureGracePeriod"]:
            base["ownFailureGrace"] = True
        timings = {**base["timings"], **cast("Json", timings)}
    filled: Json = {} if timings is None else {"timings": timings}
    budgets = given.get("budgets")
    if isinstance(budgets, list):
        known = {one["name"]: one for one in base["budgets"]}
        each = cast("list[Any]", budgets)
        filled["budgets"] = [
            {**known.get(str(inside(one, "name")), {}), **one} if isinstance(one, dict) else one for one in each
        ]
    return {**base, **given, **filled}


def _components(given: Any, least: int | None = None) -> Any:
    """Return the components with omitted fields filled in, if their kind is known.

    A gang has at least `least` expected pods; the document does not set the number of pods of its Job.
    """
    if not isinstance(given, list):
        return given
    filled: list[Any] = []
    for one in cast("list[Any]", given):
        template = inside(one, "template")
        if isinstance(one, dict) and isinstance(template, dict):
            known = cast("Json", template)
            found = infer(known)[0]
            pod_sets = [{"path": each.path, "replicas": each.replicas} for each in found]
            if least is not None and len(found) == 1:
                pod_sets[0]["replicas"] = least
            rule = status_rule(known).model_dump(mode="json")
            filled.append({"podSets": pod_sets, "status": rule, **cast("Json", one)})
        else:
            filled.append(one)
    return filled


def _component_problems(components: Any, prefix: str) -> list[Problem]:
    """Return what is wrong with components beside their form.

    That is two objects of one kind and name; status rules in annotations of templates; queues of their own, or of pod
    templates; and workloads, and what restarts by itself (row F10).
    """
    found: list[Problem] = []
    seen: dict[tuple[str, ...], str] = {}
    for index, one in enumerate(cast("list[Any]", components) if isinstance(components, list) else []):
        given, declared = inside(one, "template"), inside(one, "podSets")
        if not isinstance(given, dict):
            continue
        template, path = cast("Json", given), f"{prefix}.components[{index}].".lstrip(".")
        found += [Problem(path + each.path, each.message, each.value) for each in status_problems(template)]
        if inside(one, "copies") is None:  # Copies have names of their own.
            twin = twin_problem(template, path.removesuffix("."), f"{path}template", seen)
            found += [twin] if twin is not None else []
        pods = [inside(each, "path") for each in cast("list[Any]", declared if isinstance(declared, list) else [])]
        places = ["template", *(each for each in pods if isinstance(each, str))]
        more = [*queues_under(template, places, "the Workload"), *nested(template, KIND, "policy.budgets")]
        found += [replace(each, path=path + each.path) for each in more]
    return found


def _unwrapped(content: Json, problems: list[Problem]) -> Json:
    """Return the fields of `spec`, plus the name, namespace and labels of `metadata`."""
    allowed = ("apiVersion", "kind", "metadata", "spec", "status")
    problems.extend(Problem(key, "is not a field here", allowed=allowed) for key in content if key not in allowed)
    if content["apiVersion"] != names.API_VERSION:
        problems.append(Problem("apiVersion", "is not accepted", content["apiVersion"], (names.API_VERSION,)))
    parts: list[Json] = []
    for key in ("metadata", "spec"):
        part: Any = content.get(key)
        if not isinstance(part, dict):
            problems.append(Problem(key, "expected an object", part))
            part = {}
        parts.append(cast("Json", part))
    metadata, spec = parts[0], dict(parts[1])
    for key in ("name", "namespace", "labels"):
        if key in spec:
            problems.append(Problem(f"spec.{key}", f"belongs to metadata.{key}"))
    manager: Any = spec.get(MANAGED_BY, names.MANAGED_BY)
    if not isinstance(manager, str) or not names.is_own_manager(manager):
        raise ManagedElsewhere(f"{KIND} {metadata.get('name')}", str(manager))
    queue = queue_in({"metadata": metadata})
    if queue is not None and spec.get("queue") is None:
        spec["queue"] = queue
    elif queue is not None and spec["queue"] != queue:
        problems.append(
            Problem(f"metadata.labels[{LABEL_QUEUE}]", f"contradicts spec.queue, which is {spec['queue']!r}", queue)
        )
    metadata = without_queue({"metadata": metadata})["metadata"]
    annotations = metadata.get("annotations")
    for key in cast("Json", annotations) if isinstance(annotations, dict) else ():
        written = str(key).removeprefix(f"{names.GROUP}/")
        if written != key and (known_name(written) or unhyphenated(written)):
            warn(f"metadata.annotations[{key}]: is ignored: the settings of a {KIND} are fields of its spec")
    taken = {key: metadata[key] for key in ("name", "namespace", "labels") if metadata.get(key) is not None}
    if "uid" in metadata and isinstance(taken.get("labels"), dict):
        # In a cluster it has our marks, too, which are no labels of its pods.
        taken["labels"] = {
            key: taken["labels"][key] for key in taken["labels"] if not key.startswith(f"{names.GROUP}/")
        }
    return {**{key: spec[key] for key in spec if key != MANAGED_BY}, **taken}


def status(workload: Workload, status: Status) -> Json:
    """Return the status in Holdfast's own form."""
    return status.model_dump(mode="json")


FORMAT = Format("Holdfast", _knows, _read, status, frozenset({(SOURCE.api_version, SOURCE.kind)}), resource=RESOURCE)
"""This format's entry."""
