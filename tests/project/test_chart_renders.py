"""What the chart can be asked for besides workers: a test, a network policy, and what the Prometheus operator reads."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from holdfast import names
from holdfast.local.programs.resolve import cached, on_path
from holdfast.local.programs.tools import KUBERNETES, TOOLS
from tests.monitoring.promtool import ALERTS
from tests.project.manifests import problems

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "chart"
PLACE = "cluster=prod,temporal.address=temporal:7233"
SECRETS = (
    "temporal.tls.caSecret=ca,temporal.tls.clientSecret=client,temporal.apiKeySecret=key,temporal.codec.secret=keys"
)
MONITORING = '[{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]'


def helm(*argv: str) -> subprocess.CompletedProcess[str]:
    """Run helm, where it is on this machine already: a build takes longer than all pure tests."""
    tool = TOOLS["helm"]
    program = on_path(tool) or cached(tool)
    if program is None:
        pytest.skip("helm is not in the cache: `make manifests` builds it")
    namespace = ("--namespace", "holdfast-system", "--kube-version", KUBERNETES)
    return subprocess.run(
        [str(program), "template", "holdfast", str(CHART), *namespace, "--set", PLACE, *argv],
        capture_output=True,
        text=True,
        check=False,
    )


def rendered(*argv: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Return what the chart makes, by kind and name."""
    done = helm(*argv)
    assert done.returncode == 0, done.stderr
    return {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(done.stdout) if one}


def test_by_default_there_is_nothing_that_needs_another_definition_or_closes_the_network():
    kinds = {kind for kind, _ in rendered()}
    assert {"Deployment", "PodDisruptionBudget"} <= kinds
    assert not kinds & {"PodMonitor", "PrometheusRule", "NetworkPolicy"}


def test_the_operators_rules_are_the_plain_files():
    made = rendered("--set", "monitoring.rules=true,monitoring.labels.release=prom")
    rule = made["PrometheusRule", "holdfast"]
    assert rule["spec"] == yaml.safe_load(ALERTS.read_text())
    assert rule["metadata"]["labels"]["release"] == "prom"


def test_the_operator_scrapes_exactly_the_workers():
    made = rendered("--set", "monitoring.podMonitor=true")
    spec = made["PodMonitor", "holdfast"]["spec"]
    (endpoint,) = spec["podMetricsEndpoints"]
    wanted, (sorts,) = spec["selector"]["matchLabels"], spec["selector"]["matchExpressions"]
    for (kind, name), one in made.items():
        if kind != "Deployment":
            continue
        template = one["spec"]["template"]
        labels = template["metadata"]["labels"]
        assert wanted.items() <= labels.items(), name
        assert labels[sorts["key"]] in sorts["values"], name
        assert endpoint["port"] in {port["name"] for port in template["spec"]["containers"][0]["ports"]}, name
    assert made["Pod", "holdfast-doctor"]["metadata"]["labels"][sorts["key"]] not in sorts["values"]


def test_traces_are_off_until_they_have_somewhere_to_go():
    def variables(*argv: str) -> dict[str, str]:
        data = rendered(*argv)["ConfigMap", "holdfast"]["data"]
        return {name: value for name, value in data.items() if name.startswith("OTEL_")}

    assert not variables()
    assert variables(
        "--set", "traces.endpoint=http://collector.monitoring:4318", "--set-json", "traces.share=0.25"
    ) == {
        "OTEL_TRACES_EXPORTER": "otlp",
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector.monitoring:4318",
        "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
        "OTEL_TRACES_SAMPLER_ARG": "0.25",
    }
    assert helm("--set", "traces.endpoint=collector:4318").returncode != 0


@pytest.mark.parametrize(
    ("argv", "ports"),
    [
        ((), []),
        (("--set-json", f"networkPolicy.metricsFrom={MONITORING}"), ["metrics"]),
        (("--set", "rendezvous.certificateSecret=door"), ["rendezvous"]),
    ],
    ids=["nobody", "monitoring", "gangs"],
)
def test_the_network_is_open_to_whom_it_is_for(argv: tuple[str, ...], ports: list[str]):
    made = rendered("--set", "networkPolicy.enabled=true", *argv)
    spec = made["NetworkPolicy", "holdfast"]["spec"]
    assert spec["policyTypes"] == ["Ingress"]
    rules = spec["ingress"] or []
    assert [port["port"] for rule in rules for port in rule["ports"]] == ports
    assert all(rule["from"] for rule in rules)


@pytest.mark.parametrize("argv", [(), ("--set", SECRETS)], ids=["plain", "with-secrets"])
def test_helms_test_sees_what_the_workers_see(argv: tuple[str, ...]):
    made = rendered(*argv)
    doctor = made["Pod", "holdfast-doctor"]
    assert doctor["metadata"]["annotations"]["helm.sh/hook"] == "test"
    worker = made["Deployment", "holdfast-cluster"]["spec"]["template"]["spec"]
    own, theirs = doctor["spec"]["containers"][0], worker["containers"][0]
    assert own["command"] == ["holdfast", "doctor"]
    assert [own[key] for key in ("image", "envFrom", "volumeMounts")] == [
        theirs[key] for key in ("image", "envFrom", "volumeMounts")
    ]
    same = ("volumes", "securityContext", "serviceAccountName")
    assert [doctor["spec"][key] for key in same] == [worker[key] for key in same]
    # As a Deployment it would be as safe as the workers.
    twin = {**made["Deployment", "holdfast-cluster"], "spec": {"template": {"spec": doctor["spec"]}}}
    grants = [one for (kind, _), one in made.items() if kind.endswith(("Role", "RoleBinding"))]
    assert problems([twin, *grants]) == problems(grants)


@pytest.mark.parametrize(
    "value", ["monitoring.podMonitor=often", "networkPolicy.metricsFrom=x", "monitoring.alerts=true"]
)
def test_a_wrong_value_is_refused_by_its_path(value: str):
    done = helm("--set", value)
    assert done.returncode != 0
    assert value.partition(".")[0] in done.stderr


def test_a_development_server_has_the_columns_and_is_closed_to_all_but_the_workers():
    own = "temporal.address=,temporal.devServer.enabled=true"
    made = rendered("--set", own)
    pod = made["Deployment", "holdfast-temporal"]["spec"]["template"]
    columns = [word for word in pod["spec"]["containers"][0]["command"] if word.startswith("--search-attribute=")]
    assert columns == [f"--search-attribute={name}={kind}" for name, kind in names.SEARCH_ATTRIBUTES.items()]
    service = made["Service", "holdfast-temporal"]
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    address = "holdfast-temporal.holdfast-system.svc:7233"
    assert made["ConfigMap", "holdfast"]["data"]["TEMPORAL_ADDRESS"] == address
    assert made["ConfigMap", "holdfast-connection"]["data"]["TEMPORAL_ADDRESS"] == "localhost:7233"
    policy = made["NetworkPolicy", "holdfast-temporal"]["spec"]
    assert policy["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    (rule,) = policy["ingress"]
    (allowed,) = rule["from"]
    worker = made["Deployment", "holdfast-cluster"]["spec"]["template"]["metadata"]["labels"]
    assert allowed["podSelector"]["matchLabels"].items() <= worker.items()
    assert [port["port"] for port in rule["ports"]] == ["grpc"]
    grants = [one for (kind, _), one in made.items() if kind.endswith(("Role", "RoleBinding"))]
    assert problems([made["Deployment", "holdfast-temporal"], *grants]) == problems(grants)


def test_values_of_a_release_without_a_development_server_and_traces_still_do():
    """A wrapper chart, or a person who keeps the old values, may lack sections that the last release did not have."""
    assert rendered("--set", "temporal.devServer=null,traces=null") == rendered()


def test_a_development_server_beside_an_address_is_refused():
    done = helm("--set", "temporal.devServer.enabled=true")
    assert done.returncode != 0
    assert "/temporal/address" in done.stderr


@pytest.mark.row("F18", level="pure")
def test_F18_people_are_told_how_to_reach_temporal_and_no_secret():
    made = rendered("--set", f"clients.address=temporal.example.com:443,clients.ca=PEM,{SECRETS}")
    assert made["ConfigMap", "holdfast-connection"]["data"] == {
        "HOLDFAST_CLUSTER": "prod",
        "TEMPORAL_ADDRESS": "temporal.example.com:443",
        "TEMPORAL_NAMESPACE": "default",
        "TEMPORAL_TLS": "true",
        "TEMPORAL_TLS_SERVER_CA_CERT_DATA": "PEM",
    }
    assert made["RoleBinding", "holdfast-connection"]["subjects"][0]["name"] == "system:authenticated"
    plain = rendered()["ConfigMap", "holdfast-connection"]["data"]
    assert plain == {"HOLDFAST_CLUSTER": "prod", "TEMPORAL_ADDRESS": "temporal:7233", "TEMPORAL_NAMESPACE": "default"}


@pytest.mark.row("F17", level="pure")
def test_F17_the_kind_workload_can_be_left_out():
    definition = ("CustomResourceDefinition", "workloads.holdfast.dev")
    policy = ("ValidatingAdmissionPolicy", "workload-components.holdfast.dev")
    assert {definition, policy} <= set(rendered())
    assert not {definition, policy} & set(rendered("--set", "workloads.enabled=false"))
