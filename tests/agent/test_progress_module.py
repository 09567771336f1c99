"""What a program tells by `holdfast.progress`: a module of the standard library alone (row P1)."""

from __future__ import annotations

import ast
import base64
import json
import ssl
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import names, progress
from holdfast.activities.progress.read import step_of
from holdfast.model.life.progress import BOUND_MAXIMUM, Step

ROW = pytest.mark.row
MODULE = Path(progress.__file__)


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    path = tmp_path / "step.json"
    monkeypatch.setenv(progress.ENV_FILE, str(path))
    yield path
    assert [one.name for one in tmp_path.iterdir() if one.name.startswith(".")] == [], "nothing is left beside it"


def read(path: Path) -> dict[str, Any]:
    text = path.read_text()
    Step.model_validate_json(text)
    return json.loads(text)


@ROW("P1", level="pure")
def test_P1_it_needs_the_standard_library_alone_also_as_a_file_of_its_own(tmp_path: Path):
    imported = {
        name.split(".")[0]
        for node in ast.walk(ast.parse(MODULE.read_text()))
        for name in (
            [one.name for one in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert imported <= set(sys.stdlib_module_names)
    (tmp_path / "progress.py").write_text(MODULE.read_text())
    script = "import progress; progress.step(3, loss=0.5, saved=2)"
    environment = {progress.ENV_FILE: str(tmp_path / "step.json")}
    subprocess.run([sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {script}"],
                   env=environment, check=True)  # fmt: skip
    assert read(tmp_path / "step.json") == {"step": 3, "saved": 2, "loss": 0.5}
    loaded = "import sys, holdfast.progress; print('pydantic' in sys.modules or 'temporalio' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", loaded], check=True, capture_output=True, text=True)
    assert said.stdout.strip() == "False"


@ROW("P1", level="pure")
def test_P1_its_annotation_is_the_one_that_the_worker_reads():
    assert progress.ANNOTATION == names.ANNOTATION_STEP


@ROW("P1", level="pure")
def test_P1_it_knows_pods_that_restart_in_place_by_what_the_worker_gives_them():
    assert progress._RESTARTS_IN_PLACE == names.ENV_IN_PLACE_ATTEMPT_FILE


@ROW("P1", level="pure")
def test_P1_a_step_keeps_what_was_told_of_saves_and_ends_a_phase(told: Path):
    teller = progress.Teller()
    teller.step(1, total=10, saved=0)
    teller.enter("saving", 60)
    assert read(told) == {"step": 1, "total": 10, "saved": 0, "phase": "saving", "bound": 60.0}
    teller.step(2)
    assert read(told) == {"step": 2, "total": 10, "saved": 0}


@ROW("P1", level="pure")
def test_P1_a_phase_ends_with_its_block_or_with_the_next_step(told: Path):
    with progress.phase("evaluating"):
        assert read(told)["phase"] == "evaluating"
    assert "phase" not in read(told)
    progress.phase("compiling", bound=30)
    assert read(told)["bound"] == 30
    progress.step(5)
    assert "phase" not in read(told)


def standing(told: Path) -> tuple[str | None, float | None]:
    return read(told).get("phase"), read(told).get("bound")


@ROW("P1", level="pure")
def test_P1_when_a_phase_ends_the_one_around_it_stands_again(told: Path):
    progress.step(100, total=1000)
    with progress.phase("evaluating", bound=7200):
        with progress.phase("saving", bound=600):
            assert standing(told) == ("saving", 600)
        assert standing(told) == ("evaluating", 7200)
    assert read(told) == {"step": 100, "total": 1000}
    progress.phase("compiling")
    with progress.phase("saving", bound=600):
        pass
    assert standing(told) == ("compiling", None)
    with progress.phase("staging"):
        progress.phase("waiting", bound=30)
    assert standing(told) == ("waiting", 30), "what has no block lasts until the next step"
    progress.step(101)
    assert standing(told) == (None, None)


@ROW("P1", level="pure")
def test_P1_a_step_ends_all_phases_and_a_phase_that_has_ended_comes_back_no_more(told: Path):
    with progress.phase("evaluating"):
        with progress.phase("saving"):
            progress.step(7)
            assert standing(told) == (None, None)
        assert standing(told) == (None, None)
        progress.phase("staging")
    assert standing(told) == ("staging", None)
    progress.step(8)
    first, second = progress.phase("evaluating"), progress.phase("saving")
    first.__exit__()
    assert standing(told) == ("saving", None), "of two threads, one has ended its phase"
    second.__exit__()
    second.__exit__()
    assert standing(told) == (None, None)


@ROW("P1", level="pure")
def test_P1_phases_that_are_told_without_end_take_no_more_memory(told: Path):
    teller = progress.Teller()
    for number in range(1000):
        teller.enter(f"batch {number}")
    assert standing(told) == ("batch-999", None)
    assert len(teller._phases) <= 16


@ROW("P1", level="pure")
def test_P1_the_file_is_never_seen_half_written(told: Path):
    teller, seen, done = progress.Teller(), set[int](), threading.Event()

    def look() -> None:
        while not done.is_set():
            if told.exists():
                seen.add(read(told)["step"])

    looking = threading.Thread(target=look)
    looking.start()
    for number in range(2000):
        values: dict[str, Any] = {f"value_{index}": float(index) for index in range(number % 40)}
        teller.step(number, **values)
    done.set()
    looking.join()
    assert len(seen) > 1


@ROW("P1", level="pure")
def test_P1_a_step_that_cannot_be_told_is_logged_once_and_never_raises(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setenv(progress.ENV_FILE, str(tmp_path / "missing" / "step.json"))
    teller = progress.Teller()
    for number in range(5):
        teller.step(number)
    assert len(caplog.records) == 1


@ROW("P1", level="pure")
@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"loss": None}, {}),
        ({"lr": [1, 2], "loss": 0.5}, {"loss": 0.5}),
        ({"saved": float("nan")}, {"saved": 4}),
        ({"saved": -1}, {"saved": 4}),
        ({"total": 10**16}, {"total": 10}),
        ({"phase": 2, "bound": 0}, {}),
        ({f"metric_{number:03}_of_the_program": 0.123456789 for number in range(150)}, {}),
    ],
)
def test_P1_a_value_that_cannot_be_told_is_left_out_and_the_step_is_told(
    told: Path, caplog: pytest.LogCaptureFixture, values: dict[str, Any], expected: dict[str, Any]
):
    teller = progress.Teller()
    teller.step(4, total=10, saved=4)
    for _ in range(3):
        teller.step(5, **values)
    assert step_of(told.read_bytes()) == Step(step=5, total=10, saved=4)
    assert read(told) == {"step": 5, "total": 10, "saved": 4} | expected
    assert 1 <= len(caplog.records) <= 2, "each is logged once"


@ROW("P1", level="pure")
def test_P1_a_loss_that_is_no_number_hides_no_step(told: Path):
    progress.Teller().step(5, loss=float("nan"))
    assert step_of(told.read_bytes()) == Step(step=5)


@ROW("P1", level="pure")
@pytest.mark.parametrize("n", [-1, 10**16, None, "x", float("inf")])
def test_P1_a_step_that_is_no_number_of_one_leaves_what_was_told(told: Path, n: Any):
    teller = progress.Teller()
    teller.step(4)
    teller.step(n)
    assert step_of(told.read_bytes()) == Step(step=4)


@ROW("P1", level="pure")
@pytest.mark.parametrize(
    ("name", "bound", "expected"),
    [
        ("waiting for a checkpoint", 60, Step(step=4, phase="waiting-for-a-checkpoint", bound=60)),
        ("saving", 0, Step(step=4, phase="saving")),
        ("saving", float("nan"), Step(step=4, phase="saving")),
        ("saving", "soon", Step(step=4, phase="saving")),
        ("eval", float("inf"), Step(step=4, phase="eval", bound=BOUND_MAXIMUM)),
        ("x" * 100, None, Step(step=4, phase="x" * 63)),
        ("\u4fdd\u5b58", None, Step(step=4, phase="phase")),
    ],
)
def test_P1_a_phase_is_told_as_the_worker_can_read_it(told: Path, name: str, bound: Any, expected: Step):
    teller = progress.Teller()
    teller.step(4)
    teller.enter(name, bound)
    assert step_of(told.read_bytes()) == expected


@ROW("P4", level="pure")
def test_P4_the_step_is_kept_in_the_termination_message(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    log = tmp_path / "termination-log"
    log.write_text("an earlier and longer message")
    monkeypatch.setattr(progress, "_TERMINATION_LOG", log)
    progress.Teller().step(7)
    assert log.read_text().startswith("an earlier"), "only in a pod of Holdfast"
    monkeypatch.setenv("HOLDFAST_ATTEMPT", "1")
    progress.Teller().step(1234)
    assert log.read_text() == "step 1234"


CLAIMS = {"kubernetes.io": {"namespace": "research", "pod": {"name": "train-0-1-x7k2p", "uid": "u"}}}


def token(claims: Any) -> str:
    """Return an account's token with these claims, whose signature nobody checks here."""
    parts = ({"alg": "RS256"}, claims)
    return ".".join([*(base64.urlsafe_b64encode(json.dumps(one).encode()).decode().rstrip("=") for one in parts), "s"])


@ROW("P1", level="pure")
@pytest.mark.parametrize(
    ("text", "given", "expected"),
    [
        (token(CLAIMS), "", "train-0-1-x7k2p"),
        (token(CLAIMS), "other", "other"),
        (token({"kubernetes.io": {"namespace": "research"}}), "", "train-0-1"),
        (token([1]), "", "train-0-1"),
        ("opaque", "", "train-0-1"),
        ("a.b.c", "", "train-0-1"),
    ],
    ids=["bound", "named", "bound to no pod", "no claims", "opaque", "no JSON"],
)
def test_P1_the_annotation_is_patched_on_the_pod_that_the_token_names_and_through_no_proxy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, given: str, expected: str
):
    """The host name of an Indexed Job's pod lacks the suffix of the pod's name."""
    asked: list[tuple[str, str, str]] = []

    def https_open(_: object, request: urllib.request.Request) -> None:
        asked.append((request.get_method(), request.host, request.selector))
        raise OSError("not found")

    (tmp_path / "namespace").write_text("research")
    (tmp_path / "token").write_text(text)
    monkeypatch.setattr(progress, "_ACCOUNT", tmp_path)
    monkeypatch.setattr(ssl, "create_default_context", lambda cafile: ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    monkeypatch.setattr(urllib.request.HTTPSHandler, "https_open", https_open)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("HOSTNAME", "train-0-1")
    monkeypatch.setenv(progress.ENV_POD, given)
    with pytest.raises(OSError, match="not found"):
        progress.patch({"step": 1})
    assert asked == [("PATCH", "[fd00::1]:443", f"/api/v1/namespaces/research/pods/{expected}")]
