"""Admits run-as accounts to Holdfast's priority level: their deletions do not wait behind what their namespace asks.

`deploy/flow-control.yaml` brings the FlowSchema. Kubernetes sorts requests by user, verb and resource, after
impersonation: a deletion that Holdfast makes as a run-as account is that account's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from holdfast.activities.kube.client import Conflict, Forbidden, Kube, NotFound
from holdfast.activities.kube.raw import mapping, mappings

KIND: Final = ("flowcontrol.apiserver.k8s.io/v1", "FlowSchema")
NAME: Final = "holdfast-run-as"

_Subject = dict[str, Any]


async def admit(kube: Kube, namespace: str, account: str, schema: str = NAME) -> None:
    """Add an account to the flow schema, if there is one and the caller may change it; may be repeated."""
    added: _Subject = {"kind": "ServiceAccount", "serviceAccount": {"namespace": namespace, "name": account}}
    await _change(kube, schema, lambda subjects: subjects if added in subjects else [*subjects, added])


async def dismiss(kube: Kube, namespace: str | None, schema: str = NAME) -> None:
    """Take the accounts of a namespace off the flow schema; None: of all namespaces."""

    def others(subjects: list[_Subject]) -> list[_Subject]:
        return [one for one in subjects if namespace not in {None, _namespace_of(one)}]

    await _change(kube, schema, others)


async def admits(kube: Kube, namespace: str, schema: str = NAME) -> bool:
    """Whether the flow schema has an account of a namespace; false if the caller may not read it."""
    try:
        found = await kube.find(*KIND, schema)
    except Forbidden:
        return False
    return found is not None and any(_namespace_of(one) == namespace for one in _subjects(found))


def rules(subjects: list[_Subject]) -> list[dict[str, Any]]:
    """Return the rules by which deletions of these accounts match; none without accounts, which Kubernetes refuses."""
    resources = {"verbs": ["delete"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"]}
    return [{"subjects": subjects, "resourceRules": [resources]}] if subjects else []


async def _change(kube: Kube, schema: str, change: Callable[[list[_Subject]], list[_Subject]]) -> None:
    while True:
        try:
            found = await kube.find(*KIND, schema)
            if found is None:
                return
            subjects = _subjects(found)
            wanted = change(subjects)
            if wanted != subjects:
                metadata = found["metadata"]
                await kube.patch(
                    *KIND,
                    schema,
                    uid=metadata["uid"],
                    resource_version=metadata["resourceVersion"],
                    patch={"spec": {"rules": rules(wanted)}},
                )
            return
        except Conflict:
            continue  # Another namespace was enabled or disabled meanwhile.
        except (Forbidden, NotFound):
            return


def _subjects(found: Mapping[str, Any]) -> list[_Subject]:
    flow_rules = mappings(mapping(found.get("spec")).get("rules"))
    return [dict(one) for rule in flow_rules for one in mappings(rule["subjects"])]


def _namespace_of(subject: _Subject) -> object:
    return mapping(subject.get("serviceAccount")).get("namespace")
