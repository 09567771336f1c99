"""The Temporal server and the client of tests/client, for commands that need one."""

from tests.client.conftest import address, client

__all__ = ["address", "client"]
