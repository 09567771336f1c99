"""When a workload's Services leave the cluster: with the state that is told (row L30)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast.model import AtEnd, Component, Deletion, ObjectRef, OperationKind, Phase, Stage
from holdfast.model.calls.plan import object_name
from holdfast.model.life.report import Entry
from holdfast.policy.status.registry import unlisted
from holdfast.policy.status.report import report_of
from holdfast.policy.values.edit import edit
from holdfast.policy.values.events import Cancelled, Retried, Suspended
from tests.policy.attempt.test_ending import ends, policy
from tests.policy.lives.elements import Elements, job, jobs
from tests.policy.lives.life import Life

pytestmark = pytest.mark.row("L30", level="pure")
HOUR = timedelta(hours=1)


def service(name: str, **spec: Any) -> Component:
    fields = {"selector": {"app": "web"}, **spec}
    return Component(
        name=name, template={"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": fields}
    )


class Served(Elements):
    """A life in which what is created is remembered."""

    def finish(self) -> Life:
        operation = self.state.operation
        super().finish()
        attempt = self.state.attempt
        if operation is not None and operation.kind is OperationKind.CREATE and attempt is not None:
            made = tuple(
                ObjectRef(
                    api_version=one.template["apiVersion"],
                    kind=one.template["kind"],
                    name=object_name(one.template["metadata"], f"uid/{attempt.number}/{one.name}"),
                    uid=f"uid-{one.name}-{attempt.number}",
                )
                for one in self.spec.components
            )
            self.state = edit(self.state, attempt=edit(attempt, objects=made))
        return self


def life(*components: Component) -> Elements:
    made = components or (service("web"),)
    given = policy(ttl=HOUR, deletion=Deletion(at_end=AtEnd.ALL))
    return Served(spec=jobs(*made, job("driver"), job("worker"), policy=given)).up()


def listed(one: Elements) -> set[str]:
    return {entry.name for entry in unlisted(one.spec, one.state)}


def test_L30_what_serves_stays_and_what_has_failed_leaves_though_its_pods_are_kept():
    one = life()
    assert (one.state.phase, listed(one)) == (Phase.RUNNING, set())
    ends(one, "failure")
    assert one.state.phase is Phase.FAILED
    assert one.state.attempt is not None
    assert one.state.attempt.stage is Stage.SUBMITTED, "it is kept for an hour"
    assert report_of(one.spec, one.state).unlist == (Entry(name="web", uid="uid-web-1"),)
    one.tell(Retried("again"))
    assert listed(one) == set(), "the next attempt's is another"


@pytest.mark.parametrize("event", [Suspended("room"), Cancelled("not wanted")])
def test_L30_of_an_attempt_that_is_removed_they_leave_before_anything_else(event: Any):
    one = life()
    one.hold.add(OperationKind.REMOVE)
    one.tell(event)
    assert one.state.attempt is not None
    assert one.state.attempt.stage in {Stage.REMOVING, Stage.FORCING}
    assert listed(one) == {"web"}
    one.hold.clear()
    one.finish().settle()
    assert one.state.attempt.stage is Stage.GONE
    assert listed(one) == set(), "once it is gone there is nothing to leave"


def test_L30_what_only_names_pods_for_each_other_stays_until_they_go():
    one = life(service("peers", clusterIP="None"), service("foreign", selector={}), service("web"))
    ends(one, "failure")
    assert listed(one) == {"web"}


def test_L30_one_that_has_the_name_of_its_own_job_leaves_as_every_other():
    one = life(service("driver").model_copy(update={"name": "clients"}))
    ends(one, "failure")
    assert listed(one) == {"driver"}


def test_L30_one_without_a_name_of_its_own_is_known_by_its_prefix():
    peers = service("peers", clusterIP="None")
    unnamed = peers.model_copy(
        update={"template": {**peers.template, "metadata": {"generateName": "peers-"}}},
    )
    one = life(unnamed, service("web"))
    ends(one, "failure")
    assert listed(one) == {"web"}, "the pods need the names of their peers to the end"


def test_L30_a_status_is_not_told_again_for_that_alone():
    one = life()
    ends(one, "failure")
    told = report_of(one.spec, one.state)
    assert told.unlist
    assert told.says_the_same_as(told.model_copy(update={"unlist": ()}))
