"""What `kubectl holdfast` takes from kubectl: its context and namespace, and how to reach Temporal (row F18).

Whoever has only a kubeconfig learns the rest from the ConfigMap `holdfast-connection` of the cluster. kubectl itself
reads it, so that contexts, logins and proxies are kubectl's own.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from holdfast import names
from holdfast.errors import HoldfastError, NotReachable

_CLUSTER: Final = "HOLDFAST_CLUSTER"
_ADDRESS: Final = "TEMPORAL_ADDRESS"
_NAMESPACE: Final = "TEMPORAL_NAMESPACE"
_TLS: Final = ("TEMPORAL_TLS", "TEMPORAL_TLS_SERVER_NAME", "TEMPORAL_TLS_SERVER_CA_CERT_DATA")
_CONFIG_MAP: Final = f"ConfigMap {names.CONNECTION} of namespace {names.WORKER_NAMESPACE}"
_SECONDS: Final = 5.0
_EVERYWHERE: Final = ("--context", "--kubeconfig")
_IN_FRONT: Final = (*_EVERYWHERE, "--namespace", "-n")


class Kubectl:
    """The kubectl that runs this command as its plugin."""

    def __init__(self, context: str | None = None, namespace: str | None = None) -> None:
        """Create it.

        Args:
            context: The context of the kubeconfig; None: the current one.
            namespace: The namespace that was asked for; None: that of the context.
        """
        self.context = context
        self._namespace = namespace
        self._connected = False

    @cached_property
    def namespace(self) -> str:
        """The namespace of commands that name none.

        Raises:
            HoldfastError: if the kubeconfig has no such context.
        """
        if self._namespace:
            return self._namespace
        config = self._run("config", "view")
        contexts: dict[str, Any] = {one["name"]: one.get("context") or {} for one in config.get("contexts") or ()}
        if self.context is not None and self.context not in contexts:
            known = ", ".join(sorted(contexts)) or "none: there is no kubeconfig"
            raise HoldfastError(f"--context {self.context}: expected a context of the kubeconfig ({known})")
        current: str = self.context or config.get("current-context") or ""
        return str(contexts.get(current, {}).get("namespace") or "default")

    def connect(self, cluster: str | None, address: str | None, seconds: float) -> None:
        """Put what the cluster publishes into the environment of this process, once.

        The name of the cluster replaces HOLDFAST_CLUSTER, since the context decides which cluster is meant. All else
        stands only where neither an option nor the environment nor Temporal's own profile says it. At a Temporal of
        the caller's own choice the cluster says neither another name than HOLDFAST_CLUSTER nor the Temporal namespace.

        Args:
            cluster: The value of `--cluster`.
            address: The value of `--address`.
            seconds: How long the cluster may take to answer.

        Raises:
            HoldfastError: if nothing names the cluster, a key for Temporal would go to an address that only the
                cluster names, or the cluster has another name than the caller's own.
            NotReachable: if nothing names the cluster, and it does not answer.
        """
        if self._connected:
            return
        self._connected = True
        try:
            published = self._published(seconds)
        except HoldfastError as error:
            if cluster is None and not os.environ.get(_CLUSTER):
                raise
            if cluster is None:
                from holdfast.cli.common.output import say

                say(f"warning: cluster {os.environ[_CLUSTER]}, as {_CLUSTER} says: {error}", err=True)
            return
        os.environ.update(_wanted(published, address, cluster))

    def _published(self, seconds: float) -> Mapping[str, str]:
        arguments = ("get", "configmap", names.CONNECTION, f"--namespace={names.WORKER_NAMESPACE}")
        data: dict[str, str] = self._run(*arguments, seconds=seconds).get("data") or {}
        if not data.get(_CLUSTER):
            raise HoldfastError(f"{_CONFIG_MAP}: {_CLUSTER} is missing: expected the cluster's name in workflow ids")
        return data

    def _run(self, *arguments: str, seconds: float = _SECONDS) -> Any:
        chosen = [] if self.context is None else [f"--context={self.context}"]
        where = f"context {self.context}" if self.context else "the current context"
        remedy = "is it the right cluster? Give --context, or --cluster and --address"
        try:
            done = subprocess.run(
                ["kubectl", *arguments, "--output=json", *chosen],  # noqa: S607 - the user's own, as PATH has it
                capture_output=True,
                text=True,
                timeout=seconds,
                check=False,
            )
        except FileNotFoundError:
            raise HoldfastError("kubectl is not on PATH: expected it there, since it reads the kubeconfig") from None
        except subprocess.TimeoutExpired:
            raise NotReachable("Kubernetes", where, remedy, f"no answer within {seconds:g} s") from None
        if done.returncode == 0:
            return json.loads(done.stdout)
        said = (done.stderr.strip().splitlines() or [f"kubectl ended with {done.returncode}"])[-1]
        if said.startswith("Error from server"):
            raise HoldfastError(f"{_CONFIG_MAP}, which says how to reach Temporal, cannot be read: {said}")
        raise NotReachable("Kubernetes", where, remedy, said)


def _wanted(published: Mapping[str, str], address: str | None, cluster: str | None) -> dict[str, str]:
    """Return which of the published facts this process uses.

    Headers for Temporal count as a key: what authorizes people may stand in any of them.
    """
    from temporalio.envconfig import ClientConfigProfile

    from holdfast.client.connection import ENV_ADDRESS, credentials_of

    try:
        profile = ClientConfigProfile.load()
        key = credentials_of(profile).api_key is not None or bool(profile.grpc_meta)
    except (OSError, ValueError, RuntimeError) as error:
        raise HoldfastError(f"Temporal's client configuration cannot be read: {error}") from error
    if address or os.environ.get(ENV_ADDRESS) or profile.address:
        return _at_own_temporal(published[_CLUSTER], cluster)
    taken = (_CLUSTER,) if profile.namespace else (_CLUSTER, _NAMESPACE)
    wanted = {name: published[name] for name in taken if published.get(name)}
    if not published.get(_ADDRESS):
        return wanted
    if key:
        raise HoldfastError(
            f"a key for Temporal is set, and no address: it is not sent to {published[_ADDRESS]}, which only the "
            f"cluster names ({_CONFIG_MAP}). Set {_ADDRESS}, or give --address"
        )
    wanted[_ADDRESS] = published[_ADDRESS]
    if profile.tls is not None:
        return wanted
    # A ConfigMap may switch TLS on, never off.
    return wanted | {
        name: published[name] for name in _TLS if published.get(name) and (name != _TLS[0] or published[name] == "true")
    }


def _at_own_temporal(published: str, cluster: str | None) -> dict[str, str]:
    """Return what is taken where the caller names Temporal: the cluster's name, if it is the caller's own or only one.

    Another name would let whoever writes the ConfigMap turn a command upon another cluster's workloads.
    """
    own = os.environ.get(_CLUSTER)
    if not own:
        return {_CLUSTER: published}
    if cluster is None and own != published:
        raise HoldfastError(
            f"{_CLUSTER} is {own}, and the cluster of the context calls itself {published} ({_CONFIG_MAP}): at a "
            "Temporal that you name, which one is meant is not guessed. Give --cluster, or the right --context"
        )
    return {}


_plugin: ContextVar[Kubectl | None] = ContextVar("kubectl", default=None)


def use(arguments: Sequence[str]) -> list[str]:
    """Run as kubectl's plugin from here on, and return the arguments without those that are kubectl's.

    `--context` and `--kubeconfig` may stand anywhere, `--namespace` and `-n` before the command, too.
    """
    kubectl, rest = taken(arguments)
    _plugin.set(kubectl)
    return rest


def taken(arguments: Sequence[str]) -> tuple[Kubectl, list[str]]:
    """Return kubectl as the arguments describe it, and the arguments that are left."""
    found, rest, left = dict[str, str](), list[str](), list(arguments)
    while left and left[0] != "--":
        name, equals, value = left[0].partition("=")
        if name not in (_EVERYWHERE if any(not one.startswith("-") for one in rest) else _IN_FRONT):
            rest.append(left.pop(0))
            continue
        if not equals and len(left) == 1:
            break  # It has no value: the command refuses it.
        left.pop(0)
        found[name] = value if equals else left.pop(0)
    if kubeconfig := found.get("--kubeconfig"):
        os.environ["KUBECONFIG"] = kubeconfig
    elif "KUBECONFIG" not in os.environ and (usual := Path("~/.kube/config").expanduser()).exists():
        os.environ["KUBECONFIG"] = str(usual)
    return Kubectl(found.get("--context"), found.get("--namespace", found.get("-n"))), [*rest, *left]


def connect(cluster: str | None, address: str | None, seconds: float = _SECONDS) -> None:
    """As kubectl's plugin, learn from the cluster what `Kubectl.connect` says; otherwise do nothing."""
    if (plugin := _plugin.get()) is not None:
        plugin.connect(cluster, address, seconds)


def context() -> str | None:
    """Return the context that kubectl was asked for, if any."""
    plugin = _plugin.get()
    return plugin.context if plugin is not None else None


def namespace() -> str | None:
    """Return kubectl's namespace; None if this is not its plugin."""
    plugin = _plugin.get()
    return plugin.namespace if plugin is not None else None


def cluster() -> str | None:
    """Return the cluster of kubectl's context, once `connect` was called; None if this is not its plugin."""
    return os.environ.get(_CLUSTER) if _plugin.get() is not None else None
