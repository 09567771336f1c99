"""Data sets in a simulated life: a simulation knows no store, and takes them to lie in the cache (row L14)."""

from __future__ import annotations

from holdfast.model import Phase
from holdfast.model.spec.mount import Mount
from tests.simulation.test_copies import workload
from tests.simulation.test_world import play


def test_L14_what_reads_a_data_set_lives_as_if_it_lay_ready() -> None:
    mounts = (Mount(name="corpus", source="s3://datasets/corpus", path="/data"),)
    spec = workload().model_copy(update={"mounts": mounts})
    script = "[{at: 1m, fail: {component: driver}}, {at: 5m, succeed: {pods: all}}]"
    told, bare = play(spec, script), play(workload(), script)
    assert told.summary.outcome is Phase.SUCCEEDED
    assert told.summary.attempts == bare.summary.attempts == 2
    said = [entry.text for entry in told.entries]
    assert "attempt 1 has corpus ready: 0 files, 0 B, all of it from the cache" in said
    assert told.summary.ended_at == bare.summary.ended_at
