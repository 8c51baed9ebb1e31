"""Commands whose code is imported when they are asked for: they bring whole systems with them."""

import functools
import importlib
from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperGroup

__all__ = ["WithLater"]

_LATER = {
    "chaos": "wakeful.faults.campaign.command:chaos",
    "demo": "wakeful.demo.command:demo",
    "replay": "wakeful.faults.replay.command:replay",
}
"""Command to the function that is it."""


class WithLater(TyperGroup):
    """The root group, with the commands of `_LATER` beside the registered ones."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*super().list_commands(ctx), *_LATER]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in _LATER:
            return super().get_command(ctx, cmd_name)
        module, _, function = _LATER[cmd_name].partition(":")
        one = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        one.command(cmd_name)(_exiting(getattr(importlib.import_module(module), function)))
        return typer.main.get_command(one)


def _exiting(function: Callable[..., int | None]) -> Callable[..., None]:
    """What such a function returns is the exit code."""

    @functools.wraps(function)
    def command(*args: Any, **kwargs: Any) -> None:
        raise typer.Exit(function(*args, **kwargs) or 0)

    return command
