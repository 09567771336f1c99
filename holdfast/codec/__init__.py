"""Encrypts the payloads that Temporal stores (row X6): the key file, the codec, and a client's options made of them."""

from __future__ import annotations

from holdfast.codec.codec import Codec
from holdfast.codec.keys import Keys
from holdfast.codec.options import Options, encrypts, from_environment, options

__all__ = ["Codec", "Keys", "Options", "encrypts", "from_environment", "options"]
