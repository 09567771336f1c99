"""Chooses whose logs `holdfast logs` reads, and when it has read all of them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from holdfast.activities.kube.raw import mapping, mappings
from holdfast.errors import HoldfastError
from holdfast.model import Evidence, Failure, Phase, Reason, Status
from holdfast.model.life.history import History, PastAttempt
from holdfast.model.words import shortened

_LISTS: Final = ("initContainers", "containers", "ephemeralContainers")
_STATUSES: Final = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
_STOPPED: Final = frozenset({Phase.RESETTING, Phase.SUSPENDING, Phase.SUSPENDED, Phase.TERMINATING})


@dataclass(frozen=True, slots=True)
class Pod:
    """What is kept of a pod."""

    name: str
    uid: str
    phase: str
    containers: tuple[str, ...]
    """Init containers first, in the order in which they stand."""
    statuses: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Source:
    """One instance of a container, which has a log."""

    pod: str
    uid: str
    container: str
    instance: str
    """Identifies the instance: another one follows after a restart."""
    ended: bool
    """Whether it writes nothing more."""
    previous: bool
    """Whether it is the instance before the container's last restart."""
    prefix: str
    """Stands before each line."""

    @property
    def key(self) -> tuple[str, str]:
        """Identifies the container of the pod, over its restarts."""
        return self.uid, self.container


class Sources(NamedTuple):
    """The logs that there are, and why others are not."""

    found: tuple[Source, ...]
    silent: tuple[str, ...] = ()
    """Containers without a log, each with the reason."""


def pod_of(found: Mapping[str, Any]) -> Pod:
    """Keep of a pod what its logs need, so that memory stays bounded."""
    metadata, spec, status = found["metadata"], mapping(found.get("spec")), mapping(found.get("status"))
    return Pod(
        name=metadata["name"],
        uid=metadata["uid"],
        phase=str(status.get("phase") or "Unknown"),
        containers=tuple(one["name"] for key in _LISTS for one in mappings(spec.get(key))),
        statuses={
            one["name"]: {key: one.get(key) for key in ("state", "lastState", "containerID")}
            for each in _STATUSES
            for one in mappings(status.get(each))
        },
    )


def sources(pods: Iterable[Pod], container: str | None = None, *, previous: bool = False) -> Sources:
    """Return the containers that have a log, by pod and in the order of their pod.

    Args:
        pods: the pods of an attempt.
        container: only containers of this name; None: all.
        previous: each container's instance before its last restart; those that have not restarted have none.

    Raises:
        HoldfastError: if there are pods, and none has a container of that name.
    """
    ordered = sorted(pods, key=lambda one: one.name)
    known = {name for pod in ordered for name in pod.containers}
    if container is not None and ordered and container not in known:
        raise HoldfastError(f"-c {container!r}: expected one of {', '.join(sorted(known))}")
    found: list[Source] = []
    silent: list[str] = []
    for pod in ordered:
        for name in pod.containers:
            if container not in {None, name}:
                continue
            prefix = f"{pod.name}/{name}" if len(pod.containers) > 1 else pod.name
            status = pod.statuses.get(name, {})
            source = _source(pod, name, status, prefix, previous=previous)
            if source is not None:
                found.append(source)
            elif not previous:
                reason = mapping(mapping(status.get("state")).get("waiting")).get("reason") or f"its pod is {pod.phase}"
                silent.append(f"{prefix}: has not started: {shortened(str(reason))}")
    return Sources(tuple(found), tuple(silent))


def to_follow(
    pods: Sequence[Pod], container: str | None, read: Set[tuple[str, str, str]], busy: Set[tuple[str, str]]
) -> list[Source]:
    """Return the logs to open next: of each container that is not being read the oldest instance that was not read.

    An instance may come and go between two looks: then it is the one before the last restart.

    Args:
        pods: the pods of an attempt.
        container: as for `sources`.
        read: pod uid, container and instance of each log that was read to its end.
        busy: pod uid and container of those that are being read.

    Raises:
        HoldfastError: as `sources`.
    """
    found: dict[tuple[str, str], Source] = {}
    for one in (*sources(pods, container, previous=True).found, *sources(pods, container).found):
        if (*one.key, one.instance) not in read and one.key not in busy:
            found.setdefault(one.key, one)
    return list(found.values())


def _source(pod: Pod, name: str, status: Mapping[str, Any], prefix: str, *, previous: bool) -> Source | None:
    state, last = mapping(status.get("state")), mapping(mapping(status.get("lastState")).get("terminated"))
    now = mapping(state.get("running")) or mapping(state.get("terminated"))
    # A container that waits to be restarted has the log of its last instance.
    at = last if previous or not now else now
    if not at:
        return None
    # What has ended says its own id; of what runs the status says it.
    instance = str(at.get("containerID") or status.get("containerID") or "")
    return Source(pod.name, pod.uid, name, instance, "running" not in state or previous, previous, prefix)


@dataclass(slots=True)
class Position:
    """How far a log has been shown, so that it goes on there after a lost connection or a restart."""

    at: str = ""
    count: int = 0
    """How many lines of that time were shown."""
    _from: str = field(default="", repr=False)
    _skip: int = field(default=0, repr=False)

    def reopen(self) -> str:
        """Begin to read again, and return the time to read from; empty: from the beginning."""
        self._from, self._skip = self.at, self.count
        return self.at

    def take(self, at: str) -> bool:
        """Whether a line of this time has not been shown yet; it then counts as shown."""
        if self._from:
            if at < self._from:
                return False
            if at == self._from and self._skip:
                self._skip -= 1
                return False
            self._from = ""  # What follows is new, also where two writers' lines are not in the order of their times.
        if at > self.at:
            self.at, self.count = at, 0
        self.count += at == self.at
        return True


def wanted(status: Status, attempt: int | None) -> int:
    """Return the number of the attempt to show: the one that is asked for, else the latest.

    Raises:
        HoldfastError: if it has not begun.
    """
    latest = max(status.attempt, 1)
    if attempt is not None and attempt > latest:
        raise HoldfastError(f"--attempt {attempt}: expected 1{f' to {latest}' if latest > 1 else ', the only one'}")
    return latest if attempt is None else attempt


def is_over(status: Status, attempt: int, *, closed: bool, pods: int) -> bool:
    """Whether nothing more is to be expected of an attempt's logs, except what its pods are still writing.

    Args:
        status: the workload's last known status.
        attempt: the number of the attempt.
        closed: whether its workflow is over.
        pods: how many pods of the attempt are left.
    """
    if closed or status.attempt > attempt or status.phase.ended:
        return True
    return status.phase in _STOPPED and not pods


def absent(status: Status, attempt: int, server: str, evidence: Evidence | None = None) -> str:
    """Say why an attempt has no pods, and no evidence of them."""
    name = f"{status.namespace}/{status.name}"
    if attempt >= status.attempt and status.phase in {Phase.PENDING, Phase.RESUMING}:
        return f"{name}: attempt {attempt} has no pods yet: {status.message or status.reason}"
    if not status.attempt:
        return f"{name}: there are no logs: no attempt of it has begun: {status.message or status.reason}"
    if attempt >= status.attempt and status.reason is Reason.REFUSED and evidence is None:
        return f"{name}: attempt {attempt} has no logs: it was refused: {status.message or status.reason}"
    return (
        f"{name}: no pod of attempt {attempt} is left at {server}, and its logs went with its pods: "
        f"{evidence.sentence() if evidence is not None else 'no evidence of it was kept'}; "
        f"`holdfast history {name}` lists the causes"
    )


def decided(history: History, attempt: int | None) -> tuple[int, Failure]:
    """Return the last attempt that a failure ended, and that failure.

    Args:
        history: the workload's life.
        attempt: the attempt that is asked for; None: the last that failed.

    Raises:
        HoldfastError: if no failure ended it.
    """
    ended = [one for one in history.attempts if attempt in {None, one.number}]
    for one in reversed(ended):
        failure = _failure_of(one, history)
        if failure is not None:
            return one.number, failure
    which = f"attempt {attempt}" if attempt is not None else "no attempt"
    word = "was not ended" if attempt is not None else "was ended"
    raise HoldfastError(f"{history.namespace}/{history.name}: --failed: {which} {word} by a failure")


def _failure_of(attempt: PastAttempt, history: History) -> Failure | None:
    if attempt.failure is not None:
        return attempt.failure
    last = history.failure
    return last if last is not None and last.attempt == attempt.number else None
