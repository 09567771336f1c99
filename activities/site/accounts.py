"""The service accounts that an object's pods run as: each account that it names, and where (row X12). Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

from holdfast.activities.kube.raw import mapping

_FIELD: Final = "serviceaccountname"
_OLDER: Final = "serviceaccount"
"""The older name of that field, which Kubernetes and some custom resources still read; some hold an object there."""
_TEXT_MAPS: Final = frozenset(
    {"annotations", "labels", "matchLabels", "selector", "nodeSelector", "data", "binaryData", "stringData", "env"}
)
"""The keys of these maps are the user's own words: a string below one of them is not a field."""
_ACCOUNT_TYPE: Final = "kubernetes.io/service-account-token"
_OF_ACCOUNT: Final = "kubernetes.io/service-account.name"
DEFAULT_ACCOUNT: Final = "default"
"""Pods that name no account run as this one, so naming it asks for nothing more."""


class Named(NamedTuple):
    """An account that an object names."""

    account: str
    path: str
    """The path of the field, such as `spec.template.spec.serviceAccountName`."""


def accounts_of(thing: Mapping[str, Any]) -> tuple[Named, ...]:
    """Return the accounts that an object names for its pods; they are found by field name.

    So leaving out a pod set does not avoid the check. Any field whose name ends in `serviceAccountName` counts, even as
    the dotted key of a setting. A field that holds the text of another document is not read. A Secret that asks for an
    account's token names that account too: whoever mounts it acts as it, for as long as the Secret exists.
    """
    fields = (one for one in _found(thing, "", is_text=False) if one.account not in {"", DEFAULT_ACCOUNT})
    return (*fields, *_of_token(thing))


def _of_token(thing: Mapping[str, Any]) -> Iterator[Named]:
    """Return the account whose token a Secret is to hold; `default` too, whose pods need no such Secret."""
    if (thing.get("apiVersion"), thing.get("kind"), thing.get("type")) != ("v1", "Secret", _ACCOUNT_TYPE):
        return
    account = mapping(mapping(thing.get("metadata")).get("annotations")).get(_OF_ACCOUNT)
    if isinstance(account, str) and account:
        yield Named(account, f"metadata.annotations[{_OF_ACCOUNT}]")


def _found(here: Any, path: str, *, is_text: bool) -> Iterator[Named]:
    if isinstance(here, Mapping):
        for key, value in cast("Mapping[str, Any]", here).items():
            below = f"{path}.{key}" if path else str(key)
            field = str(key).rpartition(".")[2].lower()
            if isinstance(value, str):
                if not is_text and (field == _OLDER or field.endswith(_FIELD)):
                    yield Named(value, below)
                continue
            if field == _OLDER and isinstance(value, Mapping):
                named = cast("Mapping[str, Any]", value).get("name")
                if isinstance(named, str):
                    yield Named(named, f"{below}.name")
            yield from _found(value, below, is_text=key in _TEXT_MAPS)
    elif isinstance(here, Sequence) and not isinstance(here, str | bytes):
        for index, value in enumerate(cast("Sequence[Any]", here)):
            yield from _found(value, f"{path}[{index}]", is_text=False)
