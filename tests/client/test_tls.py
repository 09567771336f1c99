"""Whether a connection to Temporal uses TLS is decided in one place, and an API key never goes without it (row X7)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from temporalio.envconfig import ClientConfigProfile, ClientConfigTLS
from temporalio.service import TLSConfig

from holdfast.client.connection import credentials_of
from holdfast.errors import HoldfastError
from holdfast.tls import Credentials, check_target, is_secured, key_of, problem_of, tls_of

pytestmark = pytest.mark.row("X7", level="pure")
PAIR: dict[str, Any] = {"certificate": b"c", "key": b"k"}
KEY: dict[str, Any] = {"api_key": "swordfish"}


@pytest.mark.parametrize(
    ("given", "secured"),
    [
        (Credentials(), False),
        (Credentials(tls=False), False),
        (Credentials(tls=True), True),
        (Credentials(ca=b"ca"), True),
        (Credentials(**PAIR), True),
        (Credentials(server_name="temporal.example.com"), True),
        (Credentials(**KEY), True),
        (Credentials(tls=True, **KEY), True),
        (Credentials(tls=True, ca=b"ca", **PAIR, **KEY), True),
    ],
)
def test_X7_tls_is_on_where_it_is_asked_for_or_needed(given: Credentials, secured: bool) -> None:
    assert is_secured(given) is secured
    assert isinstance(tls_of(given), TLSConfig) is secured
    assert secured or tls_of(given) is False


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (Credentials(tls=False, **KEY), "an API key: it is never sent without TLS"),
        (Credentials(tls=False, ca=b"ca", **KEY), "an API key: it is never sent without TLS"),
        (Credentials(tls=False, ca=b"ca"), "a server CA"),
        (Credentials(tls=False, **PAIR), "a client certificate"),
        (Credentials(tls=False, server_name="t"), "a server name"),
        (Credentials(certificate=b"c"), "expected both"),
        (Credentials(tls=True, key=b"k"), "expected both"),
        (Credentials(tls=True, ca=b"\n"), "server CA is empty"),
        (Credentials(certificate=b"", key=b"k"), "client certificate is empty"),
        (Credentials(api_key=""), "API key is empty"),
    ],
)
def test_X7_what_contradicts_itself_is_refused(given: Credentials, said: str) -> None:
    with pytest.raises(HoldfastError, match=said):
        tls_of(given)


def test_X7_what_is_given_reaches_the_sdk_and_no_secret_is_shown() -> None:
    given = Credentials(server_name="t", ca=b"ca", certificate=b"c", key=b"private", api_key="swordfish")
    pair: dict[str, Any] = {"client_cert": b"c", "client_private_key": b"private"}
    assert tls_of(given) == TLSConfig(server_root_ca_cert=b"ca", domain="t", **pair)
    assert "swordfish" not in repr(given)
    assert "private" not in repr(given)


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ('call error after connection: Status { error: "received fatal alert: CertificateRequired" }', "wants a"),
        ('call error after connection: Status { error: "received fatal alert: CertificateExpired" }', "has expired"),
        ('call error after connection: Status { error: "received fatal alert: UnknownCA" }', "who signed the client"),
        ("ConnectError(Custom { error: InvalidCertificate(UnknownIssuer) })", "not signed by an authority"),
        ("ConnectError(Custom { error: InvalidCertificate(Expired) })", "server's certificate has expired"),
        ('call error after connection: Status { message: "operation was canceled" }', "another client certificate"),
        ("call error after connection: Status { code: Unauthenticated }", "denies access"),
        ("Server connection error: ConnectError(ConnectionRefused)", ""),
    ],
)
def test_X7_a_failed_connection_says_which_certificate(message: str, said: str) -> None:
    assert said in problem_of(message)
    assert bool(said) == bool(problem_of(message))


@pytest.mark.parametrize("address", ["http://127.0.0.1:7233", "https://temporal:7233"])
def test_X7_an_address_says_nothing_of_tls(address: str) -> None:
    with pytest.raises(HoldfastError, match="host:port"):
        check_target(address)
    check_target("127.0.0.1:7233,[::1]:7233")


def test_X7_a_profile_is_read_as_temporals_own_tools_read_it(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text("ca")
    assert credentials_of(ClientConfigProfile()) == Credentials()
    assert credentials_of(ClientConfigProfile(api_key="k")) == Credentials(api_key="k")
    tls = ClientConfigTLS(server_root_ca_cert=file, client_cert="c", client_private_key=b"k", server_name="t")
    found = credentials_of(ClientConfigProfile(tls=tls))
    assert found == Credentials(tls=True, server_name="t", ca=b"ca", certificate=b"c", key=b"k")
    assert credentials_of(ClientConfigProfile(tls=ClientConfigTLS(disabled=True))) == Credentials(tls=False)


def test_X7_an_authorization_header_is_an_api_key_too() -> None:
    profile = ClientConfigProfile(grpc_meta={"Authorization": "Bearer k"}, tls=ClientConfigTLS(disabled=True))
    with pytest.raises(HoldfastError, match="never sent without TLS"):
        tls_of(credentials_of(profile))


def test_X7_an_api_key_comes_from_a_file_of_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "key"
    file.write_text("swordfish\n")
    assert key_of(file) == "swordfish"
    monkeypatch.setenv("HOLDFAST_TEMPORAL_API_KEY_FILE", str(file))
    assert credentials_of(ClientConfigProfile(api_key="k")).api_key == "swordfish"
    for wrong in ("two\nlines", "kéy"):
        file.write_text(wrong)
        with pytest.raises(HoldfastError, match="one line"):
            key_of(file)
