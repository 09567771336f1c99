"""Brings a stack up step by step and takes it down: which parts it has, and in which order they start and stop."""

import subprocess
from pathlib import Path

from holdfast.local.extras import codec, ha, kueue
from holdfast.local.node import real_node
from holdfast.local.node.requirements import require
from holdfast.local.node.sweep import sweep
from holdfast.local.programs.resolve import Progress, resolve
from holdfast.local.programs.tools import CLUSTER_TOOLS, HA_TOOLS, REAL_NODE_TOOLS, TEMPORAL_TOOLS
from holdfast.local.system import parts as catalogue
from holdfast.local.system.cluster import (
    Kubectl,
    apply_deploy,
    await_default_account,
    ensure_fake_nodes,
    tame_fake_nodes,
)
from holdfast.local.system.credentials import ensure_signing_key, ensure_tokens, kubeconfig, write_private
from holdfast.local.system.errors import PartError, StackError
from holdfast.local.system.parts import Layout, Part
from holdfast.local.system.ports import LOOPBACK
from holdfast.local.system.runner import Runner, stop_process
from holdfast.local.system.state import StackState

REAL_NODE_PARTS = ("containerd", "kubelet")
_TEMPORALS = ("temporal", ha.DATABASE, *ha.SERVERS, "temporal-ui", codec.NAME)


def plan(layout: Layout, state: StackState) -> dict[str, Part]:
    """Every part that the stack should have, in the order in which they are started."""
    found: list[Part] = []

    def program(name: str) -> str:
        return state.binaries.get(name, name)

    if not state.given_temporal:
        decrypts = codec.endpoint(state.ports) if state.encrypted else ""
        if state.ha:
            found += ha.parts(layout, state.binaries, state.ports, state.dynamic_config, decrypts)
        else:
            found.append(catalogue.temporal(layout, program("temporal"), state.ports, state.dynamic_config, decrypts))
        if state.encrypted:
            found.append(codec.part(layout, state.ports, f"http://{LOOPBACK}:{state.ports['temporal-ui']}"))
    if not state.given_kubeconfig:
        found += [
            catalogue.etcd(layout, program("etcd"), state.ports),
            catalogue.kube_apiserver(layout, program("kube-apiserver"), state.ports, audit_bodies=state.audit_bodies),
            catalogue.kube_controller_manager(layout, program("kube-controller-manager"), state.ports),
            catalogue.kube_scheduler(layout, program("kube-scheduler"), state.ports),
            catalogue.kwok(layout, program("kwok"), state.ports),
        ]
        if state.real_node:
            node = real_node.RealNode(layout.directory)
            found += real_node.parts(layout, node, state.binaries, state.ports)
        if state.kueue:
            found.append(kueue.part(layout, program(kueue.NAME), state.ports))
    return {part.name: part for part in found}


def bring_up(runner: Runner, apply: bool | None, progress: Progress) -> None:
    """Start the parts that do not run, in order, and create the stack's objects in the cluster.

    Args:
        runner: the stack.
        apply: whether to apply deploy/; None: only on the stack's own cluster.
        progress: receives each step.

    Raises:
        StackError: a step failed. Started parts keep running, and the next call continues from there.
    """
    layout, state = runner.layout, runner.state
    own_cluster = not state.given_kubeconfig
    if state.real_node:
        if not own_cluster:
            raise StackError("a real node can only be added to the stack's own cluster", "drop --kubeconfig")
        require()
    if state.kueue:
        if not own_cluster:
            raise StackError("Kueue can only be added to the stack's own cluster", "drop --kubeconfig")
        kueue.require()
    _get_binaries(state, own_cluster, progress)
    _get_ports(runner, own_cluster)
    ensure_tokens(layout.pki / "tokens.csv")
    ensure_signing_key(layout.pki / "service-accounts.key")
    if not real_node.write_client_certificate(layout.pki) and state.real_node:
        raise StackError("openssl could not make a certificate for the real node", "install openssl")
    (layout.directory / "data").mkdir(exist_ok=True)
    if state.ha and not state.given_temporal:
        ha.prepare(layout)
    if state.encrypted and not state.given_temporal:
        codec.ensure_keys(layout)

    planned = plan(layout, state)
    for name in [name for name in runner.state.parts if name in _TEMPORALS and name not in planned]:
        _stop(runner, name, progress)
        del runner.state.parts[name]
    if codec.NAME in planned:
        _launch(runner, planned[codec.NAME], progress)
    if "temporal" in planned:
        _launch(runner, planned["temporal"], progress)
    if ha.DATABASE in planned:
        _launch_servers(runner, planned, progress)
    if own_cluster:
        for name in ("etcd", "kube-apiserver"):
            _launch(runner, planned[name], progress)
            runner.wait(planned[name])
        _write_kubeconfigs(layout, state.name, planned["kube-apiserver"].address)
        controllers = [planned[name] for name in ("kube-controller-manager", "kube-scheduler", "kwok")]
        for part in controllers:
            _launch(runner, part, progress)
        for part in controllers:
            runner.wait(part)
    kubectl = Kubectl(
        Path(state.binaries["kubectl"]), Path(state.given_kubeconfig) if state.given_kubeconfig else layout.kubeconfig
    )
    if own_cluster:
        ensure_fake_nodes(kubectl, state.nodes)
        await_default_account(kubectl)
        tame_fake_nodes(kubectl)
    if own_cluster if apply is None else apply:
        apply_deploy(kubectl)
    if state.real_node:
        _bring_up_real_node(runner, planned, kubectl, progress)
    elif any(name in state.parts for name in REAL_NODE_PARTS):
        remove_real_node(runner, progress)
        kubectl("delete", "node", real_node.NODE, "--ignore-not-found")
    if state.kueue:
        kueue.install(kubectl, layout, state.ports)
        _launch(runner, planned[kueue.NAME], progress)
        runner.wait(planned[kueue.NAME])
        kueue.connect(kubectl, layout, state.ports)
    if "temporal" in planned:
        _await_temporal(runner, planned["temporal"], progress)
        define_search_attributes(Path(state.binaries["temporal"]), planned["temporal"].address)
    if ha.DATABASE in planned:
        _await_servers(runner, planned)
    if codec.NAME in planned:
        runner.wait(planned[codec.NAME])


def _launch_servers(runner: Runner, planned: dict[str, Part], progress: Progress) -> None:
    """Start the database, create its tables, and then start the servers."""
    if not runner.process(ha.DATABASE):
        ha.release(runner.layout)
    _launch(runner, planned[ha.DATABASE], progress)
    runner.wait(planned[ha.DATABASE])
    ha.await_ready(runner.state.ports)
    ha.define(runner.layout, runner.state.binaries["temporal-sql-tool"], runner.state.ports)
    for name in ha.SERVERS:
        _launch(runner, planned[name], progress)
        runner.wait(planned[name])  # Two servers at once would both write the cluster metadata on the first start.


def _await_servers(runner: Runner, planned: dict[str, Part]) -> None:
    temporal = runner.state.binaries["temporal"]
    first = planned[next(iter(ha.SERVERS))].address
    ha.define_namespace(temporal, first, "default")
    define_search_attributes(Path(temporal), first)
    runner.start(planned["temporal-ui"])


def _await_temporal(runner: Runner, part: Part, progress: Progress) -> None:
    """Wait until Temporal is healthy; restart it if it ended.

    It chooses free ports for its inner services itself, and ends if another program takes one of them first.
    """
    for is_last in (False, False, True):
        try:
            return runner.wait(part)
        except PartError:
            if is_last or runner.process(part.name):
                raise
            _launch(runner, part, progress)
    return None


def define_search_attributes(program: Path, address: str) -> None:
    """Define Holdfast's search attributes; the server itself defines them only for a new database.

    Raises:
        StackError: it failed, with the program's output, or it took longer than a minute.
    """
    argv = [str(program), "operator", "search-attribute", "create", "--address", address]
    for name, kind in catalogue.SEARCH_ATTRIBUTES.items():
        argv += ["--name", name, "--type", kind]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    except subprocess.TimeoutExpired as error:
        raise StackError("defining the search attributes took longer than 60 s") from error
    if done.returncode != 0:
        raise StackError(f"the search attributes could not be defined: {done.stderr.strip()}", "holdfast doctor --fix")


def take_down(runner: Runner, progress: Progress) -> None:
    """Stop every part, last started first, and undo what a real node changed on the machine."""
    remove_real_node(runner, progress)
    for name in reversed(runner.state.parts):
        _stop(runner, name, progress)


def remove_real_node(runner: Runner, progress: Progress) -> None:
    """Stop kubelet and containerd if the stack has them, then remove their containers, mounts and folders."""
    had = [name for name in reversed(REAL_NODE_PARTS) if name in runner.state.parts]
    for name in had:
        _stop(runner, name, progress)
    node = real_node.RealNode(runner.layout.directory)
    # A node that was killed before its parts started has left its folders, too.
    if had or node.run.exists() or node.data.exists():
        progress("removing the real node's containers, mounts and network")
        sweep(node)
    for name in had:
        del runner.state.parts[name]
    runner.state.save(runner.layout.directory)


def _bring_up_real_node(runner: Runner, planned: dict[str, Part], kubectl: Kubectl, progress: Progress) -> None:
    node = real_node.RealNode(runner.layout.directory)
    containerd, kubelet = (planned[name] for name in REAL_NODE_PARTS)
    known = runner.state.parts.get("containerd")
    if not (known and known.process.alive() and tuple(known.argv) == containerd.argv):
        # Do not trust the state that an earlier containerd left: it may have been killed.
        for name in ("kubelet", "containerd"):
            _stop(runner, name, progress)
        sweep(node)
        real_node.prepare(node, Path(runner.state.binaries["containerd-shim-runc-v2"]))
        _launch(runner, containerd, progress)
    imported = node.data / "imported"
    if not imported.exists():
        runner.wait(containerd)
        real_node.import_images(node, Path(runner.state.binaries["ctr"]))
        imported.touch()
    _launch(runner, kubelet, progress)
    runner.wait(kubelet)
    kubectl("wait", "--for=create", "--timeout=60s", f"node/{real_node.NODE}")
    kubectl("wait", "--for=condition=Ready", "--timeout=60s", f"node/{real_node.NODE}")


def _get_binaries(state: StackState, own_cluster: bool, progress: Progress) -> None:
    tools = CLUSTER_TOOLS if own_cluster else ("kubectl",)
    tools += () if state.given_temporal else TEMPORAL_TOOLS
    tools += HA_TOOLS if state.ha and not state.given_temporal else ()
    tools += REAL_NODE_TOOLS if state.real_node else ()
    tools += (kueue.NAME,) if state.kueue else ()
    state.binaries.update({name: str(path) for name, path in resolve(tools, progress).items()})


def _get_ports(runner: Runner, own_cluster: bool) -> None:
    ports = catalogue.CLUSTER_PORTS if own_cluster else ()
    owners = catalogue.PORT_OWNERS
    if runner.state.ha and not runner.state.given_temporal:
        ports, owners = (*ports, *ha.PORTS), {**owners, "temporal-ui": "temporal-ui", **ha.OWNERS}
    else:
        ports += () if runner.state.given_temporal else catalogue.TEMPORAL_PORTS
    ports += codec.PORTS if runner.state.encrypted and not runner.state.given_temporal else ()
    ports += real_node.PORTS if runner.state.real_node else ()
    ports += kueue.PORTS if runner.state.kueue else ()
    runner.settle_ports(ports, {name: owners.get(name, name) for name in ports})


def _launch(runner: Runner, part: Part, progress: Progress) -> None:
    if runner.launch(part):
        progress(f"starting {part.name}")


def _stop(runner: Runner, name: str, progress: Progress) -> None:
    process = runner.process(name)
    if process:
        progress(f"stopping {name} (pid {process.pid})")
        stop_process(name, process)


def _write_kubeconfigs(layout: Layout, name: str, server: str) -> None:
    tokens = ensure_tokens(layout.pki / "tokens.csv")
    authority = (layout.pki / "apiserver.crt").read_bytes()
    context = f"holdfast-{name}"
    write_private(layout.kubeconfig, kubeconfig(server, authority, tokens["admin"], context))
    for user in ("controller-manager", "scheduler", "kwok", "kubelet"):
        write_private(layout.user_kubeconfig(user), kubeconfig(server, authority, tokens[user], context))
