"""The endpoint that agents of elastic gangs post to: one exchange an announcement (holdfast/model/gang/wire.py)."""

from __future__ import annotations

from typing import Final

from aiohttp import web
from pydantic import ValidationError

from holdfast.activities.facts.workload_key import WorkloadKey
from holdfast.activities.kube.client import KubeError
from holdfast.model.gang.wire import (
    PATH,
    PROTOCOL,
    STATUS_ELSEWHERE,
    STATUS_FOREIGN,
    STATUS_LATER,
    STATUS_MALFORMED,
    STATUS_UNPROVEN,
    Announcement,
    Refusal,
)
from holdfast.worker.gangs.proof import Proofs, Unproven
from holdfast.worker.gangs.sessions import Gangs, Stranger
from holdfast.worker.runtime.metrics import Metrics

BODY_MAXIMUM: Final = 64 * 1024
"""Largest announcement in bytes; four errors of 1,024 characters each fit in."""
_BEARER: Final = "bearer "


class Refused(Exception):
    """An announcement is not accepted."""

    def __init__(self, status: int, error: str) -> None:
        super().__init__(error)
        self.status = status


class Door:
    """Answers the agents of gangs that are served in this process."""

    def __init__(self, gangs: Gangs, proofs: Proofs, metrics: Metrics) -> None:
        """Answer for these gangs; `proofs` identifies the pod that asks."""
        self._gangs = gangs
        self._proofs = proofs
        self._metrics = metrics

    def application(self) -> web.Application:
        """Return the web application with the one endpoint."""
        application = web.Application(client_max_size=BODY_MAXIMUM)
        application.router.add_post(PATH, self._announce)
        return application

    async def _announce(self, request: web.Request) -> web.Response:
        try:
            body, status = await self._answer(request), 200
        except Refused as refused:
            body, status = Refusal(error=str(refused)).model_dump_json(by_alias=True), refused.status
        self._metrics.gang_exchanges.labels(str(status)).inc()
        return web.Response(text=body, status=status, content_type="application/json")

    async def _answer(self, request: web.Request) -> str:
        uid = request.match_info["workload"]
        if not self._gangs.serves(uid):  # Then the token need not be reviewed.
            raise Refused(STATUS_ELSEWHERE, f"no gang of workload {uid} is served here: try another address")
        given = request.headers.get("Authorization", "")
        if not given.lower().startswith(_BEARER):
            raise Refused(STATUS_UNPROVEN, "Authorization: expected Bearer and the pod's token")
        try:
            proof = await self._proofs.of(given[len(_BEARER) :].strip())
        except Unproven as error:
            raise Refused(STATUS_UNPROVEN, str(error)) from None
        except KubeError as error:
            raise Refused(STATUS_LATER, f"the token cannot be reviewed now: {error.message}") from None
        gang = self._gangs.served.get(WorkloadKey(proof.namespace, uid))
        if gang is None:
            where = f"{proof.namespace}/{uid}"
            raise Refused(STATUS_ELSEWHERE, f"no gang of workload {where} is served here: try another address")
        said = await _read(request)
        try:
            directive = await gang.exchange(said, proof)
        except Stranger as error:
            raise Refused(STATUS_FOREIGN, str(error)) from None
        except KubeError as error:
            raise Refused(STATUS_LATER, f"the pod cannot be looked for now: {error.message}") from None
        if directive is None:
            raise Refused(STATUS_LATER, "nobody knows yet: go on as before, and announce again")
        return directive.model_dump_json(by_alias=True, exclude_none=True)


async def _read(request: web.Request) -> Announcement:
    try:
        said = Announcement.model_validate_json(await request.read())
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise Refused(STATUS_MALFORMED, f"{where or 'body'}: {first['msg']}") from None
    except web.HTTPRequestEntityTooLarge:
        raise Refused(STATUS_MALFORMED, f"expected at most {BODY_MAXIMUM} bytes") from None
    if said.protocol > PROTOCOL:
        raise Refused(STATUS_MALFORMED, f"protocol: {said.protocol}: expected at most {PROTOCOL}; use an older agent")
    return said
