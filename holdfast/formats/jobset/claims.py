"""Claims that the Jobs of a JobSet share: what admission refuses, the claims, and the volumes of pods (row J22)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from holdfast import names
from holdfast.errors import Problem
from holdfast.formats.jobset.document import JOBSET_NAME, ClaimTemplatePart, ReplicatedJobPart, Shape, listed, objects
from holdfast.formats.text import Json
from holdfast.model.spec.volume_claim import VolumeClaim

_NAME_MAXIMUM: Final = 63


def volume_claims(shape: Shape) -> tuple[VolumeClaim, ...]:
    """Return the claims of a JobSet, which have been checked."""
    return tuple(
        VolumeClaim(
            name=_claim_name(shape, template),
            labels={**(template.metadata.labels or {}), JOBSET_NAME: shape.name},
            annotations=template.metadata.annotations or {},
            spec=template.spec,
            retain=retains,
        )
        for _, template, retains in _templates(shape)
    )


def add_volumes(shape: Shape, job: ReplicatedJobPart, pod_spec: Json) -> None:
    """Add a volume to a pod spec, which is changed, for each claim that one of its containers mounts."""
    mounted = _mounted(job)
    volumes = [
        {"name": template.metadata.name, "persistentVolumeClaim": {"claimName": _claim_name(shape, template)}}
        for _, template, _ in _templates(shape)
        if template.metadata.name in mounted
    ]
    if volumes:
        pod_spec["volumes"] = [*(pod_spec.get("volumes") or ()), *volumes]


def claim_problems(shape: Shape) -> Iterator[Problem]:
    """Yield all problems of a JobSet's claims."""
    seen: dict[str, str] = {}
    mounted = {name for job in shape.jobs for name in _mounted(job)}
    for path, template, _ in _templates(shape):
        name, here = template.metadata.name, f"{path}.metadata.name"
        if not names.DNS_LABEL.fullmatch(name):
            yield Problem(
                here, "is also a volume's name: expected a DNS label, at most 63 characters of [-a-z0-9]", name
            )
            continue
        claim = _claim_name(shape, template)
        if len(claim) > _NAME_MAXIMUM:
            message = f"makes a claim's name of {len(claim)} characters: expected at most {_NAME_MAXIMUM}"
            yield Problem(here, message, claim)
        earlier = seen.setdefault(name, path)
        if earlier != path:
            yield Problem(here, f"is the name of {earlier} too", name)
            continue
        if template.metadata.namespace:
            message = "expected none: a claim is made in the namespace of its JobSet"
            yield Problem(f"{path}.metadata.namespace", message, template.metadata.namespace)
        if name not in mounted:
            yield Problem(here, "is mounted by no container: expected a volumeMount of this name", name)
        for index, job in enumerate(shape.jobs):
            for at, volume in enumerate(listed(job, "volumes")):
                if volume.get("name") == name:
                    where = f"spec.replicatedJobs[{index}].template.spec.template.spec.volumes[{at}].name"
                    yield Problem(where, f"is the name of {path} too", name)


def _templates(shape: Shape) -> Iterator[tuple[str, ClaimTemplatePart, bool]]:
    """Yield each claim's template with its path, and whether it is retained."""
    for index, policy in enumerate(shape.spec.volumeClaimPolicies or ()):
        for at, template in enumerate(policy.templates or ()):
            yield f"spec.volumeClaimPolicies[{index}].templates[{at}]", template, policy.retains


def _claim_name(shape: Shape, template: ClaimTemplatePart) -> str:
    return f"{template.metadata.name}-{shape.name}"


def _mounted(job: ReplicatedJobPart) -> set[str]:
    """Return the names of the volumes that the containers of a replicated job's pods mount."""
    containers = [*listed(job, "containers"), *listed(job, "initContainers")]
    mounts = [mount for one in containers for mount in objects(one.get("volumeMounts"))]
    return {mount["name"] for mount in mounts if isinstance(mount.get("name"), str)}
