"""The connection of a command to Kubernetes, and its errors translated into messages that a person can act on."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from holdfast.activities.kube.client import Kube
from holdfast.activities.kube.errors import Forbidden, KubeError, Unauthorized, Unreachable, of_configuration
from holdfast.cli.common import kubectl
from holdfast.errors import HoldfastError, NotReachable

_REMEDY = (
    "is it the right cluster? Set KUBECONFIG or --kubeconfig, "
    'or use the local one: `holdfast dev up`, then `eval "$(holdfast dev env)"`'
)


@asynccontextmanager
async def reached(kubeconfig: str | None, context: str | None) -> AsyncGenerator[Kube]:
    """Yield a client of the cluster that the kubeconfig names.

    Raises:
        NotReachable: if it does not answer, or does not accept the credentials.
        HoldfastError: if it refuses a request.
    """
    chosen = kubeconfig or os.environ.get("KUBECONFIG") or None
    context = context or kubectl.context()
    where = server_of(chosen, context)
    try:
        kube = await Kube.connect(chosen, context=context, connect_timeout=4.0, timeout=5.0)
    except Exception as error:  # The client library raises a different error for each way that a file can be wrong.
        raise NotReachable("Kubernetes", where, _REMEDY, of_configuration(error)) from None  # It may quote a token.
    try:
        async with kube:
            yield kube
    except Unauthorized as error:
        remedy = "log in again, or use another context (--context)"
        raise NotReachable("Kubernetes", where, remedy, error.message) from error
    except Unreachable as error:
        raise NotReachable("Kubernetes", where, _REMEDY, error.message) from error
    except Forbidden as error:
        raise HoldfastError(f"Kubernetes at {where} refuses: {error.message}") from error
    except KubeError as error:
        raise HoldfastError(f"Kubernetes at {where}: {error.message}") from error


def server_of(kubeconfig: str | None, context: str | None) -> str:
    """Return the server address in a kubeconfig, for messages; the path of the file if it has none."""
    import yaml

    path = Path((kubeconfig or "~/.kube/config").split(os.pathsep)[0]).expanduser()
    try:
        document: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
        chosen = context or document["current-context"]
        cluster = next(each["context"]["cluster"] for each in document["contexts"] if each["name"] == chosen)
        server = str(next(each["cluster"]["server"] for each in document["clusters"] if each["name"] == cluster))
        scheme, slashes, rest = server.rpartition("//")
        return scheme + slashes + rest.rpartition("@")[2]  # Without a user's name and password.
    except (OSError, ValueError, LookupError, TypeError, StopIteration, yaml.YAMLError):
        return str(path)
