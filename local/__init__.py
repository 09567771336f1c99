"""The local stack: a real Temporal and a real Kubernetes on this machine, for first tries, tests, benches and the demo.

The product does not depend on this package. The package uses only names and manifests of the product.
"""

from holdfast.local.identity import worker_kubeconfig
from holdfast.local.stack import SEVERAL_ADDRESSES, Stack, given_by_environment
from holdfast.local.system.errors import BinaryError, NotRunningError, PartError, StackError
from holdfast.local.system.runner import PartStatus

__all__ = [
    "SEVERAL_ADDRESSES",
    "BinaryError",
    "NotRunningError",
    "PartError",
    "PartStatus",
    "Stack",
    "StackError",
    "given_by_environment",
    "worker_kubeconfig",
]
