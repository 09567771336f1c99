"""`simulate --history`: what another policy would have decided about a real history."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from holdfast.cli.common.options import Output, Place, chosen, session
from holdfast.cli.common.output import emit
from holdfast.cli.submission.files import overrides, text_of

if TYPE_CHECKING:
    from holdfast.past import Story


def compare(
    histories: Sequence[str],
    policy: str | None,
    settings: list[str] | None,
    namespace: str | None,
    place: Place,
    output: Output,
) -> None:
    """Print what the other policy decides at each point of a real life.

    Raises:
        HoldfastError: if the history or the policy cannot be read.
    """
    if policy is None and not settings:
        raise typer.BadParameter("say what is to differ: --policy FILE, or --set NAME=VALUE", param_hint="--policy")
    story = read_story(histories, namespace, place)
    from holdfast.cli.workloads import history_text as past_text
    from holdfast.past.other import compared
    from holdfast.past.policies import read_policy, with_settings
    from holdfast.profiles import PROFILES

    other = story.spec.policy
    if policy is not None:
        other = read_policy(text_of(policy), story.spec, PROFILES, f"policy {policy}")
    if settings:
        other = with_settings(other, overrides(settings), story.spec)
    result = compared(story, other)
    emit(result.model_dump(mode="json"), output, lambda: past_text.comparison(result))


def read_story(histories: Sequence[str], namespace: str | None, place: Place) -> Story:
    """Return the story of one workload, or of the history files of one.

    Raises:
        HoldfastError: if it cannot be read.
    """
    files = [one for one in histories if one.endswith(".json")]
    if len(histories) > 1 and len(files) != len(histories):
        raise typer.BadParameter("expected one workload, or the history files of one", param_hint="--history")

    async def go() -> Story:
        if files:
            from holdfast.client.past import from_files
            from holdfast.codec.options import from_environment

            return await from_files([Path(file) for file in files], from_environment()["data_converter"])
        named = chosen(histories[0], namespace)
        async with session(place) as holdfast:
            return await (await holdfast.get(named.name, named.namespace)).story()

    return asyncio.run(go())
