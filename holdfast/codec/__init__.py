"""Encrypts the payloads that Temporal stores (row X6): the key file, the codec, and a client's options made of them."""
