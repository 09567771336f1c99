"""The AppWrapper document's own shape, as strict as the API server about fields and types."""

from __future__ import annotations

from typing import Any, Final

from holdfast.formats.published import MetadataPart, Part

API_VERSION: Final = "workload.codeflare.dev/v1beta2"
KIND: Final = "AppWrapper"
GROUP_KIND: Final = ("workload.codeflare.dev", KIND)
LABEL: Final = "workload.codeflare.dev/appwrapper"
"""Label on every component and pod; its value is the AppWrapper's name."""


class PodSetPart(Part):
    """Path of a pod template, and its number of pods."""

    path: str
    replicas: int | None = None
    annotations: dict[str, str] | None = None


class PodSetInfoPart(Part):
    """What Kueue adds to a pod set on admission."""

    annotations: dict[str, str] | None = None
    labels: dict[str, str] | None = None
    nodeSelector: dict[str, str] | None = None
    tolerations: list[dict[str, Any]] | None = None
    schedulingGates: list[dict[str, Any]] | None = None


class ComponentPart(Part):
    """One Kubernetes object, with its pod sets."""

    template: dict[str, Any]
    podSets: list[PodSetPart] | None = None
    podSetInfos: list[PodSetInfoPart] | None = None
    annotations: dict[str, str] | None = None


class SpecPart(Part):
    """The spec of an AppWrapper."""

    components: list[ComponentPart]
    suspend: bool | None = None
    managedBy: str | None = None


class AppWrapper(Part):
    """The whole document; its status is not read."""

    apiVersion: str
    kind: str
    metadata: MetadataPart
    spec: SpecPart
    status: Any = None
