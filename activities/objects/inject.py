"""Builds the object to send from a component's template: adds Holdfast's fields, and removes only a TTL. Pure."""

from __future__ import annotations

import copy
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from holdfast import names
from holdfast.activities.kube.raw import mapping
from holdfast.activities.objects.affinity import PlacementError, keep_off
from holdfast.activities.objects.copy_labels import Copy, copy_labels
from holdfast.activities.objects.inject_barrier import BARRIER_LIFTED_BY, BarrierProblem, add_barrier
from holdfast.activities.objects.inject_data import DataPlace, DataProblem, add_data
from holdfast.activities.objects.inject_gang import GangProblem, add_ca, add_gang
from holdfast.model import Component, PodSet
from holdfast.model.calls.cluster import CopyLaunch, DataVolume, GangPods, PodBounds, Target, planned
from holdfast.model.labels import KUEUE_QUEUE
from holdfast.policy.status.registry import is_entry

_WITH_TTL = frozenset({("batch", "Job"), ("jobset.x-k8s.io", "JobSet")})
_NO_DEADLINE = frozenset({"apps"})
"""API groups whose controllers refuse a deadline in the template of their pods."""

_UNBOUND: Final = PodBounds()
_STEP = re.compile(r"\.([A-Za-z0-9_-]+)|\[(\d+)\]")


class InjectionError(ValueError):
    """The template does not allow what has to be added at `path`."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(path, message)
        self.path = path
        self.message = message

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """How and where the objects of one attempt are made: the same for all its components."""

    target: Target
    attempt: int
    owner_uid: str
    """The uid of the attempt's owner object."""
    installation: str
    labels: Mapping[str, str]
    """The workload's labels, for objects and pods."""
    excluded: Sequence[str] = ()
    """Nodes on which pods must not run."""
    disliked: Sequence[str] = ()
    """Nodes that pods avoid if any other will do."""
    marked: Sequence[str] = ()
    """Labels, `key` or `key=value`, of nodes on which pods must not run."""
    resume_from: str | None = None
    """The checkpoint that pods resume from, empty for none; None if they make no checkpoints."""
    in_place: int | None = None
    """The in-place restart attempt at which pods begin; None: they wait at no barrier (row J24)."""
    bounds: PodBounds = _UNBOUND
    """Limits on pods that their nodes enforce by themselves."""
    gang: GangPods | None = None
    rendezvous: str = ""
    """The URL at which pods reach the gang's rendezvous."""
    rendezvous_ca: str = ""
    """The authority that signed its certificate, PEM; empty: the public ones."""
    data: Sequence[DataVolume] = ()
    """The data sets that pods read."""
    place: DataPlace | None = None
    """Where pods find the cache with these data sets; None if this worker stages none."""
    strict: bool = True
    """Whether a template with what is written in life is refused; if not, that is left out."""
    priority: int | None = None
    """The priority of the component's pods; None if it is not needed, or not known."""


def inject(
    component: Component,
    placement: Placement,
    *,
    config_hash: str = "",
    launch: int = 0,
    copy_index: int | None = None,
    copy_launch: CopyLaunch | None = None,
    restarts: int | None = None,
) -> dict[str, Any]:
    """Return the object to create for a component; always the same one for the same arguments.

    Args:
        component: the component; its template is not changed.
        placement: the placement of the attempt that is being created.
        config_hash: digest of everything its pods are made of, added as an annotation; empty for none.
        launch: how often it has been recreated within this attempt.
        copy_index: which copy it is, where the component has copies.
        copy_launch: how often that copy was recreated alone; None: never.
        restarts: how often all copies were restarted; None: as often as an attempt or launch was before this one.

    Raises:
        InjectionError: if the template already sets a value to something else, or a pod set's path leads nowhere.
    """
    target, attempt, labels, resume_from = placement.target, placement.attempt, placement.labels, placement.resume_from
    whole: dict[str, Any] = {"template": copy.deepcopy(component.template)}
    sent: dict[str, Any] = whole["template"]
    metadata: dict[str, Any] = sent["metadata"]
    if metadata.get("ownerReferences"):
        raise InjectionError(
            "template.metadata.ownerReferences",
            "another owner would keep the object after its attempt: expected none",
        )
    _written_in_life(metadata, "template.metadata", placement, is_copy=copy_index is not None)
    metadata["name"] = planned(component, target.workload_uid, attempt).object_name
    of_copy: dict[str, str] = {}
    selected: dict[str, str] = {}
    if copy_index is not None:
        metadata["name"] = names.copy_name(metadata["name"], copy_index)
        alone = copy_launch or CopyLaunch(restarts=0)
        restarts = attempt - 1 + launch if restarts is None else restarts
        copied = Copy(target, metadata["name"], copy_index, restarts, alone.restarts, placement.priority)
        of_copy, selected = copy_labels(component.copy_labels, copied), copy_labels(component.copy_selectors, copied)
        launch += alone.launch
    metadata.pop("generateName", None)
    metadata["namespace"] = target.namespace
    metadata["ownerReferences"] = [owner_reference(target.attempt_name(attempt), placement.owner_uid)]
    ours = {
        names.LABEL_INSTALLATION: placement.installation,
        names.LABEL_WORKLOAD_UID: target.workload_uid,
        names.LABEL_ATTEMPT: str(attempt),
        names.LABEL_COMPONENT: component.name,
        names.LABEL_SHARD: str(target.shard),
        names.LABEL_LAUNCH: str(launch),
    }
    if copy_index is not None:
        ours[names.LABEL_COPY] = str(copy_index)
    annotations = {**of_copy, names.ANNOTATION_WORKLOAD: target.name}
    if config_hash:
        annotations[names.ANNOTATION_CONFIG_HASH] = config_hash
    _add(metadata, "labels", {**labels, **of_copy, **ours}, "template.metadata")
    _add(metadata, "annotations", annotations, "template.metadata")
    _narrow(sent, target, attempt)
    for pod_set in component.pod_sets:
        template = _resolve(whole, pod_set.path)
        pod_metadata = _child(template, "metadata", pod_set.path)
        _written_in_life(pod_metadata, f"{pod_set.path}.metadata", placement, is_copy=copy_index is not None)
        _add(pod_metadata, "labels", {**labels, **of_copy, **ours}, f"{pod_set.path}.metadata")
        _add(pod_metadata, "annotations", annotations, f"{pod_set.path}.metadata")
        if resume_from:
            _add(pod_metadata, "annotations", {names.ANNOTATION_RESUME_FROM: resume_from}, f"{pod_set.path}.metadata")
        _apply(pod_set, template, pod_metadata, placement, is_copy=copy_index is not None)
        _add(template["spec"], "nodeSelector", selected, f"{pod_set.path}.spec")
        _bind(template["spec"], placement.bounds, _group(sent), f"{pod_set.path}.spec")
        ours_told = {names.ENV_ATTEMPT: str(attempt), names.ENV_WORKLOAD_UID: target.workload_uid}
        makes_checkpoints, at_barrier = resume_from is not None, placement.in_place is not None
        # A variable may be of the checkpoint before: at a barrier a file has it.
        _add_environment(template["spec"], pod_set.path, ours_told, resumes=makes_checkpoints and not at_barrier)
        if at_barrier:
            try:
                add_barrier(template, pod_set.path, resumes=makes_checkpoints)
            except BarrierProblem as error:
                raise InjectionError(error.path, error.message) from None
            asked = {names.ANNOTATION_RESTART_REQUEST: str(placement.in_place)}
            _add(pod_metadata, "annotations", asked, f"{pod_set.path}.metadata")
        ours_read = [one for one in placement.data if component.name in one.components]
        try:
            add_data(template["spec"], ours_read, placement.place, f"{pod_set.path}.spec")
        except DataProblem as error:
            raise InjectionError(error.path, error.message) from None
        try:
            keep_off(template["spec"], placement.excluded, placement.disliked, f"{pod_set.path}.spec", placement.marked)
        except PlacementError as error:
            raise InjectionError(error.path, error.message) from None
    _take_ttl(sent)
    gang = placement.gang
    if gang is not None and gang.component == component.name:
        _gather(sent, component.name, gang.pods, placement.rendezvous, with_ca=bool(placement.rendezvous_ca))
    if (_group(sent), sent["kind"]) == ("batch", "Job") and isinstance(sent.get("spec"), dict):
        # Its controller would replace a pod that its node has ended, and the new pod's deadline would start anew.
        _lower(sent["spec"], placement.bounds.active_deadline, "template.spec")
    metadata["annotations"][names.ANNOTATION_SENT_HASH] = sent_hash(sent)
    if gang is not None and gang.component == component.name and placement.rendezvous_ca:
        # Not part of the digest: an authority that is replaced between two tries makes no other object of it.
        add_ca(sent, placement.rendezvous_ca)
    return sent


def _gather(sent: dict[str, Any], component: str, pods: int, rendezvous: str, *, with_ca: bool) -> None:
    """Turn a Job into the Job of the workload's gang."""
    if not rendezvous:
        raise InjectionError(
            "gang",
            "this worker has no address under which pods reach a rendezvous: its operator gives it one "
            "(setting `rendezvous_url`)",
        )
    try:
        add_gang(sent, component, pods, rendezvous, with_ca=with_ca)
    except GangProblem as error:
        raise InjectionError(f"template.spec.template.spec.{error.path}", error.message) from None


def _narrow(sent: dict[str, Any], target: Target, attempt: int) -> None:
    """Make a Service for clients select only this attempt's pods, even if other pods have its labels (row L30)."""
    if is_entry(sent):
        ours = {names.LABEL_WORKLOAD_UID: target.workload_uid, names.LABEL_ATTEMPT: str(attempt)}
        _add(sent["spec"], "selector", ours, "template.spec")


def _take_ttl(sent: dict[str, Any]) -> None:
    """Remove a TTL after which a finished object would be deleted.

    It would look as if somebody had deleted it, and would run again. The workload's SuccessTTL decides its removal.
    """
    spec = sent.get("spec")
    if (_group(sent), sent["kind"]) in _WITH_TTL and isinstance(spec, dict):
        cast("dict[str, Any]", spec).pop("ttlSecondsAfterFinished", None)


def _group(sent: Mapping[str, Any]) -> str:
    return str(sent["apiVersion"]).rpartition("/")[0]


def _bind(spec: dict[str, Any], bounds: PodBounds, group: str, path: str) -> None:
    """Add the limits that the node enforces on a pod; a template's lower deadline, or its own grace period, is kept."""
    if group not in _NO_DEADLINE:
        _lower(spec, bounds.active_deadline, path)
    if bounds.termination_grace is not None and spec.get("terminationGracePeriodSeconds") is None:
        spec["terminationGracePeriodSeconds"] = bounds.termination_grace


def _lower(spec: dict[str, Any], deadline: int | None, path: str) -> None:
    """Cap `activeDeadlineSeconds`; a lower value in the template is kept."""
    given = spec.get("activeDeadlineSeconds")
    if deadline is None:
        return
    if given is not None and not isinstance(given, int):
        raise InjectionError(f"{path}.activeDeadlineSeconds", f"expected a whole number, found {given!r}")
    spec["activeDeadlineSeconds"] = deadline if given is None else min(given, deadline)


def owner_reference(name: str, uid: str) -> dict[str, Any]:
    """Return a component's reference to its attempt's owner; Kueue follows only controller references (row F6)."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.ATTEMPT_KIND,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def sent_hash(sent: Mapping[str, Any]) -> str:
    """Return a digest of an object to be sent, by which a later try recognizes it as its own."""
    text = json.dumps(sent, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _resolve(whole: dict[str, Any], path: str) -> dict[str, Any]:
    """Return the pod template at a path, with a spec that holds containers."""
    here: Any = whole["template"]
    for match in _STEP.finditer(path.removeprefix("template")):
        key, index = match.groups()
        try:
            here = here[key] if index is None else here[int(index)]
        except (KeyError, IndexError, TypeError):
            raise InjectionError(path, f"there is nothing at {match.group()} of the template") from None
    if not isinstance(here, dict) or not isinstance(mapping(mapping(here).get("spec")).get("containers"), list):
        raise InjectionError(path, "expected a pod template, with spec.containers")
    return cast("dict[str, Any]", here)


def _child(parent: dict[str, Any], field: str, path: str) -> dict[str, Any]:
    if parent.get(field) is None:
        parent[field] = {}
    child = parent[field]
    if not isinstance(child, dict):
        raise InjectionError(f"{path}.{field}", f"expected an object, found {child!r}")
    return cast("dict[str, Any]", child)


def _written_in_life(metadata: dict[str, Any], path: str, placement: Placement, *, is_copy: bool) -> None:
    """Refuse what would pass for something that Holdfast, an agent or a pod has written since, or leave it out.

    Earlier releases accepted it: what they accepted may not fail at its next attempt.
    """
    written = {"annotations": names.WRITTEN_IN_LIFE, "labels": frozenset[str]() if is_copy else {names.LABEL_COPY}}
    for field, keys in written.items():
        for key in sorted(keys & mapping(metadata.get(field)).keys()):
            if not placement.strict:
                if placement.in_place is None or key not in BARRIER_LIFTED_BY:  # The barrier refuses these.
                    del metadata[field][key]
                continue
            raise InjectionError(f"{path}.{field}[{key}]", "is written while it lives: expected none in a template")


def _add(parent: dict[str, Any], field: str, values: Mapping[str, str], path: str) -> None:
    """Add values to a map of strings; no key may be there already with another value."""
    if not values:
        return
    child = _child(parent, field, path)
    for key, value in values.items():
        if key in child and child[key] != value:
            raise InjectionError(
                f"{path}.{field}[{key}]", f"the template sets {child[key]!r}, and {value!r} is to be added"
            )
        child[key] = value


def _apply(
    pod_set: PodSet, template: dict[str, Any], metadata: dict[str, Any], placement: Placement, *, is_copy: bool
) -> None:
    """Add what admission assigned to a pod set: where its pods may run."""
    spec: dict[str, Any] = template["spec"]
    path = f"{pod_set.path}.metadata"
    assigned = {"labels": dict(pod_set.labels), "annotations": dict(pod_set.annotations)}
    _written_in_life(assigned, path, placement, is_copy=is_copy)
    if assigned["labels"].pop(KUEUE_QUEUE, None) is not None and placement.strict:
        raise InjectionError(f"{path}.labels[{KUEUE_QUEUE}]", "expected none: give the workload itself the queue")
    for field, values in assigned.items():
        _add(metadata, field, values, path)
    _add(spec, "nodeSelector", pod_set.node_selector, f"{pod_set.path}.spec")
    for field, entries in (("tolerations", pod_set.tolerations), ("schedulingGates", pod_set.scheduling_gates)):
        new = [entry.model_dump(mode="json", by_alias=True, exclude_none=True) for entry in entries]
        if new:
            present = _list(spec, field, f"{pod_set.path}.spec")
            spec[field] = present + [entry for entry in new if entry not in present]


def _list(parent: dict[str, Any], field: str, path: str) -> list[Any]:
    found: Any = parent.get(field)
    if found is not None and not isinstance(found, list):
        raise InjectionError(f"{path}.{field}", f"expected a list, found {found!r}")
    return cast("list[Any]", found or [])


def _add_environment(spec: dict[str, Any], path: str, values: Mapping[str, str], *, resumes: bool) -> None:
    """Add the attempt's environment variables to each container, before the template's own, which may refer to them.

    The checkpoint to resume from is read from the pod's annotation: a suspended Job's environment cannot be changed.
    """
    ours: list[dict[str, Any]] = [{"name": name, "value": value} for name, value in values.items()]
    if resumes:
        field = {"fieldRef": {"fieldPath": f"metadata.annotations['{names.ANNOTATION_RESUME_FROM}']"}}
        ours.append({"name": names.ENV_RESUME_FROM, "valueFrom": field})
    for field in ("initContainers", "containers"):
        containers = _list(spec, field, f"{path}.spec")
        for index, container in enumerate(containers):
            if not isinstance(container, dict):
                raise InjectionError(f"{path}.spec.{field}[{index}]", f"expected an object, found {container!r}")
            present = _list(cast("dict[str, Any]", container), "env", f"{path}.spec.{field}[{index}]")
            given = [mapping(entry).get("name") for entry in present]
            added = [copy.deepcopy(one) for one in ours if one["name"] not in given]
            if added:
                container["env"] = added + present
