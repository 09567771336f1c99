"""The codec: what it encrypts comes back, and nothing that was changed does; keys are read again (row X6)."""

from __future__ import annotations

import base64
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import Failure
from temporalio.client import Client
from temporalio.common import HeaderCodecBehavior
from temporalio.converter import DataConverter
from temporalio.exceptions import ApplicationError
from temporalio.service import ConnectConfig, ServiceClient

from holdfast.client.submission import check_secrets
from holdfast.codec.codec import ENCODING, METADATA_KEY_ID, REPORTED_SECONDS, Codec
from holdfast.codec.keys import Keys
from holdfast.codec.options import encrypts, from_environment, options
from holdfast.errors import HoldfastError, InvalidWorkload, Undecodable
from holdfast.model import Component
from holdfast.plugin import HoldfastPlugin, with_codec
from holdfast.worker.runtime.settings import SettingsError, load

pytestmark = pytest.mark.row("X6", level="pure")

WORD = b"planted-word"


class Clock:
    """A clock that only the test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def write(file: Path, use: str, *names: str) -> Path:
    """Write a key file; the key of an id is always the same."""
    keys = {name: base64.b64encode(name.encode().ljust(32, b"\0")).decode() for name in names or (use,)}
    file.write_text(json.dumps({"use": use, "keys": keys}))
    file.chmod(0o600)
    return file


def spoil(file: Path, content: str | None) -> None:
    if content is None:
        file.unlink()
    else:
        file.write_text(content)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write(tmp_path / "keys.json", "old")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def codec(file: Path, clock: Clock) -> Codec:
    return Codec(Keys(file, clock), clock=clock)


PAYLOAD = Payload(metadata={"encoding": b"json/plain", "more": b"x"}, data=WORD)
payloads = st.builds(
    Payload,
    metadata=st.dictionaries(st.text(max_size=8), st.binary(max_size=16), max_size=3),
    data=st.binary(max_size=200),
)


@given(given=st.lists(payloads, max_size=4))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_X6_what_is_encrypted_comes_back_whole_and_in_order(codec: Codec, given: list[Payload]) -> None:
    sealed = await codec.encode(given)
    assert await codec.decode(sealed) == given
    for one in sealed:
        assert dict(one.metadata) == {"encoding": ENCODING, METADATA_KEY_ID: b"old"}


async def test_X6_nothing_of_a_payload_is_readable_and_no_two_are_alike(codec: Codec) -> None:
    sealed = await codec.encode([PAYLOAD] * 100)
    assert WORD not in b"".join(one.SerializeToString() for one in sealed)
    assert b"json/plain" not in sealed[0].SerializeToString()
    assert len({one.data[:12] for one in sealed}) == 100, "a nonce is used once"
    assert PAYLOAD.data == WORD, "what is given is not changed"


async def test_X6_every_changed_bit_is_noticed(codec: Codec) -> None:
    (sealed,) = await codec.encode([PAYLOAD])
    for at in range(len(sealed.data)):
        for bit in range(8):
            data = bytearray(sealed.data)
            data[at] ^= 1 << bit
            with pytest.raises(Undecodable, match="it was changed, or another key has that id"):
                await codec.decode([Payload(metadata=sealed.metadata, data=bytes(data))])


async def test_X6_every_truncation_and_extension_is_noticed(codec: Codec) -> None:
    (sealed,) = await codec.encode([PAYLOAD])
    for data in (*(sealed.data[:length] for length in range(len(sealed.data))), sealed.data + b"\0"):
        with pytest.raises(Undecodable, match="cannot be decrypted"):
            await codec.decode([Payload(metadata=sealed.metadata, data=data)])


async def test_X6_the_id_and_the_encoding_are_authenticated(tmp_path: Path) -> None:
    key = base64.b64encode(b"s" * 32).decode()
    file = tmp_path / "same"
    file.write_text(json.dumps({"use": "key", "keys": {"key": key, "kex": key, "ke": key, "keyy": key, "Key": key}}))
    file.chmod(0o600)
    codec = Codec(Keys(file))
    (sealed,) = await codec.encode([PAYLOAD])
    for other in ("kex", "ke", "keyy", "Key"):  # The same key, under another id.
        with pytest.raises(Undecodable, match="cannot be decrypted"):
            await codec.decode(
                [Payload(metadata={**sealed.metadata, METADATA_KEY_ID: other.encode()}, data=sealed.data)]
            )
    for at in range(len(ENCODING)):
        other = bytearray(ENCODING)
        other[at] ^= 1
        with pytest.raises(Undecodable, match="is not encrypted"):
            await codec.decode([Payload(metadata={**sealed.metadata, "encoding": bytes(other)}, data=sealed.data)])


@pytest.mark.parametrize("name", [b"", b"\xff", b"a\0b", b"a" * 64, b"\x1b[31m"])
async def test_X6_an_id_that_is_none_is_not_repeated(codec: Codec, name: bytes) -> None:
    with pytest.raises(Undecodable, match=r"its encryption-key-id is no id of a key$"):
        await codec.decode([Payload(metadata={"encoding": ENCODING, METADATA_KEY_ID: name}, data=b"x" * 40)])


async def test_X6_another_key_of_the_same_id_opens_nothing(codec: Codec, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text(json.dumps({"use": "old", "keys": {"old": base64.b64encode(b"o" * 32).decode()}}))
    other.chmod(0o600)
    with pytest.raises(Undecodable, match="'old' cannot be decrypted"):
        await codec.decode(await Codec(Keys(other)).encode([PAYLOAD]))


async def test_X6_plaintext_is_refused_with_the_name_of_the_setting_that_accepts_it(file: Path) -> None:
    with pytest.raises(Undecodable, match="HOLDFAST_CODEC_ACCEPT_PLAINTEXT=1 accepts it"):
        await Codec(Keys(file)).decode([PAYLOAD])
    accepting = Codec(Keys(file), accept_plaintext=True)
    assert await accepting.decode([PAYLOAD, *await accepting.encode([PAYLOAD])]) == [PAYLOAD, PAYLOAD]


async def test_X6_without_keys_payloads_pass_and_encrypted_ones_are_refused(codec: Codec) -> None:
    bare = Codec(None)
    assert await bare.decode(await bare.encode([PAYLOAD])) == [PAYLOAD]
    with pytest.raises(Undecodable, match="encrypted with key 'old', and there is no key file: HOLDFAST_CODEC_KEYS"):
        await bare.decode(await codec.encode([PAYLOAD]))


# Keys that change.


async def test_X6_a_rotated_key_encrypts_within_seconds_and_the_old_one_still_decrypts(
    codec: Codec, file: Path, clock: Clock
) -> None:
    (before,) = await codec.encode([PAYLOAD])
    write(file, "new", "old", "new")
    assert (await codec.encode([PAYLOAD]))[0].metadata[METADATA_KEY_ID] == b"old"
    clock.now += 5
    (after,) = await codec.encode([PAYLOAD])
    assert after.metadata[METADATA_KEY_ID] == b"new"
    assert await codec.decode([before, after]) == [PAYLOAD, PAYLOAD]


async def test_X6_a_missing_key_is_named_and_looked_for_each_second(
    codec: Codec, file: Path, clock: Clock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sealed = await Codec(Keys(write(tmp_path / "other", "new"))).encode([PAYLOAD])
    for _ in range(3):
        with pytest.raises(Undecodable, match=f"encrypted with key 'new', which {file} lacks: add it there"):
            await codec.decode(sealed)
    assert [one for one in caplog.records if one.levelno == logging.ERROR].__len__() == 1, "it is logged once"
    assert "key 'new'" in caplog.text
    (said,) = codec.problems()
    assert "key 'new'" in said
    write(file, "old", "old", "new")
    clock.now += 1
    assert await codec.decode(sealed) == [PAYLOAD]
    assert codec.problems() == []


async def test_X6_a_refusal_is_reported_for_a_while_only_and_their_number_is_bounded(
    codec: Codec, clock: Clock
) -> None:
    for number in range(50):
        name = f"k{number}".encode()
        with pytest.raises(Undecodable):
            await codec.decode([Payload(metadata={"encoding": ENCODING, METADATA_KEY_ID: name}, data=b"x" * 40)])
        clock.now += 1
    assert len(codec.problems()) == 16
    assert "'k49'" in codec.problems()[-1]
    clock.now += REPORTED_SECONDS
    assert codec.problems() == []


@pytest.mark.parametrize("content", ["", "{", '{"use": "new", "keys": {}}', None])
async def test_X6_a_file_that_cannot_be_used_any_more_changes_nothing_and_is_said(
    codec: Codec, file: Path, clock: Clock, content: str | None
) -> None:
    (before,) = await codec.encode([PAYLOAD])
    spoil(file, content)
    clock.now += 5
    (after,) = await codec.encode([PAYLOAD])
    assert await codec.decode([before, after]) == [PAYLOAD, PAYLOAD]
    (said,) = codec.problems()
    assert said.startswith(f"key file {file}: ")
    assert said.endswith("the keys read before are in use")
    write(file, "new", "old", "new")
    clock.now += 5
    assert (await codec.encode([PAYLOAD]))[0].metadata[METADATA_KEY_ID] == b"new"
    assert codec.problems() == []


async def test_X6_a_key_that_is_taken_out_decrypts_no_more(codec: Codec, file: Path, clock: Clock) -> None:
    sealed = await codec.encode([PAYLOAD])
    write(file, "new")
    clock.now += 5
    with pytest.raises(Undecodable, match="key 'old'"):
        await codec.decode(sealed)


# Who uses it.


def test_X6_a_worker_refuses_a_key_file_before_it_starts(file: Path) -> None:
    assert load({"roles": "workflows", "codec_keys": file}).codec_keys == file
    for flags, words in (
        ({"codec_keys": file.parent / "none"}, r"codec_keys \(--codec-keys\): key file .*: No such file"),
        ({"codec_accept_plaintext": True}, "codec_accept_plaintext: expected with codec_keys"),
    ):
        with pytest.raises(SettingsError, match=words):
            load({"roles": "workflows", **flags})
    file.chmod(0o644)
    with pytest.raises(SettingsError, match="mode 0644 lets every user at it"):
        load({"roles": "workflows", "codec_keys": file})


def test_X6_the_plugin_brings_the_codec_and_keeps_a_clients_own(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, bare = options(file)["data_converter"], options(None)["data_converter"]
    assert with_codec(bare, ours).payload_codec is ours.payload_codec, "one without keys gives way"
    assert with_codec(bare, ours).failure_converter_class is ours.failure_converter_class
    assert with_codec(DataConverter.default, ours).failure_converter_class is ours.failure_converter_class
    own = DataConverter(payload_codec=Codec(Keys(file)))
    assert with_codec(own, ours) is own
    with pytest.raises(HoldfastError, match="codec_keys: expected without a payload codec"):
        with_codec(own, ours, must=True)
    for plugin in (HoldfastPlugin(codec_keys=file), _with_environment(monkeypatch, file)):
        client = Client(Nowhere(ConnectConfig("nowhere:1")), plugins=[plugin])
        config = client.config(active_config=True)
        assert encrypts(config["data_converter"])
        assert config["header_codec_behavior"] is HeaderCodecBehavior.CODEC
    monkeypatch.delenv("HOLDFAST_CODEC_KEYS")
    config = Client(Nowhere(ConnectConfig("nowhere:1")), plugins=[HoldfastPlugin()]).config(active_config=True)
    assert not encrypts(config["data_converter"])
    assert config["header_codec_behavior"] is HeaderCodecBehavior.NO_CODEC


def _with_environment(monkeypatch: pytest.MonkeyPatch, file: Path) -> HoldfastPlugin:
    monkeypatch.setenv("HOLDFAST_CODEC_KEYS", str(file))
    return HoldfastPlugin()


class Nowhere(ServiceClient):
    """A connection that is never used."""

    @property
    def worker_service_client(self) -> Any:
        raise AssertionError("it is never used")

    def update_rpc_metadata(self, metadata: Any) -> None:
        raise AssertionError("it is never used")

    def update_api_key(self, api_key: str | None) -> None:
        raise AssertionError("it is never used")

    async def _rpc_call(self, rpc: str, req: Any, resp_type: Any, **_: Any) -> Any:
        raise AssertionError("it is never used")


def test_X6_a_secret_is_sent_by_a_client_that_encrypts_alone(file: Path) -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"a": "planted"}}
    components = (Component(name="s", template=secret),)
    plain = Client(Nowhere(ConnectConfig("nowhere:1")))
    with pytest.raises(
        InvalidWorkload, match=r"components\[0\]\.template: is a Secret.*HOLDFAST_CODEC_KEYS"
    ) as refused:
        check_secrets(plain, components, "a change")
    assert "HOLDFAST_CODEC_KEYS" in str(refused.value)
    assert "planted" not in str(refused.value)
    check_secrets(
        Client(Nowhere(ConnectConfig("nowhere:1")), data_converter=options(file)["data_converter"]), components, "it"
    )


# What clients are connected with.


def failure_of(error: BaseException, converter: DataConverter) -> Failure:
    found = Failure()
    converter.failure_converter.to_failure(error, converter.payload_converter, found)
    return found


def raised(error: BaseException, cause: BaseException | None = None) -> BaseException:
    try:
        raise error from cause
    except BaseException as caught:
        return caught


async def test_X6_messages_and_stacks_of_failures_are_encrypted(file: Path) -> None:
    converter = options(file)["data_converter"]
    error = raised(ApplicationError("planted-word", {"detail": "planted-word"}), raised(ValueError("planted-word")))
    found = Failure()
    await converter.encode_failure(error, found)
    assert "planted-word" not in str(found)
    assert "raise error from cause" not in str(found)
    back = await converter.decode_failure(found)
    assert isinstance(back, ApplicationError)
    assert (back.message, back.details) == ("planted-word", ({"detail": "planted-word"},))
    assert isinstance(back.cause, ApplicationError)
    assert back.cause.message == "planted-word"


@pytest.mark.parametrize("with_keys", [True, False])
def test_X6_what_lacks_a_key_stays_readable_and_is_tried_again(file: Path, with_keys: bool) -> None:
    converter = options(file if with_keys else None)["data_converter"]
    missing = raised(Undecodable("key 'k' is missing"))
    assert failure_of(missing, converter).message == "key 'k' is missing"
    heartbeat = raised(ApplicationError("Failed decoding heartbeat details", non_retryable=True), missing)
    found = failure_of(heartbeat, converter)
    assert not found.application_failure_info.non_retryable, "the SDK gives up; the key may come back"
    assert found.cause.message == "key 'k' is missing"
    assert found.cause.application_failure_info.type == "Undecodable"
    other = failure_of(raised(ApplicationError("no", non_retryable=True)), converter)
    assert other.application_failure_info.non_retryable


def test_X6_the_environment_says_what_is_encrypted(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not encrypts(from_environment()["data_converter"])
    assert not encrypts(DataConverter.default)
    monkeypatch.setenv("HOLDFAST_CODEC_KEYS", str(file))
    assert encrypts(from_environment()["data_converter"])
    monkeypatch.setenv("HOLDFAST_CODEC_ACCEPT_PLAINTEXT", "perhaps")
    with pytest.raises(HoldfastError, match="HOLDFAST_CODEC_ACCEPT_PLAINTEXT: 'perhaps': expected 1 or 0"):
        from_environment()
    monkeypatch.setenv("HOLDFAST_CODEC_KEYS", str(file.parent / "none"))
    monkeypatch.setenv("HOLDFAST_CODEC_ACCEPT_PLAINTEXT", "1")
    with pytest.raises(HoldfastError, match="No such file"):
        from_environment()
