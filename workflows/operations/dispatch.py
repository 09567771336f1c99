"""How an operation becomes an activity call: its name, queue, input, timeouts. No decisions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RetryPolicy

with workflow.unsafe.imports_passed_through():
    from holdfast import names
    from holdfast.model import (
        Component,
        InterruptedCreate,
        Operation,
        OperationKind,
        Phase,
        Probe,
        Progress,
        Reason,
        RefusedCreate,
        Report,
        State,
        Workload,
    )
    from holdfast.model.calls.barrier import BarrierInput
    from holdfast.model.calls.cluster import (
        AnchorInput,
        AnchorKind,
        CheckpointInput,
        ClaimLeft,
        ClearInput,
        CopyLaunch,
        CreateInput,
        DataVolume,
        GangPods,
        ObserveInput,
        ParkInput,
        PodBounds,
        PrepareInput,
        Probed,
        ProbeInput,
        RemoveInput,
        ReplaceInput,
        ReportInput,
        ResetInput,
        Target,
        UnparkInput,
        planned,
    )
    from holdfast.model.calls.operations import OPERATIONS, PRIORITY_USUAL
    from holdfast.model.calls.progress import Followed, FollowInput
    from holdfast.model.calls.stage import StageInput
    from holdfast.model.spec.mount import readers
    from holdfast.policy.attempt.barrier import absent as absent_at_barrier
    from holdfast.policy.attempt.barrier import grace_left as barrier_grace_left
    from holdfast.policy.attempt.checkpoint import checkpoint_request
    from holdfast.policy.attempt.copies import told_restarts
    from holdfast.policy.attempt.evidence import evidence_of, stacks_of
    from holdfast.policy.attempt.health import copy_grace_left, grace_left, timings
    from holdfast.policy.attempt.order import awaited
    from holdfast.policy.failures.avoided_nodes import leaves_marked
    from holdfast.policy.failures.selection import selection_of
    from holdfast.policy.loop.operations import patience, patience_left
    from holdfast.policy.loop.promise import memory_of
    from holdfast.policy.loop.results import awaits_acceptance, made_nothing
    from holdfast.policy.sides.progress import is_stalled
    from holdfast.policy.status.report import shows_copies
    from holdfast.policy.values.edit import edit
    from holdfast.policy.verdicts.fate import matters
    from holdfast.policy.verdicts.walltime import USUAL_GRACE, backstop

HEARTBEAT = timedelta(seconds=8)
"""Short, so that a killed worker's operation moves to another worker within ten seconds."""
PROBE_HEARTBEAT_MOST = timedelta(minutes=1)

RETRY = RetryPolicy(
    initial_interval=timedelta(milliseconds=200),
    backoff_coefficient=2.0,
    maximum_interval=timedelta(seconds=5),
    non_retryable_error_types=[
        names.ERROR_REFUSED,
        names.ERROR_CONFLICT,
        names.ERROR_FOREIGN_ATTEMPT,
        names.ERROR_SUBMISSION_TIMEOUT,
    ],
)
ENDLESS = timedelta(days=3650)


@dataclass(frozen=True, slots=True)
class Call:
    """An activity call, ready to be made."""

    activity: str
    queue: str
    argument: Any
    result_type: Any
    start_to_close: timedelta
    priority: int = PRIORITY_USUAL
    heartbeat: timedelta = HEARTBEAT


def target_of(spec: Workload, state: State, uid: str) -> Target:
    """Return the workload whose objects the activities may touch."""
    return Target(
        cluster=spec.cluster,
        cluster_uid=state.cluster_uid,
        namespace=spec.namespace,
        name=spec.name,
        workload_uid=uid,
        workflow_id=spec.workflow_id,
        shard=names.shard_of(uid),
        run_as=spec.run_as,
        source_kind=spec.source.kind,
        anchor=(
            AnchorKind(api_version=spec.source.api_version, kind=spec.source.kind)
            if spec.source.generation is not None
            else None
        ),
    )


def made_of(spec: Workload, state: State) -> tuple[Component, ...]:
    """Return the components of the attempt, with the pod placement that came with its admission (F4)."""
    given = state.attempt.pod_sets if state.attempt is not None else {}
    return tuple(edit(one, pod_sets=given[one.name]) if one.name in given else one for one in spec.components)


def _asleep(component: Component) -> Component:
    """Return a component of Jobs with its Jobs suspended."""
    template = component.template
    return edit(component, template={**template, "spec": {**template["spec"], "suspend": True}})


def _patience(spec: Workload, state: State, kind: OperationKind) -> float | None:
    """Return for how many seconds to tolerate a refusal that may pass; None: for ever."""
    whole = timings(state).admission_grace_period.total_seconds()
    if state.policy.refused_create is RefusedCreate.WAIT:
        if kind is OperationKind.CREATE:
            return patience_left(state)
        if (timeout := patience(state)) is None:
            return None
        whole = timeout
    borne, attempt = 0.0, state.attempt
    if attempt is not None and kind is OperationKind.REPLACE:
        borne = attempt.borne_again
    elif attempt is not None and not spec.allow_missing_kinds:  # What waited for a kind has not waited for creation.
        borne = attempt.borne
    return max(0.0, whole - borne)


def probe_of(spec: Workload, state: State, uid: str) -> Call:
    """Return the activity call that asks the living attempt's pods whether they still serve (row L28)."""
    if spec.probe is None or state.attempt is None:
        raise ValueError("there is nothing to ask")
    attempt = state.attempt
    given = ProbeInput(
        target=target_of(spec, state, uid), attempt=attempt.number, probe=spec.probe, failing=attempt.probe_failing
    )
    queue = names.queue_probe(spec.cluster)
    return Call(names.ACTIVITY_PROBE, queue, given, Probed, ENDLESS, heartbeat=probe_heartbeat(spec.probe))


def follow_of(spec: Workload, state: State, uid: str) -> Call:
    """Return the activity call that follows the steps of the living attempt (row P1)."""
    if spec.progress is None or state.attempt is None:
        raise ValueError("there is nothing to follow")
    given = FollowInput(
        target=target_of(spec, state, uid),
        attempt=state.attempt.number,
        progress=spec.progress,
        known=state.steps,
        stalled=is_stalled(state),
    )
    heartbeat = probe_heartbeat(spec.progress)
    return Call(names.ACTIVITY_FOLLOW, names.queue_probe(spec.cluster), given, Followed, ENDLESS, heartbeat=heartbeat)


def probe_heartbeat(rules: Probe | Progress) -> timedelta:
    """Return the heartbeat timeout of what asks pods: two periods, so that each round need send one heartbeat only.

    After this time another worker takes over from one that died.
    """
    return min(max(HEARTBEAT, 2 * rules.period), PROBE_HEARTBEAT_MOST)


def bounds_of(spec: Workload) -> PodBounds:
    """Return the limits that nodes enforce on its pods; constant for its whole life, as objects sent must be."""
    deadline, grace = backstop(spec), spec.policy.deletion.termination_grace
    return PodBounds(
        active_deadline=math.ceil(deadline.total_seconds()) if deadline is not None else None,
        termination_grace=int(grace.total_seconds()) if grace is not None else None,
    )


def gang_of(spec: Workload, state: State) -> GangPods | None:
    """Return how this attempt makes the pods of the gang; None without a gang."""
    if spec.gang is None or spec.members is None:
        return None
    meeting = state.attempt.meeting if state.attempt is not None else None
    gang = meeting.gang if meeting is not None else spec.gang
    return GangPods(component=spec.members.name, pods=gang.pods)


def data_of(spec: Workload, state: State) -> tuple[DataVolume, ...]:
    """Return the data sets that its pods read, in the versions fixed for its whole life (row L14)."""
    digests = {one.mount: one.digest for one in state.staging.sets} if state.staging is not None else {}
    return tuple(
        DataVolume(
            volume=mount.volume,
            digest=digests[mount.name],
            path=mount.path,
            components=readers(mount, spec.components),
            source=mount.source,
        )
        for mount in spec.mounts
        if mount.name in digests
    )


def copy_launches(state: State) -> dict[str, dict[int, CopyLaunch]]:
    """Return which launch each copy has that was restarted alone (row J23)."""
    number = state.attempt.number if state.attempt is not None else 0
    return {
        name: {index: CopyLaunch(launch=one.launches_in(number), restarts=one.restarts) for index, one in known.items()}
        for name, known in state.copy_restarts.items()
    }


def _is_again(operation: Operation, name: str) -> bool:
    """Whether a replacement makes a component again, and not for the first time."""
    return bool(operation.launches.get(name)) or name in operation.copies


def asking(spec: Workload, state: State, target: Target) -> CheckpointInput | None:
    """Return the checkpoint request for the pods of the attempt; None where there is none."""
    request, operation = checkpoint_request(state), state.operation
    if request is None or spec.checkpoint is None or operation is None or operation.until is None:
        return None
    until = operation.until
    if request.conflict is not None:
        until = request.conflict.time + (state.policy.deletion.termination_grace or USUAL_GRACE)
    return CheckpointInput(
        target=target,
        attempt=request.attempt,
        checkpoint=spec.checkpoint,
        components=spec.savers,
        number=request.number,
        sent=request.sent if state.shows_waits else 0,  # An earlier release, which may take over, sends `number`.
        reason=request.reason.value,
        running=request.running,
        finished=request.finished,
        members=request.members,
        until=until,
        report=operation.report,
    )


_BY_ITSELF = {Phase.SUCCEEDED, Phase.FAILED}
"""The outcomes that nobody has asked for."""


def deletes_anchor(spec: Workload, state: State) -> bool:
    """Whether the anchor is deleted with the last objects; a custom resource also after its TTL (A13).

    A JobSet's TTL is for its failure too: until then what has ended stays (row F16).
    """
    ended = _BY_ITSELF if shows_copies(spec) else {Phase.SUCCEEDED}
    expired = spec.source.generation is not None and state.outcome in ended
    return expired or state.outcome is Phase.CANCELLED or state.intent.cancel


def call_of(spec: Workload, state: State, uid: str, now: datetime) -> Call:
    """Return the activity call for the operation that the state has just begun."""
    operation, attempt = state.operation, state.attempt
    if operation is None:
        raise ValueError("no operation is under way")
    number = attempt.number if attempt is not None else 0
    owner = attempt.owner_uid if attempt is not None else ""
    target = target_of(spec, state, uid)
    waiting = attempt.waiting if attempt is not None else ()
    news = awaited(spec, state)
    plan = tuple(planned(component, uid, number, awaited=component.name in news) for component in spec.components)
    avoided = attempt.avoided if attempt is not None else ()
    excluded = tuple(sorted(node.name for node in avoided if node.required))
    disliked = tuple(sorted(node.name for node in avoided if not node.required))
    resume_from = attempt.resume_from if attempt is not None and spec.checkpoint is not None else None
    kills = attempt is not None and attempt.kills
    asleep = attempt.parked if attempt is not None and attempt.suspended else ()
    data, gate = data_of(spec, state), attempt.barrier if attempt is not None else None
    in_place = gate.attempt if gate is not None else None
    strict = awaits_acceptance(state, number)
    waits, bounds, gang = state.policy.refused_create is RefusedCreate.WAIT, bounds_of(spec), gang_of(spec, state)
    # Only the heartbeat timeout limits an operation that may wait for ever.
    short_time, make_time = (ENDLESS, ENDLESS) if waits else (timedelta(minutes=2), timedelta(hours=1))
    row = OPERATIONS[operation.kind]

    def called(argument: Any, start_to_close: timedelta) -> Call:
        return Call(operation.kind.value, row.queue(spec.cluster), argument, row.result, start_to_close, row.priority)

    def creation(components: tuple[Component, ...], report: Report) -> CreateInput:
        return CreateInput(
            target=target,
            attempt=number,
            owner_uid=owner,
            components=tuple(_asleep(one) if one.name in asleep else one for one in components),
            config_hashes=spec.config_hashes,
            copy_launches=copy_launches(state),
            restarts=told_restarts(spec, attempt),
            claims=spec.volume_claims,
            labels=spec.labels,
            resume_from=resume_from,
            in_place=in_place,
            bounds=bounds,
            gang=gang,
            data=data,
            nodes_excluded=excluded,
            nodes_disliked=disliked,
            nodes_unmarked=leaves_marked(state.policy),
            waits=waits,
            patience=_patience(spec, state, OperationKind.CREATE),
            strict=strict,
            hands_over=True,
            made=attempt.objects if attempt is not None else (),
            replaces_interrupted=state.policy.interrupted_create is InterruptedCreate.REPLACE,
            report=report,
            report_submitted=operation.report_done or operation.report,
        )

    first = tuple(one for one in made_of(spec, state) if one.name not in waiting)
    match operation.kind:
        case OperationKind.PREPARE:
            create = None
            if operation.creates:
                there = strict and not waiting  # Then the preparation has them already.
                create = creation(() if there else first, edit(operation.report, repeats=True))
            prepare = PrepareInput(
                target=target,
                attempt=number,
                plan=plan,
                spec_hash=spec.spec_hash(),
                report=operation.report,
                selection=selection_of(state.policy),
                waits=waits,
                waits_for_kinds=spec.allow_missing_kinds,
                patience=patience_left(state),
                borne=attempt.borne if attempt is not None else 0.0,
                hands_over=True,
                anchored=state.shows_waits and state.anchored and number == 1,
                barrier=gate is not None,
                # Sent once: what the API server accepted stays accepted, and the document is in the history already.
                components=spec.components if strict else (),
                config_hashes=spec.config_hashes if strict else {},
                labels=spec.labels if strict else {},
                bounds=bounds,
                gang=gang,
                data=data,
                create=create,
            )
            may_take = make_time if create is not None else short_time
            return called(prepare, ENDLESS if spec.allow_missing_kinds else may_take)
        case OperationKind.STAGE:
            sets = state.staging.sets if state.staging is not None else ()
            versions = {one.mount: one.digest for one in sets}
            stage = StageInput(target=target, mounts=spec.mounts, versions=versions, waits=waits)
            return called(stage, ENDLESS)
        case OperationKind.CREATE:
            return called(creation(first, operation.report), make_time)
        case OperationKind.REPLACE:
            again = attempt.replacing if attempt is not None else ()
            replace = ReplaceInput(
                target=target,
                attempt=number,
                owner_uid=owner,
                components=tuple(one for one in made_of(spec, state) if one.name in again),
                config_hashes={name: spec.config_hashes[name] for name in again},
                launches=operation.launches,
                copy_launches=copy_launches(state),
                restarts=told_restarts(spec, attempt),
                copies=operation.copies,
                labels=spec.labels,
                resume_from=resume_from,
                in_place=in_place,
                bounds=bounds,
                gang=gang,
                data=data,
                nodes_excluded=excluded,
                nodes_disliked=disliked,
                nodes_unmarked=leaves_marked(state.policy),
                waits=waits,
                patience=_patience(spec, state, operation.kind),
                grace=timings(state).forceful_deletion_grace_period.total_seconds(),
                graces={name: grace_left(state, name, now) for name in again if _is_again(operation, name)},
                copy_graces={
                    name: {index: copy_grace_left(state, name, index, now) for index in copies}
                    for name, copies in operation.copies.items()
                },
                parts=True,
                report=operation.report,
                report_done=operation.report_done or operation.report,
            )
            return called(replace, ENDLESS)
        case OperationKind.CHECKPOINT:
            ask = asking(spec, state, target)
            if ask is None:
                raise ValueError("no checkpoint is asked for")
            # While the cluster cannot be seen, it goes on past its deadline: only the heartbeat timeout limits it.
            return called(ask, ENDLESS)
        case OperationKind.CLEAR:
            clear = ClearInput(
                target=target,
                attempt=number,
                owner_uid=owner,
                plan=tuple(one for one in plan if one.name not in waiting),
                until=operation.until,
                grace=timings(state).forceful_deletion_grace_period.total_seconds(),
                report=operation.report,
                report_done=operation.report_done or operation.report,
                evidence_of=evidence_of(state),
                stacks=stacks_of(spec, state),
            )
            return called(clear, ENDLESS)
        case OperationKind.BARRIER:
            if gate is None:
                raise ValueError("its pods have no barrier")
            absent = absent_at_barrier(state)
            barrier = BarrierInput(
                target=target,
                attempt=number,
                owner_uid=owner,
                plan=tuple(one for one in plan if one.name not in absent),
                in_place=gate.attempt,
                grace=barrier_grace_left(state, gate, now),
                resume_from=resume_from,
                data=data,
                report=operation.report,
            )
            # While the cluster cannot be seen, it goes on past its grace: only the heartbeat timeout limits it.
            return called(barrier, ENDLESS)
        case OperationKind.PARK:
            park = ParkInput(
                target=target,
                attempt=number,
                owner_uid=owner,
                plan=tuple(one for one in plan if one.name not in waiting),
                turn=attempt.turns if attempt is not None else 0,
                grace=0.0 if kills else timings(state).forceful_deletion_grace_period.total_seconds(),
                report=operation.report,
                report_done=operation.report_done or operation.report,
            )
            return called(park, ENDLESS)
        case OperationKind.UNPARK:
            resuming = attempt.resuming if attempt is not None else ()
            unpark = UnparkInput(
                target=target,
                attempt=number,
                owner_uid=owner,
                components=tuple(one for one in made_of(spec, state) if one.name in resuming),
                config_hashes={name: attempt.config[name] for name in resuming} if attempt is not None else {},
                launches={name: attempt.launches.get(name, 0) for name in resuming} if attempt is not None else {},
                copy_launches=copy_launches(state),
                restarts=told_restarts(spec, attempt),
                labels=spec.labels,
                turn=attempt.turns if attempt is not None else 0,
                gang=gang,
                resume_from=resume_from,
                in_place=in_place,
                data=data,
                report=operation.report,
                report_done=operation.report_done or operation.report,
            )
            return called(unpark, ENDLESS)
        case OperationKind.OBSERVE:
            there = tuple(one for one in plan if one.name not in waiting)
            observe = ObserveInput(
                target=target,
                attempt=number,
                owner_uid=owner,
                plan=there,
                report=operation.report,
                leases=matters(state.policy),
                decides=operation.decides,
            )
            return called(observe, timedelta(minutes=5))
        case OperationKind.RESET:
            if operation.restart is None or operation.removal is None:
                raise ValueError("a reset needs what it promises, and the removal that it goes on to")
            looking = edit(state, operation=edit(operation, kind=OperationKind.OBSERVE))
            removing = edit(state, operation=operation.removal, reason=Reason.RESETTING)
            removal = call_of(spec, removing, uid, now)
            reset = ResetInput(
                look=call_of(spec, looking, uid, now).argument,
                removal=removal.argument,
                workload=spec,
                memory=memory_of(state),
                promise=operation.restart,
                since=operation.since,
                settles=operation.settles,
            )
            return called(reset, removal.start_to_close)
        case OperationKind.REMOVE | OperationKind.FORCE_REMOVE:
            until = operation.until or now
            forced = operation.kind is OperationKind.FORCE_REMOVE
            grace = timedelta(0) if forced else timings(state).forceful_deletion_grace_period
            remove = RemoveInput(
                target=target,
                attempt=number,
                owner_uid=owner,
                plan=() if made_nothing(state) else plan,
                objects=attempt.objects if attempt is not None else (),
                until=until,
                grace=grace.total_seconds(),
                report=operation.report,
                report_gone=operation.report_done or operation.report,
                everything=attempt is not None and attempt.everything,
                strip_finalizers=operation.strips,
                release_anchor=operation.releases,
                delete_anchor=operation.releases and deletes_anchor(spec, state),
                deletes_first=state.outcome in _BY_ITSELF and shows_copies(spec) and deletes_anchor(spec, state),
                claims=tuple(
                    ClaimLeft(name=one.name, goes=operation.releases and not one.retain, retain=one.retain)
                    for one in spec.volume_claims
                ),
                follows=None if forced else asking(spec, state, target),
                evidence_of=None if forced else evidence_of(state),
                stacks=None if forced else stacks_of(spec, state),
            )
            # It may last longer than `until`: a removal that began late still gives its pods their full grace.
            longest = max(until - now, timedelta(0)) + grace + timedelta(minutes=5)
            return called(remove, longest)
        case OperationKind.REPORT:
            anchor = AnchorInput(plan=plan, spec_hash=spec.spec_hash()) if operation.anchors else None
            report = ReportInput(target=target, report=operation.report, anchor=anchor)
            return called(report, timedelta(minutes=2))
