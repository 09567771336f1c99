"""Audit logs made by hand, entry by entry, for tests of what reads them."""

from __future__ import annotations

import itertools
import json
from datetime import UTC, datetime, timedelta
from typing import Any

from holdfast import names
from tests.e2e.witness.law import WORKER

CONTROLLER = "system:kube-controller-manager"
BEGUN = datetime(2030, 1, 1, tzinfo=UTC)
GROUPS = {"attempts": names.GROUP, "jobs": "batch"}


class Log:
    """Lines as the API server writes them; times are seconds from the beginning, and an answer takes a tenth of one."""

    def __init__(self, namespace: str = "ns", workload: str = "w") -> None:
        self.lines: list[bytes] = []
        self.namespace = namespace
        self.workload = workload
        self._versions = itertools.count(100)

    def entry(
        self,
        verb: str,
        resource: str,
        name: str,
        at: float,
        *,
        code: int = 200,
        answer: dict[str, Any] | None = None,
        sent: dict[str, Any] | None = None,
        user: str = WORKER,
        takes: float = 0.1,
        uri: str = "",
        subresource: str = "",
    ) -> None:
        thing = {"resource": resource, "namespace": self.namespace, "name": name, "apiGroup": GROUPS.get(resource, "")}
        if subresource:
            thing["subresource"] = subresource
        entry: dict[str, Any] = {
            "verb": verb,
            "user": {"username": user},
            "requestURI": uri,
            "objectRef": thing,
            "responseStatus": {"code": code},
            "requestReceivedTimestamp": (BEGUN + timedelta(seconds=at)).isoformat(),
            "stageTimestamp": (BEGUN + timedelta(seconds=at + takes)).isoformat(),
        }
        if answer is not None:
            entry["responseObject"] = answer
        if sent is not None:
            entry["requestObject"] = sent
        self.lines.append(json.dumps(entry, separators=(",", ":")).encode() + b"\n")

    def create(
        self, resource: str, name: str, attempt: int, at: float, *, uid: str = "", launch: int = 0, **more: Any
    ) -> None:
        metadata = self._metadata(name, attempt, uid)
        metadata["labels"][names.LABEL_LAUNCH] = str(launch)
        self.entry("create", resource, name, at, **{"code": 201, "answer": {"metadata": metadata}, **more})

    def time_out(self, resource: str, attempt: int, at: float, **more: Any) -> None:
        """A creation that the server gave up, although etcd may have carried it out."""
        sent = {"metadata": {"labels": self._metadata("", attempt)["labels"]}}
        self.entry("create", resource, "", at, **{"code": 504, "sent": sent, **more})

    def delete(self, resource: str, name: str, at: float, *, uid: str = "", **more: Any) -> None:
        """A deletion that left nothing to wait for, of a kind whose answer is a Status."""
        uid = uid or self.uid(name)
        answer = {"kind": "Status", "status": "Success", "details": {"name": name, "uid": uid}}
        sent = {"preconditions": {"uid": uid}, "propagationPolicy": "Foreground"}
        self.entry("delete", resource, name, at, **{"answer": answer, "sent": sent, **more})

    def begin_deletion(self, resource: str, name: str, attempt: int, at: float, **more: Any) -> None:
        """A deletion that leaves the object there, dying: `finalizers` or `deletionGracePeriodSeconds` hold it."""
        held = {key: more.pop(key) for key in ("finalizers", "deletionGracePeriodSeconds") if key in more}
        metadata = {**self._metadata(name, attempt), "deletionTimestamp": BEGUN.isoformat(), **held}
        sent = {"preconditions": {"uid": metadata["uid"]}, "propagationPolicy": "Foreground"}
        self.entry("delete", resource, name, at, **{"answer": {"metadata": metadata}, "sent": sent, **more})

    def let_go(self, resource: str, name: str, attempt: int, at: float, **more: Any) -> None:
        """The change that takes the last finalizer off a dying object."""
        metadata = {**self._metadata(name, attempt), "deletionTimestamp": BEGUN.isoformat()}
        self.entry("patch", resource, name, at, **{"answer": {"metadata": metadata}, "user": CONTROLLER, **more})

    def submit(self, owner: str, at: float) -> None:
        self.entry("patch", "attempts", owner, at, subresource="status", sent={"status": {"submitted": True}})

    def missed(self, resource: str, name: str, at: float, **more: Any) -> None:
        """A read that found nothing."""
        self.entry("get", resource, name, at, code=404, **more)

    def uid(self, name: str) -> str:
        return f"{self.namespace}-{self.workload}-{name}"

    def _metadata(self, name: str, attempt: int, uid: str = "") -> dict[str, Any]:
        labels = {names.LABEL_WORKLOAD_UID: self.workload, names.LABEL_ATTEMPT: str(attempt)}
        if not name.startswith("owner"):
            labels[names.LABEL_COMPONENT] = name.partition("-")[0]
        version = str(next(self._versions))
        return {"name": name, "uid": uid or self.uid(name), "labels": labels, "resourceVersion": version}


def reset(log: Log | None = None) -> Log:
    """Return the log of a reset as it should be: an owner and a pod, removed, and made again."""
    log = log or Log()
    log.create("attempts", "owner-1", 1, 0)
    log.create("pods", "first-1", 1, 1)
    log.begin_deletion("attempts", "owner-1", 1, 10, finalizers=["foregroundDeletion"])
    log.begin_deletion("pods", "first-1", 1, 11, deletionGracePeriodSeconds=1, user=CONTROLLER)
    log.delete("pods", "first-1", 12, user="kwok")
    log.let_go("attempts", "owner-1", 1, 13)
    log.create("attempts", "owner-2", 2, 14)
    log.create("pods", "first-2", 2, 15)
    return log
