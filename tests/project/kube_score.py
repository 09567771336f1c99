"""Has kube-score look at the workers' manifests: `make lint` prints what it finds.

A finding fails it. Where kube-score can neither be downloaded nor built it says so and fails nothing.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

from holdfast.cli.demo.dev import ProgressLines
from holdfast.local.programs.resolve import resolve
from holdfast.local.system.errors import BinaryError

MANIFESTS: Final = Path(__file__).parents[2] / "deploy/workers/workers.yaml"
ARGUED: Final = (
    "container-resources",  # A limit on CPU slows a worker that has work; tests/project/manifests.py asks for the rest.
    "container-image-pull-policy",  # The tag is fixed; no release is pushed a second time.
    "pod-networkpolicy",  # Who scrapes metrics and where Temporal is are the site's own (docs/security.md).
    "deployment-has-host-podantiaffinity",  # `topologySpreadConstraints` spread the pods.
)
_PLANTED: Final = ("readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false")


def score(program: Path, document: str) -> tuple[str, bool]:
    """Return what kube-score prints of manifests, a line each check, and whether all of them pass."""
    argued = [word for one in ARGUED for word in ("--ignore-test", one)]
    command = [str(program), "score", *argued, "--output-format", "ci", "-"]
    done = subprocess.run(command, input=document, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr, done.returncode == 0


def main() -> int:
    """Return 1 if kube-score finds something, or does not find what is planted."""
    lines = ProgressLines()
    try:
        (program,) = resolve(["kube-score"], lines).values()
    except BinaryError as error:
        print(f"kube-score: not checked: {error}")
        return 0
    finally:
        lines.end()
    manifests = MANIFESTS.read_text(encoding="utf-8")
    told, passes = score(program, manifests)
    if not passes:
        print(told)
        return 1
    if score(program, manifests.replace(*_PLANTED))[1]:
        print("kube-score: does not find a writable root file system, which was planted")
        return 1
    print(f"kube-score: {told.count('[OK]')} checks of {MANIFESTS.name} pass")
    return 0


if __name__ == "__main__":
    sys.exit(main())
