"""Which closed reason stands for a failure, whose own word may be anything Kubernetes or its users say."""

from __future__ import annotations

import pytest

from holdfast.model import Failure, FailureClass, Reason, Scope
from holdfast.policy.verdicts.decide import failure_reason
from tests.policy.lives.life import START


@pytest.mark.parametrize(
    ("cls", "scope", "word", "reason"),
    [
        (FailureClass.LAUNCH, Scope.COMPONENT, "AlreadyExists", Reason.CREATE_FAILED),
        (FailureClass.LAUNCH, Scope.WORKLOAD, "Invalid", Reason.CREATE_FAILED),
        (FailureClass.LAUNCH, Scope.MEMBER, "UnexpectedAdmissionError", Reason.FOUND_FAILED_PODS),
        (FailureClass.APP, Scope.COMPONENT, "BackoffLimitExceeded", Reason.FAILED_COMPONENT),
        (FailureClass.APP, Scope.MEMBER, "OOMKilled", Reason.FOUND_FAILED_PODS),
        (FailureClass.MISSING, Scope.COMPONENT, "MissingComponent", Reason.MISSING_COMPONENT),
    ],
)
def test_a_failure_of_any_word_has_a_reason(cls: FailureClass, scope: Scope, word: str, reason: Reason):
    failure = Failure(cls=cls, scope=scope, reason=word, time=START)
    assert failure_reason(failure) is reason
