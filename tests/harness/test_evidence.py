"""What a failing test prints for whoever looks into it."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.plugins.scene import audit_lines, gather, tail

ROOT = Path(__file__).parents[2]
COMMAND = """
import sys
said = {"list": '[{"namespace": "ns", "name": "train"}]', "explain": "why it failed", "history": "what decided what"}
print(said[sys.argv[1]])
"""


def event(namespace: str, verb: str, name: str) -> str:
    return json.dumps(
        {
            "requestReceivedTimestamp": "2026-11-24T10:11:12.123456Z",
            "verb": verb,
            "user": {"username": "system:serviceaccount:holdfast-system:holdfast-worker"},
            "objectRef": {"resource": "pods", "namespace": namespace, "name": name},
            "responseStatus": {"code": 200},
        },
        separators=(",", ":"),
    )


@dataclass
class Log:
    log: Path


@dataclass
class Place:
    """A site whose command is a script of the test's own."""

    folder: Path
    namespaces: tuple[str, ...] = ("ns",)
    workers: list[Log] = field(default_factory=list)

    @property
    def audit_log(self) -> Path:
        return self.folder / "audit.log"

    def command(self) -> tuple[list[str], dict[str, str]]:
        return [sys.executable, str(self.folder / "said.py")], {}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    (tmp_path / "said.py").write_text(COMMAND)
    (tmp_path / "audit.log").write_text(
        "\n".join([event("ns", "delete", "worker-3"), event("other", "create", "x"), ""])
    )
    (tmp_path / "worker.log").write_text("\n".join(f"line {number}" for number in range(100)))
    return Place(tmp_path, workers=[Log(tmp_path / "worker.log")])


def test_the_evidence_is_what_on_call_would_look_at(place: Place):
    text = gather(place)
    assert "--- holdfast explain ns/train\nwhy it failed" in text
    assert "--- holdfast history ns/train\nwhat decided what" in text
    assert "10:11:12.123 holdfast-worker delete pods/worker-3 200" in text
    assert "line 99" in text
    assert "line 70" not in text


def test_a_command_that_does_not_answer_is_named_and_the_rest_is_there(place: Place):
    (place.folder / "said.py").write_text("print('no Temporal at 127.0.0.1:1')")
    assert "--- holdfast list\nno Temporal at 127.0.0.1:1" in gather(place)
    assert "line 99" in gather(place)


def test_only_changes_of_the_own_namespaces_are_shown(place: Place):
    assert len(audit_lines(place.audit_log, {"ns"})) == 1
    assert audit_lines(place.folder / "none", {"ns"}) == []
    assert tail(place.folder / "none") == ""


def test_a_failing_test_prints_it_at_once_and_a_passing_one_nothing(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, place: Place
):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function")
    pytester.makepyfile(
        test_x=f"""
from pathlib import Path
import pytest
from tests.plugins import scene
from tests.harness.test_evidence import Place

@pytest.fixture
def site():
    place = Place(Path({str(place.folder)!r}))
    scene.OPEN.append(place)
    yield place
    scene.OPEN.remove(place)

def test_fails(site):
    assert 1 == 2

def test_passes(site):
    pass
"""
    )
    plugins = ("-p", "tests.plugins.evidence", "-p", "tests.plugins.progress", "-n", "1", "--show-capture=no")
    result = pytester.runpytest_subprocess(*plugins)
    result.assert_outcomes(passed=1, failed=1)
    printed = result.stdout.str()
    assert "why it failed" in printed[printed.index("FAILED test_x.py::test_fails (call)") :]
