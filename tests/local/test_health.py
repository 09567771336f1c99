"""Whether a part is well: what is still being started is not yet, and is no error."""

from pathlib import Path

import pytest

from holdfast.local.system.health import healthy
from holdfast.local.system.parts import Part


@pytest.mark.parametrize("written", [None, "", "-----BEGIN CERTIFICATE-----\nMIID"])
def test_an_api_server_whose_authority_is_not_there_or_half_written_is_not_well_yet(
    written: str | None, tmp_path: Path
) -> None:
    authority = tmp_path / "apiserver.crt"
    if written is not None:
        authority.write_text(written)
    address = "https://127.0.0.1:1"
    part = Part("kube-apiserver", (), address, f"{address}/readyz", ("kube-apiserver",))
    assert not healthy(part, "token", authority)
