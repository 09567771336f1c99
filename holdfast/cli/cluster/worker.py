"""`holdfast worker`: runs a worker process in the foreground."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holdfast.worker.runtime.settings import load

_PAGES = "Pages and logs"
_TEMPORAL = "Temporal"
_KUBERNETES = "Kubernetes"
_MACHINES = "Machines of nodes"
_LIMITS = "Limits"
_GANGS = "Elastic gangs"
_DATA = "Data sets"


def worker(
    config: Annotated[
        Path | None,
        typer.Option(help="TOML file with settings. Default: $HOLDFAST_CONFIG, else ./holdfast.toml if there is one."),
    ] = None,
    cluster: Annotated[str | None, typer.Option(help="Name of the cluster to act on.")] = None,
    roles: Annotated[
        str | None, typer.Option(help="Some of workflows,cluster,wait,watch,admission.", show_default="all five")
    ] = None,
    queues: Annotated[
        str | None, typer.Option(help="The only admission queues to serve, by commas.", show_default="all")
    ] = None,
    namespaces: Annotated[
        str | None, typer.Option(help="The only Kubernetes namespaces to act in, separated by commas.")
    ] = None,
    installation: Annotated[
        str | None, typer.Option(help="Label value that marks this installation's objects. Default: from the cluster.")
    ] = None,
    managed_by: Annotated[
        str | None, typer.Option(help="What custom resources say in managedBy that are run here.")
    ] = None,
    identity: Annotated[str | None, typer.Option(help="This process's name in Temporal. Default: pid@host.")] = None,
    kubeconfig: Annotated[
        str | None, typer.Option(help="Default: $KUBECONFIG, in a pod its account.", rich_help_panel=_KUBERNETES)
    ] = None,
    kube_context: Annotated[
        str | None, typer.Option("--kube-context", "--context", rich_help_panel=_KUBERNETES)
    ] = None,
    node_eviction_labels: Annotated[
        str | None,
        typer.Option(help="Labels of nodes that pods are to leave: key=value, by commas.", rich_help_panel=_KUBERNETES),
    ] = None,
    node_fault_taints: Annotated[
        str | None, typer.Option(help="Taints of nodes with broken hardware.", rich_help_panel=_KUBERNETES)
    ] = None,
    node_fault_conditions: Annotated[
        str | None,
        typer.Option(help="Conditions of nodes with broken hardware: type=status.", rich_help_panel=_KUBERNETES),
    ] = None,
    node_monitor: Annotated[
        bool | None, typer.Option(help="Whether silent nodes are found Down.", rich_help_panel=_KUBERNETES)
    ] = None,
    node_degraded: Annotated[
        str | None, typer.Option(help="Silence until a node is Degraded, 30s.", rich_help_panel=_KUBERNETES)
    ] = None,
    node_down: Annotated[
        str | None, typer.Option(help="So much more until it is Down, 60s.", rich_help_panel=_KUBERNETES)
    ] = None,
    node_sensitive_down: Annotated[
        str | None, typer.Option(help="The same for sensitive workloads, 5m.", rich_help_panel=_KUBERNETES)
    ] = None,
    node_check: Annotated[
        str | None, typer.Option(help="From its return to its health check, 30s.", rich_help_panel=_KUBERNETES)
    ] = None,
    node_flaps: Annotated[int | None, typer.Option(rich_help_panel=_KUBERNETES)] = None,
    node_flap_window: Annotated[str | None, typer.Option(rich_help_panel=_KUBERNETES)] = None,
    provisioner_url: Annotated[
        str | None,
        typer.Option(help="A node's ComputerSystem by Redfish: https://HOST/.../{node}", rich_help_panel=_MACHINES),
    ] = None,
    provisioner_user: Annotated[str | None, typer.Option(rich_help_panel=_MACHINES)] = None,
    provisioner_password_file: Annotated[Path | None, typer.Option(rich_help_panel=_MACHINES)] = None,
    provisioner_ca_file: Annotated[Path | None, typer.Option(rich_help_panel=_MACHINES)] = None,
    provisioner_insecure: Annotated[
        bool | None, typer.Option(help="Take any certificate.", rich_help_panel=_MACHINES)
    ] = None,
    provisioner_services: Annotated[
        str | None,
        typer.Option(help="Services that nodes' annotations may name: https://HOST:PORT", rich_help_panel=_MACHINES),
    ] = None,
    provisioner_allow_unverified_machine: Annotated[
        bool | None,
        typer.Option(
            help="Power and erase machines by their URL alone, where there is no UUID to compare.",
            rich_help_panel=_MACHINES,
        ),
    ] = None,
    provisioner_at_once: Annotated[
        int | None, typer.Option(help="Requests worked at at the same time.", rich_help_panel=_MACHINES)
    ] = None,
    fence: Annotated[
        bool | None,
        typer.Option(help="Whether a silent node is off before its pods are replaced.", rich_help_panel=_MACHINES),
    ] = None,
    temporal_address: Annotated[
        str | None, typer.Option("--temporal-address", "--address", help="host:port", rich_help_panel=_TEMPORAL)
    ] = None,
    temporal_namespace: Annotated[str | None, typer.Option(rich_help_panel=_TEMPORAL)] = None,
    temporal_tls: Annotated[bool | None, typer.Option(rich_help_panel=_TEMPORAL)] = None,
    temporal_tls_ca_file: Annotated[Path | None, typer.Option(rich_help_panel=_TEMPORAL)] = None,
    temporal_tls_cert_file: Annotated[Path | None, typer.Option(rich_help_panel=_TEMPORAL)] = None,
    temporal_tls_key_file: Annotated[Path | None, typer.Option(rich_help_panel=_TEMPORAL)] = None,
    temporal_tls_server_name: Annotated[str | None, typer.Option(rich_help_panel=_TEMPORAL)] = None,
    temporal_api_key_file: Annotated[
        Path | None, typer.Option(help="File that holds the API key.", rich_help_panel=_TEMPORAL)
    ] = None,
    deployment_name: Annotated[
        str | None, typer.Option(help="Worker deployment, for worker versioning.", rich_help_panel=_TEMPORAL)
    ] = None,
    build_id: Annotated[str | None, typer.Option(rich_help_panel=_TEMPORAL)] = None,
    grace_period_maximum: Annotated[
        str | None, typer.Option(help="Caps every workload's waits, for example 24h.", rich_help_panel=_LIMITS)
    ] = None,
    success_ttl_maximum: Annotated[
        str | None, typer.Option(help="Caps how long a finished workload is kept.", rich_help_panel=_LIMITS)
    ] = None,
    max_concurrent_workflow_tasks: Annotated[int | None, typer.Option(rich_help_panel=_LIMITS)] = None,
    max_concurrent_activities: Annotated[int | None, typer.Option(rich_help_panel=_LIMITS)] = None,
    max_fresh_activities: Annotated[
        int | None, typer.Option(help="How many of them may have just begun.", rich_help_panel=_LIMITS)
    ] = None,
    max_concurrent_waits: Annotated[int | None, typer.Option(rich_help_panel=_LIMITS)] = None,
    max_fresh_waits: Annotated[
        int | None, typer.Option(help="How many of them may have just begun.", rich_help_panel=_LIMITS)
    ] = None,
    max_concurrent_probes: Annotated[
        int | None, typer.Option(help="Services that are asked whether they serve.", rich_help_panel=_LIMITS)
    ] = None,
    max_cached_workflows: Annotated[int | None, typer.Option(rich_help_panel=_LIMITS)] = None,
    graceful_shutdown: Annotated[
        str | None, typer.Option(help="Time for work in hand after SIGTERM.", rich_help_panel=_LIMITS)
    ] = None,
    watch_shard_sets: Annotated[
        int | None, typer.Option(help="Watch activities per cluster.", rich_help_panel=_LIMITS)
    ] = None,
    watch_signals_per_second: Annotated[float | None, typer.Option(rich_help_panel=_LIMITS)] = None,
    watchdog_every: Annotated[
        str | None, typer.Option(help="How often queues and their like are looked at.", rich_help_panel=_LIMITS)
    ] = None,
    watchdog_patience: Annotated[
        str | None,
        typer.Option(help="How long one fails before it is rebuilt. Longer than an upgrade.", rich_help_panel=_LIMITS),
    ] = None,
    rendezvous_address: Annotated[
        str | None, typer.Option(help="host:port for agents of elastic gangs. Default: none.", rich_help_panel=_GANGS)
    ] = None,
    rendezvous_url: Annotated[
        str | None, typer.Option(help="Where pods reach that address.", rich_help_panel=_GANGS)
    ] = None,
    max_concurrent_gangs: Annotated[
        int | None, typer.Option(help="Gangs that this worker serves.", rich_help_panel=_LIMITS)
    ] = None,
    data_directory: Annotated[
        str | None, typer.Option(help="Shared folder for staged data sets. Default: none.", rich_help_panel=_DATA)
    ] = None,
    data_host_path: Annotated[
        str | None, typer.Option(help="The same folder as nodes see it.", rich_help_panel=_DATA)
    ] = None,
    data_claim: Annotated[
        str | None, typer.Option(help="Claim by which pods find it instead.", rich_help_panel=_DATA)
    ] = None,
    data_endpoint: Annotated[
        str | None, typer.Option(help="URL of the S3 store. Default: Amazon's.", rich_help_panel=_DATA)
    ] = None,
    data_region: Annotated[str | None, typer.Option(rich_help_panel=_DATA)] = None,
    data_allow_http: Annotated[
        bool | None, typer.Option(help="Whether it may be reached without TLS.", rich_help_panel=_DATA)
    ] = None,
    data_credentials_file: Annotated[
        Path | None, typer.Option(help="As ~/.aws/credentials. Default: AWS_* variables.", rich_help_panel=_DATA)
    ] = None,
    data_sources: Annotated[
        str | None, typer.Option(help="namespace=s3://bucket/prefix, by commas; * for all.", rich_help_panel=_DATA)
    ] = None,
    health_address: Annotated[
        str | None, typer.Option(help="host:port of /livez and /readyz.", rich_help_panel=_PAGES)
    ] = None,
    metrics_address: Annotated[str | None, typer.Option(help="host:port of /metrics.", rich_help_panel=_PAGES)] = None,
    log_format: Annotated[str | None, typer.Option(help="json or console.", rich_help_panel=_PAGES)] = None,
    log_level: Annotated[
        str | None, typer.Option(help="debug, info, warning or error.", rich_help_panel=_PAGES)
    ] = None,
) -> None:
    """Run a worker: it decides (workflows), acts (cluster), waits (wait), sees (watch) and lets in (admission).

    Every option may also be given as HOLDFAST_<OPTION> or as a line of the TOML file; options win over the
    environment, which wins over the file. SIGTERM drains and ends with 0; a second signal ends at once.
    """
    flags = {name: value for name, value in locals().items() if name != "config"}
    settings = load(flags, config)

    # A wrong option is told before the SDK and the Kubernetes client are loaded.
    from temporalio.worker import UnsandboxedWorkflowRunner

    from holdfast.plugin import HoldfastPlugin
    from holdfast.worker.process import run

    raise typer.Exit(run(settings, UnsandboxedWorkflowRunner(), [HoldfastPlugin()]))
