"""The output of `holdfast sweep`, as pure functions from values to text and to the JSON document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from holdfast.cli.common import screen
from holdfast.cli.common.progress import text
from holdfast.model.words import counted
from holdfast.worker.cleanup.sweep import Left, Verdict
from holdfast.worker.cleanup.sweep_delete import Outcome, Result
from holdfast.worker.cleanup.sweep_lookup import Item, Survey


@dataclass(frozen=True, slots=True)
class Scene:
    """Identifies the installation whose leftovers are swept, and the Temporal that was asked about them."""

    cluster: str
    cluster_uid: str
    installation: str
    address: str
    namespace: str

    @property
    def temporal(self) -> str:
        """Temporal's address and namespace, for people."""
        return f"{self.address}, namespace {self.namespace}"


def table(scene: Scene, survey: Survey, *, hint: bool = True) -> str:
    """Describe what was found; workloads that are simply alive are only counted.

    Args:
        scene: the cluster and the Temporal.
        survey: what was found.
        hint: whether to say how to remove what is unknown.
    """
    rows = [
        (one.left.namespace, one.left.name, one.left.sentence(), one.judgement.verdict.value, one.judgement.why)
        for one in survey.items
        if one.judgement.verdict is not Verdict.ALIVE
    ]
    heads = ("NAMESPACE", "WORKLOAD", "IN THE CLUSTER", "VERDICT", "WHY")
    lines = [screen.table(heads, rows) if rows else "nothing was left behind"]
    lost = count(survey, Verdict.UNKNOWN)
    if lost and hint:
        lines.append(
            f"Unknown to Temporal at {scene.temporal}: {counted(lost, 'workload')}. If that is where "
            f"{'it' if lost == 1 else 'they'} ran, `holdfast sweep --unknown` removes {'it' if lost == 1 else 'them'}."
        )
    found = survey.found
    lines.append(
        f"Not touched on cluster {scene.cluster}: {counted(count(survey, Verdict.ALIVE), 'workload')} alive, "
        f"{found.settled} settled, and {counted(found.foreign, 'object')} not of installation {scene.installation}."
    )
    return "\n".join(lines)


def question(scene: Scene, survey: Survey) -> str:
    """List what will be deleted if the person agrees."""
    lines = [f"Unknown to Temporal at {scene.temporal}, and to be deleted with all their pods:"]
    lines += [
        f"  {name(one.left)}: {_what(one)} (uid {one.left.workload_uid})"
        for one in survey.items
        if one.judgement.verdict is Verdict.UNKNOWN
    ]
    return "\n".join(lines)


def line(outcome: Outcome) -> str:
    """Describe in one line the result for one workload's leftovers."""
    left = outcome.item.left
    match outcome.result:
        case Result.REMOVED:
            return f"{name(left)}: removed ({_what(outcome.item)})"
        case Result.CHANGED:
            return f"{name(left)}: let be: {outcome.why}"
        case Result.LEFT if outcome.why:
            return f"{name(left)}: NOT removed: {outcome.why}"
        case Result.LEFT:
            more = outcome.left_total - len(outcome.left)
            rest = f"; and {more} more" if more > 0 else ""
            return f"{name(left)}: NOT removed, still there when time was up: {'; '.join(outcome.left)}{rest}"


def going(chosen: Sequence[Item], outcomes: Sequence[Outcome], waited: timedelta) -> str:
    """Return how far the sweep has come: `2 of 5 done, 41s: waiting until research/train is gone`; empty at its end."""
    finished = {one.item for one in outcomes}
    left = next((one for one in chosen if one not in finished), None)
    return text(name(left.left), "cancel", "", waited, len(finished), len(chosen)) if left is not None else ""


def document(
    scene: Scene, survey: Survey, chosen: Sequence[Item], outcomes: Sequence[Outcome], *, dry_run: bool
) -> dict[str, Any]:
    """Return what was found and done, as JSON; workloads that are simply alive are only counted."""
    results = {outcome.item: outcome for outcome in outcomes}
    return {
        "cluster": scene.cluster,
        "clusterUid": scene.cluster_uid,
        "installation": scene.installation,
        "temporal": {"address": scene.address, "namespace": scene.namespace},
        "dryRun": dry_run,
        "workloads": [
            _entry(one, results.get(one), "unfinished" if one in chosen else "untouched")
            for one in survey.items
            if one.judgement.verdict is not Verdict.ALIVE
        ],
        "alive": count(survey, Verdict.ALIVE),
        "settled": survey.found.settled,
        "foreign": survey.found.foreign,
    }


def count(survey: Survey, verdict: Verdict) -> int:
    """Return how many workloads have a verdict."""
    return sum(one.judgement.verdict is verdict for one in survey.items)


def name(left: Left) -> str:
    """Name a workload: `research/train`."""
    return f"{left.namespace}/{left.name}"


def _entry(item: Item, outcome: Outcome | None, otherwise: str) -> dict[str, Any]:
    left, judgement = item.left, item.judgement
    return {
        "namespace": left.namespace,
        "name": left.name,
        "uid": left.workload_uid,
        "workflowId": left.workflow_id,
        "anchor": left.anchor,
        "attempts": [one.number for one in left.attempts],
        "verdict": judgement.verdict.value,
        "why": judgement.why,
        "remove": [one.name for one in judgement.doomed],
        "result": outcome.result.value if outcome else otherwise,
        "detail": outcome.why if outcome else "",
        "left": list(outcome.left) if outcome else [],
        "leftTotal": outcome.left_total if outcome else 0,
    }


def _what(item: Item) -> str:
    """Describe the objects of a workload to remove: `anchor, attempts 1 and 2`."""
    going = item.judgement
    return replace(item.left, anchor=item.left.anchor and going.releases, attempts=going.doomed).sentence()
