"""The life of a workload of the submission profile on virtual time: bare pods, and the ConfigMap they read."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from holdfast.model import (
    Component,
    ComponentView,
    Failure,
    FailureClass,
    Interval,
    Observation,
    OperationKind,
    PodCounts,
    Policy,
    Reason,
    Replacement,
    Scope,
    StatusRule,
    Workload,
)
from holdfast.model.calls.cluster import Created, Parked, Replaced, Unparked
from holdfast.policy.values.edit import edit
from holdfast.policy.values.events import Event, Observed, OperationRefused, Reconfigured
from holdfast.profiles.streams import POLICY
from tests.policy.lives.life import Life


def config(text: str = "v1") -> Component:
    template = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "adl"}, "data": {"adl": text}}
    return Component(name="adl", template=template)


def element(index: int, image: str = "pe:1", **fields: Any) -> Component:
    spec = {"restartPolicy": "Never", "containers": [{"name": "main", "image": image}]}
    template = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"pe-{index}"}, "spec": spec}
    return Component(
        name=f"pe-{index}",
        template=template,
        pod_sets=({"path": "template", "replicas": 1},),  # type: ignore[arg-type]
        **fields,
    )


def job(name: str, pods: int = 2, **fields: Any) -> Component:
    template = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {}}
    return Component(
        name=name,
        template=template,
        pod_sets=({"path": "template.spec.template", "replicas": pods},),  # type: ignore[arg-type]
        status=StatusRule(complete=("Complete",), failed=("Failed",)),
        **fields,
    )


def jobs(*components: Component | str, policy: Policy | None = None, **fields: Any) -> Workload:
    """Return a workload of Jobs, each of two pods where only its name is given."""
    made = tuple(job(one) if isinstance(one, str) else one for one in components)
    return Workload(name="train-llm", cluster="dev", components=made, policy=policy or Policy(), **fields)


def streams(elements: int = 3, policy: Policy = POLICY, **changes: Any) -> Workload:
    """Return a ConfigMap and so many elements, of which only the first reads it."""
    pods = tuple(element(index, config=("adl",) if index == 0 else ()) for index in range(elements))
    return Workload(
        name="stream", cluster="dev", components=(config(), *pods), policy=policy.model_copy(update=changes)
    )


def replacing(**rule: Any) -> Replacement:
    return POLICY.replacement.model_copy(update=rule)


@dataclass
class Elements(Life):
    """A life whose cluster has one view for each component."""

    spec: Workload = field(default_factory=streams)
    views: dict[str, ComponentView] = field(default_factory=dict)
    failed_at: dict[str, datetime] = field(default_factory=dict)
    """When components failed, where that is not when it is seen."""

    def look(self, *, live: bool = False, blind: tuple[Interval, ...] = (), **fields: Any) -> Observation:
        attempt = self.state.attempt
        assert attempt is not None
        self.revision += 1
        common: dict[str, Any] = {"time": self.now, "attempt": attempt.number}
        failures: list[Failure] = []
        for name, view in self.views.items():
            common["time"] = self.failed_at.get(name, self.now)
            if not view.found:
                missing = {"cls": FailureClass.MISSING, "scope": Scope.COMPONENT, "reason": Reason.MISSING_COMPONENT}
                failures.append(Failure(component=name, subject=name, **missing, **common))
            elif view.pods.failed:
                failed = {"cls": FailureClass.APP, "scope": Scope.MEMBER, "reason": "Error", "exit_code": 1}
                failures.append(Failure(component=name, subject=name, **failed, **common))
            elif view.failed:
                given_up = {"cls": FailureClass.APP, "scope": Scope.COMPONENT, "reason": "BackoffLimitExceeded"}
                failures.append(Failure(component=name, subject=name, **given_up, **common))
        values: dict[str, Any] = {
            "workload_uid": "uid",
            "attempt": attempt.number,
            "owner_uid": attempt.owner_uid,
            "at": self.now,
            "live": live,
            "revision": self.revision,
            "components": self.views,
            "failures": tuple(failures),
            "failures_total": len(failures),
            "blind": blind,
        }
        return Observation(**{**values, **fields})

    def finish(self) -> Life:
        operation, attempt = self.state.operation, self.state.attempt
        assert operation is not None
        assert attempt is not None
        if operation.kind is OperationKind.CREATE:
            begun = [one for one in self.spec.components if one.name not in attempt.waiting]
            self.views = {component.name: fresh(component) for component in begun}
            self.tell_result(Created())
        elif operation.kind is OperationKind.REPLACE:
            again = {one.name: fresh(one) for one in self.spec.components if one.name in attempt.replacing}
            self.views = {**self.views, **again}
            self.tell_result(Replaced())
        elif operation.kind is OperationKind.PARK:
            self.views = {name: parked(view) for name, view in self.views.items()}
            self.tell_result(Parked(done=True))
        elif operation.kind is OperationKind.UNPARK:
            names = self.state.attempt.resuming if self.state.attempt is not None else ()
            self.views = {name: resumed(view) if name in names else view for name, view in self.views.items()}
            self.tell_result(Unparked(done=True))
        else:
            return super().finish()
        self._note()
        return self

    # --- what happens to it

    def pods(self, *names: str, **counts: int) -> Elements:
        """Give some pods (all, if none is named) these counts, and let the watch say so."""
        chosen = names or tuple(component.name for component in self.spec.components if component.expected_pods)
        done = bool(counts.get("succeeded"))
        expected = {one.name: one.expected_pods for one in self.spec.components}
        counted = {name: PodCounts(expected=expected[name], **counts) for name in chosen}
        self.views = {
            **self.views,
            **{name: ComponentView(pods=pods, complete=done) for name, pods in counted.items()},
        }
        self.tell(Observed(self.look()))
        return self

    def says(self, **verdicts: str) -> Elements:
        """Let components say of themselves that they are complete or have failed, and the watch tell it."""
        told = {
            name: edit(self.views[name], complete=verdict == "Complete", failed=verdict == "Failed")
            for name, verdict in verdicts.items()
        }
        self.views = {**self.views, **told}
        self.tell(Observed(self.look()))
        return self

    def deleted(self, *names: str) -> Elements:
        gone = {name: edit(self.views[name], found=False, pods=PodCounts(expected=1)) for name in names}
        self.views = {**self.views, **gone}
        self.tell(Observed(self.look()))
        return self

    def up(self) -> Elements:
        self.settle()
        for component in self.spec.components:
            if component.expected_pods and component.name in self.views:
                self.pods(component.name, running=component.expected_pods)
        return self

    def configured(self, *components: Component) -> Elements:
        """Change what components are made of, as the workflow's update does."""
        before = self.spec
        known = {one.name: one for one in components}
        together = tuple(known.get(one.name, one) for one in before.components)
        self.spec = before.with_components(together)
        changed = tuple(name for name, hash_ in self.spec.config_hashes.items() if before.config_hashes[name] != hash_)
        self.tell(Reconfigured(changed))
        return self

    def ends(self, event: Event) -> Elements:
        """Let the operation under way, which is held, end in another way than well."""
        self.hold.clear()
        self.tell_result(event)
        self.settle()
        return self

    def refused(self, type_: str, message: str, newest: int = 0) -> Elements:
        return self.ends(OperationRefused(type_, message, newest))

    # --- what is told of it

    def launches(self) -> dict[str, int]:
        return dict(self.state.attempt.launches) if self.state.attempt is not None else {}

    def reasons(self) -> list[str]:
        return [one.reason.value for one in self.state.causes]


def parked(view: ComponentView) -> ComponentView:
    """Return a component whose object is suspended: no pod of it is left that has not ended."""
    return edit(view, pods=edit(view.pods, pending=0, running=0, terminating=0))


def resumed(view: ComponentView) -> ComponentView:
    """Return a component whose controller makes its pods again."""
    lacking = 0 if view.complete or view.failed or not view.found else view.pods.expected - view.pods.succeeded
    return edit(view, pods=edit(view.pods, pending=lacking))


def fresh(component: Component) -> ComponentView:
    pods = PodCounts(expected=component.expected_pods, pending=component.expected_pods)
    return ComponentView(pods=pods, complete=not component.expected_pods)
