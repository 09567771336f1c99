"""Reading the other policy: a document that names what is to differ, checked field by field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import yaml
from pydantic import ValidationError

from holdfast.errors import InvalidWorkload, Problem, problems_of
from holdfast.formats.settings import Given, read_settings
from holdfast.model import Policy, Workload

_SECTIONS = ("policy", "spec.policy")
_PARTS = ("timings", "exclusion", "deletion")
"""Parts of a policy whose fields stand each for itself: those that are left out stay. Any other is given whole."""


def read_policy(text: str, spec: Workload, profiles: Mapping[str, Policy], source: str) -> Policy:
    """Return the policy that a document asks for.

    Args:
        text: YAML or JSON: the `policy` section of a workload's document, or a document that has one. What it leaves
            out stays as the workload has it, or, where it names another profile, as that profile has it.
        spec: The workload that really lived.
        profiles: By name.
        source: What was read, for messages.

    Raises:
        InvalidWorkload: with the path of each field that is wrong.
    """
    try:
        given: Any = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InvalidWorkload([Problem("", f"is not YAML: {str(error).splitlines()[0]}")], source) from None
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
    whole: dict[str, Any] = {**base.model_dump(mode="json"), **document}
    for part in _PARTS:
        inner = document.get(part)
        if isinstance(inner, dict):
            whole[part] = {**getattr(base, part).model_dump(mode="json"), **cast("dict[str, Any]", inner)}
            if part == "timings" and "failureGracePeriod" in inner:
                whole["ownFailureGrace"] = True
    try:
        policy = Policy.model_validate(whole)
    except ValidationError as error:
        raise InvalidWorkload(problems_of(error, Policy, prefix), source) from None
    return _fitting(policy, spec, source)


def with_settings(policy: Policy, given: Mapping[str, str], spec: Workload) -> Policy:
    """Return the policy with settings in place of its own (`--set failureGracePeriod=30s`).

    Raises:
        InvalidWorkload: if a setting is none of a policy, or the policy has no place for it.
    """
    settings, problems = read_settings(Given(f"--set {name}", name, value) for name, value in given.items())
    problems += settings.problems(policy)
    problems += [Problem(settings.paths[name], "is no setting of a policy") for name in settings.fields]
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
    """Return the policy, if the workload's components can be ruled by it."""
    try:
        Workload.model_validate({**spec.model_dump(mode="json"), "policy": policy.model_dump(mode="json")})
    except ValidationError as error:
        # What could not be submitted rules nothing: a rule that names no component would match nothing, in silence.
        raise InvalidWorkload(problems_of(error, Workload), source) from None
    return policy
