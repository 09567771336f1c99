"""A change to the policy of a workload that is under way: partial, checked before it is taken."""

from __future__ import annotations

from holdfast.model import Model, Policy, Timings


class PolicyChange(Model):
    """Which waits and which budgets are to differ from now on; what is not named stays."""

    timings: dict[str, str] = {}
    """By name, for example `{"failureGracePeriod": "30s"}`."""
    budgets: dict[str, int] = {}
    """New limits by budget name, for example `{"restart": 5}`."""
    note: str = ""


def changed(policy: Policy, change: PolicyChange) -> Policy:
    """Return the policy with the change made.

    Raises:
        ValueError: if a name is unknown or a value is out of range, naming what is allowed.
    """
    document = policy.model_dump(mode="json")
    allowed = sorted(field.alias or name for name, field in Timings.model_fields.items())
    for name, value in change.timings.items():
        if name not in allowed:
            raise ValueError(f"timings.{name}: expected one of {', '.join(allowed)}")
        document["timings"][name] = value
    known = [budget["name"] for budget in document["budgets"]]
    for name, limit in change.budgets.items():
        if name not in known:
            raise ValueError(f"budgets.{name}: expected one of {', '.join(known)}")
        document["budgets"][known.index(name)]["limit"] = limit
    return Policy.model_validate(document)
