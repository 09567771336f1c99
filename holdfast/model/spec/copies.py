"""Copies of a component: several objects created from one template, named by index, and the labels of each."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from holdfast import names
from holdfast.model.base import Model
from holdfast.model.labels import LABEL_NAME, check_label

COPIES_MAXIMUM = 10_000
_JOB_NAME_MAXIMUM = 63
"""The Job controller puts a Job's name into a label of its pods."""
_NAME_MAXIMUM = 253


class CopyWord(StrEnum):
    """The source of a copy's label value."""

    INDEX = "Index"
    """Its index, with the offset added."""
    KEY = "Key"
    """The SHA-1 of `<namespace>/<object name>` in hexadecimal digits."""
    ATTEMPT = "Attempt"
    """How often it has been restarted: the attempt's number minus one, plus its component's own restarts since."""
    RESTARTS = "Restarts"
    """How often this copy was restarted alone, over all attempts (row J23)."""
    WORKLOAD_UID = "WorkloadUid"
    """The workload's uid."""
    NAME = "Name"
    """Its object's name."""
    NAMESPACED_NAME = "NamespacedName"
    """`<namespace>_<object name>`."""
    PRIORITY = "Priority"
    """The value of its pods' PriorityClass; the label is left out where that cannot be read (row J21)."""


class CopyLabel(Model):
    """The value of one label and annotation, computed for each copy."""

    word: CopyWord
    """Which word of the copy's name."""
    offset: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """Added to the index."""

    @model_validator(mode="after")
    def _offset_of_an_index(self) -> Self:
        if self.offset and self.word is not CopyWord.INDEX:
            raise ValueError(f"offset: {self.offset} is given to the word {self.word}: only Index has an offset")
        return self


def check_copies(
    template: Mapping[str, Any], copies: int | None, labels: Mapping[str, CopyLabel], selectors: Mapping[str, CopyLabel]
) -> None:
    """Check a component's copies, their labels, and the nodes that they select.

    Raises:
        ValueError: naming the field and what is expected.
    """
    if copies is None:
        if selectors:
            raise ValueError("copySelectors: expected only beside copies: a single object has its own nodeSelector")
        if labels:
            raise ValueError("copyLabels: expected only beside copies: a single object bears its template's own labels")
        return
    metadata: Mapping[str, Any] = template["metadata"]
    name = metadata.get("name")
    if not name:
        raise ValueError(
            f"template.metadata.generateName: {metadata['generateName']!r}: copies are named by their index: "
            "expected metadata.name instead"
        )
    longest = names.copy_name(str(name), max(copies - 1, 0))
    is_job = (template["apiVersion"], template["kind"]) == ("batch/v1", "Job")
    most = _JOB_NAME_MAXIMUM if is_job else _NAME_MAXIMUM
    if len(longest) > most:
        raise ValueError(
            f"template.metadata.name: the copy {longest!r} has {len(longest)} characters: expected at most {most}"
        )
    for key, label in labels.items():
        try:
            check_label(key, "")
        except ValueError as error:
            raise ValueError(f"copyLabels: {error}") from None
        if key.partition("/")[0] == names.GROUP:
            raise ValueError(f"copyLabels: label key {key!r}: labels of {names.GROUP} are Holdfast's own")
        if label.word is CopyWord.NAME and not LABEL_NAME.match(longest):
            raise ValueError(
                f"copyLabels[{key}]: the copy's name {longest!r} is no label's value: expected at most 63 characters "
                "of [-A-Za-z0-9_.]"
            )
