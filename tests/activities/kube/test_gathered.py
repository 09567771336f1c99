"""Reads of several workloads made as one: each answer is of a read that began after it was asked for."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import names
from holdfast.activities.kube import batch
from holdfast.activities.kube.batch import MANY, MOST, Gathered
from holdfast.activities.kube.client import Forbidden, Kube, KubeError, Unreachable, service_account_user
from holdfast.activities.kube.each import AT_ONCE
from tests.activities.bench import eventually
from tests.activities.line import Line

pytestmark = pytest.mark.e2e


class Counted(Kube):
    """Counts its reads, with the workloads that each asked for, and can hold one back."""

    reads: list[str]
    gets: list[str]
    open: asyncio.Event

    @classmethod
    def of(cls, kube: Kube) -> Counted:
        made = cls.__new__(cls)
        made.__dict__ = kube.__dict__
        made.reads = []
        made.gets = []
        made.open = asyncio.Event()
        made.open.set()
        return made

    async def get(self, *given: Any, **more: Any) -> Any:
        self.gets.append(given[2])
        return await super().get(*given, **more)

    async def find(self, *given: Any, **more: Any) -> Any:
        self.reads.append(given[2])
        found = await super().find(*given, **more)
        await self.open.wait()
        return found

    async def list(self, *given: Any, **more: Any) -> Any:
        self.reads.append(more.get("labels", ""))
        listed = await super().list(*given, **more)
        await self.open.wait()
        return listed


async def pod(admin: Kube, namespace: str, uid: str) -> str:
    containers = [{"name": "main", "image": "none"}]
    metadata = {"generateName": "p-", "namespace": namespace, "labels": {names.LABEL_WORKLOAD_UID: uid}}
    # A scheduler of its own: nothing happens to it.
    spec = {"schedulerName": "none", "containers": containers}
    made = await admin.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    return made["metadata"]["name"]


async def named(answer: Any) -> list[str]:
    return [one["metadata"]["name"] for one in await answer]


async def test_who_asks_during_a_read_is_answered_by_the_next_one(admin: Kube, kube: Kube, namespace: str):
    before = await pod(admin, namespace, "a")
    counted = Counted.of(kube)
    gathered = Gathered(counted)

    def ask(uid: str) -> asyncio.Task[list[str]]:
        return asyncio.create_task(named(gathered.of("v1", "Pod", namespace, uid)))

    counted.open.clear()
    first = ask("a")
    await eventually(lambda: _is(len(counted.reads) == 1))
    later = [ask("b"), ask("a"), ask("nobody"), ask("b")]
    await asyncio.sleep(0)
    made = await pod(admin, namespace, "b")
    counted.open.set()
    assert await first == [before]
    assert [await one for one in later] == [[made], [before], [], [made]]
    assert counted.reads[1:] == [f"{names.LABEL_WORKLOAD_UID} in (a,b,nobody)"], "the four are one read"


async def test_a_failure_is_told_to_all_who_shared_the_read_and_the_next_is_read_anew(
    admin: Kube, far_kube: Kube, namespace: str, line: Line
):
    made = await pod(admin, namespace, "a")
    gathered = Gathered(far_kube)

    async def answered() -> bool:
        try:
            return await named(gathered.of("v1", "Pod", namespace, "a")) == [made]
        except KubeError:
            return False

    await eventually(answered)
    line.cut()
    asked = [gathered.of("v1", "Pod", namespace, uid) for uid in ("a", "b", "a")]
    assert all(isinstance(one, Unreachable) for one in await asyncio.gather(*asked, return_exceptions=True))
    line.mend()
    await eventually(answered)


async def test_one_who_is_broken_off_leaves_the_others_their_answer(kube: Kube, admin: Kube, namespace: str):
    made = await pod(admin, namespace, "b")
    gathered = Gathered(kube)
    left = asyncio.create_task(gathered.of("v1", "Pod", namespace, "a"))
    other = asyncio.create_task(named(gathered.of("v1", "Pod", namespace, "b")))
    await asyncio.sleep(0)
    left.cancel()
    assert await other == [made]
    with pytest.raises(asyncio.CancelledError):
        await left


async def test_a_request_names_no_more_workloads_than_fit(admin: Kube, kube: Kube, namespace: str):
    counted = Counted.of(kube)
    gathered = Gathered(counted)
    made = await pod(admin, namespace, f"w-{MOST}")
    asked = [named(gathered.of("v1", "Pod", namespace, f"w-{number}")) for number in range(MOST + 1)]
    answers = await asyncio.gather(*asked)
    assert [one for one in answers if one] == [[made]]
    assert [labels.count("w-") for labels in counted.reads] == [MOST, 1]


async def test_who_shares_a_read_that_the_closing_of_the_client_breaks_off_is_told(kube: Kube, namespace: str):
    class Closed(Counted):
        async def find(self, *_: Any, **__: Any) -> Any:
            raise asyncio.CancelledError

    gathered = Gathered(Closed.of(kube))
    async with asyncio.timeout(5):
        asked = [gathered.find("v1", "Pod", "a", namespace) for _ in range(2)]
        answers = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(one) for one in answers] == [Unreachable, Unreachable]


async def test_one_object_is_read_once_for_all_who_ask_during_a_read(admin: Kube, kube: Kube, namespace: str):
    counted = Counted.of(kube)
    gathered = Gathered(counted)

    def ask(name: str) -> asyncio.Task[Any]:
        return asyncio.create_task(gathered.find("v1", "Pod", name, namespace))

    counted.open.clear()
    first = ask("absent")
    await eventually(lambda: _is(len(counted.reads) == 1))
    name = await pod(admin, namespace, "a")
    later = [ask(name), ask("absent"), ask(name), ask("absent")]
    await asyncio.sleep(0)
    counted.open.set()
    assert await first is None
    found = [await one for one in later]
    assert [one and one["metadata"]["name"] for one in found] == [name, None, name, None]
    assert sorted(counted.reads) == sorted(["absent", "absent", name]), "who asked later has an answer of a later read"


async def by_name(gathered: Gathered, namespace: str, wanted: list[str], **more: Any) -> list[Any]:
    """Return what is found under each name: the object's name, None, or the sort of error."""
    asked = [gathered.named("v1", "Pod", name, namespace, **more) for name in wanted]
    answers = await asyncio.gather(*asked, return_exceptions=True)
    return [type(one) if isinstance(one, BaseException) else one and one["metadata"]["name"] for one in answers]


async def test_many_names_are_looked_up_in_one_list(admin: Kube, kube: Kube, namespace: str):
    counted = Counted.of(kube)
    gathered = Gathered(counted)
    there = [await pod(admin, namespace, "a") for _ in range(3)]
    wanted = [*there, *(f"absent-{number}" for number in range(MANY - 3)), there[0]]
    assert await by_name(gathered, namespace, wanted) == [*there, *[None] * (MANY - 3), there[0]]
    assert (counted.reads, counted.gets) == ([""], [])


async def test_few_names_are_read_each_by_itself(admin: Kube, kube: Kube, namespace: str):
    counted = Counted.of(kube)
    gathered = Gathered(counted)
    there = await pod(admin, namespace, "a")
    assert await by_name(gathered, namespace, [there, "absent"]) == [there, None]
    assert (counted.reads, sorted(counted.gets)) == ([], sorted(["absent", there]))


async def test_a_list_of_many_others_is_broken_off_and_not_tried_again_at_once(
    admin: Kube, kube: Kube, namespace: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(batch, "PER_NAME", 0)
    counted = Counted.of(kube)
    gathered = Gathered(counted)
    there = [await pod(admin, namespace, "a") for _ in range(2)]
    wanted = [*there, *(f"absent-{number}" for number in range(AT_ONCE))]
    for _ in range(2):
        assert await by_name(gathered, namespace, wanted) == [*there, *[None] * AT_ONCE]
    assert counted.reads == [""]
    assert sorted(counted.gets) == sorted(2 * wanted)


async def test_a_list_that_was_broken_off_is_tried_again_for_twice_as_many_names(
    kube: Kube, namespace: str, admin: Kube, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(batch, "PER_NAME", 0)
    counted = Counted.of(kube)
    gathered = Gathered(counted)
    wanted = [await pod(admin, namespace, "a"), *(f"absent-{number}" for number in range(2 * MANY - 1))]
    for many, lists in [(MANY, 1), (2 * MANY - 1, 1), (2 * MANY, 2), (2 * MANY, 2)]:
        await by_name(gathered, namespace, wanted[:many])
        assert len(counted.reads) == lists, f"{many} names"


async def test_a_list_that_was_broken_off_is_tried_again_later(
    admin: Kube, kube: Kube, namespace: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(batch, "PER_NAME", 0)
    monkeypatch.setattr(batch, "COSTLY_SECONDS", 0.05)
    counted = Counted.of(kube)
    gathered = Gathered(counted)
    wanted = [await pod(admin, namespace, "a"), *(f"absent-{number}" for number in range(MANY))]
    for _ in range(2):
        await by_name(gathered, namespace, wanted)
        await asyncio.sleep(0.1)
    assert counted.reads == ["", ""]


async def test_who_may_read_but_not_list_is_answered_name_by_name(admin: Kube, namespace: str):
    group, user = "rbac.authorization.k8s.io", service_account_user(namespace, "reader")
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"], "resourceNames": ["seen", "absent"]}]
    metadata = {"name": "reader", "namespace": namespace}
    subject = {"kind": "ServiceAccount", **metadata}
    role = {"apiGroup": group, "kind": "Role", "name": "reader"}
    await admin.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
    await admin.create({"apiVersion": f"{group}/v1", "kind": "Role", "metadata": metadata, "rules": rules})
    binding = {"apiVersion": f"{group}/v1", "kind": "RoleBinding", "metadata": metadata}
    await admin.create({**binding, "subjects": [subject], "roleRef": role})
    gathered = Gathered(admin)
    wanted = ["absent", *(f"hidden-{number}" for number in range(MANY))]

    async def bound() -> bool:
        found = await by_name(gathered, namespace, wanted, impersonate=user)
        return found == [None, *[Forbidden] * MANY]

    await eventually(bound)


@pytest.mark.parametrize(
    ("status", "alone"), [(405, True), (500, True), (0, False), (401, False), (429, False)], ids=lambda one: str(one)
)
async def test_a_list_that_fails_is_replaced_by_reads_of_each_if_these_may_be_answered(
    kube: Kube, namespace: str, status: int, alone: bool
):
    class Failing(Counted):
        async def list(self, *_: Any, **__: Any) -> Any:
            sort = KubeError if status == 405 else Unreachable
            raise sort(status, "Planted", "planted")

    failing = Failing.of(kube)
    wanted = [f"absent-{number}" for number in range(MANY)]
    more = [f"absent-{number}" for number in range(2 * MANY)]
    gathered = Gathered(failing)
    answers = await by_name(gathered, namespace, wanted)
    assert answers == ([None] if alone else [Unreachable]) * MANY
    assert sorted(failing.gets) == (wanted if alone else [])
    assert await by_name(gathered, namespace, more) == [None] * 2 * MANY, "a list that fails is not tried again at once"


async def test_no_answer_is_told_to_all_whose_names_were_looked_up(far_kube: Kube, namespace: str, line: Line):
    gathered = Gathered(far_kube)
    assert await by_name(gathered, namespace, ["absent"]) == [None]
    line.cut()
    wanted = [f"absent-{number}" for number in range(MANY)]
    assert await by_name(gathered, namespace, wanted) == [Unreachable] * MANY


async def _is(true: bool) -> bool:
    return true
