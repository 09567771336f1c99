"""Each alert fires where it should, has a page for on-call, and reads metrics that there are."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import yaml

from holdfast.model import OperationKind, Phase, Reason
from tests.monitoring.promtool import ALERTS, ROOT, program, rules

CASES = Path(__file__).with_name("alerts_test.yml")
RUNBOOK = ROOT / "docs" / "how-to" / "alerts.md"


def test_each_alert_fires_where_it_should_and_nowhere_else():
    done = subprocess.run(
        [program("promtool"), "test", "rules", CASES.name], cwd=CASES.parent, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not():
    cases = [one for test in yaml.safe_load(CASES.read_text())["tests"] for one in test["alert_rule_test"]]
    fires = {one["alertname"] for one in cases if one["exp_alerts"]}
    rests = {one["alertname"] for one in cases if not one["exp_alerts"]}
    assert len(rules()) == 8
    assert fires == rests == {one["alert"] for one in rules()}


def test_each_alert_has_its_section_of_the_page():
    sections = re.findall(r"^## (\w+)$", RUNBOOK.read_text(), re.MULTILINE)
    assert sections == [one["alert"] for one in rules()]
    for one in rules():
        assert one["annotations"]["runbook"] == f"docs/how-to/alerts.md#{one['alert'].lower()}"
        assert one["labels"]["severity"] in {"critical", "warning"}
        assert one["for"]


def test_the_words_that_alerts_compare_with_are_the_engines():
    text = ALERTS.read_text()
    assert f'operation="{OperationKind.FORCE_REMOVE.value}"' in text
    assert f'phase="{Phase.PENDING.value}", reason="{Reason.HELD.value}"' in text
