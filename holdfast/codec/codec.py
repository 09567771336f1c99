"""The payload codec: AES-256-GCM with a random nonce; the key's id stands beside the ciphertext (row X6)."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from google.protobuf.message import DecodeError
from temporalio.api.common.v1 import Payload
from temporalio.converter import PayloadCodec

from holdfast import names
from holdfast.codec.keyfile import is_id
from holdfast.codec.keys import Keys
from holdfast.errors import Undecodable

ENCODING: Final = b"binary/encrypted"
"""The payload's `encoding`, as in Temporal's own examples."""
METADATA_KEY_ID: Final = "encryption-key-id"
REPORTED_SECONDS: Final = 900.0
"""How long a refusal is reported: Temporal tries a workflow task again within 10 min."""
_REPORTED_MAXIMUM: Final = 16
_NONCE_BYTES: Final = 12
_DOMAIN: Final = b"holdfast payload 1"
"""Keeps a ciphertext of another program with the same key from being taken for a payload."""


_ENCRYPTED: Final = "a payload is encrypted"
_PLAIN: Final = "a payload is not encrypted"

Log: Final = logging.getLogger("holdfast.codec")


class Codec(PayloadCodec):
    """Encrypts what is sent to Temporal, and decrypts what comes back.

    Without keys it sends payloads as they are, and refuses encrypted ones. The SDK would drop a signal that it cannot
    convert; what a codec refuses is tried again.
    """

    def __init__(
        self, keys: Keys | None, *, accept_plaintext: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Prepare.

        Args:
            keys: the keys; None: nothing is encrypted.
            accept_plaintext: with keys, whether payloads that are not encrypted are taken too.
            clock: a monotonic clock, in seconds.
        """
        self._clock = clock
        self._refused: dict[str, tuple[float, str]] = {}
        """When each refusal was last made, and the key that was missing (empty: another reason)."""
        self.keys = keys
        self._accept_plaintext = accept_plaintext or keys is None

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Encrypt each payload whole, with its metadata."""
        if self.keys is None:
            return list(payloads)
        name, key = self.keys.current()
        return [_sealed(each, name, key) for each in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Decrypt each payload.

        Raises:
            Undecodable: if its key is missing, if it was changed, or if it is not encrypted and plaintext is refused.
        """
        return [self._opened(each) for each in payloads]

    def problems(self) -> list[str]:
        """Return what a person should know: a key file that cannot be used any more, and what was refused lately."""
        since, keys = self._clock() - REPORTED_SECONDS, self.keys
        lines = [f"{keys.problem}; the keys read before are in use"] if keys is not None and keys.problem else []
        self._refused = {
            message: (at, name)
            for message, (at, name) in self._refused.items()
            if at > since and not (name and keys is not None and keys.find(name))
        }
        return lines + list(self._refused)

    def _refusal(self, message: str, missing: str = "") -> Undecodable:
        if message not in self._refused:
            Log.error("%s; whatever it belongs to is held", message)
            while len(self._refused) >= _REPORTED_MAXIMUM:
                del self._refused[min(self._refused, key=lambda one: self._refused[one][0])]
        self._refused[message] = (self._clock(), missing)
        return Undecodable(message)

    def _opened(self, payload: Payload) -> Payload:
        encoding = payload.metadata.get("encoding", b"")
        if encoding != ENCODING:
            if self._accept_plaintext:
                return payload
            raise self._refusal(
                f"{_PLAIN}, and plaintext is refused here: {names.ENV_CODEC_ACCEPT_PLAINTEXT}=1 accepts it"
            )
        name = payload.metadata.get(METADATA_KEY_ID, b"").decode("ascii", "replace")
        if not is_id(name):
            raise self._refusal(f"{_ENCRYPTED}, and its {METADATA_KEY_ID} is no id of a key")
        if self.keys is None:
            raise self._refusal(
                f"{_ENCRYPTED} with key {name!r}, and there is no key file: {names.ENV_CODEC_KEYS} names one"
            )
        key = self.keys.find(name)
        if key is None:
            raise self._refusal(
                f"{_ENCRYPTED} with key {name!r}, which {self.keys.path} lacks: add it there; the file is "
                "read again by itself",
                missing=name,
            )
        nonce, sealed = payload.data[:_NONCE_BYTES], payload.data[_NONCE_BYTES:]
        try:
            return Payload.FromString(AESGCM(key).decrypt(nonce, sealed, _bound(name)))
        except (InvalidTag, ValueError, DecodeError):
            raise self._refusal(
                f"a payload of key {name!r} cannot be decrypted: it was changed, or another key has that id"
            ) from None


def is_undecodable(message: str) -> bool:
    """Whether an error's message is a codec's, which a worker passed on."""
    return message.startswith((_ENCRYPTED, _PLAIN))


def _sealed(payload: Payload, name: str, key: bytes) -> Payload:
    nonce = os.urandom(_NONCE_BYTES)
    data = nonce + AESGCM(key).encrypt(nonce, payload.SerializeToString(), _bound(name))
    return Payload(metadata={"encoding": ENCODING, METADATA_KEY_ID: name.encode()}, data=data)


def _bound(name: str) -> bytes:
    """Return what is authenticated beside the ciphertext; no part of it contains a NUL."""
    return b"\0".join((_DOMAIN, ENCODING, name.encode()))
