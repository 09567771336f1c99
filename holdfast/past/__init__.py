"""What a workload has lived through, read from its workflow's history: it needs Temporal's record, and no worker."""

from holdfast.past.decode import read_run
from holdfast.past.export import history_of
from holdfast.past.story import Story, told
from holdfast.past.tasks import Run

__all__ = ["Run", "Story", "history_of", "read_run", "told"]
