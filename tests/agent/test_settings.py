"""How an agent is started: what is refused, what is defaulted, and what it needs of an image."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from holdfast import names
from holdfast.agent.settings import SettingsError, read

ENVIRONMENT = {
    names.ENV_RENDEZVOUS: "http://rendezvous.holdfast-system:8085/",
    names.ENV_RENDEZVOUS_TOKEN: "/var/run/token",
    names.ENV_WORKLOAD_UID: "u-1",
    names.ENV_ATTEMPT: "2",
    names.ENV_MEMBER: "train-0",
    names.ENV_POD_UID: "p-0",
    names.ENV_POD_ADDRESS: "10.0.0.7",
}
COMMAND = ["--", "python", "train.py", "--", "--epochs=3"]
PACKAGES = Path(holdfast.__file__).parent.parent


def test_what_follows_the_first_dashes_is_the_workers() -> None:
    found = read(["--nproc-per-node", "4", *COMMAND], ENVIRONMENT)
    assert (found.workers, found.command) == (4, COMMAND[1:])
    assert (found.url, found.attempt, found.role, found.node) == (
        ENVIRONMENT[names.ENV_RENDEZVOUS][:-1],
        2,
        "default",
        "",
    )
    assert read(["--nproc_per_node=2", *COMMAND], {**ENVIRONMENT, names.ENV_ROLE: "reader"}).role == "reader"


def test_each_process_is_another_incarnation() -> None:
    assert read(COMMAND, ENVIRONMENT).incarnation != read(COMMAND, ENVIRONMENT).incarnation


@pytest.mark.parametrize(
    ("arguments", "environment", "words"),
    [
        ([], {}, "no command"),
        (["--"], {}, "no command"),
        (["--nproc-per-node=0", *COMMAND], {}, "0: expected 1 to 1024"),
        (COMMAND, {names.ENV_MEMBER: ""}, "HOLDFAST_MEMBER: not set"),
        (COMMAND, {names.ENV_ATTEMPT: "first"}, "'first': expected a whole number"),
        (COMMAND, {names.ENV_ATTEMPT: "0"}, "'0': expected a whole number"),
        (COMMAND, {names.ENV_RENDEZVOUS: "rendezvous:8085"}, "expected a URL"),
        (COMMAND, {names.ENV_RENDEZVOUS: "http://rendezvous:port"}, "expected a URL"),
        (COMMAND, {names.ENV_ROLE: "r" * 64}, "at most 63"),
    ],
)
def test_what_cannot_be_is_refused(arguments: list[str], environment: dict[str, str], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        read(arguments, {**ENVIRONMENT, **environment})


@pytest.mark.parametrize("module", ["holdfast", "holdfast.agent"])
def test_an_image_needs_nothing_but_python(module: str) -> None:
    # -S leaves out all that is installed, the editable install too: what is imported then is the standard library's.
    agent = ["agent"] if module == "holdfast" else []
    code = (
        f"import sys; sys.path.insert(0, {str(PACKAGES)!r}); sys.argv = ['holdfast', *{agent!r}, '--', 'true']\n"
        "import runpy, holdfast.agent.process\n"
        f"runpy.run_module({module!r}, run_name='__main__')\n"
    )
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], env=clean, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("Error: HOLDFAST_RENDEZVOUS, ")
