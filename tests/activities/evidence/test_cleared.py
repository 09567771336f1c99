"""Evidence of a failed workload whose active objects are deleted while the rest is kept (row P3). Pure."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from temporalio.testing import ActivityEnvironment

from holdfast import names
from holdfast.activities.operations import clear as clearing
from holdfast.model import Evidence, Observation, Phase, Reason, Report
from holdfast.model.calls.cluster import Cleared, ClearInput, Target
from tests.policy.lives.life import START

KEPT = Evidence(link="s3://kept/attempt-1", digest="0" * 64, size=900, pods=2, logs=3)
TARGET = Target(
    cluster="test",
    cluster_uid="c",
    namespace="team",
    name="train",
    workload_uid="u",
    workflow_id="workload/test/team/train",
    shard=3,
    run_as=names.RUN_AS_DEFAULT,
    source_kind="JobSet",
)


@pytest.mark.row("P3", level="pure")
@pytest.mark.parametrize("done", [True, False])
@pytest.mark.parametrize("marked", [False, True])
async def test_P3_evidence_is_taken_before_the_first_deletion_and_looked_up_after_it(
    monkeypatch: pytest.MonkeyPatch, marked: bool, done: bool
) -> None:
    acts: list[str] = []

    async def find(*_: Any) -> dict[str, Any]:
        return {"metadata": {"uid": "o", "annotations": {names.ANNOTATION_ENDED: "true"} if marked else {}}}

    async def patch(*_: Any, **__: Any) -> None:
        acts.append("mark")

    async def take(_site: Any, given: ClearInput, *, untouched: bool) -> Evidence:
        acts.append(f"take of {given.evidence_of}" if untouched else "look up")
        return KEPT

    async def until_gone(*_: Any) -> bool:
        acts.append("delete")
        return done

    async def reports(*_: Any) -> None:
        return

    async def looks(*_: Any) -> Observation:
        return Observation(workload_uid="u", attempt=1, owner_uid="o", at=START)

    for name, fake in (
        ("take_evidence", take),
        ("_until_gone", until_gone),
        ("apply_report", reports),
        ("look", looks),
    ):
        monkeypatch.setattr(clearing, name, fake)
    kube = SimpleNamespace(find=find, patch=patch)
    site: Any = SimpleNamespace(kube=kube, check=lambda _: None, blind=lambda _: ())
    report = Report(sequence=1, phase=Phase.FAILED, reason=Reason.FAILED_COMPONENT)
    given = ClearInput(
        target=TARGET,
        attempt=1,
        owner_uid="o",
        plan=(),
        grace=1.0,
        report=report,
        report_done=report,
        evidence_of=("train-0",),
    )

    async def clears() -> Cleared:
        return await clearing.clear(site, given)

    cleared = await ActivityEnvironment().run(clears)
    assert acts == (["look up", "delete"] if marked else ["take of ('train-0',)", "mark", "delete"])
    assert (cleared.done, cleared.evidence) == (done, KEPT)
