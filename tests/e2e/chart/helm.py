"""The chart of `deploy/chart`, by helm's own program; `python -m tests.e2e.chart.helm` writes what is made of it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

from holdfast.local.programs.resolve import resolve
from holdfast.local.programs.tools import KUBERNETES

ROOT: Final = Path(__file__).parents[3]
CHART: Final = ROOT / "deploy" / "chart"
WORKERS: Final = ROOT / "deploy" / "workers" / "workers.yaml"
RELEASE: Final = ("holdfast", str(CHART), "--namespace", "holdfast-system")
_PLACE: Final = "cluster=prod,temporal.address=temporal-frontend.temporal:7233"


def helm(*argv: str, kubeconfig: Path | None = None, check: bool = True) -> str:
    """Run helm, and return what it prints: errors too, where `check` is not wanted.

    Raises:
        AssertionError: if it fails, with what it says.
    """
    (program,) = resolve(["helm"], print).values()
    env = os.environ | ({"KUBECONFIG": str(kubeconfig)} if kubeconfig else {})
    done = subprocess.run([str(program), *argv], capture_output=True, text=True, env=env, check=False)
    if not check:
        return done.stdout + done.stderr
    assert done.returncode == 0, done.stderr
    return done.stdout


def workers() -> str:
    """Return the Deployments of the chart, as `kubectl apply -k deploy/workers` has them."""
    shown = helm("template", *RELEASE, "--set", _PLACE, "--kube-version", KUBERNETES, "-s", "templates/workers.yaml")
    return "# Written by `make manifests`.\n" + shown.removeprefix("---\n")


if __name__ == "__main__":
    WORKERS.write_text(workers())
