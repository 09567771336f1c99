"""What of a policy decides which failures travel in a snapshot, where not all of them can (row D16)."""

from __future__ import annotations

from holdfast.model.observation import Payload
from holdfast.model.spec.policy import Action, Rule


class Selection(Payload):
    """The rules of a policy, for whoever makes snapshots. No limit, pause or budget: these may change under way."""

    rules: tuple[Rule, ...] = ()
    """Each with the match, and with the kind and grace of its action alone."""
    default: Action = Action(charge=None)
    needed: tuple[str, ...] = ()
    """The components that success looks at; empty: all."""
