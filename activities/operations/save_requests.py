"""The two ways to ask a pod to save its state: annotations on it, or a POST to its own address (row L32)."""

from __future__ import annotations

import json
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto
from typing import Any, Final, Protocol, Self

import aiohttp

from holdfast import names
from holdfast.activities.facts.pod_address import own_address
from holdfast.activities.kube.client import REFUSED, Conflict, NotFound, Object
from holdfast.activities.kube.each import each
from holdfast.activities.kube.http import body_of
from holdfast.activities.kube.raw import mapping, one_line
from holdfast.activities.site.site import Site, user_of
from holdfast.model import CheckpointProtocol
from holdfast.model.calls.cluster import CheckpointInput
from holdfast.model.spec.checkpoint import URI_MAXIMUM

ANSWER_SECONDS = 5.0
"""Seconds that an endpoint has for one response. For a longer save it answers InProgress, and is asked again."""
ROUND_SECONDS = 20.0
"""Seconds in which all endpoints are asked once: with many of them, each has less time for its response."""
_LEAST_SECONDS = 0.5
_AT_ONCE: Final = 128
"""How many endpoints of one workload are asked at the same time."""
ANSWER_BYTES = 16 * 1024
_MESSAGE_MAXIMUM = 120


class Standing(Enum):
    """How far a pod that was asked has come."""

    SILENT = auto()
    """It has not answered, or its answer is not understood."""
    WORKING = auto()
    DONE = auto()
    FAILED = auto()


_WORDS = {"InProgress": Standing.WORKING, "Complete": Standing.DONE, "Failed": Standing.FAILED}
"""The answers that a pod may give."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A pod's answer, or the fact that it has not answered."""

    standing: Standing = Standing.SILENT
    uri: str = ""
    message: str = ""
    understood: bool = True
    """False if the response is not a valid answer: `message` says what it is (row D44)."""


Heard = Callable[[Object, Answer], None]


def _nobody(_: Object, __: Answer) -> None: ...


def told_to(heard: Heard, ask: Callable[[Object], Awaitable[Answer]]) -> Callable[[Object], Awaitable[Answer]]:
    """Return what asks a pod, and tells its answer as soon as it is there."""

    async def asked(pod: Object) -> Answer:
        answer = await ask(pod)
        heard(pod, answer)
        return answer

    return asked


class Asker(Protocol):
    """Asks one pod at each call, and returns its answer so far."""

    async def ask(self, pod: Object) -> Answer:
        """Ask the pod, of which `request_target` suffices, unless it has been asked, and return its answer so far.

        Raises:
            Unreachable: if the API server does not answer.
        """
        ...

    async def ask_all(self, pods: Sequence[Object], heard: Heard = _nobody) -> list[Answer]:
        """Ask all these pods once, and return their answers so far, in their order; `heard` is told each as it comes.

        Raises:
            Unreachable: if the API server does not answer.
        """
        ...

    async def __aenter__(self) -> Self:
        """Begin."""
        ...

    async def __aexit__(self, *_: object) -> None:
        """End."""
        ...


def asker_of(site: Site, given: CheckpointInput) -> Asker:
    """Return the asker for the protocol that the workload has chosen."""
    return _Endpoints(given) if given.checkpoint.protocol is CheckpointProtocol.HTTP else _Annotations(site, given)


def _not_understood(message: str) -> Answer:
    return Answer(message=message, understood=False)


def read_answer(state: Any, uri: Any, message: Any) -> Answer:
    """Return a pod's answer from its fields; Complete without a URI is not complete yet. Pure."""
    standing, place = _WORDS.get(str(state), Standing.SILENT), str(uri or "")
    text = one_line(message, _MESSAGE_MAXIMUM)
    if standing is Standing.SILENT and state:
        return _not_understood(f"it says {str(state)[:40]!r}: expected one of {', '.join(_WORDS)}")
    if standing is not Standing.DONE:
        return Answer(standing, message=text)
    if not place:
        return Answer(Standing.WORKING, message="it says Complete, and names no URI")
    if len(place) > URI_MAXIMUM or not place.isprintable():
        return Answer(Standing.FAILED, message=f"its URI is no printable text of at most {URI_MAXIMUM} characters")
    return Answer(standing, place, text)


def answer_to(number: int, named: Any, begun: bool, answer: Answer) -> Answer:
    """Return the answer if it belongs to request `number`, else what is wrong with it (row D45). Pure.

    An answer to an earlier request may arrive late, after the next request was made.

    Args:
        number: The request's number.
        named: The request number that the answer names; None or empty if it names none.
        begun: Whether the pod was seen InProgress since it was asked.
        answer: The answer that was read.
    """
    name = str(named if named is not None else "").strip()
    if name:
        if name == str(number):
            return answer
        return _not_understood(f"it answers request {one_line(name, 20)}: expected an answer to request {number}")
    if answer.standing not in {Standing.DONE, Standing.FAILED} or begun:
        return answer
    word = "Complete" if answer.standing is Standing.DONE else "Failed"
    return _not_understood(f"it says {word}, and not of which request: expected {number}, or InProgress before")


_ANSWER: Final = (
    names.ANNOTATION_CHECKPOINT_STATE,
    names.ANNOTATION_CHECKPOINT_URI,
    names.ANNOTATION_CHECKPOINT_MESSAGE,
)

_READ: Final = {
    "metadata": ("name", "namespace", "uid", "resourceVersion"),
    "spec": ("hostNetwork",),
    "status": ("podIP", "podIPs", "hostIP", "hostIPs"),
}
_READ_ANNOTATIONS: Final = (
    *_ANSWER,
    names.ANNOTATION_CHECKPOINT_ANSWERS,
    names.ANNOTATION_CHECKPOINT_BEGUN,
    names.ANNOTATION_CHECKPOINT_REQUEST,
    names.ANNOTATION_CHECKPOINT_REASON,
    names.ANNOTATION_CHECKPOINT_DEADLINE,
)


def request_target(raw: Mapping[str, Any]) -> Object:
    """Return the fields of a pod that an asker reads, as there may be thousands of pods. Pure."""
    kept: Object = {part: _only(raw.get(part), keys) for part, keys in _READ.items()}
    kept["metadata"]["annotations"] = _only(mapping(raw.get("metadata")).get("annotations"), _READ_ANNOTATIONS)
    return kept


def _only(part: Any, keys: tuple[str, ...]) -> Object:
    fields = mapping(part)
    return {key: fields[key] for key in keys if key in fields}


class _Annotations:
    """Asks by annotations on the pod, which the pod reads through the downward API; it answers by annotations too."""

    def __init__(self, site: Site, given: CheckpointInput) -> None:
        self._site = site
        self._given = given
        self._begun = set[str]()
        """The uids of pods that this worker saw InProgress; an annotation on each pod tells other workers."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return

    async def ask_all(self, pods: Sequence[Object], heard: Heard = _nobody) -> list[Answer]:
        return await each(pods, told_to(heard, self.ask))

    async def ask(self, pod: Object) -> Answer:
        there = mapping(mapping(pod["metadata"]).get("annotations"))
        wanted, sent, uid = _request(self._given), _sent(self._given), str(pod["metadata"]["uid"])
        number = str(sent)
        asked: dict[str, str | None] = {
            names.ANNOTATION_CHECKPOINT_REQUEST: number,
            names.ANNOTATION_CHECKPOINT_REASON: wanted["reason"],
            names.ANNOTATION_CHECKPOINT_DEADLINE: wanted["deadline"],
        }
        known = there.get(names.ANNOTATION_CHECKPOINT_REQUEST) == number
        said = Answer(message="it has just been asked")
        if not known:
            # The same patch removes its answer to an earlier request, which is not an answer to this one.
            marks = (names.ANNOTATION_CHECKPOINT_ANSWERS, names.ANNOTATION_CHECKPOINT_BEGUN)
            asked |= dict.fromkeys((*_ANSWER, *marks))
        else:
            begun = uid in self._begun or there.get(names.ANNOTATION_CHECKPOINT_BEGUN) == number
            named = there.get(names.ANNOTATION_CHECKPOINT_ANSWERS)
            said = answer_to(sent, named, begun, read_answer(*map(there.get, _ANSWER)))
            if said.standing is Standing.WORKING and not named:
                self._begun.add(uid)
                asked[names.ANNOTATION_CHECKPOINT_BEGUN] = number
        if not known or any(there.get(name) != value for name, value in asked.items()):
            await self._patch(pod, asked)
        return said

    async def _patch(self, pod: Object, annotations: Mapping[str, str | None]) -> None:
        metadata = pod["metadata"]
        try:
            await self._site.kube.patch(
                "v1",
                "Pod",
                metadata["name"],
                metadata["namespace"],
                uid=metadata["uid"],
                resource_version=metadata["resourceVersion"],
                patch={"metadata": {"annotations": dict(annotations)}},
                impersonate=user_of(self._given.target),
            )
        except (Conflict, NotFound, *REFUSED):
            return  # It is read again; a pod that cannot be asked stays silent.


class _Endpoints:
    """Asks by a POST to the pod's own address, and nowhere else; the answer is the response."""

    def __init__(self, given: CheckpointInput) -> None:
        self._given = given
        self._answers: dict[str, Answer] = {}
        """The final answers, by pod uid."""
        self._session: aiohttp.ClientSession | None = None
        self._seconds = ANSWER_SECONDS

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=_AT_ONCE, force_close=True),
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def ask_all(self, pods: Sequence[Object], heard: Heard = _nobody) -> list[Answer]:
        open_ones = sum(str(pod["metadata"]["uid"]) not in self._answers for pod in pods)
        turns = math.ceil(open_ones / _AT_ONCE)
        self._seconds = min(ANSWER_SECONDS, max(_LEAST_SECONDS, ROUND_SECONDS / max(turns, 1)))
        return await each(pods, told_to(heard, self.ask), _AT_ONCE)

    async def ask(self, pod: Object) -> Answer:
        uid = str(pod["metadata"]["uid"])
        said = self._answers.get(uid)
        if said is None:
            said = await self._post(pod)
            if said.standing in {Standing.DONE, Standing.FAILED}:
                self._answers[uid] = said
        return said

    async def _post(self, pod: Object) -> Answer:
        where = address_of(pod)
        if not where:
            return Answer(message="it has no address of its own")
        checkpoint, session = self._given.checkpoint, self._session
        assert session is not None
        url = f"http://{where}:{checkpoint.port}{checkpoint.path}"
        number = _sent(self._given)
        body = {**_request(self._given), "request": number, "attempt": self._given.attempt}
        seconds = aiohttp.ClientTimeout(total=self._seconds)
        try:
            async with session.post(url, json=body, allow_redirects=False, timeout=seconds) as response:
                if response.status not in {200, 202}:
                    return _not_understood(f"its endpoint answers {response.status}")
                text = await body_of(response, ANSWER_BYTES + 1)
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            return Answer(message=f"its endpoint does not answer: {one_line(type(error).__name__, _MESSAGE_MAXIMUM)}")
        return read_body(text, number)


def read_body(text: bytes, number: int) -> Answer:
    """Return the answer in the body of a 200 or 202 response; an empty body means InProgress. Pure.

    A response belongs to the request that was posted, unless it names another one.
    """
    if len(text) > ANSWER_BYTES:
        return _not_understood(f"its answer is longer than {ANSWER_BYTES // 1024} KiB")
    if not text.strip():
        return Answer(Standing.WORKING)
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        return _not_understood("its answer is not valid JSON")
    told = mapping(answer)
    if not told.get("state"):
        return _not_understood("its answer has no state")
    said = read_answer(told.get("state"), told.get("uri"), told.get("message"))
    return answer_to(number, told.get("request"), True, said)


def _sent(given: CheckpointInput) -> int:
    return given.sent or given.number


def _request(given: CheckpointInput) -> dict[str, str]:
    return {"reason": given.reason, "deadline": _stamp(given.until)}


def _stamp(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


def address_of(pod: Object) -> str:
    """Return a pod's own address in the form that a URL needs; empty if it has none. Pure."""
    address = own_address(pod)
    return f"[{address}]" if ":" in address else address
