"""Samples what anchors tell against what is there, beside a command that makes workloads live: the end-to-end suite.

    python -m tests.e2e.witness.sampler --stack test -- pytest -m e2e

Each sample shows one version of the cluster: all anchors first, then everything else exactly as of that version.
The exit code is the command's; 1 if that was 0 and an anchor has lied, or too little was seen to say that none has.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlencode

import aiohttp
from kubernetes.aio import config
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.client.rest import RESTClientObject

from holdfast import names
from holdfast.activities.kube.client import Kube, KubeError
from tests.e2e.witness.telling import Snapshot, Thing, Verdict, thing_of, told_by

PACE = 0.7
"""Seconds between samples, at least; and no more than a quarter of the time is spent on them."""
COMPONENTS = {("batch/v1", "Job"), ("apps/v1", "Deployment"), ("apps/v1", "StatefulSet"), ("apps/v1", "ReplicaSet")}
"""The kinds looked for from the beginning; others are added as attempts plan them."""
FINISHED = "status.phase!=Succeeded,status.phase!=Failed"
SHOWN = 20
_METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


class Reader:
    """Lists of the whole cluster, with no more than is needed of each object."""

    def __init__(self, configuration: Configuration, kube: Kube) -> None:
        self._host = configuration.host
        self._token = configuration.get_api_key_with_prefix
        self._rest = RESTClientObject(configuration)
        self._kube = kube
        self._kinds = set(COMPONENTS)

    @classmethod
    async def connect(cls, kubeconfig: Path) -> Reader:
        """Return a reader with the credentials of a kubeconfig."""
        configuration = Configuration()
        await config.load_kube_config(config_file=str(kubeconfig), client_configuration=configuration)
        return cls(configuration, await Kube.connect(str(kubeconfig)))

    async def close(self) -> None:
        """Close all connections."""
        await self._rest.close()
        await self._kube.close()

    async def snapshot(self) -> Snapshot:
        """Return everything as of one version.

        Raises:
            OSError: if the API server did not answer, or no longer knows that version.
        """
        at = datetime.now(UTC)
        anchors = await self._list(names.API_VERSION, names.ANCHOR_KIND, "", whole=True)
        version = anchors["metadata"]["resourceVersion"]
        owners = await self._list(names.API_VERSION, names.ATTEMPT_KIND, version, whole=True)
        for owner in owners["items"]:
            plan = (owner.get("spec") or {}).get("plan") or ()
            self._kinds |= {(one["apiVersion"], one["kind"]) for one in plan} - {("v1", "Pod")}
        kinds = sorted(self._kinds)
        every, unfinished, *others = await asyncio.gather(
            self._list("v1", "Pod", version),
            self._list("v1", "Pod", version, fields=FINISHED),
            *(self._list(*kind, version) for kind in kinds),
        )
        live = {item["metadata"]["uid"] for item in unfinished["items"]}
        things = [thing_of(names.ATTEMPT_KIND, item) for item in owners["items"]]
        things += [thing_of("Pod", item, live=item["metadata"]["uid"] in live) for item in every["items"]]
        for (_, kind), listed in zip(kinds, others, strict=True):
            things += [thing_of(kind, item) for item in listed["items"]]
        return Snapshot(int(version), at, [told_by(each) for each in anchors["items"]], _ours(things))

    async def _list(
        self, api_version: str, kind: str, version: str, *, fields: str = "", whole: bool = False
    ) -> dict[str, Any]:
        """List a kind: as of now, or exactly as of a version. A kind that is served no more has no objects."""
        try:
            path = (await self._kube.resource(api_version, kind)).path()
        except KubeError:
            return {"metadata": {}, "items": []}
        query = {"labelSelector": names.LABEL_WORKLOAD_UID}
        if version:
            query |= {"resourceVersion": version, "resourceVersionMatch": "Exact"}
        if fields:
            query["fieldSelector"] = fields
        headers = {"Accept": "application/json" if whole else _METADATA}
        if token := await self._token("BearerToken", alias="authorization"):
            headers["Authorization"] = token
        answer = await self._rest.request("GET", f"{self._host}{path}?{urlencode(query)}", headers=headers)
        response = cast("aiohttp.ClientResponse", answer.response)
        text = await response.read()
        if response.status == 404 and version:
            return {"metadata": {}, "items": []}  # Served until just now: a test has taken the kind away.
        if response.status != 200:
            raise OSError(f"{path}: {response.status}: {text[:200]!r}")
        listed = cast("dict[str, Any]", json.loads(text))
        return {"metadata": listed["metadata"], "items": listed.get("items") or []}


def _ours(things: Sequence[Thing]) -> list[Thing]:
    return [one for one in things if one.workload]


async def sample(kubeconfig: Path, verdict: Verdict, ended: asyncio.Event) -> Counter[str]:
    """Judge samples until the event is set; return how many could not be taken, by the reason."""
    reader = await Reader.connect(kubeconfig)
    clock, failed = asyncio.get_running_loop().time, Counter[str]()
    try:
        while not ended.is_set():
            begun = clock()
            try:
                verdict.take(await reader.snapshot())
            except (OSError, aiohttp.ClientError, TimeoutError, KubeError) as error:
                failed[f"{type(error).__name__}: {error}"[:160]] += 1
            pause = max(PACE - (clock() - begun), 3 * (clock() - begun))
            try:
                await asyncio.wait_for(ended.wait(), pause)
            except TimeoutError:
                continue
    finally:
        await reader.close()
    return failed


async def beside(command: Sequence[str], kubeconfig: Path, verdict: Verdict) -> tuple[int, Counter[str]]:
    """Run a command and sample meanwhile; return its exit code, and how many samples could not be taken, and why."""
    ended = asyncio.Event()
    process = await asyncio.create_subprocess_exec(*command)
    loop = asyncio.get_running_loop()
    # The terminal tells the command of an interruption itself; its end is what ends the sampling.
    loop.add_signal_handler(signal.SIGINT, lambda: None)
    loop.add_signal_handler(signal.SIGTERM, process.terminate)
    sampling = asyncio.create_task(sample(kubeconfig, verdict, ended))
    code = await process.wait()
    ended.set()
    return code, await sampling


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with the sampler beside it, say what was seen, and return the exit code."""
    from holdfast.local import Stack

    parser = argparse.ArgumentParser(
        prog="python -m tests.e2e.witness.sampler", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--stack", required=True, help="the name of a local stack that is up")
    parser.add_argument("--some", action="store_true", help="only some tests are run: to see little is no fault")
    parser.add_argument("command", nargs="+")
    given = parser.parse_args(arguments)
    verdict = Verdict()
    code, failed = asyncio.run(beside(given.command, Stack.load(given.stack).kubeconfig, verdict))
    return report(verdict, failed, some=given.some) if code == 0 else report(verdict, failed, some=True) or code


def report(verdict: Verdict, failed: Counter[str] | None = None, *, some: bool = False) -> int:
    """Print the verdict; return the exit code."""
    for lie in verdict.lies[:SHOWN]:
        print(f"lie: {lie}")
    failed = failed or Counter()
    missed = failed.total()
    print(verdict.sentence() + (f"; {missed} samples could not be taken" if missed else ""))
    for why, count in failed.most_common(5):
        print(f"  {count} not taken: {why}")
    if verdict.too_few and not some:
        print("too little was judged for this to mean anything: the suite was not run, or the sampler could not see it")
        return 1
    return 1 if verdict.lies else 0


if __name__ == "__main__":
    sys.exit(main())
