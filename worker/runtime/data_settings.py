"""Checks a worker's settings for data sets: each value, and contradictions between them (row L14)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast import names
from holdfast.model.quantity import parse_quantity
from holdfast.model.spec.mount import bucket_of, checked_source, is_under


def checked_grants(value: tuple[str, ...]) -> tuple[str, ...]:
    """Return grants, each `namespace=s3://bucket/prefix` or `*=s3://...`, with sources normalized for comparison.

    Raises:
        ValueError: naming the invalid grant.
    """
    found: list[str] = []
    for one in value:
        whose, equals, source = one.partition("=")
        if not equals or not (whose == "*" or names.DNS_LABEL.match(whose)):
            raise ValueError(f"{one!r}: expected namespace=s3://bucket/prefix, or *=s3://bucket/prefix for all")
        found.append(f"{whose}={checked_source(source)}")
    return tuple(found)


def checked_store(value: str) -> str:
    """Return where evidence is kept, `s3://bucket/prefix`, without a slash at its end.

    Raises:
        ValueError: if it is no such place; the prefix is needed, since what is old below it is removed.
    """
    if not value:
        return ""
    source = checked_source(value)
    if not bucket_of(source)[1]:
        raise ValueError(f"{value!r}: expected a prefix, such as {source}/evidence: what is old below it is removed")
    return source


def checked_quotas(value: tuple[str, ...]) -> tuple[str, ...]:
    """Return quotas, each `namespace=quantity` or `*=quantity`.

    Raises:
        ValueError: naming the invalid quota.
    """
    for at, one in enumerate(value):
        whose, equals, quantity = one.partition("=")
        if not equals or not (whose == "*" or names.DNS_LABEL.match(whose)):
            raise ValueError(f"{one!r}: expected namespace=quantity, such as team=10Ti, or *=1Ti for all others")
        if whose in [other.partition("=")[0] for other in value[:at]]:
            raise ValueError(f"{one!r}: expected one quota for {whose}")
        try:
            thousandths = parse_quantity(quantity)
        except ValueError as error:
            raise ValueError(f"{one!r}: {error}") from None
        if thousandths < 1000:
            raise ValueError(f"{one!r}: expected at least 1 byte")
    return value


def quota_of(quotas: tuple[str, ...], namespace: str) -> int | None:
    """Return the bytes that a namespace may keep in the cache; None: no limit."""
    given = dict(one.split("=", 1) for one in quotas)
    quantity = given.get(namespace, given.get("*"))
    return parse_quantity(quantity) // 1000 if quantity is not None else None


def checked_directory(value: str) -> str:
    """Return a folder's absolute path, without a slash at its end.

    Raises:
        ValueError: if it is not absolute.
    """
    if value and (not value.startswith("/") or ".." in value.split("/") or not value.strip("/")):
        raise ValueError(f"{value!r}: expected an absolute path, such as /srv/holdfast")
    return value.rstrip("/")


def problem_with(given: Mapping[str, Any]) -> str:
    """Return the first contradiction between these settings, given by name; empty if there is none."""
    directory, endpoint, evidence = given["data_directory"], given["data_endpoint"], given["evidence_store"]
    others = ("data_host_path", "data_claim", "data_sources", "data_quotas", "data_seal_file")
    others += () if evidence else ("data_endpoint", "data_credentials_file")
    without = next((name for name in others if given[name]), "")
    if not directory and without:
        return f"data_directory: expected with {without}: where this worker puts data sets"
    if directory and not given["data_sources"]:
        return "data_sources: expected with data_directory: who may have which data, as team=s3://bucket/team"
    if given["data_host_path"] and given["data_claim"]:
        return "data_claim: expected without data_host_path: pods find data sets either way"
    for source in (one.partition("=")[2] for one in given["data_sources"] if evidence):
        if is_under(source, evidence) or is_under(evidence, source):
            return f"evidence_store: {evidence}: expected another prefix than that of the data sets under {source}"
    if endpoint.startswith("http://") and not given["data_allow_http"]:
        return f"data_endpoint: {endpoint}: expected https, or data_allow_http"
    return ""
