"""What stands in a cluster for workloads, and what becomes of each kind as Holdfast goes (row F15). Pure."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, cast

import pytest

from holdfast import formats, names
from holdfast.errors import HoldfastError
from holdfast.worker.cleanup import uninstall, workloads
from holdfast.worker.cleanup.sweep_lookup import Ground
from holdfast.worker.cleanup.workloads import Thing, thing_of

ROW = pytest.mark.row
OWN = [(names.API_VERSION, names.ANCHOR_KIND), (names.API_VERSION, names.ATTEMPT_KIND)]


def found(kind: tuple[str, str], *, held: bool = False) -> Thing:
    metadata = {"name": "train", "namespace": "research", "uid": f"uid-{kind[1]}"}
    return thing_of(*kind, {"metadata": metadata | {"finalizers": [names.FINALIZER] if held else []}})


class _Kube:
    def __init__(self) -> None:
        self.deleted: list[str] = []

    async def delete(self, *key: str, **_: Any) -> None:
        self.deleted.append(key[1])

    async def find(self, *_: str) -> None:
        return None


class _Site:
    cluster = "dev"

    def __init__(self, kube: _Kube) -> None:
        self.kube = kube


class _Ground:
    client = None

    def __init__(self) -> None:
        self.kube = _Kube()
        self.site = _Site(self.kube)


@pytest.fixture
def ground(monkeypatch: pytest.MonkeyPatch) -> _Ground:
    """A cluster that has one object of each kind, until it is deleted."""
    there = _Ground()
    things = [found(kind, held=True) for kind in (*OWN, *formats.RESOURCES)]

    async def standing(*_: Any) -> list[Thing]:
        return [one for one in things if one.kind not in there.kube.deleted]

    async def none(*_: Any) -> list[Any]:
        return []

    for module in (workloads, uninstall):
        monkeypatch.setattr(module, "standing", standing)
        monkeypatch.setattr(module, "open_workflows", none)
        monkeypatch.setattr(module, "LOOK", 0.001)
    return there


@ROW("F15", level="pure")
def test_F15_what_users_applied_is_not_holdfasts_own_and_no_copy() -> None:
    assert [found(kind).own for kind in OWN] == [True, True]
    assert (names.API_VERSION, "Workload") in formats.RESOURCES
    for kind in formats.RESOURCES:
        assert not found(kind).own
        assert not found(kind).lives, "it has ended"
        assert found(kind, held=True).lives
    metadata = {"name": "train", "namespace": "theirs", "uid": "u"}
    said = {"metadata": metadata, "spec": {"workflowId": "workload/dev/research/train"}}
    assert thing_of(*OWN[0], said).copied
    assert not thing_of(names.API_VERSION, "Workload", said).copied


@ROW("F15", level="pure")
async def test_F15_removed_are_all_that_users_applied(ground: _Ground) -> None:
    applied = {kind for _, kind in formats.RESOURCES}
    shown = list[str]()
    with pytest.raises(HoldfastError, match="still there: Anchor research/train, Attempt research/train"):
        await workloads.remove_workloads(
            cast("Ground", ground), because="x", limit=timedelta(seconds=0.2), say=lambda _: None, show=shown.append
        )
    assert set(ground.kube.deleted) == applied, "anchors and attempts go with their workflows"
    assert " are left, still there: " in shown[0], "a person who waits sees it before time is up"


@ROW("F15", level="pure")
async def test_F15_what_users_applied_is_left_to_them(ground: _Ground) -> None:
    await uninstall.leave_workloads(cast("Ground", ground), say=lambda _: None)
    assert set(ground.kube.deleted) == {names.ANCHOR_KIND, names.ATTEMPT_KIND}
