"""A thousand spoiled AppWrappers on the real API server: what we accept it takes, what it refuses we refuse too.

Where we refuse what it would take, the reason is one of our own, told with a field's path.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest
import yaml
from temporalio.exceptions import ApplicationError

from holdfast import formats, names
from holdfast.activities.kube.client import KubeError, Object, UnknownKind, Unreachable, service_account_user
from holdfast.activities.objects.inject import InjectionError, Placement, inject
from holdfast.activities.objects.rehearse import rehearse
from holdfast.activities.site.permissions import until_permitted
from holdfast.activities.site.site import Pulse
from holdfast.activities.site.site import Site as ActivitySite
from holdfast.errors import HoldfastError, InvalidWorkload
from holdfast.model import Limits, Phase, Reason, Report, Workload
from holdfast.model.calls.cluster import PrepareInput, Target, planned
from tests.e2e.ground.definitions import serve
from tests.e2e.ground.space import Space
from tests.formats.corpus import corpus
from tests.formats.mutations import Mutant, mutants

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]
COUNT = 1000
AT_ONCE = 16
OURS = tuple(
    re.compile(words)
    for words in (
        # Status rules are Holdfast's own: the API server takes any text.
        r"holdfast\.dev/status-rules",
        # The document itself: what stands outside of any template, and what makes it one at all.
        r"^(metadata|apiVersion|kind|spec|status)(?!\S*\.template)\S*: ",
        r"^line ",
        r"^items",
        r"\(line \d+\): (kind|apiVersion)",
        r"is not a field here",
        r"unfolds to more than",
        r"expected at most [0-9,]+ characters",
        r"is not JSON",
        r"special characters are not allowed",
        r"holds half of a letter",
        r"names one workload",
        r"is ignored: spec.managedBy",
        # What no AppWrapper may hold.
        r"cannot be nested",
        r"give the AppWrapper itself the queue",
        r"the AppWrapper restarts it",
        r"Holdfast runs the AppWrapper, and not what is in it",
        r"the AppWrapper's own, or none",
        r"or no such label",
        r"is a Secret",
        r"is the name of another",
        r"is not run again without a person's word",
        r"leads nowhere",
        r"does not lead to a pod template",
        r"brings too many pods",
        # The cluster, through the account; what is added to each component.
        r"does not serve",
        r"belongs to no namespace",
        r"may not create",
        r"the template sets",
        r"another owner would keep",
    )
)
"""What is refused here although the API server would take the components: `contracts/appwrapper.md`, and why."""


PERMISSION = re.compile(r"does not serve|belongs to no namespace|service account \S+ may not|is a Secret|a Secret is")


@dataclass
class Judged:
    """What we say of one mutant (empty: accepted), and what the API server says (empty: it takes all of it)."""

    mutant: Mutant
    ours: tuple[str, ...]
    theirs: tuple[str, ...]
    known: bool
    """Whether its components could be put to the API server at all."""


class Judge:
    """Both verdicts on one mutant, nothing of it made."""

    def __init__(self, space: Space, cluster_uid: str) -> None:
        self.space = space
        self.site = ActivitySite(space.site.kube, space.site.cluster, cluster_uid, "mutants", Limits())
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._permits: dict[tuple[tuple[str, str], ...], str] = {}

    async def judge(self, mutant: Mutant) -> Judged:
        async with self._slots:
            try:
                (workload,) = formats.read(
                    mutant.text,
                    cluster=self.space.site.cluster,
                    namespace=self.space.namespace,
                    name=mutant.asked.get("name"),
                )
            except HoldfastError as error:
                told = (
                    tuple(str(one) for one in error.problems) if isinstance(error, InvalidWorkload) else (str(error),)
                )
                templates = _templates(mutant)
                theirs = [await self._raw(one) for one in templates]
                return Judged(mutant, told, tuple(one for one in theirs if one), bool(templates))
            except ValueError:
                return Judged(mutant, ("several documents",), (), False)
            given = self._prepare(workload)
            ours = await self._ours(given)
            theirs = [await self._sent(given, index) for index in range(len(given.components))]
            return Judged(mutant, (ours,) if ours else (), tuple(one for one in theirs if one), True)

    def _prepare(self, workload: Workload) -> PrepareInput:
        target = Target(
            cluster=workload.cluster,
            namespace=workload.namespace,
            name=workload.name,
            workload_uid="mutant",
            workflow_id=workload.workflow_id,
            shard=1,
            run_as=workload.run_as,
            source_kind=workload.source.kind,
        )
        return PrepareInput(
            target=target,
            attempt=1,
            plan=tuple(planned(one, "mutant", 1) for one in workload.components),
            spec_hash=workload.spec_hash(),
            report=Report(sequence=1, phase=Phase.RESUMING, reason=Reason.SUBMITTED),
            components=workload.components,
            config_hashes=workload.config_hashes,
            labels=workload.labels,
        )

    async def _ours(self, given: PrepareInput) -> str:
        kinds = tuple(sorted((one.api_version, one.kind) for one in given.plan))
        while True:
            try:
                if kinds not in self._permits:
                    self._permits[kinds] = ""
                    await until_permitted(self.site, given, Pulse())
                if self._permits[kinds]:
                    return self._permits[kinds]
                await rehearse(self.site, given)
            except ApplicationError as error:
                if PERMISSION.search(error.message):
                    self._permits[kinds] = error.message
                return error.message if error.type == names.ERROR_REFUSED else f"{error.type}, not a refusal"
            except Unreachable:
                continue
            return ""

    async def _sent(self, given: PrepareInput, index: int) -> str:
        try:
            sent = inject(
                given.components[index],
                Placement(
                    target=given.target,
                    attempt=1,
                    owner_uid="00000000-0000-0000-0000-000000000001",
                    installation="mutants",
                    labels=given.labels,
                ),
                config_hash=given.config_hashes[given.components[index].name],
            )
        except InjectionError as error:
            return str(error)
        return await self._asked(sent)

    async def _raw(self, template: Object) -> str:
        metadata = template.get("metadata")
        if isinstance(metadata, dict) and metadata.get("namespace") is None:
            template = {**template, "metadata": {**metadata, "namespace": self.space.namespace}}
        return await self._asked(template)

    async def _asked(self, sent: Object) -> str:
        """Ask the API server itself, as the account, in words of this test's own; empty if it would create it."""
        kube = self.space.site.kube
        user = service_account_user(self.space.namespace, names.RUN_AS_DEFAULT)
        query = {"dryRun": "All", "fieldValidation": "Strict"}
        while True:
            try:
                resource = await kube.resource(str(sent.get("apiVersion")), str(sent.get("kind")))
                path = resource.path(self.space.namespace)
                await kube.mutate("POST", path, query=query, body=sent, impersonate=user)
            except Unreachable:
                continue
            except UnknownKind as error:
                return error.message
            except KubeError as error:
                return error.message
            return ""


def _templates(mutant: Mutant) -> list[Object]:
    """Return the components of a refused document, if it is so far one that has any."""
    try:
        document: Any = yaml.load(mutant.text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        found = [one["template"] for one in document["spec"]["components"]]
    except (yaml.YAMLError, KeyError, TypeError, RecursionError, ValueError):
        return []
    return found if all(isinstance(one, dict) for one in found) else []


def _difference(one: Judged) -> str:
    """Return what is wrong with our judgement of a mutant; empty if nothing is."""
    said = " | ".join(one.ours)
    if one.theirs and not one.ours:
        return f"{one.mutant.name}: accepted, and the API server says {one.theirs}"
    if one.ours and one.known and not one.theirs and not all(_is_ours(each) for each in one.ours):
        return f"{one.mutant.name}: refused ({said}), and the API server would take it"
    if one.ours and not all(_has_path(each) for each in one.ours):
        return f"{one.mutant.name}: no field is named: {said}"
    return ""


@pytest.mark.row("U14", level="e2e")
@pytest.mark.timeout(600)
async def test_each_of_a_thousand_is_judged_as_the_api_server_would(space: Space):
    await serve(space.site)
    system = await space.site.kube.get("v1", "Namespace", "kube-system")
    judge = Judge(space, system["metadata"]["uid"])
    for name, document in corpus().items():
        good = await judge.judge(Mutant(name, yaml.safe_dump(document)))
        assert (good.ours, good.theirs) == ((), ()), f"the corpus itself: {name}"
    begun = time.monotonic()
    found = await asyncio.gather(*(judge.judge(one) for one in mutants(COUNT)))
    # Another test may have served a kind by another schema in between: what differs is judged once more.
    again = [await judge.judge(one.mutant) for one in found if _difference(one)]
    wrong = [difference for one in again if (difference := _difference(one))]
    print(f"{COUNT} judged in {time.monotonic() - begun:.0f} s")
    print(
        Counter(("accepted" if not one.ours else "refused", "taken" if not one.theirs else "refused") for one in found)
    )
    assert not wrong, "\n".join(wrong)


def _is_ours(problem: str) -> bool:
    return any(pattern.search(problem) for pattern in OURS)


def _has_path(problem: str) -> bool:
    return any(pattern.search(problem) for pattern in PATHS)


PATHS = tuple(
    re.compile(words)
    for words in (
        r"^[a-zA-Z][^ ]*: ",
        r"^line \d+",
        r"\(line \d+\): \w",
        # The text as a whole: too long, too deep, empty, or no text at all.
        r"^expected at (least one document|most 8,388,608)",
        r"^is nested too deeply",
        r"^is not JSON",
        r"special characters are not allowed",
        r"is ignored: spec.managedBy",
    )
)
