"""What a cluster needs from us: custom resource definitions and RBAC, as YAML files that are read as package data."""

from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent
"""The folder of the manifests."""
POLICIES: Final = ("policies.yaml", "askers.yaml")
"""Files of admission policies, in the folder of a kind and in the one that all kinds share."""
_SHARED: Final = "front-door"


def door_files(folder: str) -> list[Path]:
    """Return the files of a kind of custom resource, in the order in which they are applied.

    Without the one that makes its objects Holdfast's: a cluster's administrator applies that.
    """
    own = [FOLDER / folder / name for name in ("crd.yaml", "rbac.yaml", *POLICIES)]
    return [path for path in (*own, *(FOLDER / _SHARED / name for name in POLICIES)) if path.exists()]
