"""What the doctor compares and what it does not know (row D51): types, the cluster that is meant, whose rights."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from temporalio.api.enums.v1 import IndexedValueType

from holdfast import names
from holdfast.activities.kube.errors import Forbidden
from holdfast.cli.cluster import checks
from holdfast.cli.cluster.checks import Check
from holdfast.cli.cluster.doctor import text
from holdfast.errors import HoldfastError
from holdfast.policy.nodes import provisioner_status
from holdfast.worker.runtime.settings import load

ROW = pytest.mark.row
NUMBERS = {
    "Keyword": IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD,
    "Int": IndexedValueType.INDEXED_VALUE_TYPE_INT,
    "Bool": IndexedValueType.INDEXED_VALUE_TYPE_BOOL,
    "Text": IndexedValueType.INDEXED_VALUE_TYPE_TEXT,
}


def temporal(**types: str) -> Any:
    """A Temporal whose namespace has all search attributes, some of another type."""
    there = {name: NUMBERS[kind] for name, kind in (names.SEARCH_ATTRIBUTES | types).items()}

    async def listed(*_: Any, **__: Any) -> Any:
        return SimpleNamespace(custom_attributes=there)

    return SimpleNamespace(namespace="prod", operator_service=SimpleNamespace(list_search_attributes=listed))


class Kube:
    """An API server that lets nobody ask as somebody else, and whose own identity may do anything."""

    def __init__(self, *, impersonates: bool = False, asks: bool = True) -> None:
        self.impersonates, self.asks = impersonates, asks

    async def allowed(
        self, verb: str, resource: Any, namespace: str = "", *, impersonate: str = ""
    ) -> tuple[bool, str]:
        if not self.asks or (impersonate and not self.impersonates):
            raise Forbidden(403, "Forbidden", "users may not be impersonated")
        return True, ""


async def rights(kube: Any) -> list[Check]:
    return [one async for one in checks._rights(kube)]


@ROW("D51", level="pure")
async def test_D51_a_search_attribute_of_another_type_is_not_ok():
    assert (await checks._search_attributes(temporal(), fix=False)).good
    wrong = await checks._search_attributes(temporal(HoldfastPhase="Text", HoldfastAttempt="Keyword"), fix=True)
    assert not wrong.good
    assert "HoldfastPhase is Text, expected Keyword" in wrong.found
    assert "HoldfastAttempt is Keyword, expected Int" in wrong.found
    assert "search-attribute remove" in wrong.remedy


@ROW("D51", level="pure")
async def test_D51_an_administrators_rights_are_not_taken_for_the_workers():
    assert all(one.good for one in await rights(Kube(impersonates=True)))
    for kube in (Kube(), Kube(asks=False)):
        (found,) = await rights(kube)
        assert not found.good, found
        assert found.unknown
        assert "not known" in found.found
        assert text([found]).startswith("unknown rights")


@ROW("D51", level="pure")
@pytest.mark.parametrize(
    ("bound", "here", "good", "unknown", "said"),
    [
        ("a", "a", True, False, "stands for the cluster that the kubeconfig leads to"),
        ("a", "b", False, False, "dev stands for the cluster of uid a, and the kubeconfig leads to that of uid b"),
        ("", "b", False, True, "not known: no watch of dev"),
        ("a", "", False, True, "not known: nothing says which cluster the kubeconfig leads to"),
    ],
)
def test_D51_the_cluster_that_is_meant_is_compared(bound: str, here: str, good: bool, unknown: bool, said: str):
    found = checks.binding("dev", bound, here)
    assert (found.good, found.unknown) == (good, unknown)
    assert said in found.found
    assert text([found]).startswith("ok" if good else "unknown" if unknown else "NOT OK")


@pytest.mark.row("X12", level="pure")
@pytest.mark.parametrize(
    ("labels", "warns"),
    [
        ({}, True),
        ({"pod-security.kubernetes.io/enforce": "privileged"}, True),
        ({"pod-security.kubernetes.io/warn": "baseline"}, True),
        ({"pod-security.kubernetes.io/enforce": "baseline"}, False),
        ({"pod-security.kubernetes.io/enforce": "restricted"}, False),
    ],
)
def test_X12_a_namespace_that_enforces_no_pod_security_is_warned_of(labels: dict[str, str], warns: bool) -> None:
    check = checks.namespace({"name": "team", "labels": labels}, ["runner"])
    assert (check.good, check.warns) == (True, warns), "it works all the same"
    assert ("pods may be privileged" in check.found) is warns
    assert bool(check.remedy) is warns
    shown = text([check])
    assert shown.startswith("warning namespace team" if warns else "ok      namespace team")
    assert ("try: kubectl label namespace team pod-security.kubernetes.io/enforce=baseline" in shown) is warns


def test_a_namespace_in_which_no_account_has_opted_in_is_not_ok() -> None:
    check = checks.namespace({"name": "team"}, [])
    assert (check.good, check.warns, check.remedy) == (False, False, "holdfast namespace enable team")


@ROW("E7", level="pure")
async def test_E7_what_begins_a_worker_for_the_provisioner_works_as_it_is_printed():
    async def status() -> Any:
        raise HoldfastError("no worker answers")

    session: Any = SimpleNamespace(provisioner=lambda _: SimpleNamespace(status=status))
    (found,) = await checks._provisioner(session, "dev")
    command = found.remedy.split("`")[1]
    assert command == "holdfast worker --roles workflows,wait --cluster dev"
    options = command.split()
    load({"roles": options[options.index("--roles") + 1], "cluster": options[options.index("--cluster") + 1]})


@ROW("E7", level="pure")
@pytest.mark.parametrize(("nodes", "said"), [(1, "1 silent node is not off"), (2, "2 silent nodes are not off")])
async def test_E7_a_silent_node_is_counted_in_words(monkeypatch: pytest.MonkeyPatch, nodes: int, said: str):
    async def status() -> Any:
        return SimpleNamespace(away={}, message="nothing waits")

    async def check() -> Any:
        return Check("", True, "it answers")

    async def node_book(_: str) -> Any:
        return object()

    waiting = {f"node-{number}": "it is asked for again" for number in range(nodes)}
    monkeypatch.setattr(provisioner_status, "unfenced", lambda *_: waiting)
    provisioner = SimpleNamespace(status=status, check=check)
    session: Any = SimpleNamespace(provisioner=lambda _: provisioner, node_book=node_book)
    _, found = await checks._provisioner(session, "dev")
    assert found.found.startswith(f"{said} yet, and workloads wait for that: node-0 (it is asked for again)")
