"""One file per published system: its defaults and rules, as data. A new profile is one file and one entry here."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from holdfast.model import Policy
from holdfast.profiles import appwrapper, jobset, lattice, manifests, streams, torchelastic

PROFILES: Final[Mapping[str, Policy]] = MappingProxyType(
    {
        policy.profile: policy
        for policy in (
            appwrapper.POLICY,
            jobset.POLICY,
            manifests.POLICY,
            streams.POLICY,
            torchelastic.POLICY,
            *lattice.POLICIES,
        )
    }
)
"""Each profile's policy, by its name."""

__all__ = ["PROFILES"]
