"""A workload's whole life as it is exported (`holdfast history NAME -o json`), and the published schema of that."""

from __future__ import annotations

import json
from typing import Any, Final, Literal

from pydantic import ConfigDict
from pydantic.alias_generators import to_camel
from pydantic.json_schema import GenerateJsonSchema

from holdfast import names
from holdfast.model.base import Model, Time
from holdfast.model.life.evidence import Evidence
from holdfast.model.life.facts import Cause
from holdfast.model.life.status import BudgetStatus
from holdfast.model.observation import Failure
from holdfast.model.schema import untitled
from holdfast.model.vocabulary import Phase, Reason

HISTORY_ID: Final = f"https://{names.GROUP}/schema/{names.VERSION}/history.schema.json"


class Exported(Model):
    """A frozen part of the export; a later release may add fields, which an older one lets pass."""

    model_config = ConfigDict(extra="ignore", alias_generator=to_camel, use_attribute_docstrings=True)


class NumberedCause(Cause):
    """One thing that decided something, with its number in the workload's life."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    number: int
    """From 1 on, over all attempts and runs; none is counted twice."""
    written: bool
    """Whether these are the workflow's own words. Otherwise it was worked out again from what the workflow was told."""


class PastAttempt(Exported):
    """One try at running the workload: when it came how far, and what ended it."""

    number: int
    begun_at: Time
    submitted_at: Time | None = None
    """When all of its components existed."""
    ready_at: Time | None = None
    """When all of its expected pods ran."""
    removing_at: Time | None = None
    """When its removal began."""
    gone_at: Time | None = None
    """When it was proven that nothing of it is left."""
    forced: bool = False
    """Whether what was left of it had to be deleted by force."""
    launches: dict[str, int] = {}
    """How often a component was made again, alone."""
    ended_by: Reason | None = None
    why: str = ""
    """What ended it, in a sentence."""
    failure: Failure | None = None
    """The failure that ended it, with node and exit code where it has them."""
    charged: str | None = None
    """The budget that its reset was charged to."""
    evidence: Evidence | None = None
    """What was kept of it before its removal."""


class PastRun(Exported):
    """One run of the workflow: a long life is continued as new from time to time."""

    run_id: str
    began_at: Time
    ended_at: Time | None = None
    closed: str = ""
    """Temporal's word for how it ended; empty while it runs."""
    events: int
    """How many events its history has."""


class Gap(Exported):
    """Causes that are known to have been there, and are no longer to be had."""

    first: int
    last: int
    why: str


class History(Exported):
    """All that decided something in a workload's life, from its workflow's history."""

    schema_version: Literal[1] = 1
    name: str
    namespace: str
    cluster: str
    uid: str
    workflow_id: str
    runs: tuple[PastRun, ...]
    """Oldest first. Those that Temporal no longer keeps are not among them."""
    by: str = ""
    """Who asked for it, by the API server's own word; empty: unverified (row F13)."""
    begun_at: Time
    ended_at: Time | None = None
    """When its workflow was over: nothing was held or removed any more. None too if a later run is not here."""
    phase: Phase | None = None
    reason: Reason | None = None
    message: str = ""
    outcome: Phase | None = None
    """Succeeded, Failed or Cancelled, once that is settled."""
    failure: Failure | None = None
    """Why it failed, if it has."""
    executions: int = 0
    restarts: int = 0
    budgets: tuple[BudgetStatus, ...] = ()
    attempts: tuple[PastAttempt, ...] = ()
    causes: tuple[NumberedCause, ...] = ()
    causes_total: int = 0
    gaps: tuple[Gap, ...] = ()
    complete: bool
    """Whether every cause is here."""
    exact: bool
    """Whether all that was worked out agrees with all that the workflow wrote of itself."""
    notes: tuple[str, ...] = ()
    """What a reader must know of it: where an older release decided otherwise, what could not be read."""


def schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of the export."""
    body = untitled(History.model_json_schema(by_alias=True, mode="serialization"))
    return {
        "$schema": GenerateJsonSchema.schema_dialect,
        "$id": HISTORY_ID,
        **body,
        "title": "Holdfast history",
        "description": (
            "A workload's whole life: every cause of every decision, its attempts and what they came to. Within one "
            "schemaVersion fields are only added."
        ),
    }


def text() -> str:
    """Return the schema as `docs/schema/history.schema.json` holds it."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"
