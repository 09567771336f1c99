"""The law of resets, judged on logs made by hand: it holds where it should, and each way to break it is noticed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.audited import CONTROLLER, Log, reset
from tests.e2e.witness.law import SET_ASIDE, check, main


def test_a_reset_that_waits_for_everything_holds():
    verdict = check(reset().lines)
    assert verdict.sentence() == "1 resets of 1 workloads checked, 0 broken"
    assert not verdict.broken


def test_workloads_and_namespaces_are_judged_apart():
    one, other = reset(), reset(Log(namespace="elsewhere"))
    lines = [line for both in zip(one.lines, other.lines, strict=True) for line in both]
    assert check(lines).sentence() == "2 resets of 2 workloads checked, 0 broken"
    other.create("pods", "first-0", 2, 5)
    assert check([*one.lines, *other.lines]).sentence() == "2 resets of 2 workloads checked, 1 broken"


@pytest.mark.parametrize("left", ["owner-1", "first-1"])
def test_what_never_went_breaks_it(left: str):
    log = Log()
    for resource, name in (("attempts", "owner-1"), ("pods", "first-1")):
        log.create(resource, name, 1, 0)
        if name != left:
            log.delete(resource, name, 5)
    log.create("attempts", "owner-2", 2, 10)
    (text,) = check(log.lines).broken
    assert left in text
    assert "owner-2" in text


def test_what_went_only_after_the_next_was_asked_for_breaks_it():
    log = Log()
    log.create("attempts", "owner-1", 1, 0)
    log.create("attempts", "owner-2", 2, 10)
    log.delete("attempts", "owner-1", 10.05)
    assert "0 broken" not in check(log.lines).sentence()


@pytest.mark.parametrize(
    "held", [{"finalizers": ["example.com/hold"]}, {"deletionGracePeriodSeconds": 30}, {"finalizers": ["orphan"]}]
)
def test_a_deletion_that_leaves_it_dying_is_not_its_end(held: dict[str, object]):
    log = Log()
    log.create("pods", "first-1", 1, 0)
    log.begin_deletion("pods", "first-1", 1, 5, **held)
    log.create("pods", "first-2", 2, 10)
    assert len(check(log.lines).broken) == 1
    log.delete("pods", "first-1", 9)
    assert not check(log.lines).broken


def test_a_pod_of_a_controller_counts_like_any_other():
    log = Log()
    log.create("attempts", "owner-1", 1, 0)
    log.create("pods", "first-abcde", 1, 1, user=CONTROLLER)
    log.delete("attempts", "owner-1", 5)
    log.create("attempts", "owner-2", 2, 10)
    assert "first-abcde" in check(log.lines).broken[0]


def test_a_pod_of_the_next_attempt_that_comes_before_its_owner_counts():
    log = Log()
    log.create("attempts", "owner-1", 1, 0)
    log.create("pods", "first-2", 2, 4)
    log.delete("attempts", "owner-1", 5)
    log.create("attempts", "owner-2", 2, 10)
    assert "first-2" in check(log.lines).broken[0]


def test_an_earlier_attempt_than_the_last_counts_too():
    log = reset()
    log.create("pods", "first-0", 1, 3)
    log.delete("pods", "first-2", 20)
    log.delete("attempts", "owner-2", 21)
    log.create("attempts", "owner-3", 3, 30)
    assert len(check(log.lines).broken) == 2


@pytest.mark.parametrize(("uri", "broken"), [("", 0), ("/pods/first-1?resourceVersion=0", 1)])
def test_a_name_found_free_tells_what_no_request_does_unless_it_was_read_from_a_cache(uri: str, broken: int):
    log = Log()
    log.create("pods", "first-1", 1, 0)
    log.missed("pods", "first-1", 5, uri=uri)
    log.create("pods", "first-2", 2, 10)
    assert len(check(log.lines).broken) == broken


def test_a_name_found_free_before_it_was_taken_tells_nothing():
    log = Log()
    log.missed("pods", "first-1", 0)
    log.create("pods", "first-1", 1, 1)
    log.create("pods", "first-2", 2, 10)
    assert len(check(log.lines).broken) == 1


def test_another_object_of_the_same_name_shows_that_the_first_is_gone():
    log = Log()
    log.create("pods", "first", 1, 0)
    log.create("pods", "first", 1, 5, uid="another", user=CONTROLLER)
    log.delete("pods", "first", 6, uid="another")
    log.create("pods", "first", 2, 10, uid="third")
    assert not check(log.lines).broken


def test_a_component_that_is_made_again_alone_is_a_restart_unit_of_its_own():
    log = Log()
    log.create("attempts", "owner-1", 1, 0)
    log.create("pods", "first", 1, 1)
    log.create("pods", "second", 1, 2)
    log.delete("pods", "first", 5, user="admin")
    log.create("pods", "first", 1, 6, uid="again", launch=1)
    verdict = check(log.lines)
    assert verdict.sentence() == "1 resets of 1 workloads checked, 0 broken; 1 of them of single components"
    log.create("pods", "second-new", 1, 7, launch=1)
    (text,) = check(log.lines).broken
    assert "second of attempt 1" in text


def test_a_removal_under_way_is_decided_by_versions_or_said_to_be_undecided():
    log = Log()
    log.create("pods", "first-1", 1, 0)
    log.let_go("pods", "first-1", 1, 9.95)
    log.create("pods", "first-2", 2, 10)
    verdict = check(log.lines)
    assert not verdict.broken
    assert len(verdict.undecided) == 1
    assert "1 objects went while the next attempt was being asked for" in verdict.sentence()
    log = Log()
    log.create("pods", "first-1", 1, 0)
    answer = {"metadata": {"uid": log.uid("first-1"), "resourceVersion": "300"}}
    log.entry("delete", "pods", "first-1", 9.95, answer=answer)
    log.create("pods", "first-2", 2, 10)
    assert len(check(log.lines).undecided) == 0
    assert len(check(log.lines).broken) == 1


def test_one_late_creation_is_told_and_a_second_breaks_it():
    log = reset()
    log.create("pods", "late-1", 1, 16)
    verdict = check(log.lines)
    assert not verdict.broken
    assert "1 creations arrived late" in verdict.sentence()
    log.create("pods", "later-1", 1, 17)
    assert len(check(log.lines).broken) == 2


def _landed_late(*names: str) -> Log:
    """Return the log of a reset in which these landed when the owner was gone, and the next had not been made."""
    log = Log()
    log.create("attempts", "owner-1", 1, 0)
    log.delete("attempts", "owner-1", 5)
    for name in names:
        log.create("pods", name, 1, 6)
    log.create("attempts", "owner-2", 2, 10)
    return log


def test_one_that_lands_between_the_proof_and_the_next_attempt_is_late_if_the_collector_takes_it():
    log = _landed_late("late-1")
    assert not check(log.lines).broken
    assert "1 creations arrived late" in check(log.lines).sentence()
    assert len(check(_landed_late("late-1", "later-1").lines).broken) == 2
    log.delete("attempts", "owner-2", 20)
    log.create("attempts", "owner-3", 3, 30)
    assert "late-1" in check(log.lines).broken[0]
    log.delete("pods", "late-1", 12)
    assert not check(log.lines).broken


def test_a_pod_that_a_controller_makes_under_an_owner_that_is_gone_breaks_it():
    log = Log()
    log.create("attempts", "owner-1", 1, 0)
    log.delete("attempts", "owner-1", 5)
    log.create("pods", "first-1", 1, 6, user=CONTROLLER)
    log.create("attempts", "owner-2", 2, 10)
    assert len(check(log.lines).broken) == 1


def test_refused_and_rehearsed_creations_and_other_subresources_are_none():
    log = Log()
    log.create("attempts", "owner-1", 1, 0)
    log.create("pods", "first-2", 2, 1, code=403)
    log.create("pods", "first-2", 2, 2, uri="/api/v1/namespaces/ns/pods?dryRun=All")
    log.create("pods", "first-2", 2, 3, subresource="binding")
    log.delete("attempts", "owner-1", 5)
    log.create("attempts", "owner-2", 2, 10)
    assert check(log.lines).sentence() == "1 resets of 1 workloads checked, 0 broken"


def test_an_attempt_whose_predecessor_is_not_in_the_log_is_told_apart():
    log = Log()
    log.create("attempts", "owner-3", 3, 0)
    verdict = check(log.lines)
    assert not verdict.resets
    assert "1 attempts whose predecessor is not in the log" in verdict.sentence()


@pytest.mark.parametrize("prefix", SET_ASIDE)
def test_what_is_set_aside_is_counted_and_is_no_reset_that_was_checked(prefix: str):
    log = Log(namespace=f"{prefix}1")
    log.create("attempts", "owner-1", 1, 0)
    log.create("attempts", "owner-2", 2, 10)
    assert check(log.lines).sentence() == "0 resets of 0 workloads checked, 0 broken; 1 set aside"


def test_a_line_that_is_being_written_is_left_for_later():
    assert not check([*reset().lines, b'{"verb":"create","obj']).broken


@pytest.mark.parametrize(
    ("good", "bad", "arguments", "code"),
    [(1, 0, [], 0), (1, 1, [], 1), (0, 0, [], 1), (0, 0, ["--some"], 0), (0, 1, ["--some"], 1)],
)
def test_the_command_reads_what_was_put_aside_and_fails_if_broken_or_empty(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], good: int, bad: int, arguments: list[str], code: int
):
    aside, log = tmp_path / "audit-2030-01-01T00-00-00.000.log", tmp_path / "audit.log"
    whole = reset().lines if good else []
    aside.write_bytes(b"".join(whole[:4]))  # A reset that begins in one file and ends in the next.
    broken = Log(workload="bad")
    if bad:
        broken.create("pods", "x-1", 1, 0)
        broken.create("pods", "x-2", 2, 1)
    log.write_bytes(b"".join([*whole[4:], *broken.lines]))
    assert main([str(log), *arguments]) == code
    out = capsys.readouterr().out
    assert f"{good + bad} resets of {good + bad} workloads checked, {bad} broken" in out
    assert ("broken: pods ns/x-1" in out) == bool(bad)
    assert ("no reset at all" in out) == (good + bad == 0 and not arguments)


def test_what_the_api_server_really_writes_is_understood():
    """A reset in a crash run, as the API server logged it, cut down to what is read."""
    lines = (Path(__file__).parents[1] / "audit" / "reset.jsonl").read_bytes().splitlines(keepends=True)
    assert check(lines).sentence() == "1 resets of 1 workloads checked, 0 broken"
    # Where no read tells that a name is free, each removal is the only one that tells that its object is gone.
    told = [line for line in lines if json.loads(line)["responseStatus"]["code"] != 404]
    needed = [line for line in told if check([each for each in told if each != line]).broken]
    gone = [json.loads(line)["objectRef"]["resource"] for line in needed]
    assert sorted(gone) == ["attempts", "configmaps", "pods", "pods"]
