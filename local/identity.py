"""The worker's own identity on a local cluster: a kubeconfig with exactly the permissions that deploy/ grants it."""

from pathlib import Path

import yaml

from holdfast.local.stack import Stack
from holdfast.local.system.credentials import write_private
from holdfast.local.system.errors import StackError

TOKEN_LIFE = "24h"  # noqa: S105 - a duration
WORKER = ("holdfast-system", "holdfast-worker")


def worker_kubeconfig(stack: Stack) -> Path:
    """Write a kubeconfig for the worker's service account, with a fresh token, and return its path.

    Raises:
        StackError: the cluster lacks the account; `kubectl apply -k deploy/` creates it.
    """
    namespace, account = WORKER
    try:
        token = stack.kubectl("create", "token", account, "-n", namespace, f"--duration={TOKEN_LIFE}").strip()
    except StackError as error:
        raise StackError(f"no token for {namespace}/{account}: {error}", "kubectl apply -k deploy/") from error
    document = yaml.safe_load(stack.kubeconfig.read_text())
    wanted = document.get("current-context") or document["contexts"][0]["name"]
    context = next(each["context"] for each in document["contexts"] if each["name"] == wanted)
    context["user"] = account
    document["contexts"] = [{"name": wanted, "context": context}]
    document["users"] = [{"name": account, "user": {"token": token}}]
    path = stack.layout.directory / "worker.kubeconfig"
    write_private(path, yaml.safe_dump(document, sort_keys=False))
    return path
