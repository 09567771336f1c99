"""One component of a workload: its template, its pod sets, its copies, and how its own status is read."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self, cast

from pydantic import Field, field_validator, model_validator

from holdfast import names
from holdfast.model.base import Model, Word
from holdfast.model.spec.claims import claims_of, keeps_claims
from holdfast.model.spec.copies import COPIES_MAXIMUM, CopyLabel, check_copies
from holdfast.model.spec.policy import Replacement
from holdfast.model.spec.restart_agent import restart_agent
from holdfast.model.vocabulary import StartStatus
from holdfast.model.words import counted

POD_SETS_MAXIMUM = 8
WORD_MAXIMUM: Final = 64
"""Maximum length, in characters, of a status field's value that a rule may compare."""
WORD_PATH_MAXIMUM: Final = 128
WORD_STEPS_MAXIMUM: Final = 4

PLACEMENT: Final[dict[str, tuple[str, ...]]] = {
    "metadata": ("labels", "annotations"),
    "spec": ("nodeSelector", "tolerations", "schedulingGates"),
}
"""The fields of a pod template that are merged into an object when it is resumed in place (row J14)."""

_STEP = re.compile(r"\.([A-Za-z0-9_-]+)|\[(\d+)\]")
_STATUS_PATH = re.compile(rf"status(\.[A-Za-z0-9_-]+){{1,{WORD_STEPS_MAXIMUM}}}")
_PATH = re.compile(r"^template(\.[A-Za-z0-9_-]+|\[[0-9]+\])*\Z")


class Toleration(Model):
    """A Kubernetes toleration, as `core/v1` has it."""

    key: Word | None = None
    """The taint's key; none: any."""
    operator: Literal["Exists", "Equal", "Lt", "Gt"] | None = None
    """How the value is compared."""
    value: Word | None = None
    """The taint's value."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """The taint's effect; none: any."""
    toleration_seconds: int | None = None
    """How long the pod stays once the taint is there; none: for ever."""


class SchedulingGate(Model):
    """A Kubernetes pod scheduling gate."""

    name: Word
    """Its name."""


class PodSet(Model):
    """One pod template inside a component: its path, the number of its pods, and what is added to them."""

    path: str
    """Path from the component, for example `template.spec.template`; `[n]` indexes a list."""
    replicas: Annotated[int, Field(ge=0, le=1_000_000)] = 1
    """How many pods it has."""
    labels: dict[Word, Word] = {}
    """Labels added to its pods."""
    annotations: dict[str, str] = {}
    """Annotations added to its pods."""
    node_selector: dict[Word, Word] = {}
    """Node labels that its pods require."""
    tolerations: tuple[Toleration, ...] = ()
    """Taints that its pods tolerate."""
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    """Gates that keep its pods from being scheduled."""

    @field_validator("path")
    @classmethod
    def _path_is_a_path(cls, value: str) -> str:
        if not _PATH.match(value):
            raise ValueError(
                f"{value!r}: expected a path that starts with template, for example template.spec.template"
            )
        return value


class FieldRule(Model):
    """A field of an object's status, and the value it must have: `status.jobStatus` is `SUCCEEDED`."""

    path: Annotated[str, Field(max_length=WORD_PATH_MAXIMUM)]
    """Path from the object, of field names only: no list index, and at most four steps below `status`."""
    equals: Annotated[str, Field(min_length=1, max_length=WORD_MAXIMUM)]
    """The value as text; a number or a boolean as JSON writes it."""
    unless: Annotated[FieldRule | None, Field(exclude_if=lambda value: value is None)] = None
    """A rule that overrides this one: a controller that retries says so in another field."""

    @field_validator("equals", mode="before")
    @classmethod
    def _as_text(cls, value: object) -> object:
        return word(value) if isinstance(value, bool | int) else value

    @field_validator("path")
    @classmethod
    def _path_is_a_status_field(cls, value: str) -> str:
        if not _STATUS_PATH.fullmatch(value):
            raise ValueError(f"{value!r}: expected a field of the status, for example status.phase")
        return value

    def holds(self, words: Mapping[str, str]) -> bool:
        """Whether the rule holds for these fields."""
        said = words.get(self.path) == self.equals
        return said and (self.unless is None or not self.unless.holds(words))

    def __str__(self) -> str:
        """Write the rule as a condition: `status.jobStatus is SUCCEEDED`."""
        return f"{self.path} is {self.equals}"


def word(value: str | bool | int) -> str:
    """Return a field's value as the text that rules compare."""
    return json.dumps(value) if isinstance(value, bool | int) else value


_Fields = Annotated[tuple[FieldRule, ...], Field(max_length=8, exclude_if=lambda value: not value)]


class StatusRule(Model):
    """How to read a component's own status. Empty: only its pods count."""

    complete: tuple[str, ...] = ()
    """Condition types, any one of which means complete."""
    failed: tuple[str, ...] = ()
    """Condition types, any one of which means failed."""
    ready: Annotated[tuple[str, ...], Field(exclude_if=lambda value: not value)] = ()
    """Condition types that let dependents start (row J13). If this and `ready_when` are empty, its pods decide."""
    succeeded_when: _Fields = ()
    """Fields of the status, for a kind that does not use conditions (row D15)."""
    failed_when: _Fields = ()
    """Fields of the status that mean failed."""
    ready_when: _Fields = ()
    """Fields of the status that let dependents start."""

    @model_validator(mode="after")
    def _says_one_thing(self) -> Self:
        both = sorted({str(one) for one in self.succeeded_when} & {str(one) for one in self.failed_when})
        if both:
            raise ValueError(f"{both[0]}: cannot mean both that it has succeeded and that it has failed")
        return self

    @property
    def tells_completion(self) -> bool:
        """Whether its status can report success."""
        return bool(self.complete or self.succeeded_when)

    @property
    def tells_readiness(self) -> bool:
        """Whether its status can report readiness."""
        return bool(self.ready or self.ready_when)

    @property
    def settles(self) -> bool:
        """Whether its status can report its end, so that a worker without the right to read it would miss the end."""
        return self.tells_completion or bool(self.failed or self.failed_when)

    @property
    def speaks(self) -> bool:
        """Whether its status can report anything at all."""
        return self.settles or self.tells_readiness


class After(Model):
    """Another component, and the status it must have before this one is created."""

    component: str
    """The component that comes first."""
    status: StartStatus
    """What it must be: Ready or Complete."""
    created_suspended: Annotated[bool, Field(exclude_if=lambda value: value)] = True
    """Whether a suspended workload has this one, suspended, before the other is Ready; a JobSet's dependsOn: no."""


class Component(Model):
    """One Kubernetes object of a workload, or several copies of it, with its pods.

    It corresponds to AppWrapper's component, JobSet's replicated job, Streams' group and torchelastic's role.
    """

    name: str
    """Unique within the workload, label-safe."""
    template: dict[str, Any]
    """The object to create, as its user wrote it."""
    pod_sets: Annotated[tuple[PodSet, ...], Field(max_length=POD_SETS_MAXIMUM)] = ()
    """Empty for an object without pods."""
    status: StatusRule = StatusRule()
    """How its own status says that it is ready, complete or failed."""
    config: tuple[str, ...] = ()
    """Components without pods whose content this one's pods read: when one changes, this one's pods are replaced."""
    replacement: Replacement | None = None
    """Which of its pods are replaced alone; none: as the policy says."""
    after: Annotated[tuple[After, ...], Field(max_length=64, exclude_if=lambda value: not value)] = ()
    """The components it waits for in each attempt, all of them; none: it is created at once (row J13)."""
    copies: Annotated[int | None, Field(ge=0, le=COPIES_MAXIMUM, exclude_if=lambda value: value is None)] = None
    """How many objects are created from the template, named `<its name>-<index>`; none: one, under its own name."""
    copy_labels: Annotated[dict[str, CopyLabel], Field(exclude_if=lambda value: not value)] = {}
    """What each copy carries by key, as a label and as an annotation, on its object and on its pods."""
    copy_selectors: Annotated[dict[str, CopyLabel], Field(exclude_if=lambda value: not value)] = {}
    """The labels of nodes that each copy's pods select, by key (row J21)."""

    @field_validator("name")
    @classmethod
    def _name_is_label_safe(cls, value: str) -> str:
        if not names.DNS_LABEL.match(value):
            raise ValueError(f"{value!r}: expected a DNS label, at most 63 characters of [-a-z0-9]")
        return value

    @model_validator(mode="after")
    def _template_names_an_object(self) -> Self:
        for field in ("apiVersion", "kind"):
            if not isinstance(self.template.get(field), str) or not self.template[field]:
                raise ValueError(f"template.{field}: expected a text, found {self.template.get(field)!r}")
        # Requests have them in their path.
        version, kind = self.template["apiVersion"], self.template["kind"]
        if not names.API_VERSION_FORM.match(version):
            raise ValueError(f"template.apiVersion: expected a version as `v1` or `batch/v1`, found {version!r}")
        if not names.KIND_FORM.match(kind):
            raise ValueError(f"template.kind: expected letters, digits and hyphens, a letter first, found {kind!r}")
        metadata = cast("dict[str, Any] | None", self.template.get("metadata"))
        if not isinstance(metadata, dict) or not (metadata.get("name") or metadata.get("generateName")):
            raise ValueError("template.metadata.name: expected a name or a generateName")
        check_copies(self.template, self.copies, self.copy_labels, self.copy_selectors)
        paths = [pod_set.path for pod_set in self.pod_sets]
        for path in paths:
            if paths.count(path) > 1:
                raise ValueError(f"podSets: path {path!r} is given {paths.count(path)} times")
        return self

    @property
    def title(self) -> str:
        """Its display name: its kind and its object's name."""
        title = f"{self.template['kind']} {self.template['metadata'].get('name') or self.name}"
        return title if self.copies is None else f"{title} ({counted(self.copies, 'copy', 'copies')})"

    @property
    def of_copies(self) -> dict[str, CopyLabel]:
        """All that differs between copies: their labels, and the nodes that they select, as `nodeSelector.<key>`."""
        return self.copy_labels | {f"nodeSelector.{key}": one for key, one in self.copy_selectors.items()}

    @property
    def bare(self) -> bool:
        """Whether it is itself a pod, without a controller."""
        return (self.template["apiVersion"], self.template["kind"]) == ("v1", "Pod")

    def copy_index(self, name: str) -> int | None:
        """Return which of its copies has an object of this name; None if none has, or it has no copies."""
        return None if self.copies is None else names.copy_index(name, self.template["metadata"]["name"], self.copies)

    @property
    def claims(self) -> tuple[str, ...]:
        """The claim names of its pods, without the suffix of its object's name and the pod's number (row D25)."""
        return claims_of(self.template)

    @property
    def keeps_claims(self) -> bool:
        """Whether claims of its pods outlive its object."""
        return keeps_claims(self.template)

    @property
    def parks(self) -> bool:
        """Whether its object can be suspended in place: its controller then removes its pods (row J14)."""
        return (self.template["apiVersion"], self.template["kind"]) == ("batch/v1", "Job")

    @property
    def restarts_in_place(self) -> bool:
        """Whether all its pods have an in-place restart agent (row J24)."""
        templates = [self.pod_template(one) for one in self.pod_sets]
        return bool(templates) and all(restart_agent(one.get("spec") or {}) for one in templates)

    @property
    def completes(self) -> bool:
        """Whether it can complete: by its pods, or by its own status."""
        return bool(self.expected_pods or self.status.tells_completion)

    @property
    def is_empty(self) -> bool:
        """Whether it declares pods, but none of them: 0 replicas, or no copies."""
        return bool(self.pod_sets) and not self.expected_pods

    def body(self) -> list[Any]:
        """Return its template and pod counts, without the pods' labels, annotations and placement (merged later)."""
        whole: dict[str, Any] = {"template": copy.deepcopy(self.template)}
        for pod_set in self.pod_sets:
            template = _at(whole, pod_set.path)
            for field, keys in PLACEMENT.items():
                part = template.get(field)
                for key in keys if isinstance(part, dict) else ():
                    cast("dict[str, Any]", part).pop(key, None)
                if not part:
                    template.pop(field, None)
        return [whole["template"], [(one.path, one.replicas) for one in self.pod_sets]]

    def pod_template(self, pod_set: PodSet) -> dict[str, Any]:
        """Return the pod template of one of its pod sets; an empty mapping if its path leads nowhere."""
        return _at({"template": self.template}, pod_set.path)

    @property
    def expected_pods(self) -> int:
        """How many pods this component should have, over all its copies."""
        return sum(pod_set.replicas for pod_set in self.pod_sets) * (1 if self.copies is None else self.copies)


def _at(whole: dict[str, Any], path: str) -> dict[str, Any]:
    """Return the mapping at a path of a component; an empty one if the path leads nowhere."""
    here: Any = whole
    for key, index in _STEP.findall(f".{path}"):
        try:
            here = here[key] if key else here[int(index)]
        except (KeyError, IndexError, TypeError):
            return {}
    return cast("dict[str, Any]", here) if isinstance(here, dict) else {}
