"""Prometheus' own programs, where the machine has them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

ROOT: Final = Path(__file__).parents[2]
MONITORING: Final = ROOT / "deploy" / "monitoring"
ALERTS: Final = MONITORING / "alerts.yml"
DASHBOARDS: Final = sorted((MONITORING / "dashboards").glob("*.json"))


def program(name: str) -> str:
    """Return the path of a program of Prometheus; skip the test where there is none."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"there is no {name} on PATH; on Debian: apt-get install prometheus")
    return found


def rules() -> list[dict[str, Any]]:
    """Return the alerts."""
    return [one for group in yaml.safe_load(ALERTS.read_text())["groups"] for one in group["rules"]]
