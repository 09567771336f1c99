"""What stands in a cluster for workloads, and what becomes of each kind as Holdfast goes (row F15). Pure."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, cast

import pytest

from holdfast import formats, names
from holdfast.errors import HoldfastError
from holdfast.worker.cleanup import uninstall, workloads
from holdfast.worker.cleanup.sweep_lookup import Ground
from holdfast.worker.cleanup.workloads import Thing, standing, thing_of

ROW = pytest.mark.row
OWN = [(names.API_VERSION, names.ANCHOR_KIND), (names.API_VERSION, names.ATTEMPT_KIND)]


def found(kind: tuple[str, str], *, held: bool = False) -> Thing:
    metadata = {"name": "train", "namespace": "research", "uid": f"uid-{kind[1]}"}
    return thing_of(*kind, {"metadata": metadata | {"finalizers": [names.FINALIZER] if held else []}})


class _Kube:
    def __init__(self, *there: dict[str, Any]) -> None:
        self.deleted: list[str] = []
        self._there = there

    async def list(self, api_version: str, kind: str, *_: str) -> dict[str, Any]:
        return {"items": [one for one in self._there if (one["apiVersion"], one["kind"]) == (api_version, kind)]}

    async def delete(self, *key: str, **_: Any) -> None:
        self.deleted.append(key[1])

    async def find(self, *_: str) -> None:
        return None


class _Site:
    cluster = "dev"
    installation = "ours"

    def __init__(self, kube: _Kube) -> None:
        self.kube = kube


class _Ground:
    client = None
    managed_by = "holdfast.dev/blue"

    def __init__(self, *there: dict[str, Any]) -> None:
        self.kube = _Kube(*there)
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


APPLIED = next(iter(formats.RESOURCES))


def raw(
    kind: tuple[str, str], spec: dict[str, Any], installation: str = "ours", *, held: bool = True
) -> dict[str, Any]:
    metadata = {
        "name": "train",
        "namespace": "research",
        "uid": "u",
        "labels": {names.LABEL_INSTALLATION: installation},
    }
    finalizers = [names.FINALIZER] if held else []
    return {
        "apiVersion": kind[0],
        "kind": kind[1],
        "metadata": metadata | {"finalizers": finalizers},
        "spec": spec,
    }


@ROW("F15", level="pure")
@pytest.mark.parametrize(
    ("there", "says"),
    [
        *[(raw(kind, {"workflowId": "workload/prod/research/train"}), "calls this cluster prod") for kind in OWN],
        (raw(APPLIED, {"managedBy": names.MANAGED_BY}), f"ours that runs what is managedBy {names.MANAGED_BY}"),
        (raw(OWN[0], {"workflowId": "workload/dev/research/train"}, "theirs"), "installation: theirs also has"),
    ],
    ids=["anchor", "attempt", "applied", "label"],
)
async def test_F15_what_another_installation_runs_is_not_ours_whatever_its_label(there: dict[str, Any], says: str):
    with pytest.raises(HoldfastError, match=says):
        await standing(cast("Ground", _Ground(there)))


@ROW("F15", level="pure")
@pytest.mark.parametrize(
    "there",
    [
        *[raw(kind, {"workflowId": said}) for kind in OWN for said in ("workload/dev/research/train", "nothing")],
        raw(APPLIED, {"managedBy": "holdfast.dev/blue"}),
        raw(APPLIED, {"managedBy": "holdfast.dev/blue"}, ""),
        raw(APPLIED, {"managedBy": names.MANAGED_BY}, held=False),
    ],
)
async def test_F15_what_is_ours_is_found_by_its_label_or_by_who_runs_it(there: dict[str, Any]):
    (one,) = await standing(cast("Ground", _Ground(there)))
    assert one.kind == there["kind"]
