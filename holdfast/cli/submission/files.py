"""Read workloads from files, folders and standard input; nothing is begun if one of them is wrong."""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from holdfast import names
from holdfast.cli.common import complete, kubectl
from holdfast.cli.common.output import say
from holdfast.errors import DocumentWarning, HoldfastError, InvalidWorkload, one_line

if TYPE_CHECKING:
    from holdfast.formats.graph import GraphDocument
    from holdfast.model import Workload

Files = Annotated[
    list[str],
    typer.Argument(
        help="AppWrapper, JobSet, plain manifests or a Graph of them, YAML or JSON; DIR/: its files; -: standard input."
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="Override one setting: failureGracePeriod=30s. May be given several times.",
        metavar="KEY=VALUE",
        autocompletion=complete.settings,
    ),
]
_SUFFIXES: Final = (".yaml", ".yml", ".json")


def text_of(file: str) -> str:
    """Return the contents of a file, or of standard input for `-`.

    Raises:
        HoldfastError: if it cannot be read.
    """
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise HoldfastError(f"{file} cannot be read: {reason}") from error


def expanded(files: Iterable[str]) -> list[str]:
    """Return the files, with each folder replaced by its YAML and JSON files in order of name; not those below it.

    Raises:
        HoldfastError: if a folder has none, or cannot be read.
    """
    found: list[str] = []
    for file in files:
        folder = Path(file)
        try:
            is_folder = file != "-" and folder.is_dir()
        except OSError as error:
            raise HoldfastError(f"{file} cannot be read: {error.strerror}") from error
        if not is_folder:
            found.append(file)
            continue
        try:
            inside = sorted(str(one) for one in folder.iterdir() if one.suffix in _SUFFIXES and one.is_file())
        except OSError as error:
            raise HoldfastError(f"{file} cannot be read: {error.strerror}") from error
        if not inside:
            raise HoldfastError(f"{file} has no workload: expected files that end in {', '.join(_SUFFIXES)}")
        found += inside
    return found


def read_file(
    file: str, cluster: str, namespace: str | None, name: str | None, settings: dict[str, str]
) -> list[Workload]:
    """Read the workloads of one file.

    Raises:
        HoldfastError: if the file cannot be read, or it contains no valid workload.
    """
    return read_text(text_of(file), cluster, namespace, name, settings)


@contextmanager
def _warnings_told() -> Generator[None]:
    """Warn on standard error about fields of a document that are accepted and have no effect here (row D29)."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always", DocumentWarning)
        yield
    for said in dict.fromkeys(str(one.message) for one in found):
        say(f"warning: {said}", err=True)


def read_text(
    text: str, cluster: str, namespace: str | None, name: str | None, settings: dict[str, str]
) -> list[Workload]:
    """Read the workloads of a text.

    Raises:
        InvalidWorkload: if it contains no valid workload.
        HoldfastError: if its workload cannot have that name.
    """
    from pydantic import ValidationError

    from holdfast.formats import read
    from holdfast.model import Workload

    with _warnings_told(), _as_typed():
        try:
            workloads = read(
                text,
                cluster=cluster,
                namespace=namespace,
                default_namespace=_default_namespace(),
                overrides=settings,
                payloads_encrypted=_encrypted(),
            )
        except InvalidWorkload:
            if name is None:
                raise
            # A document may leave its name to the command. If it has a name, `--name` replaces that below.
            workloads = read(
                text,
                cluster=cluster,
                namespace=namespace,
                default_namespace=_default_namespace(),
                name=name,
                overrides=settings,
                payloads_encrypted=_encrypted(),
            )
    if name is None or len(workloads) != 1:
        return workloads
    try:
        return [Workload.model_validate({**workloads[0].model_dump(mode="json"), "name": name})]
    except ValidationError as error:
        raise HoldfastError(f"--name {name!r} cannot be taken: {one_line(error, Workload)}") from error


def _default_namespace() -> str:
    return kubectl.namespace() or "default"


def _encrypted() -> bool:
    """Whether this command encrypts what it sends; the key file is read as it connects."""
    return bool(os.environ.get(names.ENV_CODEC_KEYS))


def read_all(
    files: list[str], cluster: str, namespace: str | None, name: str | None, settings: dict[str, str]
) -> tuple[list[Workload], list[GraphDocument]]:
    """Read workloads, and graphs of workloads, from several files and folders; if one is invalid, nothing is begun."""
    workloads, graphs = list[Any](), list[Any]()
    every = expanded(files)
    for file in every:
        try:
            found = _read(text_of(file), cluster, namespace, name, settings)
        except InvalidWorkload as error:
            if len(every) == 1:
                raise
            raise HoldfastError(f"{file}: {error}") from error
        workloads += found[0]
        graphs += found[1]
    return workloads, graphs


def _read(
    text: str, cluster: str, namespace: str | None, name: str | None, settings: dict[str, str]
) -> tuple[list[Workload], list[GraphDocument]]:
    from holdfast.formats.graph import graphs_in, read_graph

    if not graphs_in(text):
        return read_text(text, cluster, namespace, name, settings), []
    with _warnings_told(), _as_typed():
        graph = read_graph(
            text,
            cluster=cluster,
            namespace=namespace,
            default_namespace=_default_namespace(),
            name=name,
            overrides=settings,
            payloads_encrypted=_encrypted(),
        )
    return [], [graph]


@contextmanager
def _as_typed() -> Generator[None]:
    """Name a wrong setting as it was typed: `--set retryLimit`, and not by the argument of `formats.read`."""
    try:
        yield
    except InvalidWorkload as error:
        told = [replace(one, path=re.sub(r"^overrides\.", "--set ", one.path)) for one in error.problems]
        raise InvalidWorkload(told, error.source) from error


def overrides(settings: list[str] | None) -> dict[str, str]:
    """Read KEY=VALUE pairs.

    Raises:
        typer.BadParameter: if one has no `=`.
    """
    result: dict[str, str] = {}
    for item in settings or []:
        key, equals, value = item.partition("=")
        if not equals or not key:
            raise typer.BadParameter(
                f"{item!r}: expected KEY=VALUE, for example failureGracePeriod=30s", param_hint="--set"
            )
        result[key] = value
    return result
