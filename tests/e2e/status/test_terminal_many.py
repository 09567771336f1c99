"""Many workloads at the terminal: selected, steered, applied, and waited for (rows E3, E4, E5)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.ground.site import Site, appwrapper, executable, job, until
from tests.e2e.ground.space import FOREIGN_FINALIZER, Space, pod
from tests.e2e.ground.terminal import at_terminal, command, run, shell

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]
ROW = pytest.mark.row


def labelled(document: dict[str, Any], **labels: str) -> dict[str, Any]:
    return {**document, "metadata": {**document["metadata"], "labels": labels}}


def written(folder: Path, name: str, document: dict[str, Any]) -> str:
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(document))
    return str(folder / f"{name}.yaml")


async def listed(site: Site, *argv: str) -> list[str]:
    """Return the names in a list, in its order."""
    return [each["name"] for each in json.loads(await command(site, "list", "-o", "json", *argv))]


async def phase_of(site: Site, name: str) -> str:
    told = json.loads((await run(site, "status", name, "-o", "json")).out)
    return str(told["status"]["phase"])


async def phases(space: Space, phase: str, *names: str) -> None:
    async def there() -> bool:
        return all([await phase_of(space.site, f"{space.namespace}/{name}") == phase for name in names])

    await until(there, 90, f"{', '.join(names)}: {phase}")


@ROW("E3", level="e2e")
async def test_E3_a_folder_is_submitted_selected_by_labels_and_steered_together(space: Space, tmp_path: Path):
    site, namespace = space.site, space.namespace
    for name, team in (("a", "x"), ("b", "x"), ("c", "y")):
        written(tmp_path / "jobs", name, labelled(appwrapper(name, job(name)), team=team))
    begun = await command(site, "submit", f"{tmp_path}/jobs/", "-n", namespace)
    assert [line.split()[0] for line in begun.splitlines()] == [f"{namespace}/{name}" for name in "abc"]
    await phases(space, "Running", "a", "b", "c")

    async def visible() -> bool:
        return len(await listed(site, "-n", namespace, "--phase", "Running")) == 3

    await until(visible, 90, "Temporal lists them")
    assert await listed(site, "-n", namespace) == ["c", "b", "a"], "the youngest first"
    assert await listed(site, "-n", namespace, "--sort", "name") == ["a", "b", "c"]
    assert await listed(site, "-n", namespace, "-l", "team=x", "--sort", "name") == ["a", "b"]
    assert await listed(site, "-n", namespace, "-l", "team!=x") == ["c"]
    assert await listed(site, "-n", namespace, "--phase", "Failed") == []
    some = await run(site, "list", "-n", namespace, "--limit", "2", "-o", "wide")
    assert some.errors == "showing 2 of 3 workloads: --limit shows more\n"
    heads, first, _ = some.out.splitlines()
    assert heads.split()[3:] == ["PHASE", "REASON", "ATTEMPT", "RESTARTS", "AGE", "CLUSTER", "QUEUE", "MESSAGE"]
    assert first.split()[1:5] == ["c", "AppWrapper", "Running", "SufficientPodsReady"]
    assert site.cluster in first

    done = await run(site, "suspend", "a", "b", "nowhere", "-n", namespace, "--wait", "--reason", "room")
    assert done.code == 2, "the worst of them"
    assert sorted(line.split(":")[0] for line in done.out.splitlines()) == [
        f"{namespace}/{name} Suspended" for name in "ab"
    ]
    assert "nowhere" in done.errors
    assert len(done.errors.splitlines()) == 1
    assert {each["metadata"]["labels"]["holdfast.dev/component"] for each in await space.pods()} == {"0-job-c"}
    told = json.loads(await command(site, "status", "a", "c", "-n", namespace, "-o", "json"))
    assert [each["status"]["phase"] for each in told] == ["Suspended", "Running"]
    assert [text.split()[0] for text in (await command(site, "status", "a", "c", "-n", namespace)).split("\n\n")] == [
        "a",
        "c",
    ]


@ROW("E3", level="e2e")
async def test_E3_cancel_all_shows_what_it_means_and_asks_first(space: Space, tmp_path: Path):
    site, namespace = space.site, space.namespace
    for name, team in (("a", "x"), ("b", "x"), ("c", "y")):
        document = labelled(appwrapper(name, job(name)), team=team)
        document["spec"]["suspend"] = True
        written(tmp_path / "jobs", name, document)
    await command(site, "submit", f"{tmp_path}/jobs/", "-n", namespace)
    await phases(space, "Suspended", "a", "b", "c")
    these = ("cancel", "--all", "-l", "team=x", "-n", namespace)

    async def visible() -> bool:
        return len(await listed(site, "-n", namespace, "--phase", "Suspended")) == 3

    await until(visible, 90, "Temporal lists them")
    unasked = await run(site, *these)
    assert unasked.code == 2
    assert "there is no terminal to ask at" in unasked.errors
    declined = await at_terminal(site, *these, answer="n")
    assert declined.code == 2
    assert f"Cancel 2 workloads of namespace {namespace} on cluster {site.cluster}? [y/N]" in declined.errors
    assert "nothing was changed" in declined.errors
    assert await phase_of(site, f"{namespace}/a") == "Suspended"

    agreed = await at_terminal(site, *these, "--wait", answer="y")
    assert agreed.code == 0, agreed.errors
    assert sorted(line.split(":")[0] for line in agreed.out.splitlines()) == [
        f"{namespace}/{name} Cancelled" for name in "ab"
    ]
    assert await phase_of(site, f"{namespace}/c") == "Suspended"
    await command(site, "cancel", "--all", "--yes", "--wait", "-n", namespace)
    assert await phase_of(site, f"{namespace}/c") == "Cancelled"


@ROW("E3", level="e2e")
async def test_E3_all_of_one_team_are_stopped_and_put_back_by_one_command_each(space: Space, tmp_path: Path):
    site, namespace = space.site, space.namespace
    for name, team in (("a", "x"), ("b", "x"), ("c", "y")):
        written(tmp_path / "jobs", name, labelled(appwrapper(name, job(name)), team=team))
    await command(site, "submit", f"{tmp_path}/jobs/", "-n", namespace)
    await phases(space, "Running", "a", "b", "c")
    team = ("-l", "team=x", "-n", namespace)

    async def listed_in(phase: str, *names: str) -> None:
        async def visible() -> bool:
            return sorted(await listed(site, "-n", namespace, "--phase", phase)) == sorted(names)

        await until(visible, 90, f"Temporal lists {', '.join(names)} as {phase}")

    await listed_in("Running", "a", "b", "c")
    stopped = await at_terminal(site, "suspend", *team, "--wait", answer="y")
    assert stopped.code == 0, stopped.errors
    assert f"Suspend 2 workloads of namespace {namespace} on cluster {site.cluster}? [y/N]" in stopped.errors
    assert await phase_of(site, f"{namespace}/a") == await phase_of(site, f"{namespace}/b") == "Suspended"
    assert await phase_of(site, f"{namespace}/c") == "Running"

    await listed_in("Suspended", "a", "b")
    back = await run(site, "resume", "--all", "-n", namespace, "--yes", "--wait")
    assert back.code == 0, back.errors
    assert sorted(line.split(":")[0] for line in back.out.splitlines()) == [
        f"{namespace}/{name} Running" for name in "ab"
    ], "c runs, and is not asked"
    await listed_in("Running", "a", "b", "c")
    room = await run(site, "preempt", *team, "--yes", "--wait")
    assert room.code == 0, room.errors
    assert [await phase_of(site, f"{namespace}/{name}") for name in "abc"] == ["Suspended", "Suspended", "Running"]


@ROW("E3", level="e2e")
async def test_E3_failed_workloads_that_are_held_are_ended_and_running_ones_left(space: Space):
    site, namespace = space.site, space.namespace
    waits = {"retryLimit": "0", "failureGracePeriodDuration": "0s", "deletionOnFailureGracePeriodDuration": "1h"}
    for name in ("lost", "well"):
        handle = await space.submit(appwrapper(name, job(name), **waits))
        await space.reach(handle, "Running", 1)
    await space.fail_pod("lost")
    these = ("--phase", "Failed", "-n", namespace)

    async def visible() -> bool:
        return await listed(site, *these, "--running") == ["lost"]

    await until(visible, 90, "Temporal lists it as Failed and held")
    assert await space.pods("lost")
    declined = await at_terminal(site, "cancel", "--all", *these, answer="n")
    assert declined.code == 2
    assert f"Cancel 1 workload of namespace {namespace} on cluster {site.cluster}? [y/N]" in declined.errors
    assert await space.pods("lost")

    agreed = await at_terminal(site, "cancel", "--all", *these, answer="y")
    assert agreed.code == 0, agreed.errors
    assert f"{namespace}/lost" in agreed.out
    assert f"{namespace}/well" not in agreed.out

    async def ended() -> bool:
        return not await space.pods("lost") and await listed(site, "-n", namespace, "--running") == ["well"]

    await until(ended, 90, "what was held is removed")
    assert await phase_of(site, f"{namespace}/well") == "Running"


@ROW("E3", level="e2e")
async def test_E3_a_list_is_sorted_by_age_phase_and_restarts(space: Space):
    site, namespace = space.site, space.namespace
    waits = {"failureGracePeriodDuration": "0s", "retryPausePeriodDuration": "1s"}
    for name in ("restarted", "stopped", "young"):
        handle = await space.submit(appwrapper(name, job(name), **waits))
        await space.reach(handle, "Running", 1)
        if name == "restarted":
            await space.fail_pod(name)
            await space.reach(handle, "Running", 2)
        if name == "stopped":
            await handle.signal("suspend", "for now")
            await space.reach(handle, "Suspended")

    async def visible() -> bool:
        rows = json.loads(await command(site, "list", "-n", namespace, "-o", "json"))
        found = {row["name"]: (row["phase"], row["restarts"]) for row in rows}
        return found == {"restarted": ("Running", 1), "stopped": ("Suspended", 0), "young": ("Running", 0)}

    await until(visible, 60, "Temporal lists them")
    assert await listed(site, "-n", namespace, "--sort", "age") == ["young", "stopped", "restarted"]
    assert await listed(site, "-n", namespace, "--sort", "phase") == ["young", "restarted", "stopped"]
    assert await listed(site, "-n", namespace, "--sort", "restarts") == ["restarted", "young", "stopped"]


@ROW("E3", level="e2e")
async def test_E3_a_watched_list_tells_each_change(space: Space):
    site, namespace = space.site, space.namespace
    handle = await space.submit(appwrapper("watched", job("watched")))
    await space.reach(handle, "Running", 1)

    async def visible() -> bool:
        return await listed(site, "-n", namespace, "--phase", "Running") == ["watched"]

    await until(visible, 90, "Temporal lists it")
    process = await asyncio.create_subprocess_exec(
        *executable(), "list", "-n", namespace, "-w", env=shell(site), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(90):
            assert (await process.stdout.readline()).decode().startswith("NAMESPACE")
            assert b" Running " in await process.stdout.readline()
            await handle.signal("suspend", "for now")
            while b" Suspended " not in await process.stdout.readline():
                pass
    finally:
        process.kill()
        await process.wait()


@ROW("E3", level="e2e")
async def test_E3_apply_submits_changes_and_says_what_differs(space: Space, tmp_path: Path):
    site, namespace, name = space.site, space.namespace, f"{space.namespace}/train"

    def file(image: str = "1", pods: int = 2, **annotations: str) -> str:
        component = job("train", pods)
        (container,) = component["template"]["spec"]["template"]["spec"]["containers"]
        container["image"] = f"example.com/train:{image}"
        return written(tmp_path, "train", appwrapper("train", component, **annotations))

    async def images() -> set[str]:
        alive = [each for each in await space.pods("train") if "deletionTimestamp" not in each["metadata"]]
        return {each["spec"]["containers"][0]["image"] for each in alive}

    assert await command(site, "apply", file(), "-n", namespace) == f"{name} submitted\n"
    await phases(space, "Running", "train")
    assert await command(site, "apply", file(), "-n", namespace) == f"{name} unchanged\n"

    wanted = file("2", failureGracePeriodDuration="7s", retryLimit="5")
    told = (
        f"{name} {{}}\n"
        "  components[0-job-train].template.spec.template.spec.containers[main].image: "
        "'example.com/train:1' → 'example.com/train:2'\n"
        "  policy.timings.failureGracePeriod: '2s' → '7s'\n"
        "  policy.budgets[restart].limit: 3 → 5\n"
    )
    assert await command(site, "apply", wanted, "-n", namespace, "--dry-run") == told.format(
        "would be changed: component 0-job-train and its pods would be re-created"
    )
    assert await images() == {"example.com/train:1"}
    done = await command(site, "apply", wanted, "-n", namespace, "--reason", "a new image")
    assert done == told.format("changed: component 0-job-train and its pods are re-created")

    async def renewed() -> bool:
        return await images() == {"example.com/train:2"} and await phase_of(site, name) == "Running"

    await until(renewed, 60, "its pods have the new image")
    assert "restarts 0 of 5" in await command(site, "status", name)
    assert await command(site, "apply", wanted, "-n", namespace) == f"{name} unchanged\n"

    larger = file("3", pods=4, failureGracePeriodDuration="7s", retryLimit="5")
    refused = await run(site, "apply", larger, "-n", namespace)
    assert refused.code == 2
    assert "components[0-job-train].podSets[0].replicas: 2 → 4" in refused.errors
    assert f"`holdfast cancel {name} --wait`, `holdfast submit FILE --again`" in refused.errors
    assert await images() == {"example.com/train:2"}, "nothing of it is changed"

    await command(site, "cancel", name, "--wait")
    ended = await run(site, "apply", larger, "-n", namespace)
    assert ended.code == 2
    assert "has ended and differs from its file: `holdfast submit FILE --again`" in ended.errors
    same = file("2", failureGracePeriodDuration="7s", retryLimit="5")
    told = await command(site, "apply", same, "-n", namespace)
    assert told == f"{name} unchanged: it has ended (Cancelled); `holdfast submit FILE --again` runs it once more\n"


@ROW("E4", level="e2e")
async def test_E4_more_than_100_pods_are_said_and_asked_about_first(space: Space, tmp_path: Path):
    site, namespace = space.site, space.namespace
    document = appwrapper("large", job("large", 101))
    document["spec"]["suspend"] = True
    file = written(tmp_path, "large", document)
    plan = f"1 workload, 101 pods on cluster {site.cluster}"
    row = [namespace, "large", "101", "holdfast-runner", "default", "1", "Job"]

    declined = await at_terminal(site, "submit", file, "-n", namespace, answer="n")
    assert declined.code == 2
    assert f"to submit: {plan}" in declined.errors
    assert row in [line.split() for line in declined.errors.splitlines()]
    assert "nothing was submitted" in declined.errors
    assert (await run(site, "status", f"{namespace}/large")).code == 2, "nothing was begun"

    piped = await run(site, "submit", file, "-n", namespace)
    assert piped.code == 0, "a script is not asked"
    assert piped.errors.startswith(f"submitting: {plan}")
    assert piped.out.startswith(f"{namespace}/large  workload/")
    small = written(tmp_path, "small", {**document, "metadata": {**document["metadata"], "name": "small"}})
    again = await at_terminal(site, "submit", small, "-n", namespace, "--plan", answer="y")
    assert (again.code, "[y/N]" in again.errors) == (0, True)
    await phases(space, "Suspended", "large", "small")


@ROW("E5", level="e2e")
async def test_E5_a_wait_shows_how_many_pods_are_gone_and_what_holds_the_rest(space: Space):
    site, namespace = space.site, space.namespace
    pods = [pod(f"held-{number}") for number in range(3)]
    handle = await space.submit(appwrapper("held", *pods, forcefulDeletionGracePeriodDuration="300s"))
    await space.reach(handle, "Running", 1)
    await space.finalize("v1", "Pod", "held-1", FOREIGN_FINALIZER)

    late = await run(site, "suspend", f"{namespace}/held", "--wait", "--timeout", "15s")
    assert late.code == 4
    assert late.out == ""
    (line,) = late.errors.splitlines()
    assert line.startswith(f"Error: {namespace}/held: suspend was asked for, but is not done after 15s: Suspending, ")
    assert f"2 of 3 pods gone, left: Pod held-1 (finalizer {FOREIGN_FINALIZER})" in line

    watching = asyncio.create_task(at_terminal(site, "suspend", f"{namespace}/held", "--wait"))
    shown = await at_terminal(site, "suspend", f"{namespace}/held", "--wait", "--timeout", "15s")
    assert shown.code == 4
    assert (
        f"waiting until {namespace}/held is Suspended: Suspending, 2 of 3 pods gone, left: Pod held-1" in shown.errors
    )
    await space.finalize("v1", "Pod", "held-1")
    done = await watching
    assert (done.code, done.out.startswith(f"{namespace}/held Suspended")) == (0, True), done.errors
    assert "waiting until" in done.errors
