"""ConfigMaps among the components that pods read, by volume or environment. A change of one affects its readers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

from holdfast.formats.pods import PathProblem, pod_template
from holdfast.formats.text import Json, inside
from holdfast.model import Component

_CONFIG_MAP = ("v1", "ConfigMap")


def with_config(components: Sequence[Component]) -> tuple[Component, ...]:
    """Return the components, each with the names of the ConfigMaps among them that its pods read (row S8)."""
    maps: dict[str, str] = {}
    for component in components:
        template = component.template
        name = template["metadata"].get("name")
        if (template["apiVersion"], template["kind"]) == _CONFIG_MAP and name and not component.pod_sets:
            maps[str(name)] = component.name
    if not maps:
        return tuple(components)
    return tuple(_reading(component, maps) for component in components)


def _reading(component: Component, maps: dict[str, str]) -> Component:
    read = {name for pod_set in component.pod_sets for name in _config_maps(component.template, pod_set.path)}
    config = tuple(maps[name] for name in sorted(read) if name in maps)
    return component.model_copy(update={"config": config}) if config else component


def _config_maps(template: Json, path: str) -> Iterator[str]:
    try:
        spec: Any = pod_template(template, path)["spec"]
    except PathProblem:
        return
    for volume in _list(spec, "volumes"):
        yield from _names(volume, "configMap", "name")
        for source in _list(inside(volume, "projected"), "sources"):
            yield from _names(source, "configMap", "name")
    for field in ("initContainers", "containers"):
        for container in _list(spec, field):
            for source in _list(container, "envFrom"):
                yield from _names(source, "configMapRef", "name")
            for variable in _list(container, "env"):
                yield from _names(variable, "valueFrom", "configMapKeyRef", "name")


def _list(parent: Any, field: str) -> list[Any]:
    found = inside(parent, field)
    return cast("list[Any]", found) if isinstance(found, list) else []


def _names(parent: Any, *path: str) -> Iterator[str]:
    found = inside(parent, *path)
    if isinstance(found, str):
        yield found
