"""One Job a topology domain, and one domain a Job: what keeps the Jobs of a JobSet apart (row J21, record 0076).

The published controller places a Job's first pod by affinities, and the others by a webhook once that one is scheduled.
Here all pods of a Job have the same affinities: the scheduler keeps them together, and no webhook is needed. The values
that differ between Jobs come from each pod's own labels (`matchLabelKeys`), so one template serves them all.
"""

from __future__ import annotations

from typing import Any, Final

from holdfast.formats.jobset.document import EXCLUSIVE, NAMESPACED_JOB, NO_SCHEDULE, PREFIX, Exclusive
from holdfast.formats.text import Json
from holdfast.model import CopyLabel, CopyWord

PRIORITY: Final = f"{PREFIX}priority"
"""Jobs of another priority may come into the domain, as published: so a higher one can preempt a lower one."""
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
LISTS: Final = (_REQUIRED, "tolerations")
PLACED_BY: Final = (
    ("affinity",),
    ("affinity", "podAffinity"),
    ("affinity", "podAffinity", _REQUIRED),
    ("affinity", "podAntiAffinity"),
    ("affinity", "podAntiAffinity", _REQUIRED),
    ("tolerations",),
)
"""The fields of a pod spec to which something is added."""


def keep_apart(pods: Json, asked: Exclusive, name_label: str, key_label: str) -> None:
    """Add to a pod template, which is changed, what gives each Job a domain of its own.

    Args:
        pods: the template. The fields of `PLACED_BY` have their shape.
        asked: what the JobSet asks for.
        name_label: the label that all pods of all JobSets have.
        key_label: the label whose value differs between Jobs.
    """
    spec: Json = pods["spec"]
    # JobSet's own controller deletes pods that have this annotation and are not placed in its way.
    annotations: Json = pods["metadata"]["annotations"]
    annotations.pop(EXCLUSIVE, None)
    if asked.labelled:
        _list(spec, "tolerations").append({"key": NO_SCHEDULE, "operator": "Exists", "effect": "NoSchedule"})
        return
    affinity = _object(spec, "affinity")
    common = {
        "labelSelector": {"matchExpressions": [{"key": name_label, "operator": "Exists"}]},
        "namespaceSelector": {},
        "topologyKey": asked.topology,
    }
    together = _list(_object(affinity, "podAffinity"), _REQUIRED)
    together.append({**common, "matchLabelKeys": [key_label]})
    apart = _list(_object(affinity, "podAntiAffinity"), _REQUIRED)
    apart.append({**common, "matchLabelKeys": [PRIORITY], "mismatchLabelKeys": [key_label]})


def apart_labels(asked: Exclusive | None) -> dict[str, CopyLabel]:
    """Return the labels of Jobs and pods that keep Jobs apart."""
    return {} if asked is None or asked.labelled else {PRIORITY: CopyLabel(word=CopyWord.PRIORITY)}


def apart_selectors(asked: Exclusive | None) -> dict[str, CopyLabel]:
    """Return the labels of nodes that each Job's pods select."""
    labelled = asked is not None and asked.labelled
    return {NAMESPACED_JOB: CopyLabel(word=CopyWord.NAMESPACED_NAME)} if labelled else {}


def _object(parent: Json, field: str) -> Json:
    if parent.get(field) is None:
        parent[field] = {}
    return parent[field]


def _list(parent: Json, field: str) -> list[Any]:
    if parent.get(field) is None:
        parent[field] = []
    return parent[field]
