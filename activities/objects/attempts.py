"""The attempts of one workload in the cluster, including those that its workflow does not know of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

from temporalio.exceptions import ApplicationError

from holdfast import names
from holdfast.activities.kube.client import Object
from holdfast.activities.kube.raw import mapping
from holdfast.activities.site.site import Site
from holdfast.model.calls.cluster import Target
from holdfast.policy.verdicts.hold import foreign_attempt


async def attempts_of(site: Site, target: Target) -> list[Object]:
    """Return the owner objects of all attempts of a workload, by a quorum read."""
    return await site.gathered.of(names.API_VERSION, names.ATTEMPT_KIND, target.namespace, target.workload_uid)


async def living_owner_of(site: Site, target: Target, attempt: int, owner_uid: str) -> Object | None:
    """Return an attempt's owner object by its name; None where it is gone, another's, or being deleted."""
    name = target.attempt_name(attempt)
    owner = await site.kube.find(names.API_VERSION, names.ATTEMPT_KIND, name, target.namespace)
    if owner is None or owner["metadata"]["uid"] != owner_uid or "deletionTimestamp" in owner["metadata"]:
        return None
    return owner


def number_of(owner: Mapping[str, Any]) -> int:
    """Return the attempt number in an owner object; 0 if it has none."""
    number = mapping(owner.get("spec")).get("attempt")
    return number if isinstance(number, int) else 0


def attempt_of(thing: Mapping[str, Any]) -> int:
    """Return the attempt number in an object's label; 0 if it has none."""
    number = str(mapping(mapping(thing.get("metadata")).get("labels")).get(names.LABEL_ATTEMPT, ""))
    return int(number) if number.isdecimal() else 0


def others(owners: Sequence[Mapping[str, Any]], with_pods: Set[int], number: int) -> tuple[int, ...]:
    """Return the numbers of other living attempts: those that are submitted or have pods. Pure.

    A worker that another had taken over from may have created a lone owner too late; nothing runs under it.
    """
    return tuple(
        sorted(
            number_of(owner)
            for owner in owners
            if number_of(owner) != number
            and "deletionTimestamp" not in owner["metadata"]
            and (mapping(owner.get("status")).get("submitted") is True or number_of(owner) in with_pods - {0})
        )
    )


def refuse_foreign(owners: Sequence[Mapping[str, Any]], number: int) -> None:
    """Refuse to act for an attempt if the cluster holds a later one: the request comes from a restored workflow state.

    Raises:
        ApplicationError: of type `ForeignAttempt`, with the highest number as its detail.
    """
    newest = max(map(number_of, owners), default=0)
    if newest > number:
        raise _foreign(foreign_attempt(newest, number), newest)


async def refuse_revived(site: Site, target: Target, number: int) -> None:
    """Refuse to begin an attempt beside a later one, or beside an earlier one that lives.

    Raises:
        ApplicationError: of type `ForeignAttempt`, with the highest number as its detail.
    """
    owners = [owner for owner in await attempts_of(site, target) if number_of(owner) != number]
    if not owners:
        return
    refuse_foreign(owners, number)
    pods = await site.gathered.of("v1", "Pod", target.namespace, target.workload_uid)
    living = others(owners, {attempt_of(pod) for pod in pods}, number)
    if living:
        raise _foreign(
            f"attempt {living[0]}, which was proven gone, is there again before attempt {number} has begun: "
            "either the cluster or this memory was restored from a backup",
            number,
        )


def _foreign(message: str, newest: int) -> ApplicationError:
    return ApplicationError(message, newest, type=names.ERROR_FOREIGN_ATTEMPT, non_retryable=True)
