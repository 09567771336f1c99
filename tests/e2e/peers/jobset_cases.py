"""Random JobSets and what befalls them, by a seed: the same for both controllers, with the end the proposal says.

Events come one by one, and the next only once the last has been acted on, so that whoever reads them late sees nothing
else: what is decided of failures seen together, and of a failure seen with success, differs on purpose (rows J9, J12).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, Literal

from tests.e2e.peers.jobsets import jobset, replicated
from tests.policy.jobset import naive_jobset as naive
from tests.policy.jobset.naive_jobset import (
    FAIL,
    IGNORE_MAX,
    RESTART,
    RESTART_JOB,
    RESTART_JOB_IGNORE_MAX,
    JobFailure,
    JobSet,
    PolicyRule,
)

Json = dict[str, Any]
COMPLETES: Final = "Complete"
DEADLINE, CODE = "DeadlineExceeded", "PodFailurePolicy"
CODE_EXIT: Final = 42
"""The exit code by which the Jobs' podFailurePolicy fails them."""
MESSAGES: Final = {
    "BackoffLimitExceeded": "Job has reached the specified backoff limit",
    DEADLINE: "Job was active longer than specified deadline",
    "FailedIndexes": "Job has failed indexes",
    "MaxFailedIndexesExceeded": "Job has exceeded the specified maximal number of failed indexes",
    CODE: "Container main for pod a/b failed with exit code 42 matching FailJob rule at index 0",
}
"""What the Job controller says of each reason; names are never matched."""
PATTERNS: Final = (
    "backoff limit$",
    "exit code 4[0-9]",
    "^Job has",
    "ind(ex|ices)",
    "deadline|index 7",
    "nobody says so",
)
MODES: Final[dict[str, tuple[Json, int]]] = {
    "BackoffLimitExceeded": ({"backoffLimit": 0}, 1),
    "FailedIndexes": ({"backoffLimitPerIndex": 0}, 1),
    "MaxFailedIndexesExceeded": ({"backoffLimitPerIndex": 0, "maxFailedIndexes": 0}, 2),
}
"""What a Job's spec is for its pods' failures to be this of it, and how many pods it has."""
PHRASES: Final = {
    "FailedJobs": "jobset failed due to one or more job failures",
    "ReachedMaxRestarts": "jobset failed due to reaching max number of restarts",
    "FailJobSetFailurePolicyAction": "applying FailJobSet failure policy action",
}
FAILURES: Final = 3
"""So many failures befall a JobSet at most."""
ACTIONS: Final = (
    *(FAIL, RESTART, RESTART, IGNORE_MAX, IGNORE_MAX),
    *(RESTART_JOB, RESTART_JOB, RESTART_JOB_IGNORE_MAX, RESTART_JOB_IGNORE_MAX),
)
"""What a rule may do; what is here twice is drawn twice as often."""


@dataclass(frozen=True)
class Event:
    """What befalls one Job."""

    job: str
    """Its replicated job and its index: `worker-0`."""
    fate: str
    """`Complete`, or the reason for which it fails."""


@dataclass(frozen=True)
class Step:
    """An event, and what must be waited for after it."""

    attempt: int
    """From 0, as the label restart-attempt counts."""
    events: tuple[Event, ...]
    then: Literal["goes on", "restarts", "restarts the Job", "ends"]


@dataclass
class Case:
    """A JobSet and its life."""

    seed: int
    document: Json
    pods: dict[str, int]
    """How many pods each Job has."""
    steps: list[Step] = field(default_factory=list[Step])
    finished: list[str] = field(default_factory=list[str])
    """Jobs of the last attempt that have ended by themselves."""
    restarts: int = 0
    counted: int = 0
    """Restarts of all Jobs that count towards the maximum."""
    alone: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    """By Job: how often it was restarted alone, and how often that counted towards the maximum (row J23)."""
    condition: tuple[str, str, str] = ("", "", "")
    """The last one: type, reason, message."""

    @property
    def name(self) -> str:
        """The JobSet's name."""
        return self.document["metadata"]["name"]

    @property
    def is_by_job(self) -> bool:
        """Whether a rule restarts single Jobs."""
        rules = self.document["spec"].get("failurePolicy", {}).get("rules", ())
        return any(rule["action"] in {RESTART_JOB, RESTART_JOB_IGNORE_MAX} for rule in rules)

    def __str__(self) -> str:
        told = "; ".join(
            f"{one.attempt}: {', '.join(f'{event.job} {event.fate}' for event in one.events)} -> {one.then}"
            for one in self.steps
        )
        policies = {key: self.document["spec"].get(key) for key in ("failurePolicy", "successPolicy", "startupPolicy")}
        return f"seed {self.seed}: {policies}: {told}"


def case(seed: int) -> Case:
    """Return the case of a seed."""
    return _Life(seed).live()


class _Life:
    """Makes up a case as it goes, following it by the naive reading."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random = Random(seed)
        names = ("driver", "worker", "sink")[: random.choice((1, 2, 2, 3))]
        self.replicas = {name: random.choice((1, 1, 2)) for name in names}
        self.modes = {name: random.choice(list(MODES)) for name in names}
        self.rules = tuple(self._rule(index) for index in range(random.choice((0, 1, 2, 2, 3))))
        self.unruled = random.random() < 0.1
        self.maximum = random.choice((0, 1, 2, 2))
        self.operator = random.choice(("All", "All", "Any"))
        self.targets = tuple(self._some(names)) if random.random() < 0.5 else ()
        self.case = Case(seed, self._document(), {})
        self.jobs = {f"{name}-{index}": name for name in names for index in range(self.replicas[name])}
        self.case.pods = {job: MODES[self.modes[name]][1] for job, name in self.jobs.items()}
        self.done: list[str] = []
        self.failures = 0
        self.charged = 0

    def _some(self, values: tuple[str, ...]) -> list[str]:
        chosen = [value for value in values if self.random.random() < 0.5]
        return chosen or [self.random.choice(values)]

    def _rule(self, index: int) -> PolicyRule:
        random = self.random
        reasons = tuple(self._some(tuple(MESSAGES))) if random.random() < 0.5 else ()
        targets = tuple(self._some(tuple(self.replicas))) if random.random() < 0.4 else ()
        patterns = tuple(self._some(PATTERNS)) if random.random() < 0.3 else ()
        return PolicyRule(f"rule{index}", random.choice(ACTIONS), reasons, targets, patterns)

    def _document(self) -> Json:
        spec: Json = {}
        if not self.unruled:
            spec["failurePolicy"] = {
                "maxRestarts": self.maximum,
                "restartStrategy": self.random.choice(("Recreate", "BlockingRecreate")),
                "rules": [_written(rule) for rule in self.rules],
            }
        if self.operator == "Any" or self.targets:
            spec["successPolicy"] = {"operator": self.operator, "targetReplicatedJobs": list(self.targets)}
        if self.random.random() < 0.2:
            spec["startupPolicy"] = {"startupPolicyOrder": "InOrder"}
        return jobset(f"c{self.seed}", *(self._job(name) for name in self.replicas), **spec)

    def _job(self, name: str) -> Json:
        settings, pods = MODES[self.modes[name]]
        codes = {"containerName": "main", "operator": "In", "values": [CODE_EXIT]}
        spec = {**settings, "podFailurePolicy": {"rules": [{"action": "FailJob", "onExitCodes": codes}]}}
        made = replicated(name, replicas=self.replicas[name], pods=pods, job=spec)
        made["template"]["spec"]["template"]["spec"]["restartPolicy"] = "Never"
        return made

    # --- what befalls it

    def live(self) -> Case:
        while not self.case.condition[0]:
            left = [job for job in self.jobs if job not in self.done]
            job, attempt = self.random.choice(left), self.case.restarts
            if self.failures < FAILURES and self.random.random() < 0.6:
                self._fails(attempt, job, left)
            else:
                self._completes(attempt, job)
        return self.case

    def _completes(self, attempt: int, job: str) -> None:
        self.done.append(job)
        over = naive.completed(self.operator, self.targets, self.replicas, [self.jobs[one] for one in self.done])
        if over:
            self.case.finished = self.done
            self.case.condition = ("Completed", "AllJobsCompleted", "jobset completed successfully")
        self.case.steps.append(Step(attempt, (Event(job, COMPLETES),), "ends" if over else "goes on"))

    def _fails(self, attempt: int, job: str, left: list[str]) -> None:
        self.failures += 1
        event = self._failure(job)
        what = self._outcome(event)
        events = [event]
        other = self._failure(self.random.choice(left))
        # Two at once that come to the same, whichever is seen first, are one restart.
        if what[0] == "restart" and other.job != job and self._outcome(other) == what:
            events.append(other)
        charged, self.charged = what[1] - self.charged, what[1]
        if what[0] == "restart":
            self.case.steps.append(Step(attempt, tuple(events), "restarts"))
            self.case.restarts, self.done = attempt + 1, []
            self.case.counted += charged
            return
        if what[0] == "restart the Job":
            self.case.steps.append(Step(attempt, (event,), "restarts the Job"))
            restarts, counted = self.case.alone.get(job, (0, 0))
            self.case.alone[job] = (restarts + 1, counted + charged)
            return
        self.case.steps.append(Step(attempt, (event,), "ends"))
        told = f"{PHRASES[what[2]]} (first failed job: {self.case.name}-{job})"
        self.case.finished = [*self.done, job]
        self.case.condition = ("Failed", what[2], told)

    def _failure(self, job: str) -> Event:
        return Event(job, self.random.choice((self.modes[self.jobs[job]], CODE, CODE, DEADLINE)))

    def _outcome(self, event: Event) -> tuple[str, int, str]:
        """Return what a failure comes to, what counts towards the maximum then, and why it failed.

        It comes to `restart`, `restart the Job`, or `fail`.
        """
        if self.unruled:
            return ("fail", self.charged, "FailedJobs")
        failure = JobFailure(event.job, self.jobs[event.job], event.fate, 0, MESSAGES[event.fate])
        jobset = JobSet(self.maximum, self.rules, self.charged)
        outcome = naive.execute(jobset, [failure])
        if outcome.what in {"restart", "restart replicated job"}:
            return ("restart" if outcome.what == "restart" else "restart the Job", outcome.counted, "")
        action, _ = naive.rule_for(jobset, failure)
        return ("fail", outcome.counted, "FailJobSetFailurePolicyAction" if action == FAIL else "ReachedMaxRestarts")


def _written(rule: PolicyRule) -> Json:
    return {
        "name": rule.name,
        "action": rule.action,
        "onJobFailureReasons": list(rule.on_job_failure_reasons),
        "targetReplicatedJobs": list(rule.target_replicated_jobs),
        "onJobFailureMessagePatterns": list(rule.on_job_failure_message_patterns),
    }
