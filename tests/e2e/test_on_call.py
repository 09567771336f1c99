"""What a person on call reads, tried on the real stack: nobody is misled (rows D33 to D38)."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from holdfast import names
from tests.e2e.site import Site, appwrapper, executable, job, until
from tests.e2e.terminal import shell

pytestmark = pytest.mark.e2e
ROW = pytest.mark.row
EXAMPLES = Path(__file__).parents[2] / "examples"


async def typed(site: Site, *argv: str) -> tuple[int, str, str, float]:
    """Run a command; return its exit code, what it printed on both streams, and how long it took in seconds."""
    begun = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        *executable(), *argv, env=shell(site), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await asyncio.wait_for(process.communicate(), 120)
    return process.returncode or 0, out.decode(), err.decode(), time.monotonic() - begun


async def first_line(site: Site, *argv: str, of: str = "stderr") -> str:
    """Return the first line that a command prints which goes on; it is ended then."""
    pipes = {"stdout": asyncio.subprocess.DEVNULL, "stderr": asyncio.subprocess.DEVNULL, of: asyncio.subprocess.PIPE}
    process = await asyncio.create_subprocess_exec(*executable(), *argv, env=shell(site), **pipes)
    try:
        stream: Any = getattr(process, of)
        return (await asyncio.wait_for(stream.readline(), 60)).decode()
    finally:
        process.kill()
        await process.wait()


def written(path: Path, document: Any) -> str:
    path.write_text(yaml.safe_dump(document))
    return str(path)


@ROW("D33", level="e2e")
@ROW("D36", level="e2e")
async def test_D36_D33_a_worker_that_was_killed_is_missed_by_each_command_and_then_by_the_doctor(
    site: Site, tmp_path: Path
):
    namespace = await site.namespace()
    name = f"{namespace}/train"
    file = written(tmp_path / "train.yaml", appwrapper("train", job()))
    assert (await typed(site, "submit", file, "-n", namespace))[0] == 0
    handle = site.client.get_workflow_handle(names.workflow_id(site.cluster, namespace, "train"))
    await site.reach(handle, "Running")
    for argv in (("status", name), ("explain", name), ("history", name), ("list",)):
        code, out, err, _ = await typed(site, *argv)
        assert (code, "stale" in out + err) == (0, False), f"{argv}: a worker is there\n{out}{err}"

    site.workers[0].kill()
    killed = time.monotonic()
    nobody = ("no worker answered within 3s", "no worker answers: last poll of the task queue")
    for argv in (("status", name), ("explain", name)):
        _, out, _, _ = await typed(site, *argv)
        first = out.splitlines()[0]
        assert first.startswith("stale"), out
        assert any(words in first for words in nobody), first
        assert " ago" in first, "it says since when"
        assert "once a worker answers" in out
    other = written(tmp_path / "other.yaml", appwrapper("other", job()))
    for argv in (("submit", other, "-n", namespace), ("suspend", name), ("resume", name)):
        code, out, err, _ = await typed(site, *argv)
        assert code == 0, err
        assert err.startswith("stale"), f"{argv}: {out}{err}"
        assert any(words in err for words in nobody), err
        assert "once a worker answers" in err
    for argv in (("cancel", name, "--wait"), ("suspend", name, "--wait"), ("extend", name, "1h")):
        assert "no worker answer" in await first_line(site, *argv), argv
    assert "no worker answer" in await first_line(site, "watch", name, of="stdout")

    # A minute and ten seconds after its last poll it is gone for the doctor, too.
    await asyncio.sleep(max(0.0, 72 - (time.monotonic() - killed)))
    code, out, _, _ = await typed(site, "doctor", "-o", "json")
    checks = {each["name"]: each for each in json.loads(out)}
    assert code == 2
    for role in ("workflows", "cluster", "wait", "watch"):
        check = checks[f"worker: {role}"]
        assert not check["good"], check
        assert "last poll of the task queue" in check["found"], check
        assert "start one: holdfast worker --roles " in check["remedy"]
    assert "no failure is acted on" in checks["worker: workflows"]["found"]
    first = (await typed(site, "status", name))[1].splitlines()[0]
    assert "no worker answers: last poll of the task queue" in first
    assert "ago, at " in first

    await site.start_worker()
    await until(lambda: site.gone(namespace), 60, "what was asked for meanwhile is carried out")


@ROW("D37", level="e2e")
async def test_D37_a_namespace_that_is_not_enabled_is_refused_before_anything_begins(site: Site, tmp_path: Path):
    file = written(tmp_path / "train.yaml", appwrapper("train", job()))
    missing, closed = f"{site.cluster}-missing", f"{site.cluster}-closed"
    made = await site.kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": closed}})
    try:
        for namespace, why in (
            (missing, f"namespace {missing} does not exist"),
            (closed, f"namespace {closed} is not enabled for Holdfast"),
        ):
            code, out, err, _ = await typed(site, "submit", file, "-n", namespace)
            assert code == 2, out
            assert why in err
            assert f"holdfast namespace enable {namespace}" in err
            query = f"HoldfastNamespace = '{namespace}'"
            assert [one async for one in site.client.list_workflows(query)] == [], "nothing was begun"
    finally:
        await site.kube.delete("v1", "Namespace", closed, uid=made["metadata"]["uid"])
    enabled = await site.namespace()
    code, out, err, _ = await typed(site, "submit", file, "-n", enabled)
    assert code == 0, err
    code, _, err, _ = await typed(site, "cancel", f"{enabled}/train", "--wait")
    assert code == 0, err


@ROW("D38", level="e2e")
async def test_D38_the_api_server_is_asked_with_strict_fields(site: Site, tmp_path: Path):
    namespace = await site.namespace()
    text = (EXAMPLES / "job.yaml").read_text()
    good = str(EXAMPLES / "job.yaml")
    code, out, err, _ = await typed(site, "validate", "--server", good, "-n", namespace)
    assert code == 0, out + err
    assert "valid (by the API server): List sample" in out
    assert "not checked: quotas" in out
    for what, instead, path in (
        ("parallelism:", "paralelism:", "spec.paralelism"),
        ("image:", "imag:", "spec.template.spec.containers[0].imag"),
        ("restartPolicy: Never", "restartPolicy: Odd", "spec.template.spec.restartPolicy"),
    ):
        assert what in text
        odd = tmp_path / "odd.yaml"
        odd.write_text(text.replace(what, instead))
        code, out, err, _ = await typed(site, "validate", "--server", str(odd), "-n", namespace)
        assert code == 2, f"{instead}: {out}{err}"
        assert f"Job sample: {path}" in out, out
        code, out, _, _ = await typed(site, "validate", str(odd), "-n", namespace)
        assert code == 0
        assert "valid (structure only)" in out
    wrapped = appwrapper("wrapped", job())
    wrapped["spec"]["components"][0]["template"]["spec"]["template"]["spec"]["restartPolicy"] = "Odd"
    code, out, _, _ = await typed(site, "validate", "--server", written(tmp_path / "w.yaml", wrapped), "-n", namespace)
    assert code == 2
    assert "spec.components[0].template.spec.template.spec.restartPolicy" in out, "as it stands in the document"
    assert await site.objects("batch/v1", "Job", namespace) == [], "a dry run makes nothing"
    code, out, _, _ = await typed(site, "validate", "--server", good, "-n", f"{site.cluster}-missing")
    assert code == 2
    assert f"holdfast namespace enable {site.cluster}-missing" in out
