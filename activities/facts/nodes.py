"""Reads whether a node is marked as bad, and why, and which pods that affects. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from holdfast import names
from holdfast.activities.facts.node_annotations import word_on
from holdfast.activities.facts.node_taints import is_fenced, is_own_taint
from holdfast.activities.facts.pods import PodFacts, PodState
from holdfast.activities.kube.raw import mapping, mappings, one_line, time_of
from holdfast.model import Failure, FailureClass, NodeWord, Scope

DOWN: Final = "NodeDown"
"""Reason of a failure: this installation's monitor has found the node Down, for all but sensitive workloads."""
LOST: Final = "NodeStillDown"
"""The same, for all workloads."""
EVICTION: Final = "NodeMarkedForEviction"
"""Reason of a failure: the node's label says that its pods must leave it."""
OUT_OF_SERVICE: Final = "NodeTainted"
MESSAGE_MAXIMUM: Final = 200

LABELS: Final = ("autopilot.ibm.com/gpuhealth=EVICT",)
TAINTS: Final = ("node.kubernetes.io/out-of-service",)
CONDITIONS: Final = (
    "HardwareFailure",
    "CperHardwareErrorFatal",
    "ReadonlyFilesystem",
    "XfsShutdown",
    "AcceleratedHardwareReady=False",
)
"""Hardware faults: the word of row L8; memory and buses, disks and accelerators, as node-problem-detector and EKS's
monitoring agent name them.

Kernel, network and runtime problems are not among them: those may pass, and pods survive them."""


class Silence(NamedTuple):
    """The longest time that a node is silent before it is found Down; zero where no monitor finds it."""

    usual: timedelta = timedelta(seconds=100)
    sensitive: timedelta = timedelta(seconds=340)
    """For sensitive workloads."""


@dataclass(frozen=True, slots=True)
class NodeMark:
    """Why a node counts as bad, in the words of the mark."""

    reason: str
    message: str
    since: datetime | None = None
    """When it was marked, if known: a label has no time. For a silent node, when it was last heard."""
    cls: FailureClass = FailureClass.HARDWARE
    off: bool = False
    """Whether its power is proven to be off."""


@dataclass(frozen=True, slots=True)
class Marks:
    """Identifies a bad node: `key` or `key=value` of a label or taint, `type` or `type=status` of a condition."""

    labels: tuple[str, ...] = LABELS
    taints: tuple[str, ...] = TAINTS
    conditions: tuple[str, ...] = CONDITIONS
    installation: str = ""
    """The installation whose monitor of silent nodes counts; empty for none."""
    own: str = ""
    """The installation whose own taint of powered-off nodes is ignored, since its monitor reports those nodes."""

    @property
    def faults(self) -> Marks:
        """The marks of broken hardware. Labels are left out: they say that pods must leave, for any reason."""
        return Marks((), self.taints, self.conditions, own=self.installation or self.own)

    @property
    def selectable(self) -> tuple[str, ...]:
        """The marks that a node affinity can select: labels, and this installation's label for broken hardware."""
        own = (names.fault_label(self.installation),) if self.installation else ()
        return (*self.labels, *own)

    def of(self, node: Mapping[str, Any]) -> NodeMark | None:
        """Return the mark on a raw node, None for a good node."""
        return self._label(node) or self._taint(node) or self._condition(node) or self._word(node)

    def _word(self, node: Mapping[str, Any]) -> NodeMark | None:
        word, why, heard = word_on(node, self.installation)
        reason = {NodeWord.DOWN: DOWN, NodeWord.LOST: LOST}.get(word)
        if reason is None:
            return None
        off = is_fenced(node, self.installation)
        return NodeMark(reason, one_line(why, MESSAGE_MAXIMUM), heard, FailureClass.NODE_LOST, off)

    def _label(self, node: Mapping[str, Any]) -> NodeMark | None:
        labels = mapping(mapping(node.get("metadata")).get("labels"))
        for mark in self.labels:
            key, valued, value = mark.partition("=")
            if key in labels and (not valued or labels[key] == value):
                return NodeMark(EVICTION, one_line(f"label {key}={labels[key]}", MESSAGE_MAXIMUM))
        return None

    def _taint(self, node: Mapping[str, Any]) -> NodeMark | None:
        for mark in self.taints:
            key, valued, value = mark.partition("=")
            if is_own_taint(node, key, self.installation or self.own):
                continue
            for taint in mappings(mapping(node.get("spec")).get("taints")):
                there = taint.get("value") or ""
                if taint.get("key") == key and (not valued or there == value):
                    text = f"taint {key}" + (f"={there}" if there else "")
                    return NodeMark(OUT_OF_SERVICE, one_line(text, MESSAGE_MAXIMUM), time_of(taint.get("timeAdded")))
        return None

    def _condition(self, node: Mapping[str, Any]) -> NodeMark | None:
        there = mappings(mapping(node.get("status")).get("conditions"))
        for mark in self.conditions:
            kind, _, status = mark.partition("=")
            for one in there:
                if one.get("type") == kind and one.get("status") == (status or "True"):
                    words = ": ".join(str(one[key]) for key in ("reason", "message") if one.get(key))
                    since = time_of(one.get("lastTransitionTime"))
                    text = f"condition {kind}={one['status']}" + (f", {words}" if words else "")
                    return NodeMark(kind, one_line(text, MESSAGE_MAXIMUM), since)
        return None


STANDING: Final = frozenset({PodState.PENDING, PodState.RUNNING, PodState.FAILED})
"""Pods that a bad node affects: a pod that has succeeded or is being deleted has nothing to lose there."""
STRANDED: Final = STANDING | {PodState.TERMINATING}
"""Pods that a lost node affects: without a kubelet to end it, a pod that is being deleted stays."""


def on_marked(pods: Iterable[PodFacts], marks: Mapping[str, NodeMark], attempt: int, at: datetime) -> list[Failure]:
    """Return one failure for each marked node that holds any of these pods, however many it holds."""
    by_node: dict[str, list[PodFacts]] = {}
    for pod in pods:
        mark = marks.get(pod.node)
        if mark is not None and pod.state in (STRANDED if mark.cls is FailureClass.NODE_LOST else STANDING):
            by_node.setdefault(pod.node, []).append(pod)
    failures: list[Failure] = []
    for node, there in sorted(by_node.items()):
        mark, first = marks[node], min(there, key=lambda pod: pod.name)
        # A fault precedes its mark. Without a time, it dates from the first pod there, to explain what failed since.
        begun = min((pod.created for pod in there if pod.created is not None), default=None)
        failures.append(
            Failure(
                cls=mark.cls,
                scope=Scope.MEMBER,
                reason=mark.reason,
                time=mark.since or begun or at,
                component=first.component,
                subject=first.name,
                node=node,
                message=mark.message,
                attempt=attempt,
                off=mark.off,
            )
        )
    return failures
