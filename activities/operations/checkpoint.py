"""Asks an attempt's pods to save their state, and follows their answers until there is nothing left to wait for."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Self

from temporalio import activity

from holdfast import names
from holdfast.activities.facts.pods import PodFacts, PodState, pod_facts
from holdfast.activities.kube.client import Object, Unreachable
from holdfast.activities.operations.report import apply_report
from holdfast.activities.operations.save_requests import Answer, Asker, Standing, asker_of, request_target
from holdfast.activities.site.deadline import Deadline
from holdfast.activities.site.saves import by_place, digest_of_uid, told_of
from holdfast.activities.site.site import RETRY_FIRST, Pulse, Site, as_retryable_errors, earlier, persist
from holdfast.model import Answers
from holdfast.model.calls.cluster import Checkpointed, CheckpointInput
from holdfast.policy.attempt.checkpoint import is_over

_POLL_FIRST = 0.1
_POLL_LAST = 2.0
_POLL_SHARE = 0.2
"""Each poll waits a fifth of the time elapsed so far. On average, an answer is noticed late by a tenth of that time."""
_TOLD = 4
_SETTLE = 10.0
"""Seconds that a controller has to report that it is complete, after all its pods have succeeded."""


async def checkpoint(site: Site, given: CheckpointInput) -> Checkpointed:
    """Ask each running pod to save its state, and return the answers once there is nothing left to wait for (row L32).

    It also returns after `until`, but only after it has looked at the pods once more: while the API server does not
    answer, their state is unknown.

    Raises:
        ApplicationError: of type `ClusterMismatch`, retried.
    """
    site.check(given.target)
    clock = asyncio.get_running_loop().time
    begun, deadline, seen = clock(), _deadline(given), dict[str, Standing]()
    finished: float | None = None
    async with as_retryable_errors(), Pulse() as pulse, asker_of(site, given) as asker:
        await persist(pulse, "reporting", lambda: apply_report(site, given.target, given.report))
        while True:
            late = deadline.left(clock()) <= 0
            try:
                answers = await _round(site, given, asker, pulse, seen)
                finished = None if answers.running else finished or clock()
                settling = finished is not None and bool(answers.finished) and clock() - finished < _SETTLE
                if late or (is_over(answers, given.running, given.finished, given.members) and not settling):
                    return Checkpointed(answers=answers, blind=site.blind(pulse.blind))
            except Unreachable as error:
                pulse.say(f"asking pods to save: the API server does not answer: {error.message}", *pulse.told)
                await asyncio.sleep(RETRY_FIRST)
            pulse.blind = site.blind(pulse.blind)
            share, left = (clock() - begun) * _POLL_SHARE, deadline.left(clock())
            await asyncio.sleep(min(_POLL_LAST, max(_POLL_FIRST, share), left if left > 0 else _POLL_LAST))


def _deadline(given: CheckpointInput) -> Deadline:
    wall = datetime.now(UTC)
    started = activity.info().started_time if activity.in_activity() else wall
    return Deadline(given.until, started, wall, asyncio.get_running_loop().time())


async def _round(site: Site, given: CheckpointInput, asker: Asker, pulse: Pulse, seen: dict[str, Standing]) -> Answers:
    """List the attempt's pods, ask the running ones, and return their answers.

    `seen` has the last standing of each pod that ran in a round, by uid. One that is gone unsaved is lost, also if
    another pod runs in its place by now.
    """
    pods = await _pods(site, given)
    running = [(pod, facts) for pod, facts in pods if facts.state is PodState.RUNNING]
    said = await asker.ask_all([pod for pod, _ in running])
    answers = summed([(facts, answer) for (_, facts), answer in zip(running, said, strict=True)])
    seen |= {facts.uid: answer.standing for (_, facts), answer in zip(running, said, strict=True)}
    there = {facts.uid for _, facts in pods if facts.state in {PodState.RUNNING, PodState.SUCCEEDED}}
    gone = sum(uid not in there and standing is not Standing.DONE for uid, standing in seen.items())
    finished = sum(facts.state is PodState.SUCCEEDED for _, facts in pods)
    # A member that leaves an elastic gang is none of its round any more.
    answers = answers.model_copy(update={"finished": finished, "gone": 0 if given.members else gone})
    savers = min(answers.running, given.members) if given.members else answers.running
    pulse.say(
        f"asking pods to save their state: {answers.done} of {savers} have",
        answers.left,
        max(0, savers - answers.done),
    )
    return answers


class Following:
    """Answers of pods that were still saving when their attempt's removal began; a pod once seen saved stays saved."""

    def __init__(self, site: Site, given: CheckpointInput | None) -> None:
        """Follow the pods that `given` asks; follow nothing if it is None."""
        self._site = site
        self._given = given
        self._asker = asker_of(site, given) if given is not None else None
        self._said: dict[str, tuple[PodFacts, Answer]] = {}
        """The last answer of each pod, by pod uid."""
        self._finished: set[str] = set()
        self._earlier = told_of(earlier()) if given is not None else {}
        """Where pods saved their state, by the digest of their uid, as seen by an earlier try of this removal."""

    async def __aenter__(self) -> Self:
        """Begin."""
        if self._asker is not None:
            await self._asker.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        """End."""
        if self._asker is not None:
            await self._asker.__aexit__()

    async def look(self) -> None:
        """List the pods, including those being deleted, and record their answers.

        Raises:
            Unreachable: if the API server does not answer.
        """
        given, asker = self._given, self._asker
        if given is None or asker is None:
            return
        pods = await _pods(self._site, given)
        self._finished |= {facts.uid for _, facts in pods if facts.state is PodState.SUCCEEDED}
        going = [(pod, facts) for pod, facts in pods if facts.state in {PodState.RUNNING, PodState.TERMINATING}]
        left = [(pod, facts) for pod, facts in going if self._standing(facts) is not Standing.DONE]
        by_uid = {facts.uid: facts for _, facts in left}

        def heard(pod: Object, answer: Answer) -> None:
            facts = by_uid[str(pod["metadata"]["uid"])]
            self._said[facts.uid] = (facts, answer)  # At once: the round may be broken off.

        await asker.ask_all([pod for pod, _ in left], heard)

    def _standing(self, facts: PodFacts) -> Standing:
        known = self._said.get(facts.uid)
        if digest_of_uid(facts.uid) in self._earlier:
            return Standing.DONE
        return known[1].standing if known is not None else Standing.SILENT

    @property
    def places(self) -> dict[str, tuple[str, ...]]:
        """Where pods have saved their state, for heartbeats: the next try may find the pods gone."""
        return by_place(self._saved)

    @property
    def _saved(self) -> dict[str, str]:
        """Where pods have saved their state, by the digest of their uid."""
        done = {uid: answer.uri for uid, (_, answer) in self._said.items() if answer.standing is Standing.DONE}
        return {**self._earlier, **{digest_of_uid(uid): uri for uid, uri in done.items()}}

    @property
    def answers(self) -> Answers | None:
        """The answers as counts; None if nothing is followed."""
        if self._given is None:
            return None
        answers = summed(list(self._said.values()), tuple(self._earlier.values()))
        finished = {digest_of_uid(uid) for uid in self._finished}
        return answers.model_copy(update={"finished": len(finished - self._saved.keys())})


async def _pods(site: Site, given: CheckpointInput) -> list[tuple[Object, PodFacts]]:
    labels = f"{names.LABEL_WORKLOAD_UID}={given.target.workload_uid},{names.LABEL_ATTEMPT}={given.attempt}"

    def kept(raw: Object) -> tuple[Object, PodFacts] | None:
        facts = pod_facts(raw)
        return (request_target(raw), facts) if facts.component in given.components else None

    return (await site.kube.list("v1", "Pod", given.target.namespace, labels=labels, keep=kept))["items"]


def summed(said: list[tuple[PodFacts, Answer]], saved: tuple[str, ...] = ()) -> Answers:
    """Return pods' answers as counts, with a sentence for each of the first pods that have not saved. Pure.

    Args:
        said: The pods and their answers.
        saved: Where other pods have saved their state.
    """
    count = dict.fromkeys(Standing, 0)
    for _, answer in said:
        count[answer.standing] += 1
    places = sorted({*saved, *(answer.uri for _, answer in said if answer.standing is Standing.DONE)})
    # Pods that cannot save come first: they decide the result.
    order = (Standing.FAILED, Standing.SILENT, Standing.WORKING)
    left = [(facts, answer) for standing in order for facts, answer in said if answer.standing is standing]
    return Answers(
        at=datetime.now(UTC),
        running=len(said) + len(saved),
        done=count[Standing.DONE] + len(saved),
        working=count[Standing.WORKING],
        silent=count[Standing.SILENT],
        failed=count[Standing.FAILED],
        uri=places[0] if len(places) == 1 else "",
        disagree=len(places) > 1,
        left=tuple(_sentence(facts, answer) for facts, answer in left[:_TOLD]),
    )


def _sentence(facts: PodFacts, answer: Answer) -> str:
    words = {Standing.SILENT: "has not answered", Standing.WORKING: "is at it", Standing.FAILED: "cannot save"}
    stands = words[answer.standing] if answer.understood else "is not understood"
    return f"{facts.name} {stands}" + (f" ({answer.message})" if answer.message else "")
