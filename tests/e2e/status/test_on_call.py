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
from tests.e2e.ground.site import Site, appwrapper, executable, job, until
from tests.e2e.ground.terminal import command, run, shell
from tests.quotas import limited

pytestmark = pytest.mark.e2e
ROW = pytest.mark.row
EXAMPLES = Path(__file__).parents[3] / "examples"


async def typed(site: Site, *argv: str) -> tuple[int, str, str]:
    """Run a command; return its exit code and what it printed on both streams."""
    done = await run(site, *argv)
    return done.code, done.out, done.errors


async def first_line(site: Site, *argv: str, of: str = "stderr") -> str:
    """Return the first line that a command prints which goes on; it is ended then."""
    process = await asyncio.create_subprocess_exec(
        *executable(),
        *argv,
        env=shell(site),
        stdout=asyncio.subprocess.PIPE if of == "stdout" else asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE if of == "stderr" else asyncio.subprocess.DEVNULL,
    )
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

        async def answered(argv: tuple[str, ...] = argv) -> bool:
            code, out, err = await typed(site, *argv)
            assert code == 0, f"{argv}: {out}{err}"
            return "stale" not in out + err  # A busy worker may take longer than a command waits.

        await until(answered, 60, f"{argv}: a worker is there")

    site.workers[0].kill()
    killed = time.monotonic()
    nobody = ("no worker answered within 3s", "no worker answers: last poll of the task queue")
    for argv in (("status", name), ("explain", name)):
        _, out, _ = await typed(site, *argv)
        first = out.splitlines()[0]
        assert first.startswith("stale"), out
        assert any(words in first for words in nobody), first
        assert " ago" in first, "it says since when"
        assert "once a worker answers" in out
    other = written(tmp_path / "other.yaml", appwrapper("other", job("other")))
    for argv in (("submit", other, "-n", namespace), ("suspend", name), ("resume", name)):
        code, out, err = await typed(site, *argv)
        assert code == 0, err
        assert err.startswith("stale"), f"{argv}: {out}{err}"
        assert any(words in err for words in nobody), err
        assert "once a worker answers" in err
    for argv in (("cancel", name, "--wait"), ("suspend", name, "--wait"), ("extend", name, "1h")):
        assert "no worker answer" in await first_line(site, *argv), argv
    assert "no worker answer" in await first_line(site, "watch", name, of="stdout")

    # A minute and ten seconds after its last poll it is gone for the doctor, too.
    await asyncio.sleep(max(0.0, 72 - (time.monotonic() - killed)))
    code, out, _ = await typed(site, "doctor", "-o", "json")
    checks = {each["name"]: each for each in json.loads(out)}
    assert code == 2
    for role in ("workflows", "cluster", "wait", "watch"):
        check = checks[f"worker: {role}"]
        assert not check["good"], check
        assert "last poll of the task queue" in check["found"], check
        assert "start one: `holdfast worker --roles " in check["remedy"]
    assert "no failure is acted on" in checks["worker: workflows"]["found"]
    first = (await typed(site, "status", name))[1].splitlines()[0]
    assert "no worker answers: last poll of the task queue" in first
    assert "ago, at " in first

    await site.start_worker()
    await site.reach(handle, "Cancelled", 120)
    began = site.client.get_workflow_handle(names.workflow_id(site.cluster, namespace, "other"))
    await site.reach(began, "Running", 120)


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
            code, out, err = await typed(site, "submit", file, "-n", namespace)
            assert code == 2, out
            assert why in err
            assert f"holdfast namespace enable {namespace}" in err
            query = f"HoldfastNamespace = '{namespace}'"
            assert [one async for one in site.client.list_workflows(query)] == [], "nothing was begun"
    finally:
        await site.kube.delete("v1", "Namespace", closed, uid=made["metadata"]["uid"])
    enabled = await site.namespace()
    code, out, err = await typed(site, "submit", file, "-n", enabled)
    assert code == 0, err
    code, _, err = await typed(site, "cancel", f"{enabled}/train", "--wait")
    assert code == 0, err


@ROW("D38", level="e2e")
async def test_D38_the_api_server_is_asked_with_strict_fields(site: Site, tmp_path: Path):
    namespace = await site.namespace()
    text = (EXAMPLES / "job.yaml").read_text()
    good = str(EXAMPLES / "job.yaml")
    code, out, err = await typed(site, "validate", "--server", good, "-n", namespace)
    assert code == 0, out + err
    assert "valid (by the API server): sample" in out
    assert "not checked: quotas" in out
    for what, instead, path in (
        ("parallelism:", "paralelism:", "spec.paralelism"),
        ("image:", "imag:", "spec.template.spec.containers[0].imag"),
        ("restartPolicy: Never", "restartPolicy: Odd", "spec.template.spec.restartPolicy"),
    ):
        assert what in text
        odd = tmp_path / "odd.yaml"
        odd.write_text(text.replace(what, instead))
        code, out, err = await typed(site, "validate", "--server", str(odd), "-n", namespace)
        assert code == 2, f"{instead}: {out}{err}"
        assert f"Job sample: {path}" in out, out
        code, out, _ = await typed(site, "validate", str(odd), "-n", namespace)
        assert code == 0
        assert "valid (structure only)" in out
    wrapped = appwrapper("wrapped", job())
    wrapped["spec"]["components"][0]["template"]["spec"]["template"]["spec"]["restartPolicy"] = "Odd"
    code, out, _ = await typed(site, "validate", "--server", written(tmp_path / "w.yaml", wrapped), "-n", namespace)
    assert code == 2
    assert "spec.components[0].template.spec.template.spec.restartPolicy" in out, "as it stands in the document"
    assert await site.objects("batch/v1", "Job", namespace) == [], "a dry run makes nothing"
    code, out, _ = await typed(site, "validate", "--server", good, "-n", f"{site.cluster}-missing")
    assert code == 2
    assert f"holdfast namespace enable {site.cluster}-missing" in out


async def explained(site: Site, name: str, *words: str) -> str:
    """Wait until `explain` says all of this in its why, and return it."""
    last = [""]

    async def says() -> bool:
        _, out, err = await typed(site, "explain", name, "-o", "json")
        last[0] = json.loads(out)["explanation"]["why"] if out else err
        return all(each in last[0] for each in words)

    try:
        await until(says, 60, f"{name} says {words}")
    except AssertionError as error:
        raise AssertionError(f"{error}; it says {last[0]!r}") from None
    return last[0]


@ROW("D34", level="e2e")
async def test_D34_explain_says_why_pods_wait(site: Site, tmp_path: Path):
    namespace, full = await site.namespace(), await site.namespace()
    await limited(site.kube, full, {"pods": "0"})

    def asking(name: str, **changes: Any) -> dict[str, Any]:
        one = job(name)
        one["template"]["spec"]["template"]["spec"] |= changes
        patient = {"admissionGracePeriodDuration": "5m", "warmupGracePeriodDuration": "10m"}
        return appwrapper(name, one, **patient)

    container = {"name": "main", "image": "example.com/train:1", "resources": {"requests": {"cpu": "5000"}}}
    cases: dict[str, tuple[str, dict[str, Any], tuple[str, ...]]] = {
        "large": (
            namespace,
            {"containers": [container], "nodeSelector": {}},
            ("2 pods unschedulable: ", "cpu", "(each asks for 5000)"),
        ),
        "choosy": (
            namespace,
            {"nodeSelector": {"zone": "nowhere"}},
            ("2 pods unschedulable: ", "node affinity/selector"),
        ),
        "volume": (
            namespace,
            {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]},
            ("2 pods unschedulable: ", 'persistentvolumeclaim "data" not found'),
        ),
        "gated": (
            namespace,
            {"schedulingGates": [{"name": "example.com/hold"}]},
            ("2 pods held by scheduling gates: example.com/hold",),
        ),
        "quota": (full, {}, ("2 pods not created: ", "exceeded quota: limit")),
    }

    async def live(name: str, where: str, changes: dict[str, Any], words: tuple[str, ...]) -> None:
        file = written(tmp_path / f"{name}.yaml", asking(name, **changes))
        await command(site, "submit", file, "-n", where)
        print(name, await explained(site, f"{where}/{name}", *words))
        out = await command(site, "status", f"{where}/{name}")
        assert all(each in out for each in words), out
        await command(site, "cancel", f"{where}/{name}", "--wait")

    await asyncio.gather(*(live(name, *case) for name, case in cases.items()))


@ROW("D35", level="e2e")
async def test_D35_what_a_pod_died_of_is_kept_with_its_jobs_verdict(site: Site, tmp_path: Path):
    namespace = await site.namespace()
    name = f"{namespace}/train"
    file = written(tmp_path / "train.yaml", appwrapper("train", job(pods=1), retryLimit="0"))
    assert (await typed(site, "submit", file, "-n", namespace))[0] == 0
    handle = site.client.get_workflow_handle(names.workflow_id(site.cluster, namespace, "train"))
    await site.reach(handle, "Running")
    (victim,) = await site.pods(namespace)
    pod, node = victim["metadata"]["name"], victim["spec"]["nodeName"]
    await site.annotate("Pod", pod, namespace, kwok_exit_code="137", kwok_reason="OOMKilled", kwok_fail="0s")
    await site.reach(handle, "Failed")
    death = f"pod {pod} exited 137 (OOMKilled) on {node}"
    _, out, _ = await typed(site, "status", name)
    assert death in out, out
    _, out, _ = await typed(site, "history", name)
    assert death in out, out
    life = json.loads((await typed(site, "history", name, "-o", "json"))[1])
    assert (life["failure"]["exitCode"], life["failure"]["node"]) == (137, node)
    assert life["attempts"][-1]["failure"]["exitCode"] == 137

    async def told() -> bool:
        events = await site.objects("v1", "Event", namespace)
        return any(death in each.get("message", "") for each in events)

    await until(told, 30, "an Event says it, too")
