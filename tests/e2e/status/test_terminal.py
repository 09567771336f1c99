"""The command as a person meets it at a terminal: what a shell completes, and the words for a real life."""

from __future__ import annotations

import asyncio
import re
import subprocess
from pathlib import Path

import pytest

from holdfast import names
from tests.e2e.ground.site import appwrapper, executable, job, until
from tests.e2e.ground.space import Space
from tests.e2e.ground.terminal import command, run, shell

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]


async def completed(space: Space, *words: str) -> list[str]:
    """What a shell is offered for the last word."""
    environment = {
        **shell(space.site),
        "_HOLDFAST_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(["holdfast", *words]),
        "COMP_CWORD": str(len(words)),
    }
    done = await asyncio.to_thread(
        subprocess.run, executable(), env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.row("E6", level="e2e")
async def test_E6_a_shell_completes_names_and_namespaces_of_the_workloads_there_are(space: Space, tmp_path: Path):
    handle = await space.submit(appwrapper("train-llm", job()))
    await space.site.reach(handle, "Running")
    full = f"{space.namespace}/train-llm"

    async def offers() -> bool:
        # A machine that is busy may take longer than a prompt waits; then nothing is offered, and the user asks again.
        return full in await completed(space, "status", space.namespace)

    await until(offers, 60, "the name is offered, with its namespace")

    async def offers_here() -> bool:
        return "train-llm" in await completed(space, "suspend", "-n", space.namespace, "tr")

    await until(offers_here, 60, "the name alone is offered in its own namespace")

    async def offers_namespace() -> bool:
        return space.namespace in await completed(space, "list", "-n", "")

    await until(offers_namespace, 60, "the namespace is offered")
    assert await completed(space, "status", "nobody-has-this-name") == []

    queue = f"q-{space.namespace[-6:]}"
    file = tmp_path / "queue.yaml"
    file.write_text(
        f"apiVersion: holdfast.dev/v1\nkind: Queue\nmetadata: {{name: {queue}}}\nspec: {{quota: {{pods: 4}}}}\n"
    )
    await command(space.site, "queue", "apply", str(file))
    try:

        async def offers_queue() -> bool:
            return queue in await completed(space, "list", "--queue", "q-")

        await until(offers_queue, 60, "the queue is offered")
    finally:
        await command(space.site, "queue", "delete", queue)


@pytest.mark.row("E6", level="e2e")
async def test_E6_kubectl_words_read_and_end_a_workload(space: Space):
    handle = await space.submit(appwrapper("train-llm", job()))
    await space.site.reach(handle, "Running")
    full = f"{space.namespace}/train-llm"
    assert "train-llm  Running" in await command(space.site, "get", full)
    assert "2 of 2 pods run" in await command(space.site, "describe", full)
    await command(space.site, "delete", full, "--wait", "--reason", "over")
    assert "train-llm  Cancelled" in await command(space.site, "get", full)

    async def listed() -> bool:
        return "Cancelled" in await command(space.site, "get", "-n", space.namespace)

    await until(listed, 90, "the list, which is a moment behind, says so too")


@pytest.mark.row("E7", level="e2e")
async def test_E7_each_fact_once_in_short_lines_with_zones_from_the_first_start_to_the_end(space: Space):
    nowhere = job()
    nowhere["template"]["spec"]["template"]["spec"]["nodeSelector"] = {"holdfast.dev/node": "none-has-this"}
    handle = await space.submit(appwrapper("waits", nowhere))
    full = f"{space.namespace}/waits"

    told = ""

    async def starts() -> bool:
        nonlocal told
        told = await command(space.site, "explain", full)
        return "now        0 of 2 pods running" in told

    await until(starts, 60, lambda: f"its attempt is made, and its pods are awaited: {told}")
    assert "waits  Starting  attempt 1" in told
    status = await command(space.site, "status", full)
    assert "pods       0 of 2 pods running" in status
    for text in (told, status):
        assert re.findall(r"\d\d:\d\d:\d\d(?! UTC)", text) == [], text
        lines = text.splitlines()
        assert len({line[11:] for line in lines}) == len(lines), "no line says what another says"
    assert "QuotaReserved" not in status, "what its phase implies is not shown"
    assert "QuotaReserved yes" in await command(space.site, "status", full, "-o", "wide")
    await handle.signal(names.SIGNAL_CANCEL, "over")
    await space.site.reach(handle, "Cancelled")


@pytest.mark.row("E7", level="e2e")
async def test_E7_after_a_refusal_the_next_step_is_the_one_that_helps(space: Space):
    labels = {"metadata": {"labels": {names.LABEL_NAMESPACE_ENABLED: None}}}
    found = await space.site.kube.get("v1", "Namespace", space.namespace)
    await space.site.kube.patch("v1", "Namespace", space.namespace, uid=found["metadata"]["uid"], patch=labels)
    handle = await space.submit(appwrapper("train", job()))
    await space.site.reach(handle, "Failed")
    full = f"{space.namespace}/train"
    told = await command(space.site, "explain", full)
    assert f"run `holdfast namespace enable {space.namespace}`" in told
    assert f"unblock    enable the namespace, then run `holdfast retry {full}`" in told
    done = await run(space.site, "status", full)
    assert done.code == 1
    assert done.out.count("is not enabled for Holdfast") == 1, done.out

    enabled = {"metadata": {"labels": {names.LABEL_NAMESPACE_ENABLED: "true"}}}
    await space.site.kube.patch("v1", "Namespace", space.namespace, uid=found["metadata"]["uid"], patch=enabled)
    await command(space.site, "retry", full, "--wait")
    assert "train  Running" in await command(space.site, "status", full)
