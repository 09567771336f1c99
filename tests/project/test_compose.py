"""docker-compose.yml and Dockerfile: valid by their published schema and a linter, health-checked, without a secret."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast import names
from holdfast.worker.runtime.settings import Settings, load
from tests.project.compose import COMPOSE_FILE, interpolate, read_compose, worker_service

ROOT = COMPOSE_FILE.parent
BIN = Path(sys.executable).parent
DOCKERFILE = ROOT / "Dockerfile"
SERVICES: dict[str, Any] = read_compose()["services"]
JOBS = {"temporal-schema", "temporal-setup"}


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_compose_file_follows_the_published_schema() -> None:
    done = run(BIN / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", COMPOSE_FILE)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_schema_check_can_fail(tmp_path: Path) -> None:
    wrong = tmp_path / "docker-compose.yml"
    wrong.write_text(COMPOSE_FILE.read_text().replace("stop_grace_period:", "stop_grace_periods:"))
    assert run(BIN / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", wrong).returncode == 1


def test_the_dockerfile_passes_hadolint() -> None:
    done = run(BIN / "hadolint", DOCKERFILE)
    assert done.returncode == 0, done.stdout + done.stderr


def test_hadolint_can_fail(tmp_path: Path) -> None:
    wrong = tmp_path / "Dockerfile"
    wrong.write_text("FROM python:latest\nRUN cd /tmp\n")
    assert run(BIN / "hadolint", wrong).returncode == 1


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_each_service_is_health_checked_or_a_job_that_ends(name: str) -> None:
    service = SERVICES[name]
    if name in JOBS:
        assert service["restart"].startswith("on-failure")
    else:
        assert service["healthcheck"]["test"][0] == "CMD"
        assert service["restart"] == "unless-stopped"


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_each_service_waits_for_what_it_needs(name: str) -> None:
    for needed, condition in SERVICES[name].get("depends_on", {}).items():
        expected = "service_completed_successfully" if needed in JOBS else "service_healthy"
        assert condition == {"condition": expected}


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_each_image_is_pinned_and_each_port_is_on_loopback(name: str) -> None:
    assert re.fullmatch(r"[a-z/-]+:\d+\.\d+[\w.-]*", SERVICES[name]["image"])
    for port in SERVICES[name].get("ports", []):
        assert port.startswith("127.0.0.1:")


def test_no_secret_is_in_the_clear() -> None:
    for name, service in SERVICES.items():
        for variable in service.get("environment", {}):
            secret = re.search(r"PASSWORD|PWD|SECRET|TOKEN|KEY", variable)
            assert secret is None or variable.endswith("_FILE"), f"{name}: {variable}"
    for secret in read_compose()["secrets"].values():
        assert set(secret) == {"file"}
        ignored = run("git", "-C", ROOT, "check-ignore", "--quiet", "--no-index", secret["file"])
        assert ignored.returncode == 0, f"{secret['file']} is not ignored by git"


def test_the_password_is_made_by_make() -> None:
    path = read_compose()["secrets"]["postgres_password"]["file"]
    assert re.search(rf"^{re.escape(path)}:$", (ROOT / "Makefile").read_text(), re.MULTILINE)


@pytest.mark.parametrize("name", ["temporal-schema", "temporal", "temporal-setup"])
def test_the_inline_scripts_are_valid_shell(name: str) -> None:
    script = interpolate(SERVICES[name]["command"][0], {})
    done = run("sh", "-n", "-c", script)
    assert done.returncode == 0, done.stderr


def test_compose_registers_the_search_attributes_that_the_workflows_set() -> None:
    pairs = SERVICES["temporal-setup"]["environment"]["SEARCH_ATTRIBUTES"].split()
    assert dict(pair.split("=") for pair in pairs) == names.SEARCH_ATTRIBUTES


def test_the_worker_runs_unprivileged() -> None:
    worker = SERVICES["worker"]
    assert worker["cap_drop"] == ["ALL"]
    assert worker["read_only"] is True
    assert [mount["read_only"] for mount in worker["volumes"]] == [True]
    users = re.findall(r"^USER (.+)$", DOCKERFILE.read_text(), re.MULTILINE)
    assert users == ["10001:10001"]


def test_the_worker_has_all_its_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text("{}")
    service = worker_service({"HOLDFAST_CLUSTER": "east"})
    assert service.command[:2] == ["holdfast", "worker"]
    monkeypatch.chdir(tmp_path)
    for name, value in {**service.environment, "KUBECONFIG": str(kubeconfig)}.items():
        monkeypatch.setenv(name, value)
    settings = load()
    assert settings.cluster == "east"
    assert settings.temporal_address == "temporal:7233"
    assert settings.kubeconfig == str(kubeconfig)
    assert len(settings.roles) == 5


def test_every_health_check_of_the_worker_asks_where_it_answers() -> None:
    service = worker_service()
    default = Settings.model_fields["health_address"].default
    assert service.readiness_url == f"http://{service.environment['HOLDFAST_HEALTH_ADDRESS']}/readyz"
    assert f"http://{default}/readyz" in DOCKERFILE.read_text()


def test_the_images_command_is_the_composes() -> None:
    command = re.findall(r"^CMD (.+)$", DOCKERFILE.read_text(), re.MULTILINE)
    assert [json.loads(text) for text in command] == [worker_service().command]


def test_the_image_is_built_from_the_mapped_folders_and_the_locks() -> None:
    text = DOCKERFILE.read_text()
    copied = set(re.findall(r"^COPY (\w+) \1$", text, re.MULTILINE))
    assert copied == {"holdfast", "workflows", "activities", "worker", "local", "deploy"}
    assert text.count("--require-hashes") == text.count("-r requirements/") == 2
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert copied <= allowed


@pytest.mark.parametrize(
    ("text", "given", "expected"),
    [
        ("${A:-b}", {}, "b"),
        ("${A:-b}", {"A": ""}, "b"),
        ("x ${A} y", {"A": "a"}, "x a y"),
        ("${A:?needed}", {"A": "a"}, "a"),
        ("$$HOME", {}, "$HOME"),
    ],
)
def test_variables_are_filled_in_as_compose_does(text: str, given: dict[str, str], expected: str) -> None:
    assert interpolate(text, given) == expected


def test_a_variable_that_must_be_set_is_named() -> None:
    with pytest.raises(ValueError, match="KUBECONFIG: name the kubeconfig file"):
        interpolate(SERVICES["worker"]["volumes"][0]["source"], {})
