"""The local Temporal knows the search attributes that workloads write."""

from __future__ import annotations

import pytest
from temporalio.client import Client

from holdfast import names
from holdfast.client.connection import add_search_attributes, missing_search_attributes
from holdfast.local.bringup import define_search_attributes
from holdfast.local.programs.resolve import resolve
from holdfast.local.system.errors import StackError
from holdfast.local.system.parts import SEARCH_ATTRIBUTES
from tests.client.server import temporal_server
from tests.e2e.ground.site import until


def test_the_local_temporal_has_each_search_attribute() -> None:
    assert SEARCH_ATTRIBUTES == names.SEARCH_ATTRIBUTES


@pytest.mark.temporal
async def test_a_namespace_that_an_older_release_began_gets_what_it_lacks() -> None:
    program = resolve(["temporal"], lambda line: None)["temporal"]
    with temporal_server(search_attributes=False) as address:
        older = {name: kind for name, kind in SEARCH_ATTRIBUTES.items() if name != names.SA_SUBMITTED}
        client = await Client.connect(address)
        await add_search_attributes(client, older)
        for _ in range(2):
            define_search_attributes(program, address)

        async def told() -> bool:
            return not await missing_search_attributes(client)

        await until(told, 30, "all search attributes are told")


@pytest.mark.temporal
def test_a_server_that_is_not_there_is_said() -> None:
    program = resolve(["temporal"], lambda line: None)["temporal"]
    with pytest.raises(StackError, match="search attributes could not be defined"):
        define_search_attributes(program, "127.0.0.1:1")
