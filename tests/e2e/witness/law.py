"""The law of resets, judged by the audit log alone: nothing of an attempt is asked for before all of the last was gone.

A restart unit is a workload, of which one attempt follows another, or a component that is made again within an attempt.

    python -m tests.e2e.witness.law --stack test        the whole log of a local stack, with what was put aside
    python -m tests.e2e.witness.law path/to/audit.log

It holds for every workload of every namespace, whatever a test did to it: a workload's own pods may be deleted by
anybody, its next attempt still waits. Only what `SET_ASIDE` names does not count.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from holdfast import names
from tests.e2e.witness.ledger import Ledger, Life, lines_of, read

PLANTED = "planted-"
WOKEN = "woken-"
COPIED = "copied-"
SET_ASIDE = {
    PLANTED: "a test has the engine break the law here, to show that it would be noticed",
    "act-": "a test calls activities one by one here, in any order: there is no workflow, and so no reset",
    WOKEN: "a test resumes a Job here whose set is suspended: its pods are there before anybody can have seen them",
    COPIED: "a test copies a component here, labels included: what is the copy's is another's, and stays",
    "watch-": "a test makes attempts by hand here, for the watch to see: there is no workflow, and so no reset",
}
"""How the names of namespaces begin in which nothing counts, and why."""
WORKER = f"system:serviceaccount:{names.WORKER_NAMESPACE}:{names.WORKER_SERVICE_ACCOUNT}"
FENCING = "fence-"
"""How the names of namespaces begin in which workers are fenced with a request in flight."""
LATE_MAXIMUM = 1
"""How many creations of an attempt may still arrive once the next has begun: what a worker that lost touch had sent."""


@dataclass(frozen=True)
class Reset:
    """An attempt that came after another of its workload, or a launch of a component after another in its attempt."""

    namespace: str
    workload: str
    component: str
    """The component that was made again alone; empty if the whole workload was."""
    first: Life
    """What was made first of the new one."""
    before: tuple[Life, ...]
    """Everything that had been made of earlier ones by then."""
    late: tuple[Life, ...]
    """What was made of the one before it after that, or under an owner that had gone already."""

    def beside(self) -> list[Life]:
        """Return what was certainly still there when the new one was begun."""
        return [life for life in self.before if _order(life, self.first) is False]

    def undecided(self) -> list[Life]:
        """Return what went by a request that was just being answered when the new one was begun."""
        return [life for life in self.before if _order(life, self.first) is None]

    def broken(self) -> list[str]:
        """Say in what way the law is broken, if it is."""
        told = [f"{life} was there when {self.first} was asked for" for life in self.beside()]
        late = [life for life in self.late if life.user == WORKER]
        if len(late) > LATE_MAXIMUM:
            told += [f"{life} came late, and not alone" for life in late]
        return told


def _order(old: Life, new: Life) -> bool | None:
    """Return whether the old one had gone when the new one was asked for; None if the log cannot tell."""
    if old.gone is not None and old.gone <= new.received:
        return True
    if old.asked is None or old.asked > new.received:
        return False
    return old.gone_version < new.version if old.gone_version and new.version else None


@dataclass
class Verdict:
    """What came of judging a log."""

    resets: list[Reset] = field(default_factory=list[Reset])
    unseen: list[Life] = field(default_factory=list[Life])
    """The first of each later attempt of which no earlier one is in the log."""
    aside: int = 0
    """How many resets were set aside."""

    @property
    def broken(self) -> list[str]:
        """What broke the law."""
        return [text for reset in self.resets for text in reset.broken()]

    @property
    def undecided(self) -> list[Life]:
        """What the log's times are too coarse for."""
        return [life for reset in self.resets for life in reset.undecided()]

    def sentence(self) -> str:
        """Say it in a line."""
        workloads = {(reset.namespace, reset.workload) for reset in self.resets}
        broken = sum(1 for reset in self.resets if reset.broken())
        text = f"{len(self.resets)} resets of {len(workloads)} workloads checked, {broken} broken"
        more = {
            "of them of single components": sum(1 for reset in self.resets if reset.component),
            "objects went while the next attempt was being asked for": len(self.undecided),
            "attempts whose predecessor is not in the log": len(self.unseen),
            "creations arrived late and were alone": sum(len(reset.late) for reset in self.resets),
            "set aside": self.aside,
        }
        return text + "".join(f"; {count} {what}" for what, count in more.items() if count)


def judge(ledger: Ledger) -> Verdict:
    """Judge every reset of a ledger."""
    verdict = Verdict()
    for (namespace, workload), lives in ledger.workloads().items():
        resets, unseen = _resets(namespace, workload, "", [(life.attempt, life) for life in lives])
        components = {_unit(life) for life in lives if life.component}
        for attempt, component, copy in sorted(components):
            unit = [(one.launch, one) for one in lives if _unit(one) == (attempt, component, copy)]
            more, unknown = _resets(namespace, workload, component, unit)
            resets, unseen = resets + more, unseen + unknown
        # What another hand has put there is no reset of ours: so a test makes what a restored cluster would hold.
        ours = [reset for reset in resets if reset.first.user == WORKER]
        if namespace.startswith(tuple(SET_ASIDE)):
            ours = []
        else:
            verdict.unseen += unseen
        verdict.resets += ours
        verdict.aside += len(resets) - len(ours)
    return verdict


def _unit(life: Life) -> tuple[int, str, str]:
    """Return what is made again together within an attempt: a component, or one of its copies."""
    return (life.attempt, life.component, life.copy if life.alone else "")


def _resets(
    namespace: str, workload: str, component: str, lives: Sequence[tuple[int, Life]]
) -> tuple[list[Reset], list[Life]]:
    """Return the resets of one restart unit, whose lives come with their numbers in the order of their beginnings."""
    firsts: dict[int, Life] = {}
    for number, life in lives:
        firsts.setdefault(number, life)
    strays = set() if component else _strays([life for _, life in lives])
    resets: list[Reset] = []
    unseen: list[Life] = []
    for number, first in firsts.items():
        came_late = [
            life.uid
            for each, life in lives
            if each == number - 1 and (life.received >= first.received or life.uid in strays)
        ]
        earlier = [life for each, life in lives if each < number and life.received < first.received]
        before = tuple(life for life in earlier if life.uid not in came_late)
        late = tuple(life for _, life in lives if life.uid in came_late)
        if before or late:
            resets.append(Reset(namespace, workload, component, first, before, late))
        elif number > (0 if component else 1):
            unseen.append(first)
    return resets, unseen


def _strays(lives: Sequence[Life]) -> set[str]:
    """Return the uids of components that the worker asked for when their attempt's owner had gone already.

    No proof of that attempt's removal could have seen them. The collector removes them; the attempt after the next one
    finds them gone, like everything else.
    """
    owners = {life.attempt: life.gone for life in lives if life.place[1] == names.ATTEMPT_PLURAL}
    late: set[str] = set()
    for life in lives:
        end = owners.get(life.attempt)
        if life.component and life.user == WORKER and end is not None and end <= life.received:
            late.add(life.uid)
    return late


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge a log, and return the exit code: 0 only if there were resets and none broke the law."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.e2e.witness.law", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("log", type=Path, nargs="?", help="an audit log; what was put aside lies beside it")
    parser.add_argument("--stack", help="or the name of a local stack")
    parser.add_argument("--some", action="store_true", help="only some tests were run: no reset at all is no fault")
    given = parser.parse_args(arguments)
    if (given.log is None) == (given.stack is None):
        parser.error("expected an audit log or --stack NAME")
    return report(read(lines_of(given.log or _log_of(given.stack))), some=given.some)


def report(ledger: Ledger, *, some: bool = False) -> int:
    """Print the verdict; return the exit code."""
    verdict = judge(ledger)
    for text in verdict.broken:
        print(f"broken: {text}")
    for life in verdict.undecided:
        print(f"undecided: {life}")
    print(verdict.sentence())
    if not verdict.resets and not some:
        print("no reset at all is in the log: the tests that make them were not run, or the log does not show them")
        return 1
    return 1 if verdict.broken else 0


def _log_of(stack: str) -> Path:
    from holdfast.local import Stack

    return Stack.load(stack).audit_log


def check(lines: Iterable[bytes]) -> Verdict:
    """Return the verdict on these lines."""
    return judge(read(lines))


if __name__ == "__main__":
    sys.exit(main())
