"""What a Temporal client is connected with, so that what it sends is encrypted: one function for all of them."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Final, TypedDict

from temporalio.common import HeaderCodecBehavior
from temporalio.contrib.pydantic import PydanticPayloadConverter
from temporalio.converter import DataConverter

from holdfast import names
from holdfast.codec.codec import Codec
from holdfast.codec.failures import EncodedFailures, Failures
from holdfast.codec.keys import Keys
from holdfast.errors import HoldfastError

_TRUE: Final = {"1", "true", "yes", "on"}
_FALSE: Final = {"", "0", "false", "no", "off"}


class Options(TypedDict):
    """Arguments of `Client.connect`."""

    data_converter: DataConverter
    header_codec_behavior: HeaderCodecBehavior


def options(keys: Path | None, *, accept_plaintext: bool = False) -> Options:
    """Return the arguments with which a client encrypts and decrypts: payloads, failures, headers, memo, summaries.

    Args:
        keys: the key file; None: nothing is encrypted, and encrypted payloads are refused.
        accept_plaintext: whether payloads that are not encrypted are taken too.

    Raises:
        KeyFileError: if the key file cannot be used.
    """
    codec = Codec(Keys(keys) if keys is not None else None, accept_plaintext=accept_plaintext)
    converter = DataConverter(PydanticPayloadConverter, codec, Failures)
    if keys is None:
        return Options(data_converter=converter, header_codec_behavior=HeaderCodecBehavior.NO_CODEC)
    converter = replace(converter, failure_converter_class=EncodedFailures)
    return Options(data_converter=converter, header_codec_behavior=HeaderCodecBehavior.CODEC)


def from_environment() -> Options:
    """Return the same by HOLDFAST_CODEC_KEYS and HOLDFAST_CODEC_ACCEPT_PLAINTEXT, for commands and clients.

    Raises:
        HoldfastError: if one of them cannot be used.
    """
    path = os.environ.get(names.ENV_CODEC_KEYS)
    said = os.environ.get(names.ENV_CODEC_ACCEPT_PLAINTEXT, "").strip().lower()
    if said not in _TRUE | _FALSE:
        raise HoldfastError(f"{names.ENV_CODEC_ACCEPT_PLAINTEXT}: {said[:80]!r}: expected 1 or 0")
    return options(Path(path) if path else None, accept_plaintext=said in _TRUE)


def encrypts(converter: DataConverter) -> bool:
    """Whether what is converted so is encrypted by Holdfast's codec. Of another codec nothing is known."""
    codec = converter.payload_codec
    return isinstance(codec, Codec) and codec.keys is not None
