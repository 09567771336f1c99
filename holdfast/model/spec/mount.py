"""A data set that a workload's pods read: its source in the store, its path in the pods, its version (row L14)."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Final, cast

from pydantic import Field, field_validator

from holdfast import names
from holdfast.model.base import Model
from holdfast.model.life.data import check_digest
from holdfast.model.spec.component import Component

MOUNTS_MAXIMUM: Final = 16
NAME_MAXIMUM: Final = 40
"""Maximum length of a mount's name: with its prefix it becomes the name of a volume."""
VOLUME_PREFIX: Final = "holdfast-data-"
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_SCHEME = "s3://"


class Mount(Model):
    """One data set, mounted read-only in the containers of some components.

    It is fetched before the workload asks its queue for admission or creates any object. The workload reads one version
    for its whole life: the one that its first attempt found, or the one that `version` names.
    """

    name: str
    """The data set's name."""
    source: str
    """`s3://bucket/prefix`: all objects under that prefix, by their keys after it."""
    path: str
    """The mount path in the containers: an absolute path."""
    components: Annotated[tuple[str, ...], Field(exclude_if=lambda value: not value)] = ()
    """Components whose pods read it; empty: all components with pods."""
    version: Annotated[str, Field(exclude_if=lambda value: not value)] = ""
    """The digest that the data set must have, as `holdfast status` shows it; empty: the version found first."""

    @field_validator("name")
    @classmethod
    def _label(cls, value: str) -> str:
        if not names.DNS_LABEL.match(value) or len(value) > NAME_MAXIMUM:
            raise ValueError(f"{value!r}: expected a DNS label, at most {NAME_MAXIMUM} characters of [-a-z0-9]")
        return value

    @field_validator("source")
    @classmethod
    def _in_a_store(cls, value: str) -> str:
        return checked_source(value)

    @field_validator("path")
    @classmethod
    def _absolute(cls, value: str) -> str:
        plain = value.startswith("/") and posixpath.normpath(value) == value != "/" and not value.startswith("//")
        if not plain or ":" in value or not value.isprintable() or len(value) > 256:
            raise ValueError(f"{value!r}: expected an absolute path without . and .. such as /data/corpus")
        return value

    @field_validator("version")
    @classmethod
    def _digest(cls, value: str) -> str:
        return check_digest(value) if value else value

    @property
    def volume(self) -> str:
        """The name of its volume in pods."""
        return f"{VOLUME_PREFIX}{self.name}"


def checked_source(value: str) -> str:
    """Return a source in the form that comparisons use: `s3://bucket/prefix` without a trailing slash.

    Raises:
        ValueError: if it is not a source.
    """
    bucket, _, prefix = value.removeprefix(_SCHEME).rstrip("/").partition("/")
    parts = prefix.split("/") if prefix else []
    plain = all(part not in {"", ".", ".."} and part.isprintable() for part in parts)
    if not value.startswith(_SCHEME) or not _BUCKET.fullmatch(bucket) or not plain or len(value) > 1024:
        raise ValueError(f"{value!r}: expected s3://bucket/prefix, such as s3://datasets/corpus/v3")
    return value.rstrip("/")


def bucket_of(source: str) -> tuple[str, str]:
    """Return a source's bucket, and the prefix in it."""
    bucket, _, prefix = source.removeprefix(_SCHEME).partition("/")
    return bucket, prefix


def is_under(source: str, grant: str) -> bool:
    """Whether a source lies under a granted prefix, compared by whole path segments."""
    return source == grant or source.startswith(f"{grant}/")


def readers(mount: Mount, components: Iterable[Component]) -> tuple[str, ...]:
    """Return the components whose pods read a data set."""
    return mount.components or tuple(one.name for one in components if one.pod_sets)


def check_mounts(mounts: Sequence[Mount], components: Sequence[Component]) -> None:
    """Refuse invalid mounts: names and paths already in use, components without pods.

    Raises:
        ValueError: naming the field.
    """
    with_pods = {one.name: one for one in components if one.pod_sets}
    for index, mount in enumerate(mounts):
        if mount.name in [one.name for one in mounts[:index]]:
            raise ValueError(f"mounts[{index}].name: {mount.name!r} is used twice")
        for place, name in enumerate(mount.components):
            path = f"mounts[{index}].components[{place}]"
            if name not in with_pods:
                raise ValueError(f"{path}: {name!r}: expected a component with pods: {', '.join(with_pods) or 'none'}")
            if name in mount.components[:place]:
                raise ValueError(f"{path}: {name!r} is given twice")
        read_by = set(readers(mount, components))
        if not read_by:
            raise ValueError(f"mounts[{index}]: no component brings pods that could read it")
        for other in mounts[:index]:
            if other.path == mount.path and read_by.intersection(readers(other, components)):
                raise ValueError(f"mounts[{index}].path: {mount.path!r} is that of mount {other.name}, too")
        for at, component in enumerate(components):
            for pod_set in component.pod_sets if component.name in read_by else ():
                spec = _at({"template": component.template}, f"{pod_set.path}.spec")
                taken = taken_in(spec, mount.volume, mount.path)
                if taken:
                    raise ValueError(f"components[{at}].{pod_set.path}.spec.{taken} of mount {mount.name}")


def taken_in(spec: Mapping[str, Any], volume: str, path: str) -> str:
    """Return, in words, where a pod's own volumes conflict with a data set's volume; empty if they do not."""
    for at, one in enumerate(_entries(spec.get("volumes"))):
        if one.get("name") == volume:
            return f"volumes[{at}].name: {volume!r} is the volume"
    for field in ("initContainers", "containers", "ephemeralContainers"):
        for at, container in enumerate(_entries(spec.get(field))):
            for place, one in enumerate(_entries(container.get("volumeMounts"))):
                # Its own mount of the volume would not be read-only (row X10).
                if one.get("name") == volume:
                    return f"{field}[{at}].volumeMounts[{place}].name: {volume!r} is the volume"
                if str(one.get("mountPath", "")).rstrip("/") == path:
                    return f"{field}[{at}].volumeMounts[{place}].mountPath: {path!r} is the place"
    return ""


def _entries(given: Any) -> list[Mapping[str, Any]]:
    found = cast("list[Any]", given) if isinstance(given, list) else []
    return [cast("Mapping[str, Any]", one) for one in found if isinstance(one, dict)]


_STEP = re.compile(r"([A-Za-z0-9_-]+)|\[(\d+)\]")


def _at(document: Any, path: str) -> Mapping[str, Any]:
    for key, index in _STEP.findall(path):
        if key:
            document = cast("Mapping[str, Any]", document).get(key) if isinstance(document, dict) else None
        else:
            several = cast("list[Any]", document) if isinstance(document, list) else []
            document = several[int(index)] if int(index) < len(several) else None
    return cast("Mapping[str, Any]", document) if isinstance(document, dict) else {}
