"""The endpoint that agents of elastic gangs post to: one exchange an announcement (holdfast/model/gang/wire.py)."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Callable
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
    STATUS_LIMITED,
    STATUS_MALFORMED,
    STATUS_UNPROVEN,
    Announcement,
    Refusal,
)
from holdfast.worker.gangs.keys import Proof, Unproven
from holdfast.worker.gangs.limits import Limited, source_of
from holdfast.worker.gangs.proof import Proofs
from holdfast.worker.gangs.sessions import Gang, Gangs, Stranger
from holdfast.worker.runtime.metrics import Metrics

BODY_MAXIMUM: Final = 64 * 1024
"""Largest announcement in bytes; four errors of 1,024 characters each fit in."""
BODY_SECONDS: Final = 5.0
"""How long an announcement may take to arrive after its head."""
_BEARER: Final = "bearer "
_PATH: Final = re.compile(PATH.format(workload=r"(?P<workload>[A-Za-z0-9-]{1,63})"))


class Refused(Exception):
    """An announcement is not accepted."""

    def __init__(self, status: int, error: str, retry_after: float = 0) -> None:
        super().__init__(error)
        self.status = status
        self.retry_after = retry_after


class Door:
    """Answers the agents of gangs that are served in this process."""

    def __init__(self, gangs: Gangs, proofs: Proofs, metrics: Metrics) -> None:
        """Answer for these gangs; `proofs` identifies the pod that asks."""
        self._gangs = gangs
        self._proofs = proofs
        self._metrics = metrics

    async def handle(self, request: web.BaseRequest, proven: Callable[[str], None]) -> web.Response:
        """Answer a request; call `proven` with its pod's uid once the gang accepts that pod."""
        headers: dict[str, str] = {}
        try:
            body, status = await self._answer(request, proven), 200
        except Refused as refused:
            body, status = Refusal(error=str(refused)).model_dump_json(by_alias=True), refused.status
            if refused.retry_after:
                headers["Retry-After"] = str(math.ceil(refused.retry_after))
        self._metrics.gang_exchanges.labels(str(status)).inc()
        return web.Response(text=body, status=status, headers=headers, content_type="application/json")

    async def _answer(self, request: web.BaseRequest, proven: Callable[[str], None]) -> str:
        path = _PATH.fullmatch(request.path)
        if path is None or request.method != "POST":
            raise Refused(404, f"expected POST {PATH}")
        uid = path["workload"]
        if not self._gangs.serves(uid):  # Then the token need not be looked at.
            raise Refused(STATUS_ELSEWHERE, f"no gang of workload {uid} is served here: try another address")
        gang, proof = await self._identified(request, uid)
        said = await _read(request)
        try:
            directive = await gang.exchange(said, proof, proven)
        except Stranger as error:
            raise Refused(STATUS_FOREIGN, str(error)) from None
        except Limited as limited:
            raise Refused(STATUS_LIMITED, str(limited), limited.seconds) from None
        except KubeError as error:
            raise Refused(STATUS_LATER, f"the pod cannot be looked for now: {error.message}") from None
        if directive is None:
            raise Refused(STATUS_LATER, "nobody knows yet: go on as before, and announce again")
        return directive.model_dump_json(by_alias=True, exclude_none=True)

    async def _identified(self, request: web.BaseRequest, uid: str) -> tuple[Gang, Proof]:
        """Return the gang that a request is for, and the pod that it comes from; a review comes last."""
        given = request.headers.get("Authorization", "")
        if not given.lower().startswith(_BEARER):
            raise Refused(STATUS_UNPROVEN, "Authorization: expected Bearer and the pod's token")
        if (request.content_length or 0) > BODY_MAXIMUM:
            raise Refused(STATUS_MALFORMED, f"expected at most {BODY_MAXIMUM} bytes")
        source = source_of(request.remote or "")
        try:
            checked = await self._proofs.check(given[len(_BEARER) :].strip(), source)
            namespace = checked.claim.proof.namespace
            gang = self._gangs.served.get(WorkloadKey(namespace, uid))
            if gang is None:
                where = f"{namespace}/{uid}"
                raise Refused(STATUS_ELSEWHERE, f"no gang of workload {where} is served here: try another address")
            return gang, await self._proofs.of(checked)
        except Unproven as error:
            raise Refused(STATUS_UNPROVEN, str(error)) from None
        except Limited as limited:
            raise Refused(STATUS_LIMITED, str(limited), limited.seconds) from None
        except KubeError as error:
            raise Refused(STATUS_LATER, f"the token cannot be reviewed now: {error.message}") from None


async def _read(request: web.BaseRequest) -> Announcement:
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.content.iter_any():
                body += chunk
                if len(body) > BODY_MAXIMUM:
                    raise Refused(STATUS_MALFORMED, f"expected at most {BODY_MAXIMUM} bytes")
    except TimeoutError:
        raise Refused(STATUS_LATER, f"the announcement has not arrived within {BODY_SECONDS:.0f} s") from None
    try:
        said = Announcement.model_validate_json(bytes(body))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise Refused(STATUS_MALFORMED, f"{where or 'body'}: {first['msg']}") from None
    if said.protocol > PROTOCOL:
        raise Refused(STATUS_MALFORMED, f"protocol: {said.protocol}: expected at most {PROTOCOL}; use an older agent")
    return said
