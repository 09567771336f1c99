"""A document that begins an entity's workflow: what the client starts it by, and the watchdog starts it again by."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from holdfast import names
from holdfast.model.base import Model


class EntityDocument(Model):
    """The document of a queue, a broker or a graph."""

    workflow: ClassVar[str]
    """The type of its workflow."""

    @property
    @abstractmethod
    def workflow_id(self) -> str:
        """The id of its workflow."""

    @property
    @abstractmethod
    def summary(self) -> str:
        """The title of its workflow in the Temporal UI."""

    @property
    def task_queue(self) -> str:
        """The task queue of the workers that decide for it."""
        return names.QUEUE_WORKFLOWS

    @property
    def columns(self) -> dict[str, str]:
        """The search attributes of its workflow, all keywords."""
        return {names.SA_KIND: self.workflow}
