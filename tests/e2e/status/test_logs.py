"""`holdfast logs` on a real kubelet: pods and containers, a restart, the pod that decided, what is gone (row E2)."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from holdfast import names
from tests.e2e.ground.held import open_real
from tests.e2e.ground.site import appwrapper, executable, until
from tests.e2e.ground.space import Space
from tests.e2e.ground.terminal import command, run, shell

pytestmark = [pytest.mark.e2e, pytest.mark.real_node, pytest.mark.asyncio(loop_scope="session")]
ROW = pytest.mark.row
UNTIL_TOLD = "until [ -e /kept/told ]; do sleep 0.1; done"
TWICE = f'if [ -e /kept/ran ]; then echo "run 2"; {UNTIL_TOLD}; exit 0; fi; touch /kept/ran; echo "run 1"; exit 1'
HOSTILE = r"printf 'red \033[31m, \007bell\n'"
FOREVER = "while :; do sleep 0.1; done"


@pytest_asyncio.fixture(loop_scope="session")
async def real(shared_site: Any) -> AsyncIterator[Space]:
    """A namespace of pods that the kubelet can run."""
    async with open_real(shared_site) as space:
        yield space


def pod(name: str, scripts: dict[str, str]) -> dict[str, Any]:
    """A pod on the real node, with a container for each script; a container that fails is restarted in it."""
    spec = {
        "restartPolicy": "OnFailure",
        "nodeSelector": {"holdfast.dev/node": "real"},
        "tolerations": [{"key": "holdfast.dev/real", "operator": "Exists"}],
        "terminationGracePeriodSeconds": 1,
        "volumes": [{"name": "kept", "emptyDir": {}}],
        "containers": [
            {
                "name": container,
                "image": "holdfast.local/busybox:1",
                "imagePullPolicy": "Never",
                "command": ["sh", "-c", script],
                "volumeMounts": [{"name": "kept", "mountPath": "/kept"}],
            }
            for container, script in scripts.items()
        ],
    }
    return {"template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}}


async def begun(space: Space, *argv: str) -> asyncio.subprocess.Process:
    """Begin a command whose output is a pipe."""
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(
        *executable(), *argv, env=shell(space.site), stdout=pipe, stderr=pipe, preexec_fn=_hears_ctrl_c
    )


def _hears_ctrl_c() -> None:
    """Let a command end by SIGINT: whatever is begun in the background of a shell inherits that it is ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


async def until_read(process: asyncio.subprocess.Process, *wanted: str) -> list[str]:
    """Return the lines that a command prints, up to the last that is wanted."""
    assert process.stdout is not None
    read, left = list[str](), set(wanted)
    async with asyncio.timeout(60):
        while left:
            line = (await process.stdout.readline()).decode().rstrip("\n")
            assert line, f"it ended without {left}: {read}"
            read.append(line)
            left.discard(line)
    return read


@ROW("E2", level="e2e")
async def test_E2_all_pods_of_an_attempt_are_shown_and_followed_to_its_end(real: Space) -> None:
    two = {"main": TWICE, "side": f"{HOSTILE}; {UNTIL_TOLD}; echo last"}
    document = appwrapper(
        "train", pod("first", two), pod("second", {"main": f"echo alone; {UNTIL_TOLD}"}), successTTLDuration="1h"
    )
    handle = await real.submit(document)
    name = f"{real.namespace}/train"
    following = await begun(real, "logs", name, "--follow")
    red = "first/side: red \ufffd[31m, \ufffdbell"
    read = await until_read(following, "first/main: run 1", "first/main: run 2", red, "second: alone")
    assert await command(real.site, "logs", name, "--previous", "--attempt", "1") == "first/main: run 1\n"
    for one in ("first", "second"):
        touch = ("exec", "-n", real.namespace, one, "-c", "main", "--", "touch", "/kept/told")
        await asyncio.to_thread(real.site.stack.kubectl, *touch)
    out, err = await asyncio.wait_for(following.communicate(), 120)
    assert (following.returncode, err.decode()) == (0, "")
    every = ["first/main: run 1", "first/main: run 2", "first/side: last", red, "second: alone"]
    assert sorted([*read, *out.decode().splitlines()]) == sorted(every), "each line once, over the restart"
    await real.reach(handle, "Succeeded")

    shown = (await command(real.site, "logs", name)).splitlines()
    assert shown == ["first/main: run 2", red, "first/side: last", "second: alone"]
    assert await command(real.site, "logs", name, "-c", "side", "--tail", "1") == "first/side: last\n"
    for given, says in (
        (("-c", "other"), "-c 'other': expected one of main, side"),
        (("--attempt", "2"), "--attempt 2: expected 1, the only one"),
        (("--failed",), "no attempt was ended by a failure"),
        (("-f", "--previous"), "expected no --follow"),
    ):
        refused = await run(real.site, "logs", name, *given)
        assert (refused.code, refused.out) == (2, ""), refused
        assert says in " ".join(refused.errors.replace("│", " ").split()), refused.errors

    await handle.signal(names.SIGNAL_CANCEL)
    await real.ended(handle)
    gone = await run(real.site, "logs", name)
    assert (gone.code, gone.out) == (2, "")
    assert "no pod of attempt 1 is left" in gone.errors
    assert "no evidence of it was kept" in gone.errors


@ROW("E2", level="e2e")
async def test_E2_failed_shows_the_pod_that_decided(real: Space) -> None:
    good, bad = pod("good", {"main": FOREVER}), pod("bad", {"main": "echo 'out of cheese'; sleep 1; exit 7"})
    bad["template"]["spec"]["restartPolicy"] = "Never"
    settings = {"failureGracePeriodDuration": "0s", "retryLimit": "0", "deletionOnFailureGracePeriodDuration": "1h"}
    handle = await real.submit(appwrapper("train", good, bad, **settings))
    await real.reach(handle, "Failed")
    name = f"{real.namespace}/train"
    done = await run(real.site, "logs", name, "--failed")
    assert (done.code, done.out) == (0, "bad: out of cheese\n"), done
    await handle.signal(names.SIGNAL_CANCEL)
    await until(lambda: _is_gone(real), 60, "the pods are gone")
    gone = await run(real.site, "logs", name, "--failed")
    assert (gone.code, gone.out) == (2, "")
    assert "pod bad decided: bad exited 7 on real" in " ".join(gone.errors.split())
    assert "no evidence of it was kept" in gone.errors


async def _is_gone(space: Space) -> bool:
    return not await space.pods("train")


@ROW("E2", level="e2e")
async def test_E2_ctrl_c_and_a_closed_pipe_end_it_quietly(real: Space) -> None:
    handle = await real.submit(appwrapper("train", pod("only", {"main": f"echo here; {FOREVER}"})))
    name = f"{real.namespace}/train"
    following = await begun(real, "logs", name, "-f")
    assert await until_read(following, "only: here") == ["only: here"]
    following.send_signal(signal.SIGINT)
    out, err = await asyncio.wait_for(following.communicate(), 120)
    assert (following.returncode, out, err) == (130, b"", b"")

    reading, writing = os.pipe()
    os.close(reading)
    pipe = asyncio.subprocess.PIPE
    closed = await asyncio.create_subprocess_exec(
        *executable(), "logs", name, "-f", env=shell(real.site), stdout=writing, stderr=pipe
    )
    os.close(writing)
    _, err = await asyncio.wait_for(closed.communicate(), 120)
    assert err == b""
    await handle.signal(names.SIGNAL_CANCEL)
    await real.ended(handle)
