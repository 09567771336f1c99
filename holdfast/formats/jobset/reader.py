"""JobSet `jobset.x-k8s.io/v1alpha2`, accepted unmodified: from its document to a workload.

The worker checks what needs the cluster (fields of the Job templates, served kinds, rights), before the first creation.
"""

from __future__ import annotations

from typing import Any

from holdfast import names
from holdfast.errors import InvalidWorkload, Problem
from holdfast.formats.jobset.checks import problems as problems_in
from holdfast.formats.jobset.claims import volume_claims
from holdfast.formats.jobset.components import place, read_components
from holdfast.formats.jobset.document import API_VERSION, CONTROLLER, GROUP_KIND, KIND, JobSet, Shape
from holdfast.formats.jobset.policy import read_policy
from holdfast.formats.jobset.status import status
from holdfast.formats.pods import group_kind
from holdfast.formats.published import (
    LABEL_QUEUE,
    check_controller,
    each_by,
    name_in,
    namespace_in,
    settings_in,
    shaped,
    workload_of,
)
from holdfast.formats.registry import Format
from holdfast.formats.text import Json
from holdfast.model import Component, Policy, Source, SuspendMode, Workload
from holdfast.profiles.jobset import POLICY


def read(
    document: Json,
    *,
    cluster: str,
    namespace: str | None = None,
    name: str | None = None,
    defaults: Policy = POLICY,
    source: str = "",
) -> Workload:
    """Read one JobSet.

    Args:
        document: The document, as YAML or JSON hold it.
        cluster: The cluster to run it on.
        namespace: Its namespace if it names none; a named one must be the same.
        name: Its name if it has only a `generateName`; its own name, if any, must be the same.
        defaults: The operator's policy, which the document's policy overrides.
        source: What to call the document in errors.

    Raises:
        InvalidWorkload: with every problem found, each with its path and what is allowed there.
        ManagedElsewhere: if `managedBy` names another controller.
    """
    parsed = shaped(document, JobSet, source)
    metadata, spec = parsed.metadata, parsed.spec
    check_controller(KIND, metadata, spec.managedBy, CONTROLLER)
    problems: list[Problem] = []
    # A missing name has been reported: derived names are checked as if it were one character long.
    own_name = name_in(metadata, name, "a JobSet", problems) or "x"
    own_namespace = namespace_in(metadata, namespace, problems)
    shape = Shape(own_name, spec, own_namespace, metadata.annotations)
    settings = settings_in(metadata, POLICY, {}, problems)
    if settings.profile is not None:
        problems.append(Problem(settings.paths["profile"], "is decided by the kind of document", settings.profile))
    problems.extend(problems_in(shape))
    if problems:
        raise InvalidWorkload(problems, source)
    components, places = read_components(shape, problems)
    if problems:
        raise InvalidWorkload(problems, source)

    def values() -> dict[str, Any]:
        policy = read_policy(shape, defaults)
        if LABEL_QUEUE in (metadata.labels or {}) and names.is_own_manager(spec.managedBy or ""):
            # Kueue may admit it elsewhere the next time: its Jobs are made anew, with the pod sets of that admission.
            deletion = policy.deletion.model_copy(update={"suspend": SuspendMode.DELETE})
            policy = policy.model_copy(update={"deletion": deletion})
        if wrong := settings.rule_problems(policy):
            raise InvalidWorkload(wrong, source)
        own = {
            "name": own_name,
            "namespace": own_namespace,
            "cluster": cluster,
            "components": components,
            "suspend": bool(spec.suspend),
            "volume_claims": volume_claims(shape),
            "policy": settings.policy(policy),
            "source": Source(api_version=parsed.apiVersion, kind=parsed.kind),
        }
        return {**own, **settings.fields}

    where = {
        "policy": "spec.failurePolicy",
        "rules": "spec.failurePolicy.rules",
        "components": "spec.replicatedJobs",
        "volumeClaims": "spec.volumeClaimPolicies",
        **places,
        **settings.paths,
    }
    return workload_of(metadata, values, where, source)


def read_accepted(document: Json) -> tuple[Component, ...]:
    """Read the components of a JobSet that was accepted; what its first reading checks may not fail what already runs.

    Raises:
        InvalidWorkload: if it is no JobSet any more.
    """
    parsed = shaped(document, JobSet, "")
    metadata = parsed.metadata
    shape = Shape(metadata.name or "", parsed.spec, metadata.namespace or "", metadata.annotations)
    problems: list[Problem] = []
    components, _ = read_components(shape, problems)
    if problems:
        raise InvalidWorkload(problems, "")
    return components


def _knows(document: Json) -> bool:
    return group_kind(document) == GROUP_KIND


FORMAT = Format(
    KIND,
    _knows,
    each_by(read, API_VERSION, POLICY.profile),
    status,
    frozenset({(API_VERSION, KIND)}),
    has_status=True,
    place=place,
)
"""This format's entry."""
