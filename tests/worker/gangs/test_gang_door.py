"""The endpoint of gangs and real agents' own client, over real HTTP: what is held back, what is refused, and how."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jwt
import pytest
from aiohttp import web

from holdfast import names
from holdfast.activities.kube.client import Unreachable as ApiUnreachable
from holdfast.agent.hub import Hub, Refused, Unreachable
from holdfast.agent.messages import Directive, Kind
from holdfast.model.gang.state import Gang as GangSettings
from holdfast.model.gang.state import GangState
from holdfast.policy.rendezvous.hub import GangHub
from holdfast.policy.rendezvous.orders import holders, orders
from holdfast.policy.rendezvous.step import begun, step
from holdfast.worker.gangs.door import Door
from holdfast.worker.gangs.keys import Proof
from holdfast.worker.gangs.listener import Listener
from holdfast.worker.gangs.proof import Proofs, proof
from holdfast.worker.gangs.sessions import Gang, GangName, Gangs, PodSeen, pod_seen
from holdfast.worker.runtime.metrics import Metrics
from tests.worker.gangs.tokens import ISSUER, Signer

START = datetime(2026, 1, 31, 12, tzinfo=UTC)
UID = "uid-1"


def reviewed(pod: str, audience: str = names.RENDEZVOUS_AUDIENCE, namespace: str = "team-a") -> dict[str, Any]:
    """A TokenReview's status as an API server gives it."""
    return {
        "authenticated": True,
        "audiences": [audience],
        "user": {
            "username": f"system:serviceaccount:{namespace}:default",
            "extra": {
                "authentication.kubernetes.io/pod-name": [pod],
                "authentication.kubernetes.io/pod-uid": [f"pod-{pod}"],
            },
        },
    }


class Cluster:
    """Signs and reviews tokens, and has no pod that its watch has not seen."""

    def __init__(self) -> None:
        self.signer = Signer()
        self.reviews = 0
        self.dark = False
        self.revoked = set[str]()

    async def review_token(self, token: str, audience: str) -> Any:
        self.reviews += 1
        assert audience == names.RENDEZVOUS_AUDIENCE
        await asyncio.sleep(0.01)
        if self.dark:
            raise ApiUnreachable(0, "", "no answer")
        pod = jwt.decode(token, options={"verify_signature": False})["kubernetes.io"]["pod"]["name"]
        return reviewed(pod) if pod not in self.revoked else {"authenticated": False, "error": "its pod is gone"}

    async def published_keys(self) -> tuple[str, list[dict[str, Any]]]:
        return ISSUER, [self.signer.published]

    async def find(self, *_: Any, **__: Any) -> None:
        return None


class Place:
    """One gang behind a real door, and its rendezvous, which answers when the test says so."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cluster = Cluster()
        self.gangs = Gangs()
        self.metrics = Metrics()
        self.gang = Gang(GangName("team-a", "train", UID), self.cluster)  # type: ignore[arg-type]
        self.state: GangState = begun(GangSettings(min=1, max=2), UID, 1, START)
        self.now = START
        self.url = ""
        self.proven = list[str]()
        """The pods whose connections have been kept, by uid."""

    def serve(self) -> None:
        self.gangs.served[self.gang.name.key] = self.gang
        at = asyncio.get_running_loop().time()
        self.gang.hub = GangHub(self.state.gang, orders(self.state, 0), holders(self.state), at)

    def told(self) -> None:
        """The rendezvous takes in what is new, and its answer is taken in."""
        hub = self.gang.hub
        assert hub is not None
        at = asyncio.get_running_loop().time() + 1000
        batch, events = hub.batch(at, self.now)
        seen = hub.orders.revision
        self.state = step(self.state, events, self.now).state
        hub.done(batch, at)
        self.gang.answer(hub.takes(orders(self.state, seen)))

    def agent(self, name: str, token: str = "") -> Hub:
        file = self.folder / name
        file.write_text(token or self.cluster.signer.token(name))
        self.gang.put(PodSeen(name, f"pod-{name}", UID, 1, ""))
        return Hub(self.url, UID, str(file))


def says(name: str, seen: int = 0, wait: float = 0, state: str = "INIT", **more: Any) -> dict[str, Any]:
    join = {
        "member": name,
        "podUid": f"pod-{name}",
        "attempt": 1,
        "incarnation": "i1",
        "startedAt": START.isoformat(),
        "address": "10.0.0.1",
        "port": 29500,
        **more,
    }
    report = {"state": state, "round": 0, "since": START.isoformat()}
    return {"protocol": 1, "join": join, "report": report, "seen": seen, "wait": f"{wait:.3f}s"}


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    place = Place(tmp_path)
    door = Door(place.gangs, Proofs(place.cluster), place.metrics)

    async def handle(request: web.BaseRequest, proven: Callable[[str], None]) -> web.Response:
        def noted(pod_uid: str) -> None:
            place.proven.append(pod_uid)
            proven(pod_uid)

        return await door.handle(request, noted)

    listener = Listener(handle)
    place.url = f"http://{await listener.start('127.0.0.1:0')}"
    yield place
    await listener.close()


async def test_an_agent_is_answered_at_once_and_its_directive_as_soon_as_there_is_one(place: Place):
    place.serve()
    one, two = place.agent("a"), place.agent("b")
    first = await one.exchange(says("a"))
    assert (first.kind, first.revision) == (Kind.WAIT, 0)
    held = asyncio.create_task(one.exchange(says("a", wait=20), 20))
    await two.exchange(says("b"))
    await asyncio.sleep(0.1)
    assert not held.done()
    place.told()
    directive = await asyncio.wait_for(held, 5)
    assert directive.kind is Kind.RUN
    assert directive.assignment is not None
    assert directive.assignment.world_size == 2
    one.close()
    two.close()


@pytest.mark.row("D39", level="pure")
async def test_D39_a_members_index_is_its_pods_whatever_the_agent_says(place: Place):
    place.serve()
    agent = place.agent("a")
    labels = {names.LABEL_ATTEMPT: "1", names.LABEL_WORKLOAD_UID: UID}
    annotations = {"batch.kubernetes.io/job-completion-index": "2"}
    raw = {"metadata": {"name": "a", "uid": "pod-a", "labels": labels, "annotations": annotations}}
    seen = pod_seen(raw)
    assert seen is not None
    place.gang.put(seen)
    await agent.exchange(says("a", index=7))
    place.told()
    assert place.state.members["a"].join.index == 2


async def test_a_request_is_held_back_no_longer_than_it_asked(place: Place):
    place.serve()
    agent = place.agent("a")
    await agent.exchange(says("a"))
    place.told()
    known: Directive = await agent.exchange(says("a"))
    began = asyncio.get_running_loop().time()
    assert await agent.exchange(says("a", seen=known.revision, wait=0.3), 0.3) == known
    assert 0.25 <= asyncio.get_running_loop().time() - began < 3
    agent.close()


async def test_whose_gang_is_served_elsewhere_or_by_nobody_yet_asks_again(place: Place):
    agent = place.agent("a")
    with pytest.raises(Unreachable, match="421"):
        await agent.exchange(says("a"))
    place.gangs.served[place.gang.name.key] = place.gang
    with pytest.raises(Unreachable, match="503"):
        await agent.exchange(says("a"))
    place.serve()
    # Who was reviewed already goes on while the API server does not answer; who comes new waits.
    place.cluster.dark = True
    assert (await agent.exchange(says("a"))).kind is Kind.WAIT
    newcomer = place.agent("b")
    with pytest.raises(Unreachable, match="503"):
        await newcomer.exchange(says("b"))
    agent.close()
    newcomer.close()


async def test_a_gang_of_another_namespace_with_the_same_uid_stands_in_nobodys_way(place: Place):
    hostile = Gang(GangName("team-b", "train", UID), place.cluster)  # type: ignore[arg-type]
    place.gangs.served[hostile.name.key] = hostile
    agent = place.agent("a")
    with pytest.raises(Unreachable, match="421"):
        await agent.exchange(says("a"))
    place.serve()
    assert (await agent.exchange(says("a"))).kind is Kind.WAIT
    assert place.gangs.served[hostile.name.key] is hostile
    agent.close()


async def test_who_is_held_back_is_let_go_when_the_gang_is_served_no_more(place: Place):
    place.serve()
    agent = place.agent("a")
    await agent.exchange(says("a"))
    held = asyncio.create_task(agent.exchange(says("a", wait=20), 20))
    await asyncio.sleep(0.1)
    place.gang.hub = None
    place.gang.answer_all()
    with pytest.raises(Unreachable, match="503"):
        await asyncio.wait_for(held, 5)
    agent.close()


async def test_who_is_not_of_the_gang_is_refused_for_good_and_a_token_that_has_run_out_is_not(place: Place):
    place.serve()
    with pytest.raises(Unreachable, match="401"):
        await place.agent("a", token=place.cluster.signer.token("a", exp=1)).exchange(says("a"))
    with pytest.raises(Refused, match="the token is of pod b"):
        await place.agent("a", token=place.cluster.signer.token("b")).exchange(says("a"))
    agent = place.agent("c")
    place.gang.drop(place.gang.pods["pod-c"], 1)
    with pytest.raises(Refused, match=r"pod c \(pod-c\) is gone"):
        await agent.exchange(says("c"))
    agent = place.agent("d")
    place.gang.put(PodSeen("d", "pod-d", UID, 2, ""))
    with pytest.raises(Refused, match="is of attempt 2"):
        await agent.exchange(says("d"))
    with pytest.raises(Refused, match="port"):
        await place.agent("e").exchange(says("e", port=0))


@pytest.mark.row("X9", level="pure")
async def test_X9_a_connection_is_kept_for_a_pod_of_the_gang_alone_and_while_its_request_is_held(place: Place):
    place.serve()
    stranger = place.agent("x")
    place.gang.put(PodSeen("x", "pod-x", "uid-2", 1, ""))
    with pytest.raises(Refused, match="pod x is of workload uid-2"):
        await stranger.exchange(says("x"))
    with pytest.raises(Refused, match="the token is of pod x"):
        await stranger.exchange(says("a"))
    assert place.proven == []
    agent = place.agent("a")
    held = asyncio.create_task(agent.exchange(says("a", wait=20), 20))
    async with asyncio.timeout(5):
        await place.gang.wake.wait()
    assert place.proven == ["pod-a"]
    assert not held.done()
    place.gang.hub = None
    place.gang.answer_all()
    with pytest.raises(Unreachable, match="503"):
        await asyncio.wait_for(held, 5)
    agent.close()
    stranger.close()


def test_only_a_token_for_this_audience_that_is_bound_to_a_pod_proves_anything():
    assert proof(reviewed("a")) == Proof("team-a", "a", "pod-a")
    assert "audience" in str(proof(reviewed("a", audience="https://kubernetes.default.svc")))
    unbound = reviewed("a")
    del unbound["user"]["extra"]
    assert "not bound to a pod" in str(proof(unbound))
    node = reviewed("a")
    node["user"]["username"] = "system:node:n1"
    assert "not bound to a pod" in str(proof(node))
