"""The context of a cluster activity: the cluster, its client, what heartbeats report, and how to wait."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, ClassVar, Self, TypeVar

from pydantic import ValidationError
from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from holdfast import names
from holdfast.activities.facts.nodes import Marks, Silence
from holdfast.activities.kube.batch import Gathered
from holdfast.activities.kube.blindness import SPANS_KEPT, Sight
from holdfast.activities.kube.client import (
    Forbidden,
    Kube,
    NotFound,
    Object,
    UnknownKind,
    Unreachable,
    service_account_user,
)
from holdfast.activities.kube.owners import Between, Links
from holdfast.activities.kube.priority import Precedence, Together
from holdfast.activities.site.anchor_cache import KnownAnchors
from holdfast.activities.site.permission_cache import Permits
from holdfast.activities.site.priorities import Priorities
from holdfast.activities.site.saves import by_place, told_of
from holdfast.model import Interval, Limits
from holdfast.model.calls.cluster import Progress, Target
from holdfast.policy.failures.blindness import union
from holdfast.policy.sides.probe_reach import Reach

if TYPE_CHECKING:
    from holdfast.activities.data.settings import Data
    from holdfast.activities.evidence.store import EvidenceStore

BEAT_FIRST = 1.0
BEAT_LAST = 3.0
BEATS_A_SECOND = 20
"""Each heartbeat is a write in Temporal: when many operations run at once, each sends heartbeats less often."""
SENTENCE_MAXIMUM = 300
RETRY_FIRST = 0.1
RETRY_LAST = 3.0
BLIND_TOLD = timedelta(hours=24)
"""No grace period is longer than this, so older blindness does not matter."""

T = TypeVar("T")


@dataclass(frozen=True)
class Site:
    """One cluster, as its activities see it."""

    kube: Kube
    cluster: str
    cluster_uid: str
    installation: str
    limits: Limits
    sight: Sight = field(default_factory=Sight)
    marks: Marks = field(default_factory=Marks)
    silence: Silence = field(default_factory=Silence)
    rendezvous: str = ""
    """Where pods reach the rendezvous of their gang: a URL without the path; empty where they cannot."""
    rendezvous_ca: Callable[[], str] = str
    """Returns the authority that signed its certificate, PEM; empty: the public ones."""
    data: Data | None = None
    """How data sets are staged; None if this worker stages none."""
    evidence: EvidenceStore | None = None
    """Where evidence of failed attempts is kept; None if this worker keeps none."""
    namespaces: tuple[str, ...] = ()
    """The only namespaces in which this worker makes or changes anything; empty: every enabled one."""
    managed_by: str = names.MANAGED_BY
    """What custom resources say in `managedBy` that are for this installation."""
    encrypted: bool = False
    """Whether this worker encrypts what Temporal stores (row X6)."""
    permits: Permits = field(default_factory=Permits)
    known: KnownAnchors = field(default_factory=KnownAnchors)
    links: Links = field(default_factory=Links)
    between: Between = field(default_factory=Between)
    gathered: Gathered = field(init=False)
    priorities: Priorities = field(init=False)
    precedence: Precedence = field(init=False, default_factory=Precedence)
    together: Together = field(init=False, default_factory=Together)
    together_at_ends: Together = field(init=False, default_factory=Together.at_ends)
    reach: Reach = field(init=False, default_factory=Reach)
    """Which workloads' pods this worker has reached lately."""

    def __post_init__(self) -> None:
        """Set up the shared reads of this cluster."""
        object.__setattr__(self, "gathered", Gathered(self.kube))
        object.__setattr__(self, "priorities", Priorities(self.kube))

    def check(self, target: Target) -> None:
        """Refuse to act on a cluster that is not the one meant.

        Raises:
            ApplicationError: of type `ClusterMismatch`.
        """
        self.check_cluster(target.cluster, target.cluster_uid)

    def check_cluster(self, cluster: str, cluster_uid: str) -> None:
        """Refuse to act on another cluster than this one; an empty uid means that it is not known yet.

        Raises:
            ApplicationError: of type `ClusterMismatch`.
        """
        if cluster != self.cluster:
            raise _mismatch(f"this worker serves cluster {self.cluster}, and {cluster} was meant")
        if cluster_uid and cluster_uid != self.cluster_uid:
            raise _mismatch(
                f"cluster {cluster} was {cluster_uid} and is now {self.cluster_uid}: another cluster has taken its name"
            )

    async def confirm(self, target: Target) -> None:
        """Read the cluster's own uid, and refuse if it is not the one meant.

        Raises:
            ApplicationError: of type `ClusterMismatch`.
        """
        self.check(target)
        if self.permits.has("cluster"):
            return
        system = await self.permits.ask("cluster", lambda: self.kube.get("v1", "Namespace", "kube-system"))
        found = system["metadata"]["uid"]
        if found != self.cluster_uid:
            raise _mismatch(
                f"the API server of cluster {self.cluster} is {found}, and {self.cluster_uid} was there before"
            )
        self.permits.give("cluster")

    async def read_component(
        self, target: Target, api_version: str, kind: str, name: str, *, shared: bool = False
    ) -> Object | None:
        """Return a component's object, read as the run-as account or, if that lost its right, as the worker.

        A read that is `shared` may be made as one with those of other workloads, see `Gathered.named`.

        Raises:
            Forbidden: if neither may read it, and the namespace is there to stay.
            UnknownKind: if the cluster does not serve that version of the kind (any more): nothing is known of the
                object then (row D24).
        """
        user = user_of(target)
        try:
            return await self._read(api_version, kind, name, target.namespace, user, shared=shared)
        except Forbidden:
            try:
                return await self._read(api_version, kind, name, target.namespace, "", shared=shared)
            except Forbidden:
                # Deleting a namespace takes the account's rights away, and waits for our anchor: waiting here for the
                # right to read would never end.
                if await self._is_ending(target.namespace):
                    return None
                raise

    async def _read(
        self, api_version: str, kind: str, name: str, namespace: str, user: str, *, shared: bool
    ) -> Object | None:
        try:
            if shared:
                return await self.gathered.named(api_version, kind, name, namespace, impersonate=user)
            return await self.kube.get(api_version, kind, name, namespace, impersonate=user)
        except UnknownKind as error:
            raise UnknownKind(404, error.reason, f"the cluster does not serve {kind} of {api_version}") from None
        except NotFound:
            return None

    async def _is_ending(self, namespace: str) -> bool:
        """Whether a namespace is gone or being deleted: nothing can be created in it, and its contents are removed."""
        found = await self.kube.find("v1", "Namespace", namespace)
        return found is None or "deletionTimestamp" in found["metadata"]

    def grace(self, seconds: float) -> float:
        """Return a grace period, capped by the operator's limit now, not by the one when the attempt began (row X4)."""
        return min(seconds, self.limits.grace_period_maximum.total_seconds())

    def blind(self, earlier: Sequence[Interval] = ()) -> tuple[Interval, ...]:
        """Return when the cluster could not be seen, including the times that an earlier try of this activity knew."""
        recent = self.sight.intervals(datetime.now(UTC) - BLIND_TOLD)
        return union([*earlier, *recent], SPANS_KEPT)


async def only_its_kind(site: Site, target: Target, error: Unreachable) -> None:
    """Return if only one kind cannot be read, because its own server or webhook is down: another read is answered.

    Raises:
        Unreachable: if the API server does not answer that either, does not know us, or throttles us.
    """
    if error.status in (401, 429):
        raise error
    await site.kube.find("v1", "Namespace", target.namespace)


def user_of(target: Target) -> str:
    """Return the user that reads and writes a workload's components."""
    return service_account_user(target.namespace, target.run_as)


def refused(message: str) -> ApplicationError:
    """Return the error for a permanent refusal."""
    return ApplicationError(message, type=names.ERROR_REFUSED, non_retryable=True)


def conflict(message: str) -> ApplicationError:
    """Return the error that names a foreign object in the place of ours."""
    return ApplicationError(message, type=names.ERROR_CONFLICT, non_retryable=True)


def _mismatch(message: str) -> ApplicationError:
    return ApplicationError(message, type=names.ERROR_CLUSTER_MISMATCH)


@asynccontextmanager
async def as_retryable_errors() -> AsyncGenerator[None]:
    """Turn an unanswered request into the error that a workflow expects, which is retried without log noise."""
    try:
        yield
    except Unreachable as error:
        delay = timedelta(seconds=error.retry_after) if error.retry_after else None
        raise ApplicationError(
            f"the API server does not answer: {error.message}",
            type=names.ERROR_UNREACHABLE,
            category=ApplicationErrorCategory.BENIGN,
            next_retry_delay=delay,
            # Causes and stack traces would be more than Temporal keeps of a failure that is retried.
        ) from None


class Pulse:
    """Sends heartbeats with the latest progress for as long as its block lasts, however long one request takes."""

    _beating: ClassVar[int] = 0
    """How many pulses are active in this process."""

    def __init__(self) -> None:
        before = earlier()
        self.doing = before.doing
        self.remaining: tuple[str, ...] = ()
        self.remaining_total = 0
        self.pods: int | None = None
        self.blind = before.blind
        self.borne = before.borne
        self.places = by_place(told_of(before))
        self._borne_until = 0.0
        self._watched: Callable[[], str] | None = None
        self._task: asyncio.Task[None] | None = None

    def say(self, doing: str, remaining: Sequence[str] = (), remaining_total: int = 0, pods: int | None = None) -> None:
        """Set what is being done or waited for, as heartbeats report it from the next one on."""
        self.doing, self.remaining, self.remaining_total, self.pods = doing, tuple(remaining), remaining_total, pods

    def watch(self, words: Callable[[], str] | None) -> None:
        """Make each heartbeat call `words` for what is being done; None ends that."""
        self._watched = words

    def note(self, places: dict[str, tuple[str, ...]]) -> None:
        """Send at once where pods have saved, if that is new: the pods may be gone a moment later."""
        if places != self.places:
            self.places = places
            if self._task is not None:
                self._tell()

    async def bear(self, seconds: float, since: float | None = None) -> None:
        """Wait before a refused request is repeated; that time counts as borne, even if the wait is cancelled.

        Args:
            seconds: How long.
            since: The start of the time that counts, by the loop's clock; None for now.
        """
        clock = asyncio.get_running_loop().time
        begun = clock() if since is None else since
        try:
            await asyncio.sleep(seconds)
        finally:
            # The time of copies that are refused at the same time counts once.
            now = clock()
            self.borne += max(0.0, now - max(begun, self._borne_until))
            self._borne_until = now

    @property
    def told(self) -> tuple[tuple[str, ...], int, int | None]:
        """What was last reported as remaining, the total, and how many of it are pods."""
        return self.remaining, self.remaining_total, self.pods

    async def __aenter__(self) -> Self:
        """Begin."""
        if activity.in_activity():
            Pulse._beating += 1
            self._task = asyncio.create_task(self._beat())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Stop; a try that fails hands what it has learned to the next one."""
        if self._task is not None:
            Pulse._beating -= 1
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            if kind is not None:
                self._tell()

    @classmethod
    def spread(cls, least: float, most: float, a_second: float) -> float:
        """Return after how many seconds each operation does something again, so that all together do it less often.

        Args:
            least: Seconds, for few operations.
            most: Seconds, however many there are.
            a_second: How often all operations of this process do it in a second.
        """
        return min(most, max(least, cls._beating / a_second))

    async def _beat(self) -> None:
        while True:
            # An operation that ends within a second sends no heartbeat.
            await asyncio.sleep(Pulse.spread(BEAT_FIRST, BEAT_LAST, BEATS_A_SECOND))
            self._tell()

    def _tell(self) -> None:
        if self._watched is not None:
            self.doing = self._watched()
        progress = Progress(
            doing=self.doing[:SENTENCE_MAXIMUM],
            remaining=self.remaining,
            remaining_total=self.remaining_total,
            pods=self.pods,
            blind=self.blind,
            borne=self.borne,
            places=self.places,
        )
        activity.heartbeat(progress.model_dump(mode="json", by_alias=True))


def is_broken_off() -> bool:
    """Whether the activity is cancelled because the workflow requested it, and for no other reason."""
    details = activity.cancellation_details() if activity.in_activity() else None
    return details is not None and details.cancel_requested


def tries() -> int:
    """Return how often this activity has been begun, this time included."""
    return activity.info().attempt if activity.in_activity() else 1


def earlier() -> Progress:
    """Return the progress that an earlier try of this activity last reported."""
    details = activity.info().heartbeat_details if activity.in_activity() else ()
    try:
        return Progress.model_validate(details[0]) if details else Progress()
    except ValidationError:
        return Progress()


async def persist(pulse: Pulse, what: str, call: Callable[[], Awaitable[T]]) -> T:
    """Repeat a call until the API server answers it, whatever the answer."""
    delay = RETRY_FIRST
    while True:
        try:
            return await call()
        except Unreachable as error:
            pulse.say(f"{what}: the API server does not answer: {error.message}")
            await asyncio.sleep(max(delay, error.retry_after or 0.0))
            delay = min(delay * 2, RETRY_LAST)
