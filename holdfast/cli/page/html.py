"""Values to HTML, by templates. Whatever users say is data: it is escaped, and shows no control characters (X14)."""

from __future__ import annotations

from datetime import datetime
from functools import cache
from importlib.resources import files
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from holdfast import names
from holdfast.cli.common import gang_text
from holdfast.cli.common.render import age, ended_outside, listed_phase, phase_word
from holdfast.cli.entities.node_text import state_of
from holdfast.cli.page.draw import drawing_of, gang_cells, ledger_bar
from holdfast.cli.page.timeline import Timeline
from holdfast.cli.workloads.history_text import instant
from holdfast.client import Summary
from holdfast.model import Explanation
from holdfast.model.entities.queue import QueueLine
from holdfast.model.gang.status import GangStatus
from holdfast.model.words import amount_of, counted, printable
from holdfast.policy.nodes.provisioner import verb_of

_PACKAGE: Final = "holdfast.cli.page"
REPORT_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
"""The report's own Content-Security-Policy: it loads nothing, wherever it is opened."""


def report(life: Timeline, now: datetime, explanation: Explanation | None = None) -> str:
    """Return the report of a life: one page that needs no other file and no network (row P7).

    Args:
        life: the life.
        now: when the report is made.
        explanation: what was known last of a life that is not over; None: it is over.
    """
    told = {"explanation": explanation, "now": now, "policy": REPORT_POLICY}
    return page("report.html", **told, **of_life(life))


def of_life(life: Timeline) -> dict[str, Any]:
    """Return what the templates need to draw a life."""
    seconds = [(bucket.value, spent / 1000) for bucket, spent in life.ledger.milliseconds.items()]
    return {"life": life, "drawing": drawing_of(life), "ledger": ledger_bar(seconds)}


def page(template: str, /, **values: Any) -> str:
    """Return a page."""
    return _environment().get_template(template).render(**values)


def asset(name: str) -> str:
    """Return a file that pages load."""
    return files(_PACKAGE).joinpath("templates", name).read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader(_PACKAGE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    environment.filters.update(_FILTERS)  # pyright: ignore[reportUnknownMemberType] - Jinja leaves its type open
    return environment


def _shown(value: Any) -> Any:
    """Return a value as it may be shown; what the templates have made already is left alone."""
    if value is None:
        return ""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _gang(told: GangStatus) -> list[str]:
    return gang_text.gang(told).splitlines()


def _members(told: GangStatus) -> list[tuple[str, str]]:
    """Return the members that are worth a line, each with its state."""
    states = dict.fromkeys(told.charged, "in the round") | dict.fromkeys(told.waiting, "waits for a place")
    return sorted((states | dict(told.absent)).items())


def _place(of: Summary | QueueLine) -> str:
    """Return a workload's page, by what follows the cluster in its id: its kind, too, if it stands there (row F7)."""
    workflow_id = of.workflow_id if isinstance(of, Summary) else of.workload
    return names.name_of(workflow_id) if workflow_id else f"{of.namespace}/{of.name}"


_FILTERS: Final = {
    "age": age,
    "amount_of": amount_of,
    "cells": gang_cells,
    "counted": counted,
    "ended_outside": ended_outside,
    "gang": _gang,
    "instant": instant,
    "listed_phase": listed_phase,
    "phase_word": phase_word,
    "place": _place,
    "members": _members,
    "node_state": state_of,
    "verb": verb_of,
}
