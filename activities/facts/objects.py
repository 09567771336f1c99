"""The facts kept of an anchor, an attempt's owner or a component's object. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from sys import intern
from typing import Any, Final

from holdfast import names
from holdfast.activities.kube.raw import mapping, mappings, number_in, one_line, time_of, version_of
from holdfast.formats.pods import pods_wanted
from holdfast.model.spec.component import WORD_MAXIMUM, WORD_PATH_MAXIMUM, WORD_STEPS_MAXIMUM, word

MESSAGE_MAXIMUM = 320
"""Rules match these messages. The longest, of a Job that fails by its pod failure policy, has some 270 characters."""

WORDS_MAXIMUM: Final = 32


@dataclass(frozen=True, slots=True)
class TrueCondition:
    """A condition of an object's status that is True."""

    type: str
    reason: str
    message: str
    since: datetime | None


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What a batch/v1 Job reports about its pods."""

    wanted: int
    """Pods that should run at once: its parallelism, or its completions if they are fewer."""
    good: int
    """Pods that are ready or have succeeded."""
    active: int
    suspended: bool
    failed: int = 0
    """Pods that it has counted as failed."""
    limit: int = 0
    """How many failed pods it tolerates before it gives up: its `backoffLimit`."""
    completions: int | None = None
    """How many of its pods must succeed; None if it does not say."""


@dataclass(frozen=True, slots=True)
class ObjectFacts:
    """All that a snapshot needs of an anchor, an owner or a component: small enough to keep thousands of them."""

    uid: str
    name: str
    owner_uids: tuple[str, ...]
    deleting: bool
    created: datetime | None
    submitted: bool
    conditions: tuple[TrueCondition, ...]
    revision: int
    job: JobFacts | None = None
    """For an object with a Job's fields."""
    ended: bool = False
    """Of an attempt's owner: whether its workload has ended, so that an absent object is not missing."""
    suspended: bool = False
    """Of an attempt's owner: whether it is suspended in place, so that no absent object is missing."""
    parked: bool = False
    """Of an attempt's owner: whether it is suspended in place, and was proven to have no pods."""
    resumed: int = 0
    """Of an attempt's owner: the turn that last resumed it in place; 0 if it never was."""
    launch: int = 0
    """Of a component's object: which launch of its component it is."""
    words: tuple[tuple[str, str], ...] = ()
    """Of a component's object: the fields of its status that rules can compare, by path; at most 32 (row D15)."""
    wanted: int | None = None
    """Of a component's object: how many pods its own spec asks for; None if its kind does not say."""


def component_facts(api_version: str, kind: str) -> Callable[[Mapping[str, Any]], ObjectFacts]:
    """Return a function that reads component objects of a kind; an item of a list does not name its kind."""

    def read(raw: Mapping[str, Any]) -> ObjectFacts:
        return replace(object_facts(raw), wanted=pods_wanted(raw, api_version, kind))

    return read


def object_facts(raw: Mapping[str, Any]) -> ObjectFacts:
    """Return what a snapshot needs of an anchor, an attempt's owner or a component."""
    metadata: Mapping[str, Any] = raw["metadata"]
    status = mapping(raw.get("status"))
    turn = turn_of(raw, names.ANNOTATION_TURN)
    return ObjectFacts(
        uid=metadata.get("uid", ""),
        name=metadata.get("name", ""),
        owner_uids=tuple(str(one.get("uid", "")) for one in mappings(metadata.get("ownerReferences"))),
        deleting="deletionTimestamp" in metadata,
        created=time_of(metadata.get("creationTimestamp")),
        submitted=status.get("submitted") is True,
        conditions=_true_conditions(status.get("conditions")),
        revision=version_of(metadata),
        job=_job_facts(mapping(raw.get("spec")), status),
        ended=names.ANNOTATION_ENDED in mapping(metadata.get("annotations")),
        suspended=_is_odd(turn),
        parked=_is_odd(turn) and turn_of(raw, names.ANNOTATION_PARKED) == turn,
        resumed=turn - turn % 2,
        launch=launch_of(raw),
        words=_words(raw),
    )


def launch_of(thing: Mapping[str, Any]) -> int:
    """Return which launch of its component an object is; 0 if its label does not say."""
    try:
        return int(mapping(mapping(thing["metadata"]).get("labels")).get(names.LABEL_LAUNCH) or 0)
    except ValueError:
        return 0


def copy_of(thing: Mapping[str, Any]) -> int | None:
    """Return which copy of its component an object is of; None if its label does not say."""
    said = str(mapping(mapping(thing["metadata"]).get("labels")).get(names.LABEL_COPY) or "")
    return int(said) if said.isdecimal() else None


def turn_of(raw: Mapping[str, Any], annotation: str) -> int:
    """Return the turn number in an object's annotation: odd for a suspension in place, even for a resumption.

    It is 0 without the annotation, and if the annotation is no number.
    """
    return number_in(mapping(mapping(raw["metadata"]).get("annotations")).get(annotation)) or 0


def _is_odd(turn: int) -> bool:
    return turn % 2 == 1


def _job_facts(spec: Mapping[str, Any], status: Mapping[str, Any]) -> JobFacts | None:
    # A parallelism identifies a Job: the API server gives every Job one, and an item of a list does not name its kind.
    parallelism = spec.get("parallelism")
    if not isinstance(parallelism, int):
        return None
    completions = spec.get("completions")
    wanted = min(parallelism, completions) if isinstance(completions, int) else parallelism
    good = _count(status.get("ready")) + _count(status.get("succeeded"))
    return JobFacts(
        wanted,
        good,
        _count(status.get("active")),
        spec.get("suspend") is True,
        failed=_count(status.get("failed")),
        limit=_count(spec.get("backoffLimit")),
        completions=completions if isinstance(completions, int) else None,
    )


def _count(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _words(raw: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return the scalar fields of a component's status, those nearest to its root first.

    A pod's fields are left out: there are many pods, and their phase is read anyway.
    """
    owners = mappings(mapping(raw["metadata"]).get("ownerReferences"))
    if "containers" in mapping(raw.get("spec")) or all(one.get("kind") != names.ATTEMPT_KIND for one in owners):
        return ()
    found: list[tuple[str, str]] = []
    level = [("status", mapping(raw.get("status")))]
    for _ in range(WORD_STEPS_MAXIMUM):
        below: list[tuple[str, Mapping[str, Any]]] = []
        for path, fields in level:
            for name in sorted(fields):
                value, here = fields[name], f"{path}.{name}"
                if isinstance(value, dict):
                    below.append((here, mapping(value)))
                elif isinstance(value, str | bool | int) and len(here) <= WORD_PATH_MAXIMUM:
                    said = word(value)
                    if 0 < len(said) <= WORD_MAXIMUM:
                        found.append((intern(here), intern(said)))
        level = below
    return tuple(found[:WORDS_MAXIMUM])


def _true_conditions(conditions: Any) -> tuple[TrueCondition, ...]:
    return tuple(
        TrueCondition(
            type=str(entry.get("type", "")),
            reason=str(entry.get("reason") or ""),
            message=one_line(entry.get("message"), MESSAGE_MAXIMUM),
            since=time_of(entry.get("lastTransitionTime")),
        )
        for entry in mappings(conditions)
        if entry.get("status") == "True"
    )
