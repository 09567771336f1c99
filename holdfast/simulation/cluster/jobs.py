"""Simulates the Job controller, in the order of `syncJob` of Kubernetes 1.35.

First it counts the pods that have ended. Then it checks the pod failure policy, the back-off limit (counted by pods, or
with OnFailure by restarts in place), the deadline, the failed indexes and completion. The first that applies ends the
Job. If none applies, it creates the missing pods after its back-off.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any

from holdfast.activities.facts.objects import TrueCondition
from holdfast.activities.facts.pods import PodState
from holdfast.activities.kube.raw import mapping, mappings, sequence
from holdfast.model.base import DURATION_MAXIMUM
from holdfast.policy.failures.back_off import JOB_FIRST, JOB_MAXIMUM, pause_after
from holdfast.simulation.cluster.objects import JOB_BACKOFF_LIMIT, IndexFailures, Pod, Thing
from holdfast.simulation.script.events import Fail

if TYPE_CHECKING:
    from holdfast.simulation.cluster.world import World

TERMINATED = 143
"""The exit code of a container that ends because its pod is deleted."""


def is_job(thing: Thing) -> bool:
    """Whether a component's object is a Job."""
    return (thing.plan.api_version, thing.plan.kind) == ("batch/v1", "Job")


def sync(world: World, thing: Thing) -> None:
    """Run one sync of the controller."""
    pods = world.pods_of(thing)
    active = [pod for pod in pods if pod.active]
    ending = [pod for pod in pods if not pod.finished and pod.deleting is not None]
    if thing.suspended:
        for pod in active:
            thing.counted.add(pod.name)  # A pod that ends by the Job's suspension has not failed.
            world.delete_pod(pod)
        return
    if thing.giving_up is None:
        count(world, thing, pods)
        thing.giving_up = _verdict(world, thing, pods)
    if thing.giving_up is not None:
        for pod in active:
            world.delete_pod(pod)
        if not active and not ending:
            thing.say(thing.giving_up)
            world.changed = True
            if thing.giving_up.type in thing.component.status.failed:
                world.say(f"{thing.plan.kind} {thing.name} says it has failed: {thing.giving_up.reason}")
        return
    _fill(world, thing, active, ending)


# --- counting


def count(world: World, thing: Thing, pods: list[Pod]) -> None:
    """Count each pod that has ended, once."""
    for pod in [one for one in pods if one.name not in thing.counted]:
        if pod.state is PodState.SUCCEEDED:
            thing.counted.add(pod.name)
            thing.failed.clear()
            thing.job.done.add(pod.index if pod.index is not None else -len(thing.counted))
        elif _has_failed(thing, pod):
            thing.counted.add(pod.name)
            _count_failure(world, thing, pod)


def _count_failure(world: World, thing: Thing, pod: Pod) -> None:
    at, memory = pod.ended or pod.deleting or world.clock.now, thing.job
    thing.failed.append(at)
    action, message = _ruled(thing, pod)
    counts = action != "Ignore"
    thing.failures += counts
    if action == "FailJob" and not memory.fails_job:
        memory.fails_job = message
    limit = thing.spec.get("backoffLimitPerIndex")
    if limit is None or pod.index is None:
        return
    index = memory.indexes.setdefault(pod.index, IndexFailures(at))
    if action == "FailIndex" or (counts and index.counted >= int(limit)):
        memory.failed_indexes.add(pod.index)
    index.counted += counts
    index.total += 1
    index.last = at


def gone(world: World, pod: Pod) -> None:
    """Count a pod that was deleted before it ended: its kubelet reports it as failed before it disappears."""
    thing = pod.thing
    if not is_job(thing) or pod.finished or not _only_replaces_failed(thing):
        return
    if thing.suspended or thing.giving_up is not None or pod.name in thing.counted:
        return
    if pod.state is PodState.RUNNING:
        pod.fail = Fail(exit_code=TERMINATED)
    pod.state, pod.ended = PodState.FAILED, world.clock.now
    count(world, thing, [pod])


def _has_failed(thing: Thing, pod: Pod) -> bool:
    """Whether a pod counts as failed; a terminating pod does, unless the Job replaces failed pods only."""
    if pod.state is PodState.FAILED:
        return True
    return not _only_replaces_failed(thing) and pod.deleting is not None and pod.state is not PodState.SUCCEEDED


def _only_replaces_failed(thing: Thing) -> bool:
    spec = thing.spec
    return spec.get("podReplacementPolicy") == "Failed" or spec.get("podFailurePolicy") is not None


# --- the pod failure policy


def _ruled(thing: Thing, pod: Pod) -> tuple[str, str]:
    """Return the action of the first rule that matches a failed pod, and the message of a Job that it fails."""
    status = pod.status()
    for number, rule in enumerate(mappings(mapping(thing.spec.get("podFailurePolicy")).get("rules"))):
        codes, name = mapping(rule.get("onExitCodes")), f"pod {pod.name}"
        if codes:
            ended = _matching_container(thing, status, codes)
            if ended is not None:
                said = f"Container {ended[0]} for {name} failed with exit code {ended[1]}"
                return str(rule.get("action")), f"{said} matching {rule.get('action')} rule at index {number}"
            continue
        matching = _matching_condition(status, rule)
        if matching:
            said = f"{name[0].upper()}{name[1:]} has condition {matching}"
            return str(rule.get("action")), f"{said} matching {rule.get('action')} rule at index {number}"
    return "Count", ""


def _matching_container(thing: Thing, status: Mapping[str, Any], codes: Mapping[str, Any]) -> tuple[str, int] | None:
    """Return the name and exit code of the first failed container that matches a rule, init containers last."""
    wanted, values = codes.get("containerName"), sequence(codes.get("values"))
    for field, own in (("containerStatuses", "containers"), ("initContainerStatuses", "initContainers")):
        template = mappings(mapping(thing.pod_spec).get(own))
        for at, one in enumerate(mappings(status.get(field))):
            code = mapping(mapping(one.get("state")).get("terminated")).get("exitCode")
            name = str(template[at].get("name")) if at < len(template) else str(one.get("name", ""))
            if not code or (wanted is not None and wanted != name):
                continue
            if (code in values) == (codes.get("operator") == "In"):
                return name, int(code)
    return None


def _matching_condition(status: Mapping[str, Any], rule: Mapping[str, Any]) -> str:
    for wanted in mappings(rule.get("onPodConditions")):
        for there in mappings(status.get("conditions")):
            if (there.get("type"), there.get("status")) == (wanted.get("type"), wanted.get("status", "True")):
                return str(wanted.get("type"))
    return ""


# --- the verdict


def _verdict(world: World, thing: Thing, pods: list[Pod]) -> TrueCondition | None:
    """Return the condition that ends a Job, None while it goes on."""
    now, memory, spec = world.clock.now, thing.job, thing.spec
    if memory.fails_job:
        return TrueCondition("Failed", "PodFailurePolicy", memory.fails_job, now)
    if thing.failures > _backoff_limit(thing) or _restarted_too_often(thing, pods):
        return TrueCondition("Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit", now)
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None:
        # A later one is never reached, and may leave the calendar.
        span = timedelta(seconds=min(int(deadline), DURATION_MAXIMUM.total_seconds()))
        due = (thing.job.started or thing.created) + span
        if due <= now:
            return TrueCondition("Failed", "DeadlineExceeded", "Job was active longer than specified deadline", now)
        if memory.deadline != due:
            memory.deadline = due
            world.clock.at(due, world.sync)
    completions = spec.get("completions")
    if completions is not None and spec.get("backoffLimitPerIndex") is not None:
        most, failed = spec.get("maxFailedIndexes"), len(memory.failed_indexes)
        if most is not None and failed > int(most):
            message = "Job has exceeded the specified maximal number of failed indexes"
            return TrueCondition("Failed", "MaxFailedIndexesExceeded", message, now)
        if failed and failed + len(memory.done) >= int(completions):
            return TrueCondition("Failed", "FailedIndexes", "Job has failed indexes", now)
    if any(pod.active for pod in pods):
        return None
    if len(memory.done) >= int(completions) if completions is not None else memory.done:
        return TrueCondition("Complete", "CompletionsReached", "", now)
    return None


def _backoff_limit(thing: Thing) -> int:
    limit = thing.spec.get("backoffLimit")
    if limit is not None:
        return int(limit)
    return JOB_BACKOFF_LIMIT if thing.spec.get("backoffLimitPerIndex") is None else 2**31 - 1


def _restarted_too_often(thing: Thing, pods: list[Pod]) -> bool:
    """Whether containers restarted in place as often as a Job's back-off limit allows."""
    if thing.restart_policy != "OnFailure":
        return False
    there = {PodState.PENDING, PodState.RUNNING}
    restarts, limit = sum(pod.restarts for pod in pods if pod.state in there), _backoff_limit(thing)
    return restarts >= limit if limit else restarts > 0


# --- creating pods


def _fill(world: World, thing: Thing, active: list[Pod], ending: list[Pod]) -> None:
    """Create the missing pods, once the back-off is over and pod creation is not refused."""
    spec, memory = thing.spec, thing.job
    completions = spec.get("completions")
    wanted = _parallelism(thing)
    if completions is not None:
        wanted = min(wanted, int(completions) - len(memory.done))
    elif memory.done:
        wanted = 0
    waits = ending if _only_replaces_failed(thing) else []
    lacking = wanted - len(active) - len(waits)
    if lacking <= 0:
        return
    per_index = spec.get("backoffLimitPerIndex") is not None
    if thing.failed and not per_index and not _is_over(world, _again(thing.failed[-1], len(thing.failed))):
        return
    indexes: list[int | None] = [None] * lacking
    if spec.get("completionMode") == "Indexed":
        taken = {pod.index for pod in (*active, *waits)} | memory.done | memory.failed_indexes
        pending = [*islice((index for index in range(int(completions or 0)) if index not in taken), lacking)]
        # An index in its back-off still counts among the `lacking` indexes.
        indexes = [one for one in pending if not per_index or _is_over(world, _index_again(thing, one))]
    if not indexes:
        return
    trouble = world.trouble(world.pods_refused, thing.component.name)
    if trouble is not None:
        world.clock.at(trouble.until, world.sync)
        return
    for index in indexes:
        world.make_pod(thing, f"{thing.name}-{thing.made}", index)


def _is_over(world: World, again: datetime) -> bool:
    """Whether a back-off is over; if not, schedule a sync for its end."""
    if again <= world.clock.now:
        return True
    world.clock.at(again, world.sync)
    return False


def _index_again(thing: Thing, index: int) -> datetime:
    known = thing.job.indexes.get(index)
    return _again(known.last, known.total) if known is not None else thing.created


def _again(last: datetime, failures: int) -> datetime:
    """Return when pods are created again: ten seconds after the first failure in a row, doubled by each further one."""
    return last + pause_after(failures, JOB_FIRST, JOB_MAXIMUM)


def _parallelism(thing: Thing) -> int:
    given = thing.spec.get("parallelism")
    return int(given) if given is not None else 1
