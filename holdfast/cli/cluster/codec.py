"""`holdfast keys` makes and changes key files; `holdfast codec-server` decrypts payloads for Temporal's UI and CLI."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast import names
from holdfast.cli.common.serve import serve
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.codec.keyfile import KeySet

keys = typer.Typer(
    help="Make key files that encrypt what Temporal stores, and rotate their keys.", no_args_is_help=True
)
File = Annotated[Path, typer.Argument(help="The key file.", metavar="FILE")]


@keys.callback()
def _keys() -> None:
    """Make key files that encrypt what Temporal stores, and rotate their keys."""


@keys.command()
def new(
    file: File,
    key_id: Annotated[str, typer.Option("--id", help="Default: today's date and a random part.")] = "",
) -> None:
    """Make a key. A new file uses it at once; in an existing file it only decrypts until `holdfast keys use`."""
    from holdfast.codec.keyfile import add

    made, found = add(file, key_id)
    _say(file, found, f"key {made} is made")


@keys.command()
def use(file: File, key_id: Annotated[str, typer.Argument(help="The id of the key.", metavar="ID")]) -> None:
    """Encrypt with this key from now on. All workers and clients must have it already."""
    from holdfast.codec.keyfile import use as use_key

    _say(file, use_key(file, key_id), f"key {key_id} is in use")


def _say(file: Path, found: KeySet, what: str) -> None:
    typer.echo(f"{file}: {what}; keys: {', '.join(sorted(found.keys))}; {found.use} encrypts")


def codec_server(
    key_file: Annotated[
        Path | None, typer.Option("--keys", help="The key file.", envvar=names.ENV_CODEC_KEYS, show_default=False)
    ] = None,
    address: Annotated[
        str, typer.Option(help="host:port to listen on; beyond loopback only with TLS.")
    ] = "127.0.0.1:8087",
    origin: Annotated[
        list[str] | None,
        typer.Option(help="Origin of a UI that may ask, as https://temporal.example.com; may be repeated."),
    ] = None,
    token_file: Annotated[Path | None, typer.Option(help="File with the bearer token that requests must have.")] = None,
    anyone_may_decrypt: Annotated[
        bool, typer.Option("--anyone-may-decrypt", help="Ask for no token: whoever reaches the address may decrypt.")
    ] = False,
    also_encrypt: Annotated[
        bool,
        typer.Option("--also-encrypt", help="Encrypt too, so that the UI and the CLI can send inputs and signals."),
    ] = False,
    tls_cert_file: Annotated[Path | None, typer.Option(help="Its certificate, PEM.")] = None,
    tls_key_file: Annotated[Path | None, typer.Option(help="The certificate's key, PEM.")] = None,
) -> None:
    """Decrypt payloads for Temporal's UI and CLI. Runs in the foreground."""
    if key_file is None:
        raise HoldfastError(f"--keys: missing: expected a key file, or {names.ENV_CODEC_KEYS}")
    if (token_file is None) != anyone_may_decrypt:
        raise HoldfastError("--token-file: expected it, or --anyone-may-decrypt in its place")
    from holdfast.codec.codec import Codec
    from holdfast.codec.keys import Keys
    from holdfast.codec.server import Access, application, check_address, tls_context

    context = tls_context(tls_cert_file, tls_key_file)
    check_address(address, context is not None)
    app = application(Codec(Keys(key_file), accept_plaintext=True), Access(token_file, origin or ()), also_encrypt)
    asyncio.run(serve(app, address, f"--address {address}", lambda url: f"decrypts at {url}", context))


def add_to(app: typer.Typer, panel: str) -> None:
    """Add this file's commands."""
    app.add_typer(keys, name="keys", rich_help_panel=panel)
    app.command("codec-server", rich_help_panel=panel)(codec_server)
