"""What a submission will make, said before anything is made (row E4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from holdfast.cli.common.ask import confirmed, interactive
from holdfast.cli.common.output import say
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.model import Workload

MANY_PODS: Final = 100
"""A submission of more pods than this says what it will make although nobody has asked."""
_SHOWN: Final = 20


def agree(workloads: Sequence[Workload], *, plan: bool, yes: bool) -> None:
    """Say what will be submitted, where that is due, and on a terminal wait for the user's agreement.

    A script is told on standard error, and not asked.

    Args:
        workloads: All that will be submitted.
        plan: Whether to say it however few pods there are.
        yes: Whether not to ask.

    Raises:
        HoldfastError: if the user does not agree.
    """
    if not plan and sum(one.made_pods for one in workloads) <= MANY_PODS:
        return
    asks = not yes and interactive()
    say(text(workloads, asks=asks), err=True)
    if asks and not confirmed("Submit?"):
        raise HoldfastError("nothing was submitted")


def text(workloads: Sequence[Workload], *, asks: bool = False) -> str:
    """Return what is submitted, or would be if the user agrees: totals, then a table, the largest workloads first."""
    from holdfast.cli.common.render import table
    from holdfast.model.words import counted
    from holdfast.workflows.start import contents

    pods = sum(one.made_pods for one in workloads)
    clusters = ", ".join(sorted({one.cluster for one in workloads}))
    total = f"{counted(len(workloads), 'workload')}, {counted(pods, 'pod')}"
    largest = sorted(workloads, key=lambda one: -one.made_pods)
    rows = [
        (one.namespace, one.name, f"{one.made_pods:,}", one.run_as, one.queue, contents(one))
        for one in largest[:_SHOWN]
    ]
    lines = [f"{'to submit' if asks else 'submitting'}: {total} on cluster {clusters}"]
    lines += table(("NAMESPACE", "NAME", "PODS", "ACCOUNT", "QUEUE", "MADE OF"), rows).splitlines()
    if len(largest) > _SHOWN:
        lines.append(f"... and {len(largest) - _SHOWN:,} more")
    return "\n".join(lines)
