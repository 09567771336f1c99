"""What a cluster needs from us: custom resource definitions and RBAC, as YAML files that are read as package data."""

from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent
"""The folder of the manifests."""
