"""The life of an AppWrapper that is applied, for the crash harness: its worker dies at every point of it (row F7)."""

from __future__ import annotations

import asyncio

from holdfast import names
from holdfast.formats.condition import life_in
from holdfast.model import Phase
from tests.e2e.door.front_door import KIND, appwrapper, conditions, gone, in_phase, job, read, shows
from tests.e2e.ground.space import Space
from tests.e2e.lives.entity_lives import PATIENCE, Life

FLAVOR = "example.com/flavor"
QUICK = {"failureGracePeriodDuration": "0s", "retryPausePeriodDuration": "0s"}


class FrontDoorLife(Life):
    """Applied suspended, admitted with a flavor, reset once, suspended, admitted with another, deleted."""

    name = "appwrapper-applied"
    uid = ""

    @property
    def entities(self) -> tuple[str, ...]:
        return (names.watch_workflow_id(self.site.cluster),)

    async def live(self, space: Space) -> None:
        made = await space.site.kube.create(appwrapper(space, job(pods=2), suspend=True, **QUICK))
        self.uid = made["metadata"]["uid"]
        await shows(space, in_phase("Suspended"), "it begins suspended", PATIENCE)
        await self._admit(space, "spot", 1)
        await space.fail_pod("train")
        await self._runs(space, 2)
        await space.patch(*KIND, "train", {"spec": {"suspend": True}})
        found = await shows(space, in_phase("Suspended"), "it is suspended", PATIENCE)
        assert conditions(found)["QuotaReserved"] == "False", found["status"]
        assert not await space.pods("train"), "quota is let go of before live pods"
        await self._admit(space, "reserved", 3)
        await space.delete(*KIND, "train", propagation="Background")
        await gone(space, PATIENCE)
        assert not await space.pods("train"), "it goes last"

    async def _admit(self, space: Space, flavor: str, attempt: int) -> None:
        """Let it run with a flavor, as Kueue does: in one update."""
        found = await read(space)
        assert found is not None
        component = {**found["spec"]["components"][0], "podSetInfos": [{"labels": {FLAVOR: flavor}}]}
        await space.patch(*KIND, "train", {"spec": {"suspend": False, "components": [component]}})
        await self._runs(space, attempt)
        flavors = {one["metadata"]["labels"].get(FLAVOR) for one in await space.pods("train")}
        assert flavors == {flavor}, f"attempt {attempt} runs as {flavors}, and was admitted with {flavor}"

    async def _runs(self, space: Space, attempt: int) -> None:
        def is_so(found: dict[str, object]) -> bool:
            status = found.get("status")
            life = life_in(status) if isinstance(status, dict) else None
            return life is not None and life.attempt == attempt and conditions(found).get("PodsReady") == "True"

        await shows(space, is_so, f"attempt {attempt} runs", PATIENCE)

    async def check(self, space: Space) -> None:
        workflow_id = names.workflow_id(self.site.cluster, space.namespace, "train")
        handle = self.site.client.get_workflow_handle(workflow_id)
        # Its resource goes a moment before its workflow has ended.
        result = await asyncio.wait_for(handle.result(), PATIENCE)
        described = await handle.describe()
        memo = await described.memo()
        assert memo[names.MEMO_UID] == self.uid, memo
        came_to = (result["phase"], result["attempt"], result["restarts"])
        assert came_to == (Phase.CANCELLED, 3, 1), f"{came_to}: {result['causes']}"
        query = f"WorkflowId = '{workflow_id}'"
        runs = {one.run_id async for one in self.site.client.list_workflows(query)}
        assert len(runs) == 1, "no life begins twice"
