"""The version: `holdfast/__init__.py` says it, and the files that name the image or the chart repeat it.

python -m tests.release.version 0.3.0      writes a new version into all of them
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
SOURCE: Final = "holdfast/__init__.py"
NUMBER: Final = r"\d+\.\d+\.\d+(?:\.dev\d+)?"
PLACES: Final = {
    SOURCE: rf'(__version__ = "){NUMBER}(")',
    "deploy/chart/Chart.yaml": rf"((?:version|appVersion): ){NUMBER}()\n",
    "deploy/workers/kustomization.yaml": rf"(newTag: ){NUMBER}()",
    "deploy/workers/workers.yaml": rf"(image: holdfast:){NUMBER}()",
    "docker-compose.yml": rf"(image: holdfast:){NUMBER}()",
    "README.md": rf"(registry\.example\.com/holdfast:){NUMBER}()",
}
"""Where the version stands: what is before it and what is after it, as groups."""


def version(root: Path = ROOT) -> str:
    """Return the version of a tree."""
    found = re.search(PLACES[SOURCE], (root / SOURCE).read_text(encoding="utf-8"))
    assert found is not None, SOURCE
    return found[0].removeprefix(found[1]).removesuffix(found[2])


def others(root: Path = ROOT) -> dict[str, set[str]]:
    """Return the versions that each file names."""
    wanted: dict[str, set[str]] = {}
    for place, pattern in PLACES.items():
        text = (root / place).read_text(encoding="utf-8")
        wanted[place] = {re.findall(NUMBER, match[0])[0] for match in re.finditer(pattern, text)}
    return wanted


def write(new: str, root: Path = ROOT) -> None:
    """Write a version into each file.

    Raises:
        ValueError: if it is none.
    """
    if not re.fullmatch(NUMBER, new):
        raise ValueError(f"{new!r}: expected a version such as 0.3.0")
    for place, pattern in PLACES.items():
        path = root / place

        def written(match: re.Match[str]) -> str:
            return re.sub(NUMBER, new, match[0], count=1)

        path.write_text(re.sub(pattern, written, path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    write(sys.argv[1])
