"""Asks pip-audit for published advisories on locked dependencies: `make audit` prints them.

An advisory fails it. Where no advisory source answers it says so and fails nothing.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

NO_SOURCE = "not audited: no advisory source here"


def told(output: str, error: str) -> tuple[list[str], int]:
    """Return what pip-audit found, line by line, and the exit code: 1 if there is an advisory.

    Args:
        output: what it printed as JSON; empty if it could not ask.
        error: what it printed besides.
    """
    try:
        dependencies: list[dict[str, Any]] = json.loads(output)["dependencies"]
    except (ValueError, KeyError):
        why = error.strip().splitlines()
        return [f"{NO_SOURCE} ({why[-1][:200]})" if why else NO_SOURCE], 0
    asked = [one for one in dependencies if "skip_reason" not in one]
    if not asked:
        return [f"{NO_SOURCE}: it knows none of {len(dependencies)} dependencies"], 0
    lines = [
        f"{one['name']} {one['version']}: {found['id']}, mended in {', '.join(found['fix_versions']) or 'no version'}"
        for one in asked
        for found in one["vulns"]
    ]
    unasked = [one["name"] for one in dependencies if "skip_reason" in one]
    rest = f"; not audited: {', '.join(unasked)}" if unasked else ""
    return [*lines, f"{len(asked)} dependencies audited, {len(lines)} advisories{rest}"], 1 if lines else 0


def main(argv: Sequence[str]) -> int:
    """Run `pip-audit` on a lock file; both are named in the arguments."""
    program, lock = argv
    options = ("--disable-pip", "--require-hashes", "--format", "json", "--progress-spinner", "off")
    command = [program, *options, "-r", lock]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines, code = told(done.stdout, done.stderr)
    print("\n".join(lines))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
