"""Reads where a pod stands at its barrier, from its annotations and the kubelet's status. Pure (row J24)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from holdfast import names
from holdfast.activities.kube.raw import mapping, mappings, number_in, time_of
from holdfast.model.spec.restart_agent import restart_agent


@dataclass(frozen=True, slots=True)
class BarrierFacts:
    """Where one pod stands."""

    requested: int
    """The in-place restart attempt that it is to reach."""
    attempt: int | None
    """The last one at which its programs were allowed to start; None: none yet."""
    seen: int | None
    """How often its agent had been restarted at that moment; None: they never were."""
    restarts: int
    """How often its agent has been restarted."""
    waits: bool
    """Whether its agent runs and holds its containers back, and no other container of it runs."""
    started: bool
    """Whether its agent has let its containers start."""
    since: datetime | None
    """When its agent last started."""
    reminders: int
    """How often its kubelet was reminded of its orders."""

    @property
    def is_new(self) -> bool:
        """Whether its programs have never been allowed to start."""
        return self.attempt is None

    @property
    def has_restarted(self) -> bool:
        """Whether its containers were restarted since its programs were last allowed to start.

        Its agent remembers that they ran at that attempt, so they stay down until they are allowed the next one.
        """
        return self.seen is not None and self.restarts > self.seen

    def is_there(self, attempt: int) -> bool:
        """Whether it waits at the barrier of an attempt, with proof that no process of an earlier one is left."""
        proven = self.is_new or self.has_restarted
        return self.requested == attempt and self.attempt != attempt and self.waits and proven

    def lags(self, attempt: int) -> bool:
        """Whether its agent runs, and has not done yet what its orders for an attempt say."""
        if self.requested != attempt or self.since is None:
            return False
        return not (self.started or self.has_restarted) if self.attempt == attempt else not self.is_there(attempt)


def barrier_facts(raw: Mapping[str, Any]) -> BarrierFacts | None:
    """Return where a pod stands; None if it waits at no barrier, or has no agent."""
    annotations = mapping(mapping(raw.get("metadata")).get("annotations"))
    requested = number_in(annotations.get(names.ANNOTATION_RESTART_REQUEST))
    if requested is None:
        return None
    status = mapping(raw.get("status"))
    name = restart_agent(mapping(raw.get("spec")))
    init = mappings(status.get("initContainerStatuses"))
    place = next((index for index, one in enumerate(init) if name and one.get("name") == name), len(init))
    agent = init[place] if place < len(init) else mapping(None)
    # The agent holds back what the pod lists after it.
    held = [*init[place + 1 :], *mappings(status.get("containerStatuses"))]
    started = agent.get("started") is True
    running = mapping(mapping(agent.get("state")).get("running"))
    return BarrierFacts(
        requested=requested,
        attempt=number_in(annotations.get(names.ANNOTATION_IN_PLACE_ATTEMPT)),
        seen=number_in(annotations.get(names.ANNOTATION_RESTARTS_SEEN)),
        restarts=int(agent.get("restartCount") or 0),
        waits=bool(running) and not started and not any("running" in mapping(one.get("state")) for one in held),
        started=started,
        since=time_of(running.get("startedAt")),
        reminders=number_in(annotations.get(names.ANNOTATION_RESTART_REMINDER)) or 0,
    )


def waits_alone(facts: BarrierFacts | None) -> str:
    """Return why a pod waits at its barrier although nobody asked it to; empty if it does not."""
    if facts is None or (facts.attempt is not None and facts.requested != facts.attempt):
        return ""
    if facts.is_new:
        return "a new pod waits at the barrier" if facts.waits else ""
    return "its containers restarted in place" if facts.has_restarted else ""
