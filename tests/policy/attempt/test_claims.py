"""Claims of a StatefulSet's pods are recorded, and said: the next attempt mounts what is in them (row D25)."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.cli.common.render import explanation, status
from holdfast.client.views import ExplanationView, StatusView
from holdfast.model import Claims, Component, OperationKind, Reason, Workload
from holdfast.model.calls.cluster import Removed, planned
from holdfast.policy.status.explain import explain_of, markdown, status_of
from holdfast.policy.values.events import Cancelled, Suspended
from tests.policy.lives.life import Life, workload

pytestmark = pytest.mark.row("D25", level="pure")

KEPT = Claims(names=("data-web-0", "data-web-1"), total=2)


def component(claims: Any = ({"metadata": {"name": "data"}},), kind: str = "StatefulSet", **spec: Any) -> Component:
    template = {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": "web"},
        "spec": {"volumeClaimTemplates": list(claims) if isinstance(claims, tuple) else claims, **spec},
    }
    return Component(
        name="train",
        template=template,
        pod_sets=({"path": "template.spec.template", "replicas": 2},),  # type: ignore[arg-type]
    )


def of(one: Component) -> Workload:
    return workload().model_copy(update={"components": (one,)})


def removed(spec: Workload, claims: Claims | None) -> Life:
    """Return a life that was suspended, of whose attempt these claims were left."""
    life = Life(spec=spec)
    life.settle()
    life.sees(running=2)
    life.hold = {OperationKind.REMOVE}
    life.tell(Suspended())
    life.tell_result(Removed(gone=True, claims=claims))
    life.settle()
    return life


def test_what_is_kept_is_recorded_with_the_proof_and_shown():
    life = removed(of(component()), KEPT)
    (cause,) = [one for one in life.state.causes if one.reason is Reason.DELETION_COMPLETE]
    assert cause.message == "attempt 1 is proven gone; kept: 2 PersistentVolumeClaims (data-web-0, data-web-1)"
    told = status_of(life.spec, life.state, life.now, "uid")
    assert told.claims == KEPT
    assert "kept       2 PersistentVolumeClaims (data-web-0, data-web-1)" in status(
        StatusView(status=told, fresh=True), life.now
    )
    said = explain_of(life.spec, life.state, life.now)
    assert said.kept == (
        "StatefulSet web keeps 2 PersistentVolumeClaims (data-web-0, data-web-1): the next attempt mounts what is in "
        "them; to have them go with it: spec.persistentVolumeClaimRetentionPolicy.whenDeleted: Delete"
    )
    assert f"- **kept** {said.kept}" in markdown(said)
    shown = explanation(ExplanationView(explanation=said, fresh=True), life.now)
    assert said.kept in " ".join(shown.split()), "it is laid out in several lines"


def test_that_they_will_be_kept_is_said_before_anything_goes():
    life = Life(spec=of(component()))
    life.settle()
    kept = explain_of(life.spec, life.state, life.now).kept
    assert kept.startswith("StatefulSet web keeps the PersistentVolumeClaims of its pods: the next attempt mounts")


def test_what_goes_with_it_is_not_said_to_be_kept():
    life = removed(of(component(persistentVolumeClaimRetentionPolicy={"whenDeleted": "Delete"})), None)
    assert explain_of(life.spec, life.state, life.now).kept == ""
    assert status_of(life.spec, life.state, life.now, "uid").claims is None


def test_what_was_left_against_the_document_is_said_all_the_same():
    life = removed(of(component(persistentVolumeClaimRetentionPolicy={"whenDeleted": "Delete"})), KEPT)
    assert explain_of(life.spec, life.state, life.now).kept == KEPT.sentence()


def test_the_end_of_a_workload_says_what_it_leaves():
    life = Life(spec=of(component()))
    life.settle()
    life.hold = {OperationKind.REMOVE}
    life.tell(Cancelled())
    life.tell_result(Removed(gone=True, claims=Claims(names=("data-web-0",), total=1)))
    life.settle()
    assert "kept: 1 PersistentVolumeClaim (data-web-0)" in life.state.causes[-1].message


def test_many_are_counted_and_a_few_are_named():
    many = Claims(names=tuple(f"data-web-{index}" for index in range(16)), total=40)
    assert many.sentence().startswith("40 PersistentVolumeClaims (data-web-0, ")
    assert many.sentence().endswith("data-web-15 and 24 more)")


@pytest.mark.parametrize(
    ("one", "claims", "keeps"),
    [
        (component(), ("data",), True),
        (component(({"metadata": {"name": "a"}}, {"metadata": {"name": "b"}})), ("a", "b"), True),
        (component(persistentVolumeClaimRetentionPolicy={"whenDeleted": "Retain"}), ("data",), True),
        (component(persistentVolumeClaimRetentionPolicy={"whenScaled": "Delete"}), ("data",), True),
        (component(persistentVolumeClaimRetentionPolicy={"whenDeleted": "Delete"}), ("data",), False),
        (component(()), (), False),
        (component("data"), (), False),
        (component(({"metadata": None}, "data")), (), False),
        (component(kind="Deployment"), (), False),
    ],
)
def test_whose_claims_outlive_it_is_read_in_its_document(one: Component, claims: tuple[str, ...], keeps: bool):
    assert (one.claims, one.keeps_claims) == (claims, keeps)
    assert planned(one, "uid", 1).claims == claims
