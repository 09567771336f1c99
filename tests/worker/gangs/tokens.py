"""Tokens as an API server signs them, and the keys that it publishes for them."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from holdfast import names

ISSUER = "https://kubernetes.default.svc"


def claims(pod: str, pod_uid: str, namespace: str, **more: Any) -> dict[str, Any]:
    """What the token of a pod says."""
    now = int(time.time())
    return {
        "aud": [names.RENDEZVOUS_AUDIENCE],
        "exp": now + 600,
        "iat": now,
        "nbf": now,
        "iss": ISSUER,
        "jti": f"{pod}-{now}",
        "sub": f"system:serviceaccount:{namespace}:default",
        "kubernetes.io": {"namespace": namespace, "pod": {"name": pod, "uid": pod_uid}},
        **more,
    }


@dataclass
class Signer:
    """A key that tokens are signed with."""

    kid: str = "k1"
    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))

    def token(self, pod: str, pod_uid: str = "", namespace: str = "team-a", bound: Any = None, **more: Any) -> str:
        """Sign the token of a pod; `bound` stands in the place of what it is bound to."""
        said = claims(pod, pod_uid or f"pod-{pod}", namespace, **more)
        if bound is not None:
            said["kubernetes.io"] = bound
        return jwt.encode(said, self.key, algorithm="ES256", headers={"kid": self.kid})

    @property
    def published(self) -> dict[str, Any]:
        """The key as an API server publishes it."""
        found: dict[str, Any] = json.loads(ECAlgorithm.to_jwk(self.key.public_key()))
        return {**found, "kid": self.kid, "alg": "ES256", "use": "sig"}
