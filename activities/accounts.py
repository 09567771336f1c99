"""As whom the pods of a template run: each service account that it names, and where (row X12). Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

_FIELDS: Final = ("serviceAccountName", "serviceAccount")
"""The second is the older name of the first, which Kubernetes and some custom resources still read."""
_WORDS: Final = frozenset({"annotations", "labels", "data", "binaryData", "stringData", "env", "matchLabels"})
"""What lies below these is text of the user's, in which no field of a pod can stand."""
EVERYBODYS: Final = "default"
"""As this account run all pods that name none: to name it asks for nothing more."""


class Named(NamedTuple):
    """An account that a template names."""

    account: str
    path: str
    """Of the field, as in `spec.template.spec.serviceAccountName`."""


def accounts_of(template: Mapping[str, Any]) -> tuple[Named, ...]:
    """Return the accounts that an object names for its pods, wherever in it they stand.

    By the fields' names, not by where pods are said to be: who leaves a pod set out does not get around the question.
    """
    return tuple(_found(template, ""))


def _found(here: Any, path: str) -> Iterator[Named]:
    if isinstance(here, Mapping):
        for key, value in cast("Mapping[str, Any]", here).items():
            below = f"{path}.{key}" if path else str(key)
            if key in _FIELDS and isinstance(value, str):
                if value and value != EVERYBODYS:
                    yield Named(value, below)
            elif key not in _WORDS:
                yield from _found(value, below)
    elif isinstance(here, Sequence) and not isinstance(here, str | bytes):
        for index, value in enumerate(cast("Sequence[Any]", here)):
            yield from _found(value, f"{path}[{index}]")
