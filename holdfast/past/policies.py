"""Reads the alternative policy: a document with the fields that differ, validated field by field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from pydantic import ValidationError

from holdfast.errors import InvalidWorkload, Problem, problems_of, truths
from holdfast.formats.native import policy_over
from holdfast.formats.settings import OF_A_POLICY, Given, read_settings
from holdfast.formats.text import one_document
from holdfast.model import Policy, Workload

_SECTIONS = ("policy", "spec.policy")


def read_policy(text: str, spec: Workload, profiles: Mapping[str, Policy], source: str) -> Policy:
    """Return the policy that a document describes.

    Args:
        text: YAML or JSON: the `policy` section of a workload's document, or a document that has one. It is read as
            in a submission, with the workload's policy for the profile, unless it names another profile.
        spec: The workload that really ran.
        profiles: Policies by profile name.
        source: The name of the document, for messages.

    Raises:
        InvalidWorkload: with the path of each invalid field.
    """
    given: Any = one_document(text, source)
    prefix = ""
    for section in _SECTIONS:
        inner: Any = given
        for part in section.split("."):
            inner = cast("dict[str, Any]", inner).get(part) if isinstance(inner, dict) else None
        if inner is not None:
            given, prefix = inner, section
            break
    if not isinstance(given, dict):
        raise InvalidWorkload([Problem(prefix, "expected an object: the policy section of a workload", given)], source)
    document = cast("dict[str, Any]", given)
    base = _base(document, spec, profiles, prefix, source)
    try:
        policy = Policy.model_validate(policy_over(base, document))
    except ValidationError as error:
        raise InvalidWorkload(problems_of(error, Policy, prefix), source) from None
    if wrong := tuple(truths(document, policy, prefix)):
        raise InvalidWorkload(wrong, source)
    return _fitting(policy, spec, source)


def with_settings(policy: Policy, given: Mapping[str, str], spec: Workload) -> Policy:
    """Return the policy with settings applied (`--set failureGracePeriod=30s`).

    Raises:
        InvalidWorkload: if a setting does not belong to a policy, or does not fit this policy.
    """
    settings, problems = read_settings(Given(f"--set {name}", name, value) for name, value in given.items())
    problems += settings.problems(policy)
    problems += settings.rule_problems(policy)
    others = [path for name, path in settings.paths.items() if name not in OF_A_POLICY]
    problems += [Problem(path, "is no setting of a policy") for path in others]
    if settings.profile is not None:
        problems.append(Problem(settings.paths["profile"], "is given in the policy's document, as profile"))
    if problems:
        raise InvalidWorkload(problems, "--set")
    return _fitting(settings.policy(policy), spec, "--set")


def _base(document: dict[str, Any], spec: Workload, profiles: Mapping[str, Policy], prefix: str, source: str) -> Policy:
    named = document.get("profile", spec.policy.profile)
    if named == spec.policy.profile:
        return spec.policy
    if not isinstance(named, str) or named not in profiles:
        path = f"{prefix}.profile".lstrip(".")
        problem = Problem(path, "is not one of the allowed values", named, tuple(sorted(profiles)))
        raise InvalidWorkload([problem], source)
    return profiles[named]


def _fitting(policy: Policy, spec: Workload, source: str) -> Policy:
    """Return the policy, if it is valid for the workload's components."""
    try:
        Workload.model_validate({**spec.model_dump(mode="json"), "policy": policy.model_dump(mode="json")})
    except ValidationError as error:
        # Refuse what could not be submitted: a rule for an unknown component would silently match nothing.
        raise InvalidWorkload(problems_of(error, Workload), source) from None
    return policy
