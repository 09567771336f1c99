"""The workload that a user submits, validated as a whole."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Annotated, Any, Final, Literal, Self, cast

from pydantic import Field, TypeAdapter, ValidationError, field_validator, model_validator

from holdfast import names
from holdfast.model.base import Model, Time, Word
from holdfast.model.entities.graph import Place
from holdfast.model.gang.state import Gang
from holdfast.model.labels import KUEUE_QUEUE, LABEL_NAME, check_label
from holdfast.model.spec.checkpoint import Checkpoint, CheckpointProtocol
from holdfast.model.spec.component import Component
from holdfast.model.spec.gang_members import check_gang, members_of
from holdfast.model.spec.lifecycle import Bounded, Lifecycle, Reactive, Unbounded
from holdfast.model.spec.mount import MOUNTS_MAXIMUM, Mount, check_mounts
from holdfast.model.spec.policy import Match, Policy, SharedPolicy
from holdfast.model.spec.probe import Probe
from holdfast.model.spec.progress import Progress, ProgressSource
from holdfast.model.spec.sensitive import contrary, contrary_gang, settled_fields
from holdfast.model.spec.volume_claim import VOLUME_CLAIMS_MAXIMUM, VolumeClaim, check_volume_claims
from holdfast.model.vocabulary import Kind, Scope, StartStatus

SPEC_BYTES_MAXIMUM = 512 * 1024
COMPONENTS_MAXIMUM = 256
RESTARTED_COPIES_MAXIMUM = 2048
"""Of all components: how many copies a rule may restart alone, since a memory is bounded."""


class Source(Model):
    """The published form in which a workload was written, so that its status can be written in that form."""

    api_version: Word
    kind: Word
    generation: Annotated[int | None, Field(ge=1, exclude_if=lambda value: value is None)] = None
    """Generation of the custom resource that the workload was read from. That resource represents the workload in the
    cluster, and they share a uid. None: a client submitted it, and an Anchor represents it (rows F1, F7)."""
    labels: Annotated[dict[str, str], Field(exclude_if=lambda value: not value)] = {}
    """The labels of an AppWrapper or JobSet itself, by which `list` selects it; its pods do not get them (row E3)."""

    @model_validator(mode="before")
    @classmethod
    def _unsigned(cls, given: Any) -> Any:
        """Drop who asked for it: documents of 0.1.0 say so, and nobody has verified it (row X13)."""
        if not isinstance(given, dict):
            return given
        fields = cast("dict[str, Any]", given)
        return {key: value for key, value in fields.items() if key != "by"}

    @model_validator(mode="after")
    def _labelled(self) -> Self:
        for key, value in self.labels.items():
            check_label(key, value)
        return self


class Workload(Model):
    """One unit of work whose life is one durable workflow. This is the contract: see `holdfast schema`."""

    schema_version: Literal[1] = 1
    """The version of this contract."""
    name: str
    """Its name, unique in its namespace."""
    namespace: str = "default"
    """The namespace of all its objects."""
    cluster: str
    """The cluster it runs on, as workers name it."""
    uid: str = ""
    """Set by the client; if empty, the workflow uses its first run's id."""
    kind: Kind = Kind.BATCH
    """What it is: a batch workload ends by itself, a service does not, an interactive one is used by a person."""
    queue: str = "default"
    """The admission queue it waits in, if the cluster has one of that name."""
    queued: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Whether its queue's workflow admits it (row L9); set at submission, if there is such a queue."""
    priority: Annotated[int, Field(ge=0, le=10)] = 0
    """Its rank in its queue, 0 to 10; higher goes first."""
    components: Annotated[tuple[Component, ...], Field(min_length=1, max_length=COMPONENTS_MAXIMUM)]
    """The Kubernetes objects it is made of, created in this order."""
    labels: dict[str, str] = {}
    """Added to every component and to every pod."""
    suspend: bool = False
    """Whether it is suspended: its objects are deleted, and its quota is released."""
    run_as: str = names.RUN_AS_DEFAULT
    """The service account, in the workload's namespace, whose rights are used to create its components."""
    allow_missing_kinds: bool = False
    """Whether it waits for a kind that the cluster lacks, up to the submission timeout, instead of being refused."""
    lifecycle: Annotated[Lifecycle, Field(exclude_if=lambda value: value == Bounded())] = Bounded()
    """How long it may live; the default depends on its kind: Unbounded for a service, else without a walltime."""
    probe: Annotated[Probe | None, Field(exclude_if=lambda value: value is None)] = None
    """How its running pods are probed for whether they still serve; only for a workload without end (row L28)."""
    progress: Annotated[Progress | None, Field(exclude_if=lambda value: value is None)] = None
    """How its steps are followed, and when standing still is a failure; none: they are not (rows P1, P2)."""
    sensitive: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Whether it is never run again without a person's approval, and each action on it is recorded first (L7, L36)."""
    policy: SharedPolicy = Policy()
    """How long it waits for what, and what happens when it fails."""
    checkpoint: Annotated[Checkpoint | None, Field(exclude_if=lambda value: value is None)] = None
    """How it saves its state before it is suspended or preempted; none: it does not (row L32)."""
    mounts: Annotated[tuple[Mount, ...], Field(max_length=MOUNTS_MAXIMUM, exclude_if=lambda value: not value)] = ()
    """The data sets that its pods read: staged before it is admitted, and before each attempt (row L14)."""
    volume_claims: Annotated[
        tuple[VolumeClaim, ...], Field(max_length=VOLUME_CLAIMS_MAXIMUM, exclude_if=lambda value: not value)
    ] = ()
    """The claims that belong to it, and not to one of its attempts: made before the components (row J22)."""
    gang: Annotated[Gang | None, Field(exclude_if=lambda value: value is None)] = None
    """How the pods of its one Job meet as members of an elastic gang (rows T1 to T14); none: no gang."""
    graph: Annotated[Place | None, Field(exclude_if=lambda value: value is None)] = None
    """Its place in a graph of workloads, which decides when it starts; none: it waits for no other (row L31)."""
    source: Source = Source(api_version="v1", kind="List")
    """The document it was submitted as."""
    submitted_at: Time | None = None
    """When it was submitted; set at submission."""

    @model_validator(mode="before")
    @classmethod
    def _lives_as_its_kind(cls, given: Any) -> Any:
        # A service without a walltime has no end. Set it even if omitted, so that both forms serialize the same.
        if not isinstance(given, dict):
            return given
        fields = cast("dict[str, Any]", given)
        if fields.get("kind") != Kind.SERVICE or _bounds(fields.get("lifecycle", Bounded())):
            return fields
        return {**fields, "lifecycle": Unbounded()}

    @model_validator(mode="before")
    @classmethod
    def _is_run_once(cls, given: Any) -> Any:
        # Nothing runs sensitive work again. Set its fields even if omitted, so that both forms serialize the same.
        if not isinstance(given, dict):
            return given
        fields = cast("dict[str, Any]", given)
        return settled_fields(fields) if fields.get("sensitive") else fields

    @field_validator("name", "run_as")
    @classmethod
    def _subdomain(cls, value: str) -> str:
        if not names.DNS_SUBDOMAIN.match(value) or len(value) > 240:
            raise ValueError(f"{value!r}: expected a Kubernetes name, at most 240 characters of [-a-z0-9.]")
        return value

    @field_validator("namespace", "cluster", "queue")
    @classmethod
    def _label(cls, value: str) -> str:
        if not names.DNS_LABEL.match(value):
            raise ValueError(f"{value!r}: expected a DNS label, at most 63 characters of [-a-z0-9]")
        return value

    @field_validator("uid")
    @classmethod
    def _uid_is_label_safe(cls, value: str) -> str:
        if value and not LABEL_NAME.match(value):
            raise ValueError(f"{value!r}: expected at most 63 characters of [-A-Za-z0-9_.]")
        return value

    @model_validator(mode="after")
    def _whole(self) -> Self:
        for key, value in self.labels.items():
            check_label(key, value)
        seen: set[str] = set()
        for index, component in enumerate(self.components):
            if component.name in seen:
                raise ValueError(f"components[{index}].name: {component.name!r} is used twice")
            seen.add(component.name)
            namespace = component.template["metadata"].get("namespace")
            if namespace is not None and namespace != self.namespace:
                raise ValueError(
                    f"components[{index}].template.metadata.namespace: {namespace!r} is another namespace: "
                    f"expected {self.namespace!r} or none"
                )
        known = {component.name for component in self.components}
        for rule in self.policy.rules:
            for name in rule.match.components:
                if name not in known:
                    raise ValueError(f"policy.rules[{rule.name}].match.components: {name!r} names no component")
        self._check_units()
        self._check_lifecycle()
        self._check_probe()
        self._check_progress()
        self._check_success()
        self._check_order()
        self._check_dependencies()
        self._check_checkpoint()
        check_mounts(self.mounts, self.components)
        check_volume_claims(self.volume_claims, self.components)
        if self.gang is not None:
            check_gang(self.gang, self.components, self.lifecycle, self.policy.deletion.suspend)
        size = len(self.model_dump_json().encode())
        if size > SPEC_BYTES_MAXIMUM:
            raise ValueError(f"the workload is {size:,} bytes: expected at most {SPEC_BYTES_MAXIMUM:,}")
        return self

    def _check_units(self) -> None:
        """Refuse the unit Member for failures of pods that a controller creates (rows U7, J23)."""
        restarts = set[str]()
        named = [(f"policy.rules[{one.name}].action", one.action, one.match) for one in self.policy.rules]
        for path, action, match in [*named, ("policy.default", self.policy.default, Match())]:
            if not action.alone or action.unit is not Scope.MEMBER:
                continue
            for component in self.components:
                meant = component.name in match.components or (not match.components and component.expected_pods)
                if not meant or component.bare:
                    continue
                if component.copies is None:
                    raise ValueError(
                        f"{path}.unit: Member: the pods of {component.title} are its controller's to make again: "
                        "expected Component or Workload"
                    )
                restarts.add(component.name)
                # A failure of a pod does not say which copy it belongs to.
                if match.scopes != (Scope.COMPONENT,):
                    raise ValueError(
                        f"{path}.unit: Member: a copy of {component.title} is made again for its own failure only: "
                        "expected match.scopes [Component], or the unit Component or Workload"
                    )
        total = sum(one.copies or 0 for one in self.components if one.name in restarts)
        if total > RESTARTED_COPIES_MAXIMUM:
            raise ValueError(
                f"components: {total:,} copies may be made again alone, and each is remembered: expected at most "
                f"{RESTARTED_COPIES_MAXIMUM:,}, or the unit Component or Workload"
            )

    def _check_lifecycle(self) -> None:
        """Refuse a pod count other than a range's `min`, and fields that run sensitive work again automatically."""
        if isinstance(self.lifecycle, Reactive) and self.expected_pods != self.lifecycle.min:
            raise ValueError(
                f"lifecycle.min: {self.lifecycle.min}: expected {self.expected_pods}, the pods of its components: what "
                "is above that is its own autoscaler's"
            )
        if isinstance(self.lifecycle, Reactive):
            self._check_autoscalers(self.lifecycle)
        if not self.sensitive:
            return
        given = [(f"components[{at}].replacement", one.replacement) for at, one in enumerate(self.components)]
        for path, one in [("policy.replacement", self.policy.replacement), *given]:
            if one is not None and (one.failed or one.completed or one.deleted):
                raise ValueError(f"{path}: a sensitive workload is not run again by itself: expected none")
        for at, one in enumerate(self.components):
            for wrong in contrary(one):
                raise ValueError(f"components[{at}].{wrong}")
        for wrong in contrary_gang(self.gang) if self.gang is not None else ():
            raise ValueError(str(wrong))

    def _check_autoscalers(self, life: Reactive) -> None:
        """Refuse autoscalers among the components that exceed the range (row L28: Reactive)."""
        for index, component in enumerate(self.components):
            template = component.template
            if template.get("kind") != "HorizontalPodAutoscaler":
                continue
            given: dict[str, Any] = template.get("spec") or {}
            where = f"components[{index}].template.spec"
            least, most = given.get("minReplicas", 1), given.get("maxReplicas")
            if isinstance(most, int) and most > life.max:
                raise ValueError(f"{where}.maxReplicas: {most}: expected at most lifecycle.max, {life.max}")
            if isinstance(least, int) and least < life.min:
                raise ValueError(f"{where}.minReplicas: {least}: expected at least lifecycle.min, {life.min}")

    def _check_probe(self) -> None:
        """Refuse a probe of a workload that ends by itself, has no pods, or uses the node's network (row L28)."""
        if self.probe is None:
            return
        if isinstance(self.lifecycle, Bounded):
            raise ValueError("probe: expected only where lifecycle is Unbounded or Reactive, found Bounded")
        with_pods = {one.name: one for one in self.components if one.pod_sets}
        for index, name in enumerate(self.probe.components):
            if name not in with_pods:
                allowed = ", ".join(with_pods) or "none has any"
                raise ValueError(f"probe.components[{index}]: {name!r}: expected a component with pods: {allowed}")
        for where in self._on_node_network(self.probe.components or with_pods):
            raise ValueError(f"{where}: the address of such pods is their node's, which no probe asks")

    def _check_progress(self) -> None:
        """Refuse to follow components without pods, or HTTP to pods that share their node's network (row P1)."""
        if self.progress is None:
            return
        with_pods = [one.name for one in self.components if one.pod_sets]
        for index, name in enumerate(self.progress.components):
            if name not in with_pods:
                allowed = ", ".join(with_pods) or "none has any"
                raise ValueError(f"progress.components[{index}]: {name!r}: expected a component with pods: {allowed}")
        if not with_pods:
            raise ValueError("progress: expected a component with pods: none has any")
        if self.progress.source is ProgressSource.HTTP:
            for where in self._on_node_network(self.progress.components or with_pods):
                raise ValueError(f"{where}: the address of such pods is their node's, which is not asked for a step")

    def _on_node_network(self, components: Iterable[str]) -> Iterator[str]:
        """Yield the fields by which these components' pods share their node's network."""
        named = set(components)
        for index, component in enumerate(self.components):
            for pod_set in component.pod_sets if component.name in named else ():
                path = f"{pod_set.path}.spec"
                if _at({"template": component.template}, path).get("hostNetwork"):
                    yield f"components[{index}].{path}.hostNetwork"

    def _check_success(self) -> None:
        """Refuse success by an unknown component, or by one that would be complete as soon as it exists (row J12)."""
        known, path = {one.name: one for one in self.components}, "policy.success.components"
        given = self.policy.success.components
        for index, name in enumerate(given):
            if name not in known:
                raise ValueError(f"{path}[{index}]: {name!r} names no component: expected some of {', '.join(known)}")
            if name in given[:index]:
                raise ValueError(f"{path}[{index}]: {name!r} is given twice")
            if not known[name].completes:
                raise ValueError(
                    f"{path}[{index}]: {known[name].title} brings no pods and says nothing of its end: it would be "
                    "complete as soon as it is there"
                )

    def _check_order(self) -> None:
        """Refuse an impossible start order: unknown names, a component that waits for itself (row J13)."""
        known = {one.name: one for one in self.components}
        for index, component in enumerate(self.components):
            for place, after in enumerate(component.after):
                path, name = f"components[{index}].after[{place}].component", after.component
                if name not in known:
                    raise ValueError(f"{path}: {name!r} names no component: expected some of {', '.join(known)}")
                if name == component.name:
                    raise ValueError(f"{path}: {name!r} would wait for itself")
                if name in [one.component for one in component.after[:place]]:
                    raise ValueError(f"{path}: {name!r} is given twice")
                if after.status is StartStatus.COMPLETE and not known[name].completes:
                    title = known[name].title
                    raise ValueError(f"{path}: {title} has no pods and says nothing of its end: expected status Ready")
        order = {one.name: [after.component for after in one.after] for one in self.components}
        free: set[str] = set()
        while fresh := {name for name, waits in order.items() if name not in free and free.issuperset(waits)}:
            free |= fresh
        for index, component in enumerate(self.components):
            for place, after in enumerate(component.after):
                if component.name not in free and after.component not in free:
                    circle = ", ".join(name for name in order if name not in free)
                    path = f"components[{index}].after[{place}].component"
                    raise ValueError(f"{path}: {after.component!r}: these wait for each other for ever: {circle}")

    def _check_dependencies(self) -> None:
        known = {component.name: component for component in self.components}
        for index, component in enumerate(self.components):
            for name in component.config:
                if name not in known or known[name].pod_sets:
                    raise ValueError(f"components[{index}].config: {name!r} names no component without pods")
            if component.replacement is not None:
                try:
                    self.policy.check_replacement(component.replacement)
                except ValueError as error:
                    raise ValueError(f"components[{index}].{error}") from None

    def _check_checkpoint(self) -> None:
        """Refuse a checkpoint of an unknown component, or of one without pods to ask (row L32)."""
        if self.checkpoint is None:
            return
        bring, path = [one.name for one in self.components if one.expected_pods], "checkpoint.components"
        if not bring:
            raise ValueError("checkpoint: no component brings pods that could be asked")
        for index, name in enumerate(self.checkpoint.components):
            if name not in bring:
                known = ", ".join(bring)
                raise ValueError(f"{path}[{index}]: {name!r} names no component with pods: expected some of {known}")
            if name in self.checkpoint.components[:index]:
                raise ValueError(f"{path}[{index}]: {name!r} is given twice")
        if self.checkpoint.protocol is CheckpointProtocol.HTTP:
            for where in self._on_node_network(self.savers):
                raise ValueError(
                    f"{where}: the address of such pods is their node's, where nobody is asked to save: expected none, "
                    f"or checkpoint.protocol {CheckpointProtocol.ANNOTATION.value}"
                )

    def with_components(self, components: Iterable[Component]) -> Self:
        """Return the workload with other components, validated again.

        Raises:
            ValidationError: if the result is not a valid workload.
        """
        values: dict[str, Any] = {name: getattr(self, name) for name in type(self).model_fields}
        values["components"] = tuple(components)
        return type(self)(**values)

    def resized(self, least: int, most: int) -> Self:
        """Return the workload with a gang of another size, validated again (row T6).

        Raises:
            ValidationError: if the gang cannot have that size.
        """
        assert self.gang is not None
        values: dict[str, Any] = {name: getattr(self, name) for name in type(self).model_fields}
        gang: dict[str, Any] = {**dict(self.gang), "min": least, "max": most}
        values["gang"] = type(self.gang)(**gang)
        values["components"] = tuple(
            one.model_copy(update={"pod_sets": (one.pod_sets[0].model_copy(update={"replicas": least}),)})
            if one is self.members
            else one
            for one in self.components
        )
        return type(self)(**values)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy, as pydantic does; the digests of the components are computed again."""
        copied = super().model_copy(update=update, deep=deep)
        kept: dict[str, Any] = vars(copied)
        kept.pop("config_hashes", None)
        return copied

    def titles(self, components: Iterable[str]) -> str:
        """Return the display names of these components, in the workload's order."""
        wanted = set(components)
        return ", ".join(component.title for component in self.components if component.name in wanted)

    @property
    def workflow_id(self) -> str:
        """The id of the one workflow that runs this workload's lifecycle."""
        kind = self.source.kind if self.source.generation is not None else ""
        return names.workflow_id(self.cluster, self.namespace, self.name, kind)

    @property
    def savers(self) -> tuple[str, ...]:
        """The components whose pods are asked to save their state."""
        if self.checkpoint is None:
            return ()
        return self.checkpoint.components or tuple(one.name for one in self.components if one.expected_pods)

    @property
    def members(self) -> Component | None:
        """The component whose pods are the members of its gang, if it has one."""
        return members_of(self.components) if self.gang is not None else None

    @property
    def expected_pods(self) -> int:
        """How many pods the whole workload should have."""
        return sum(component.expected_pods for component in self.components)

    @property
    def made_pods(self) -> int:
        """How many pods are made as it begins: of a gang, its largest round and its spares."""
        members = self.members
        if self.gang is None or members is None:
            return self.expected_pods
        return self.expected_pods - members.expected_pods + self.gang.pods

    @property
    def kueue_admits(self) -> bool:
        """Whether Kueue counts its quota: a published custom resource that names a queue (row F8)."""
        own = self.source.generation is None or self.source.api_version == names.API_VERSION
        return KUEUE_QUEUE in self.source.labels and not own

    @property
    def listed_labels(self) -> dict[str, str]:
        """The labels by which `list` selects it: its own and those of its document (row E3)."""
        return {**self.labels, **self.source.labels}

    def started_only(self) -> Self:
        """Return it without the order in which it is created while it begins suspended: a client's never begins so."""
        components = tuple(
            one.model_copy(update={"after": tuple(wait.model_copy(update=_AT_THE_START) for wait in one.after)})
            for one in self.components
        )
        return self.model_copy(update={"components": components})

    def spec_hash(self) -> str:
        """Return a digest of the requested spec, without the identity of the request (uid, submitted_at)."""
        # A workload from before this field existed has the same digest.
        silent = set[str]() if self.allow_missing_kinds else {"allow_missing_kinds"}
        # Whether a queue of that name existed at submission does not matter either.
        left_out: dict[str, Any] = dict.fromkeys({"uid", "submitted_at", "queued"} | silent, True)
        # The grace itself already shows that the document sets its failure grace.
        # The object that represents it in the cluster, that object's creator and its labels do not matter either.
        exclude = {**left_out, "policy": {"own_failure_grace"}, "source": {"generation", "by", "labels"}}
        return _digest(self.started_only().model_dump(mode="json", exclude=exclude))

    def body_hashes(self) -> dict[str, str]:
        """For each component, a digest of what a resumption in place cannot change (row J14)."""
        templates = {component.name: component.template for component in self.components}
        return {
            component.name: _digest(
                [
                    component.body(),
                    [templates[name] for name in component.config],
                    {key: one.model_dump(mode="json") for key, one in component.of_copies.items()},
                ]
            )
            for component in self.components
        }

    @cached_property
    def config_hashes(self) -> dict[str, str]:
        """For each component, a digest of its pods' inputs: its template and the configuration they read (row S8)."""
        members = self.members
        templates = {component.name: component.template for component in self.components}
        return {
            component.name: _digest(
                [
                    component.template,
                    # The number of members is not an input of each member.
                    [pod_set.model_dump(mode="json", exclude=sizes) for pod_set in component.pod_sets],
                    *(templates[name] for name in component.config),
                    *([{key: one.model_dump(mode="json") for key, one in labels.items()}] if labels else []),
                ]
            )
            for component, labels, sizes in (
                (one, one.of_copies, {"replicas"} if one is members else set[str]()) for one in self.components
            )
        }


def _digest(document: Any) -> str:
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _at(document: Any, path: str) -> Mapping[str, Any]:
    for key in path.split("."):
        document = cast("Mapping[str, Any]", document).get(key) if isinstance(document, dict) else None
    return cast("Mapping[str, Any]", document) if isinstance(document, dict) else {}


_AT_THE_START: Final = {"created_suspended": True}
_LIFECYCLE: TypeAdapter[Lifecycle] = TypeAdapter(Lifecycle)


def _bounds(given: Any) -> bool:
    """Whether a lifecycle, as given, is anything but the default: bounded, without a walltime."""
    try:
        return _LIFECYCLE.validate_python(given) != Bounded()
    except ValidationError:
        return True  # The field's own validation refuses it.
