"""Lattice's profiles and their settings, as annotations, as `--set`, and in our own document (rows L18 to L24)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast.errors import InvalidWorkload
from holdfast.formats import read
from holdfast.model import Bounded, Reactive, Workload
from holdfast.profiles import PROFILES
from tests.formats.corpus import appwrapper, job

HOUR = timedelta(hours=1)
LAUNCHES = {"name": "launch", "limit": 2}


def annotated(**settings: str) -> dict[str, Any]:
    document = job()
    document["metadata"]["annotations"] = {f"holdfast.dev/{key}": value for key, value in settings.items()}
    return document


def one(document: Any, **options: Any) -> Workload:
    (workload,) = read([document], cluster="dev", **options)
    return workload


def refused(document: Any, **options: Any) -> str:
    with pytest.raises(InvalidWorkload) as caught:
        one(document, **options)
    return "; ".join(str(problem) for problem in caught.value.problems)


@pytest.mark.row("L24", level="pure")
@pytest.mark.parametrize("profile", ["lattice-batch", "lattice-service"])
def test_L24_as_many_as_100_requeues_may_be_asked_for_and_101_are_refused(profile: str) -> None:
    workload = one(annotated(profile=profile, retryLimit="100"))
    assert (workload.policy.profile, workload.policy.budget("restart").limit) == (profile, 100)
    says = refused(annotated(profile=profile, retryLimit="101"))
    assert "metadata.annotations[holdfast.dev/retryLimit]: expected at most 100 (found 101)" in says
    assert "expected at most 100" in refused(annotated(profile=profile), overrides={"retryLimit": "101"})
    own = {"name": "w", "schemaVersion": 1, "components": [{"name": "a", "template": job()}]}
    own["policy"] = {"profile": profile, "budgets": [{"name": "restart", "limit": 101, "maximum": 100}]}
    assert "limit: 101: expected at most 100" in refused(own)
    for limit, found in ((101, "101"), (None, "no limit")):
        own["policy"] = {"profile": profile, "budgets": [{"name": "restart", "limit": limit}, LAUNCHES]}
        assert f"limit: {found}: expected at most 100" in refused(own)
    own["policy"] = {"profile": profile, "budgets": [{"name": "restart", "limit": 7}, LAUNCHES]}
    given, usual = one(own).policy, PROFILES[profile]
    for name, limit in (("restart", 7), ("launch", 2)):
        assert given.budget(name) == usual.budget(name).model_copy(update={"limit": limit}), "the rest is the profile's"


@pytest.mark.row("L21", level="pure")
def test_L21_what_is_never_requeued_has_no_limit_to_set() -> None:
    says = refused(annotated(profile="lattice-interactive", retryLimit="1"))
    assert "profile lattice-interactive has no restart budget" in says


@pytest.mark.row("L18", level="pure")
def test_L18_a_walltime_is_a_setting_of_every_form() -> None:
    wanted = Bounded(walltime=HOUR, extendable_to=2 * HOUR)
    settings = {"walltime": "1h", "walltimeExtendableTo": "2h"}
    assert one(annotated(**settings)).lifecycle == wanted
    assert one(appwrapper("w", {"template": job()}), overrides=settings).lifecycle == wanted
    assert one(annotated(walltime="0")).lifecycle == Bounded()
    own: dict[str, Any] = {"name": "w", "schemaVersion": 1, "components": [{"name": "a", "template": job()}]}
    assert one({**own, "lifecycle": {"kind": "Bounded", "walltime": "1h", "extendableTo": "2h"}}).lifecycle == wanted
    pods = one(own).expected_pods
    reactive = {"kind": "Reactive", "min": pods, "max": 9}
    assert one({**own, "lifecycle": reactive}).lifecycle == Reactive(min=pods, max=9)


@pytest.mark.row("L18", level="pure")
@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"walltime": "soon"}, "holdfast.dev/walltime]: 'soon' is not a duration"),
        ({"walltimeExtendableTo": "1h"}, "since a walltime of 0s is no bound"),
        ({"walltime": "2h", "walltimeExtendableTo": "1h"}, "expected at least the walltime, 2h"),
        ({"sensitive": "yes"}, "holdfast.dev/sensitive]: is not one of the allowed values"),
        ({"sensitive": "true", "profile": "streams"}, "a sensitive workload is not run again by itself"),
    ],
)
def test_L18_what_contradicts_itself_is_refused_where_it_stands(settings: dict[str, str], says: str) -> None:
    assert says in refused(annotated(**settings))


def test_what_is_not_said_leaves_a_workload_as_it_was() -> None:
    workload = one(job())
    document = workload.model_dump(mode="json", by_alias=True)
    assert not {"lifecycle", "sensitive"} & document.keys()
    assert not {"maximum", "exceeded", "renewal"} & {key for each in document["policy"]["budgets"] for key in each}
    assert all("requeue" not in each["action"] for each in document["policy"]["rules"])


@pytest.mark.parametrize("profile", [name for name in PROFILES if name.startswith("lattice-")])
def test_a_profile_comes_back_from_json_as_it_was(profile: str) -> None:
    policy = PROFILES[profile]
    assert type(policy).model_validate_json(policy.model_dump_json(by_alias=True)) == policy
