"""What a person is told at each moment: why, now, next and what would unblock it, word for word (row U11)."""

from __future__ import annotations

import pytest

from holdfast.policy.status.explain import explain_of
from tests.policy.lives.life import Life
from tests.policy.lives.moments import MOMENTS, moment

ROW = pytest.mark.row

TOLD = {
    "preparing": """
        Resuming 1 -> None
        why creating attempt 1
        now checking rights and creating 1 component of attempt 1 (bears refusals that may pass for 1m)
    """,
    "preparing a stream": """
        Resuming 1 -> None
        why creating attempt 1
        now checking rights and making the owner of attempt 1
    """,
    "creating": """
        Resuming 1 -> None
        why creating attempt 1
        now creating 1 component of attempt 1 (bears refusals that may pass for 1m)
    """,
    "creating a stream": """
        Resuming 1 -> None
        why creating attempt 1
        now creating the 4 components of attempt 1 (never gives up)
    """,
    "creating a stream with a timeout": """
        Resuming 1 -> None
        why creating attempt 1
        now creating the 4 components of attempt 1 (gives up after 1h of refusals)
    """,
    "breaking off": """
        Resuming 1 -> None
        why creating attempt 1
        now breaking off create of attempt 1
    """,
    "no news yet": """
        Resuming 1 -> None
        why all components are created; their pods are starting
        now 0 of 2 pods running
        next +60 admission grace: no news yet of its 2 pods
        next +60 if nothing has changed by then: failure grace 1m, then reset (restart 1 of 3), then attempt 2
    """,
    "pods are not there": """
        Resuming 1 -> None
        why all components are created; their pods are starting
        now 0 of 2 pods running
        next +60 admission grace: 2 pods are not created yet
        next +60 if nothing has changed by then: failure grace 1m, then reset (restart 1 of 3), then attempt 2
    """,
    "pods are pending": """
        Resuming 1 -> None
        why all components are created; their pods are starting
        now 0 of 2 pods running
        next +300 warm-up grace: 2 pods do not run yet
        next +300 if nothing has changed by then: failure grace 1m, then reset (restart 1 of 3), then attempt 2
    """,
    "pods were not created": """
        Resuming 1 -> None
        why PodsNotAdmitted: 2 of 2 pods were not created in time (default rule)
        now 0 of 2 pods running
        next +60 failure grace: PodsNotAdmitted: 2 of 2 pods were not created in time
        next +60 if it is not healthy by then: reset (restart 1 of 3), then attempt 2
        unblock see its controllers' Events (`kubectl describe`) for a missing quota, webhook or right
    """,
    "pods did not run": """
        Resuming 1 -> None
        why PodsNotRunning: 1 of 2 pods did not run in time (default rule)
        now 1 of 2 pods running
        next +60 failure grace: PodsNotRunning: 1 of 2 pods did not run in time
        next +60 if it is not healthy by then: reset (restart 1 of 3), then attempt 2
        unblock see its pods' Events (`kubectl describe pod`) for a missing node, volume or image
    """,
    "running": """
        Running 1 -> None
        why all expected pods run
        now 2 of 2 pods run or have succeeded
    """,
    "saving": """
        Checkpointing 1 -> None
        why a checkpoint was asked for: nightly
        now checkpoint 1: 2 pods are asked to save their state
        next +600 unless all have saved by then, this checkpoint is given up; it runs on
    """,
    "its kind is not served": """
        Running 1 -> None
        why the cluster does not serve Job of batch/v1: nothing is known of Job train
        now nothing is decided by what cannot be read; 2 pods run or have succeeded
        unblock whoever operates the cluster must serve that version again (its CustomResourceDefinition); or
            `holdfast cancel default/train-llm`
    """,
    "scaled to nothing": """
        Pending 1 -> None
        why Job train is scaled to 0: no pod of the workload is to run
        now nothing of it is to run; its objects and its quota are kept
        unblock scale it up again (`kubectl scale`), or `holdfast cancel default/train-llm`
    """,
    "a pod has gone": """
        Running 1 -> None
        why InsufficientPodsReady: 1 of 2 pods do not run (default rule)
        now 1 of 2 pods running
        next +60 failure grace: InsufficientPodsReady: 1 of 2 pods do not run
        next +60 if it is not healthy by then: reset (restart 1 of 3), then attempt 2
        unblock its pods come back if their controller can make them and a node takes them
    """,
    "a pod has gone and may": """
        Running 1 -> None
        why 1 of 2 pods do not run, and no rule takes that for a failure
        now 1 of 2 pods running
    """,
    "a pod has failed": """
        Running 1 -> None
        why train-0 exited 1 on node-7 (default rule)
        now 1 of 2 pods running
        next +60 failure grace: train-0 exited 1 on node-7
        next +60 if it is not healthy by then: reset (restart 1 of 3), then attempt 2
    """,
    "a pod has failed for good": """
        Running 1 -> None
        why train-0 exited 1 on node-7 (rule mine)
        now 1 of 2 pods running
        next +60 failure grace: train-0 exited 1 on node-7
        next +60 if it is not healthy by then: the workload fails
    """,
    "a pod has failed, uncharged": """
        Running 1 -> None
        why train-0 exited 1 on node-7 (rule mine)
        now 1 of 2 pods running
        next +60 failure grace: train-0 exited 1 on node-7
        next +60 if it is not healthy by then: reset, charged to no budget, then attempt 2
    """,
    "a pod has failed, unlimited": """
        Running 1 -> None
        why train-0 exited 1 on node-7 (rule mine)
        now 1 of 2 pods running
        next +60 failure grace: train-0 exited 1 on node-7
        next +60 if it is not healthy by then: reset (spare 1), then attempt 2
    """,
    "a pod is to be made again": """
        Running 1 -> None
        why pe-1 exited 1 (rule alone)
        now 2 of 3 pods running
        next +60 failure grace: pe-1 exited 1
        next +60 if it is not healthy by then: Pod pe-1 is made again alone (restart 2 of 2)
    """,
    "a pod is to be made again, unlimited": """
        Running 1 -> None
        why pe-1 exited 1 (rule alone)
        now 2 of 3 pods running
        next +60 failure grace: pe-1 exited 1
        next +60 if it is not healthy by then: Pod pe-1 is made again alone (spare 2)
    """,
    "a pod is to be made again, uncharged": """
        Running 1 -> None
        why pe-1 exited 1 (rule alone)
        now 2 of 3 pods running
        next +60 failure grace: pe-1 exited 1
        next +60 if it is not healthy by then: Pod pe-1 is made again alone, charged to no budget
    """,
    "a pod is to be made again, member": """
        Running 1 -> None
        why pe-1 exited 1 (rule alone)
        now 2 of 3 pods running
        next +60 failure grace: pe-1 exited 1
        next +60 if it is not healthy by then: Pod pe-1 is made again alone (member 1 of 1)
    """,
    "a pod has used up its own": """
        Running 1 -> None
        why pe-1 exited 1 (rule alone)
        now 2 of 3 pods running
        next +60 failure grace: pe-1 exited 1
        next +60 if it is not healthy by then: the workload fails, since its member budget is used up (1 of 1)
    """,
    "looking": """
        Running 1 -> None
        why train-0 exited 1 on node-7 (default rule)
        now taking a live look before anything is acted on
    """,
    "making again": """
        Running 1 -> None
        why Pod pe-1 was deleted
        now making again Pod pe-1
    """,
    "resetting": """
        Resetting 1 -> 2
        why train: BackoffLimitExceeded; pod train-0 exited 1 on node-7 (rule component)
        now deleting attempt 1
        next +600 forceful deletion, unless all is gone by then
        next +600 once all is gone: retry pause 1m30s, then attempt 2
    """,
    "pausing": """
        Resetting 1 -> 2
        why train: BackoffLimitExceeded; pod train-0 exited 1 on node-7 (rule component)
        now pausing before the next attempt; its quota is kept
        next +60 retry pause
        next +60 attempt 2 is created
        unblock `holdfast retry default/train-llm` skips the pause
    """,
    "suspending": """
        Suspending 1 -> None
        why suspended: for room
        now deleting attempt 1
        next +600 forceful deletion, unless all is gone by then
        next +600 once all is gone: the workload's quota is released, and the workload waits for resume
    """,
    "preempted": """
        Suspending 1 -> None
        why preempted
        now deleting attempt 1
        next +600 forceful deletion, unless all is gone by then
        next +600 once all is gone: the workload's quota is released, and the workload waits for resume
    """,
    "suspended": """
        Suspended 1 -> None
        why suspended: for room
        now nothing of it is in the cluster; its quota is released
        unblock `holdfast resume default/train-llm`
    """,
    "forcing": """
        Suspending 1 -> None
        why suspended: for room
        now forcing out what is left of attempt 1: 1 object left: Pod train-0
        next +30 Holdfast looks for what is left, and forces its deletion again
        next +30 once all is gone: the workload's quota is released, and the workload waits for resume
    """,
    "forcing by a finalizer": """
        Suspending 1 -> None
        why suspended: for room
        now forcing out what is left of attempt 1: 4 objects left: Pod train-0 (finalizer b.io/x, finalizer
            a.io/y); Pod train-1 (finalizer b.io/x, finalizer a.io/y); Pod train-2 (finalizer b.io/x, finalizer
            a.io/y)
        next +30 Holdfast looks for what is left, and forces its deletion again
        next +30 once all is gone: the workload's quota is released, and the workload waits for resume
        unblock whoever owns the finalizer a.io/y, b.io/x must finish; if it never does,
            `holdfast strip-finalizers default/train-llm` takes the finalizer off without that cleanup
    """,
    "forcing on a dead node": """
        Suspending 1 -> None
        why suspended: for room
        now forcing out what is left of attempt 1: 1 object left: Pod train-0 (node node-7 does not answer:
            its processes may still run)
        next +30 Holdfast looks for what is left, and forces its deletion again
        next +30 once all is gone: the workload's quota is released, and the workload waits for resume
        unblock a node does not answer: power it off or repair it; a process may still run there
    """,
    "cancelling": """
        Terminating 1 -> None
        why its deletion was asked for: enough
        now deleting attempt 1
        next +600 forceful deletion, unless all is gone by then
        next +600 once all is gone: the workload's quota is released, and the workload ends as Cancelled
    """,
    "cancelled": """
        Cancelled 1 -> None
        why its deletion was asked for: enough
        now its deletion was asked for: enough
    """,
    "succeeded": """
        Succeeded 1 -> None
        why all components are complete
        now it has succeeded; its resources are kept
        next +604800 success TTL ends, then its resources are removed
        unblock nothing has to be done; `holdfast cancel default/train-llm` removes its resources now
    """,
    "failed": """
        Failed 4 -> None
        why restart budget is used up (3 of 3): train: BackoffLimitExceeded;
        pod train-0 exited 1 on node-7
        now restart budget is used up (3 of 3): train: BackoffLimitExceeded;
        pod train-0 exited 1 on node-7
        unblock `holdfast retry default/train-llm` starts it again once this run has ended
    """,
    "failed and kept": """
        Failed 4 -> None
        why restart budget is used up (3 of 3): train: BackoffLimitExceeded;
        pod train-0 exited 1 on node-7
        now it has failed; its resources are kept
        next +3510 deletion-on-failure grace ends, then its resources are removed
        unblock `holdfast retry default/train-llm` begins anew with its budgets renewed;
            `holdfast cancel default/train-llm` removes what is held
    """,
    "held": """
        Pending 1 -> None
        why the cluster holds attempt 4 of this workload, and this memory ends at attempt 1: either was
            restored from a backup, and what lives is not touched
        now nothing is done to it until a person says what
        unblock `holdfast retry default/train-llm` removes all that is there of it and begins a new
            attempt; `holdfast cancel default/train-llm` removes it and ends
    """,
}
"""By moment; `next` is told in seconds from now. Lines may be folded."""


def told(life: Life) -> str:
    explanation = explain_of(life.spec, life.state, life.now)
    return "\n".join(
        [
            f"{explanation.phase.value} {explanation.attempt} -> {explanation.next_attempt}",
            f"why {explanation.why}",
            f"now {explanation.now}",
            *(f"next +{(each.at - life.now).total_seconds():g} {each.what}" for each in explanation.next),
            *([f"unblock {explanation.unblock}"] if explanation.unblock else []),
        ]
    )


@ROW("U11", level="pure")
@pytest.mark.parametrize("name", TOLD)
def test_U11_each_moment_tells_why_now_next_and_what_unblocks_it(name: str):
    assert told(moment(name)).split() == TOLD[name].split()


def test_every_moment_is_told_of():
    assert MOMENTS.keys() - TOLD.keys() == {"submitted"}, "a workload is decided on before anybody can ask"
