"""A workload's past, reconstructed from its workflow's history: this needs Temporal's history, and no worker."""

from holdfast.past.decode import read_run
from holdfast.past.export import history_of
from holdfast.past.ledger import ledger_of
from holdfast.past.story import Story, story_of
from holdfast.past.tasks import Run

__all__ = ["Run", "Story", "history_of", "ledger_of", "read_run", "story_of"]
