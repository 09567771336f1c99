"""The part of a policy that selects which failures a snapshot carries when it cannot carry all of them (row D16)."""

from __future__ import annotations

from holdfast.model.observation import Payload
from holdfast.model.spec.policy import Action, Rule


class Selection(Payload):
    """The rules of a policy, for the observer. No limits, pauses or budgets: these may change during the attempt."""

    rules: tuple[Rule, ...] = ()
    """Each with its match, and only the kind and grace of its action."""
    default: Action = Action(charge=None)
    needed: tuple[str, ...] = ()
    """The components that success depends on; empty: all."""
