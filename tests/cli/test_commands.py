"""Commands as they are typed, without any server: what is read, what is refused, with which exit code."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import typer
import yaml
from typer.main import get_command
from typer.testing import CliRunner, Result

from holdfast import names
from holdfast.cli.app import app
from holdfast.cli.cluster.doctor import text as doctor_text
from holdfast.cli.common.options import Output, chosen
from holdfast.cli.workloads.submit import _begin  # pyright: ignore[reportPrivateUsage] - without its files
from holdfast.client import Run
from holdfast.client.views import StatusView
from holdfast.errors import HoldfastError, NotReachable, WorkloadNotFound
from holdfast.formats import read
from holdfast.model import Phase, Reason, Status, Workload

ROOT = Path(__file__).parents[2]
JOB = ROOT / "examples" / "appwrapper-job.yaml"


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("TEMPORAL_ADDRESS", "TEMPORAL_NAMESPACE", "KUBECONFIG", "HOLDFAST_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOLDFAST_CLUSTER", "dev")
    monkeypatch.setenv("HOME", str(tmp_path))


def run(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, list(arguments), input=stdin)


def test_a_dry_run_prints_the_one_document_a_workflow_is_started_with() -> None:
    result = run(
        "submit", str(JOB), "--dry-run", "--output", "json", "-n", "research", "--set", "failureGracePeriod=30s"
    )
    assert result.exit_code == 0, result.output
    workload = Workload.model_validate_json(result.stdout)
    assert workload.workflow_id == "workload/dev/research/sample-job"
    assert workload.policy.timings.failure_grace_period.total_seconds() == 30
    assert (workload.uid, workload.allow_missing_kinds) == ("", False)


def test_kinds_that_the_cluster_lacks_are_waited_for_where_that_is_asked_for() -> None:
    result = run("submit", str(JOB), "--dry-run", "--output", "json", "--allow-missing-kinds")
    assert Workload.model_validate_json(result.stdout).allow_missing_kinds


def test_several_documents_are_a_list(tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(JOB.read_text().replace("name: sample-job", "name: other"))
    result = run("submit", str(JOB), str(other), "--dry-run", "--output", "yaml")
    assert [each["name"] for each in yaml.safe_load(result.stdout)] == ["sample-job", "other"]


def test_a_dry_run_says_in_words_what_would_start() -> None:
    result = run("submit", str(JOB), "--dry-run")
    assert result.stdout == "would start: AppWrapper sample-job: 1 Job, 2 pods, in namespace default on cluster dev\n"


def test_standard_input_and_another_name() -> None:
    result = run("submit", "-", "--dry-run", "-o", "json", "--name", "mine", stdin=JOB.read_text())
    assert json.loads(result.stdout)["name"] == "mine"


def test_without_a_cluster_submission_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOLDFAST_CLUSTER")
    result = run("submit", str(JOB), "--dry-run")
    assert result.exit_code == 2
    assert "HOLDFAST_CLUSTER" in result.output


def test_validate_names_the_field_the_value_and_what_is_allowed(tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text(JOB.read_text().replace('retryLimit: "2"', 'retryLimit: "many"'))
    result = run("validate", str(JOB), str(bad))
    assert result.exit_code == 2
    assert "valid (structure only): AppWrapper sample-job" in result.stdout
    assert "retryLimit" in result.stdout
    assert "many" in result.stdout
    assert json.loads(run("validate", str(JOB), "-o", "json").stdout)[0]["valid"] is True


@pytest.mark.row("D38", level="pure")
def test_D38_validate_says_that_it_checked_the_structure_alone_and_how_the_rest_is_checked(tmp_path: Path) -> None:
    odd = tmp_path / "odd.yaml"
    text = (ROOT / "examples" / "job.yaml").read_text()
    odd.write_text(text.replace("parallelism:", "paralelism:").replace("image:", "imag:"))
    result = run("validate", str(odd))
    assert result.exit_code == 0, result.output
    assert "valid (structure only): sample" in result.stdout
    assert "not checked: fields that only Kubernetes knows" in result.stdout
    assert "holdfast validate --server" in result.stdout
    (document,) = json.loads(run("validate", str(odd), "-o", "json").stdout)
    assert document["checked"] == "structure"
    assert "holdfast validate --server" in document["unchecked"][0]


@pytest.mark.row("D38", level="pure")
def test_D38_a_server_that_does_not_answer_is_exit_code_3_and_never_valid(tmp_path: Path) -> None:
    result = run("validate", "--server", str(JOB), "--kubeconfig", str(kubeconfig(tmp_path)))
    assert result.exit_code == 3, result.output
    assert "cannot reach Kubernetes at https://127.0.0.1:1" in result.output
    assert "valid (" not in result.stdout


@pytest.mark.parametrize(("text", "says"), [(None, "No such file or directory"), ("", "it is no kubeconfig")])
def test_a_kubeconfig_that_is_not_there_or_none_is_said_to_be_so(
    text: str | None, says: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "kubeconfig"
    if text is not None:
        path.write_text(text)
    result = run("namespace", "enable", "research", "--kubeconfig", str(path))
    assert result.exit_code == 3, result.output
    assert f"cannot reach Kubernetes at {path} ({says}): " in " ".join(result.output.split())
    assert "Config not found" not in capfd.readouterr().err


def test_a_file_that_is_not_there() -> None:
    result = run("submit", "nowhere.yaml", "--dry-run")
    assert result.exit_code == 2
    assert "nowhere.yaml cannot be read: No such file" in result.output
    result = run("validate", "nowhere.yaml")
    assert result.exit_code == 2
    assert result.output.startswith("nowhere.yaml cannot be read: No such file"), "the file is named once"


def test_an_extension_by_what_is_no_duration_is_refused_before_anything_is_asked() -> None:
    result = run("extend", "x", "abc")
    assert result.exit_code == 2
    assert "is not a duration" in result.output


def test_a_wrong_setting_is_named_as_it_was_typed() -> None:
    result = run("submit", str(JOB), "--dry-run", "--set", "retryLimit=many")
    assert result.exit_code == 2
    assert "  --set retryLimit: expected a whole number" in result.output


def test_set_wants_a_key_and_a_value() -> None:
    result = run("submit", str(JOB), "--dry-run", "--set", "failureGracePeriod")
    assert result.exit_code == 2
    assert "expected KEY=VALUE" in result.output


def test_name_is_for_one_workload() -> None:
    assert run("submit", str(JOB), str(ROOT / "examples" / "job.yaml"), "--dry-run", "--name", "x").exit_code == 2


@pytest.mark.parametrize("command", [("submit", "--dry-run"), ("validate",), ("configure",)])
def test_a_name_that_is_none_is_refused_in_one_line(command: tuple[str, ...]) -> None:
    result = run(command[0], str(JOB), "--name", "Bad Name", *command[1:])
    assert result.exit_code == 2, result.exception
    (line,) = result.output.splitlines()
    assert "--name 'Bad Name' cannot be taken: name: 'Bad Name': expected a Kubernetes name, at most 240" in line


def test_a_value_that_nobody_has_checked_before_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever model refuses it: no traceback, and not the exit code of a failed workload."""
    monkeypatch.setattr("holdfast.cli.cluster.about.versions", lambda: Workload.model_validate({"name": 3}))
    result = run("version")
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith("Error: Workload: ")
    assert "name: expected text: write it in quotes (found 3)" in line


def test_the_schema_is_the_published_one() -> None:
    published = json.loads((ROOT / "docs" / "schema" / "workload.schema.json").read_text())
    assert json.loads(run("schema").stdout) == published
    assert yaml.safe_load(run("schema", "-o", "yaml").stdout) == published


@pytest.mark.parametrize(
    "command",
    [
        ("list",),
        ("status", "x"),
        ("explain", "research/x"),
        ("history", "x", "-o", "json"),
        ("goodput", "x"),
        ("goodput", "--queue", "gpus"),
        ("watch", "x"),
        ("suspend", "x"),
        ("resume", "x", "--wait"),
        ("preempt", "x"),
        ("cancel", "x", "--reason", "over"),
        ("retry", "x"),
        ("strip-finalizers", "x"),
        ("extend", "x", "1h"),
        ("scale", "x", "2:8"),
        ("submit", str(JOB)),
        ("apply", str(JOB)),
    ],
    ids=lambda command: command[0],
)
def test_where_temporal_does_not_answer_the_exit_code_is_3(command: tuple[str, ...]) -> None:
    result = run(*command, "--address", "127.0.0.1:1")
    assert result.exit_code == 3
    assert "cannot reach Temporal at 127.0.0.1:1" in result.output
    assert "holdfast dev up" in result.output


def test_a_temporal_that_says_nothing_is_given_up_within_seconds() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        begun = time.monotonic()
        result = run("list", "--address", address)
    assert result.exit_code == 3
    assert f"cannot reach Temporal at {address} (no answer within 4 s)" in result.output
    assert time.monotonic() - begun < 60


def test_where_kubernetes_does_not_answer_the_exit_code_is_3(tmp_path: Path) -> None:
    result = run("namespace", "enable", "research", "--kubeconfig", str(kubeconfig(tmp_path)))
    assert result.exit_code == 3
    assert "cannot reach Kubernetes at https://127.0.0.1:1" in result.output
    assert "KUBECONFIG" in result.output


def test_doctor_names_both_and_a_remedy_for_each(tmp_path: Path) -> None:
    result = run("doctor", "--address", "127.0.0.1:1", "--kubeconfig", str(kubeconfig(tmp_path)))
    assert result.exit_code == 3
    assert result.output.count("NOT OK") == 2
    assert result.output.count("try: ") == 2
    assert "temporalio" in result.output


def test_doctor_prints_a_remedy_below_what_is_wrong() -> None:
    from holdfast.cli.cluster.checks import Check

    text = doctor_text([Check("a", True, "fine", "never shown"), Check("b", False, "broken", "mend it")])
    assert text.splitlines() == [
        "ok      a                    fine",
        "NOT OK  b                    broken",
        "                             try: mend it",
    ]


def test_namespace_enable_dry_run_prints_objects_and_touches_nothing() -> None:
    result = run("namespace", "enable", "research", "--dry-run", "--api-group", "jobset.x-k8s.io")
    assert result.exit_code == 0
    documents = list(yaml.safe_load_all(result.stdout))
    assert [each["kind"] for each in documents][:2] == ["Namespace", "ServiceAccount"]
    assert documents[1]["metadata"]["annotations"] == {names.ANNOTATION_RUN_AS: names.RUN_AS_ALLOWED}
    assert "jobset.x-k8s.io" in result.stdout


def test_names_with_and_without_their_namespace() -> None:
    assert chosen("x", None) == ("default", "x")
    assert chosen("x", "research") == ("research", "x")
    assert chosen("research/x", None) == ("research", "x")
    assert chosen("research/x", "research") == ("research", "x")
    assert chosen("research/jobset/x", None) == ("research", "jobset/x")
    for name, namespace in (("a/b/c", None), ("/x", None), ("x/", None), ("research/x", "other")):
        with pytest.raises(typer.BadParameter):
            chosen(name, namespace)


def test_an_unknown_phase_lists_those_there_are() -> None:
    result = run("list", "--phase", "Sleeping")
    assert result.exit_code == 2
    assert "Suspended" in result.output.replace("\n", " ")


def test_a_timeout_is_a_duration_and_for_waiting() -> None:
    assert run("suspend", "x", "--timeout", "5m").exit_code == 2
    result = run("suspend", "x", "--wait", "--timeout", "soon")
    assert result.exit_code == 2
    assert "'soon'" in result.output


@pytest.mark.parametrize("size", ["four", "2:", ":8", "2:8:9", "-1"])
def test_a_size_that_is_none_is_refused_before_anybody_is_asked(size: str) -> None:
    result = run("scale", "x", "--", size)
    assert result.exit_code == 2
    assert "expected a number of members, as 4, or a range, as 2:8" in " ".join(result.output.replace("│", " ").split())


def test_a_worker_setting_that_is_wrong_is_refused_in_one_line() -> None:
    result = run("worker", "--roles", "nothing")
    assert result.exit_code == 2
    assert "expected some of workflows, cluster, wait, watch" in result.output


def test_version_names_what_matters_in_a_bug_report() -> None:
    assert set(json.loads(run("version", "-o", "json").stdout)) >= {"holdfast", "temporalio", "kubernetes", "python"}


def test_every_command_of_ux_is_there() -> None:
    wanted = "submit list status explain watch suspend resume preempt cancel retry validate schema doctor history"
    wanted += " strip-finalizers extend scale apply goodput"
    text = run("--help").output
    for command in [*wanted.split(), "namespace", "worker", "dev", "demo", "version"]:
        assert f" {command} " in text, command


def test_a_name_of_the_package_is_resolved_on_first_use() -> None:
    import holdfast

    assert sorted(holdfast.__all__) == holdfast.__all__
    assert all(getattr(holdfast, name) is not None for name in holdfast.__all__)
    assert dir(holdfast) == holdfast.__all__
    with pytest.raises(AttributeError, match="nothing"):
        holdfast.nothing  # noqa: B018 # pyright: ignore[reportAttributeAccessIssue]


def kubeconfig(folder: Path) -> Path:
    """A kubeconfig that leads to where nobody listens."""
    path = folder / "kubeconfig"
    path.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "x",
                "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
                "clusters": [{"name": "x", "cluster": {"server": "https://127.0.0.1:1"}}],
                "users": [{"name": "x", "user": {"token": "t"}}],
            }
        )
    )
    return path


class Applying:
    """A session in which `lost` cannot be looked up, and nothing once a workload is submitted."""

    def __init__(self) -> None:
        self.submitted: list[str] = []

    async def get(self, name: str, namespace: str, _cluster: str) -> None:
        if self.submitted or name == "lost":
            raise NotReachable("Temporal", "127.0.0.1:7233", "start it", "it does not answer")
        raise WorkloadNotFound(f"workload/dev/{namespace}/{name}")

    async def submit(self, wanted: Workload) -> None:
        self.submitted.append(wanted.name)


@pytest.mark.row("E3", level="pure")
@pytest.mark.parametrize(("wanted", "code"), [(("a", "b"), 0), (("a", "lost", "b"), 3)])
def test_E3_apply_says_what_became_of_each_whatever_becomes_of_a_look_at_one(
    monkeypatch: pytest.MonkeyPatch, wanted: tuple[str, ...], code: int
) -> None:
    one = Applying()

    @asynccontextmanager
    async def session(*_: Any) -> AsyncGenerator[Applying]:
        yield one

    monkeypatch.setattr("holdfast.cli.submission.apply.session", session)
    text = "\n---\n".join(JOB.read_text().replace("name: sample-job", f"name: {name}") for name in wanted)
    result = run("apply", "-", "--yes", "-o", "json", stdin=text)
    assert result.exit_code == code, result.output
    found = {each["name"]: each for each in json.loads(result.stdout)}
    assert {name: each.get("result") for name, each in found.items()} == {
        name: None if name == "lost" else "submitted" for name in wanted
    }
    assert one.submitted == ["a", "b"]
    assert ("error" in found.get("lost", {})) is (code == 3)


class Submitting:
    """A session that begins all; `meanwhile` is called as the second one begins."""

    def __init__(self, meanwhile: Callable[[], None]) -> None:
        self.begun, self._meanwhile = list[str](), meanwhile

    async def submit(self, wanted: Workload, *, again: bool) -> Run:
        if len(self.begun) == 1:
            self._meanwhile()
        self.begun.append(wanted.name)
        return Run(cast("Any", None), cast("Any", None), wanted.workflow_id, "u", "r")


def three() -> str:
    """The sample job as three: a, b and c."""
    return "\n---\n".join(JOB.read_text().replace("name: sample-job", f"name: {each}") for each in "abc")


@pytest.mark.row("D60", level="pure")
@pytest.mark.parametrize("output", [Output.TABLE, Output.JSON])
def test_D60_all_are_begun_also_if_nobody_reads_any_more(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, output: Output
) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text(three())
    reader, writer = os.pipe()
    one = Submitting(lambda: os.close(reader))

    @asynccontextmanager
    async def session(*_: Any) -> AsyncGenerator[Submitting]:
        yield one

    async def refuse_closed(*_: Any) -> None:
        return None

    async def attended(_run: Run, work: Awaitable[None], _then: str) -> None:
        await work

    for name, replaced in {"session": session, "refuse_closed": refuse_closed, "attended": attended}.items():
        monkeypatch.setattr(f"holdfast.cli.workloads.submit.{name}", replaced)
    with os.fdopen(writer, "w") as printed:  # As at the end of Python, what is left is written: without an error.
        monkeypatch.setattr(sys, "stdout", printed)
        with pytest.raises(SystemExit) as ended:
            get_command(app).main(["submit", str(file), "-o", output.value], prog_name="holdfast")
        monkeypatch.undo()
    assert ended.value.code == 0
    assert one.begun == ["a", "b", "c"]


@pytest.mark.row("D60", level="pure")
@pytest.mark.parametrize(
    ("error", "said"),
    [
        (HoldfastError("no"), "begun: default/a; not begun: default/b, default/c; refused: default/b\n"),
        (asyncio.CancelledError(), "begun: default/a; not begun: default/c; not known: default/b\n"),
        (RuntimeError("no"), "begun: default/a; not begun: default/c; not known: default/b\n"),
    ],
    ids=["refused", "Ctrl-C", "a fault"],
)
async def test_D60_what_was_begun_is_said_whatever_ends_a_submission(
    error: BaseException, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise error

    one = Submitting(fail)
    with pytest.raises(type(error)):
        await _begin(cast("Any", one), [], read(three(), cluster="dev"), again=False, output=Output.TABLE)
    assert capsys.readouterr().err == said


class There:
    """A run of the sample job, as its file says, whose workflow has recorded this."""

    client, place, workflow_id = None, None, "workload/dev/default/sample-job"

    def __init__(self, recorded: StatusView | HoldfastError) -> None:
        self._recorded = recorded

    async def in_force(self) -> Workload:
        return read(JOB.read_text(), cluster="dev", namespace="default")[0]

    async def recorded(self) -> StatusView:
        if isinstance(self._recorded, HoldfastError):
            raise self._recorded
        return self._recorded

    @classmethod
    def as_it_is(cls, phase: Phase, *, closed: bool = False) -> There:
        at = datetime(2026, 1, 31, tzinfo=UTC)
        status = Status(
            name="sample-job",
            namespace="default",
            cluster="dev",
            uid="u",
            phase=phase,
            reason=Reason.SUFFICIENT_PODS_READY,
            since=at,
        )
        return cls(StatusView(status=status, fresh=closed, closed=closed))


ENDED = "unchanged: it has ended ({}); `holdfast submit FILE --again` runs it once more"


@pytest.mark.row("E3", level="pure")
@pytest.mark.parametrize(
    ("there", "code", "phase", "said"),
    [
        (There.as_it_is(Phase.RUNNING), 0, "Running", "unchanged"),
        (There.as_it_is(Phase.FAILED), 0, "Failed", ENDED.format("Failed")),
        (There.as_it_is(Phase.CANCELLED, closed=True), 0, "Cancelled", ENDED.format("Cancelled")),
        (There(HoldfastError("its workflow was terminated in Temporal")), 2, None, "terminated in Temporal"),
    ],
    ids=["runs", "is kept", "has ended", "terminated"],
)
def test_E3_apply_says_of_what_is_unchanged_whether_it_has_ended(
    monkeypatch: pytest.MonkeyPatch, there: There, code: int, phase: str | None, said: str
) -> None:
    async def get(*_: Any) -> There:
        return there

    async def described(*_: Any) -> None:
        return None

    @asynccontextmanager
    async def session(*_: Any) -> AsyncGenerator[Any]:
        yield SimpleNamespace(get=get)

    monkeypatch.setattr("holdfast.cli.submission.apply.session", session)
    monkeypatch.setattr("holdfast.client.found.describe", described)
    result = run("apply", str(JOB))
    assert result.exit_code == code, result.output
    assert result.output.endswith(f"{said}\n")
    (document,) = json.loads(run("apply", str(JOB), "-o", "json").stdout)
    assert document.get("phase") == phase
    assert document.get("result") == (None if code else "unchanged")


@pytest.mark.parametrize("arguments", [("list", "--address", "h\udcff:1"), ("status", "x", "--address=h\udcff:1")])
def test_bytes_that_are_no_text_are_refused_by_the_option(arguments: tuple[str, ...]) -> None:
    result = run(*arguments)
    assert result.exit_code == 2, result.exception
    assert "--address: 'h\\xff:1' is not UTF-8 text" in result.output


def test_bytes_that_are_no_text_are_refused_in_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", "h\udcff:1")
    assert "TEMPORAL_ADDRESS: 'h\\xff:1' is not UTF-8 text" in run("list").output


def test_a_file_may_have_a_name_that_is_no_text(tmp_path: Path) -> None:
    file = tmp_path / "job\udcff.yaml"
    file.write_text(JOB.read_text())
    assert run("submit", str(file), "--dry-run").exit_code == 0
