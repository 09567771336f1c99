"""The agent: the small process in each pod of an elastic gang, which joins its rendezvous and runs a round's workers.

It runs inside users' training images, so this package imports only the standard library and `holdfast.names`. It is one
process with one thread. It forks no workers (the keeper does), and keeps no state beyond the container's life. Decision
record 0030 defines its messages; record 0031 defines how it handles its processes.
"""

from typing import Final

EXIT_REFUSED: Final = 2
"""The exit code of an agent whose settings are invalid, or that a rendezvous refuses."""
