"""The reference page of the command line, made from the commands themselves: `python -m wakeful.cli.reference`.

A test compares `docs/cli.md` with what this prints.
"""

import ast
import inspect
import itertools
import sys
from collections.abc import Iterator
from typing import Any

import typer

from wakeful.bootstrap.settings import PREFIX, Settings
from wakeful.cli.exit_codes import MEANINGS
from wakeful.cli.main import app

__all__ = ["exit_code_table", "reference"]

HEAD = """\
# The command line

Data goes to standard output; progress, advice and errors go to standard error. Colour is used on terminals only and
never with `NO_COLOR`. With `--json` a command prints one JSON document, or one JSON object per line where it follows
events; an error is then `{"error": {"code": …, "message": …}}` on standard error. An expected error is one line and an
exit code, never a traceback.

Addresses and passwords are read from the environment or from the TOML file that `WAKEFUL_CONFIG` names, never from the
command's arguments, which everybody on the machine can read.
"""


SETTINGS = """\
The first source that has a value wins: a command's option, the environment, the TOML file that `WAKEFUL_CONFIG` names
(the same names, lower case, without the prefix). Unknown names fail, with the nearest known one.
"""


def reference() -> str:
    """The whole page."""
    parts = [HEAD, "## Exit codes\n", exit_code_table(), "## Commands\n"]
    root = typer.main.get_command(app)
    parts += _commands(root, "wakeful")
    parts += ["## Settings\n", SETTINGS, _settings()]
    return "\n".join(parts).rstrip() + "\n"


def exit_code_table() -> str:
    rows = [f"| {int(code)} | {meaning} |" for code, meaning in MEANINGS.items()]
    return "\n".join(["| code | meaning |", "| ---: | --- |", *rows, ""])


def _commands(command: Any, name: str) -> Iterator[str]:
    context = typer.Context(command, info_name=name)
    names = command.list_commands(context) if hasattr(command, "list_commands") else []
    if not names:
        yield _command(command, name)
    for each in names:
        yield from _commands(command.get_command(context, each), f"{name} {each}")


def _command(command: Any, name: str) -> str:
    shown = [each for each in command.params if not getattr(each, "hidden", False) and each.name != "help"]
    usage = " ".join([name, *(_placeholder(each) for each in shown if each.param_type_name == "argument")])
    lines = [f"### `{usage}`\n", f"{_prose(command.help)}\n"]
    rows = [row for each in shown if (row := _row(each))]
    if rows:
        lines += ["| option | |", "| --- | --- |", *rows, ""]
    return "\n".join(lines)


def _placeholder(argument: Any) -> str:
    name = argument.metavar or argument.name.upper()
    name += "..." if argument.nargs == -1 else ""
    return name if argument.required else f"[{name}]"


def _row(parameter: Any) -> str:
    text = getattr(parameter, "help", None) or ""
    if parameter.param_type_name == "argument":
        return f"| `{_placeholder(parameter).strip('[]')}` | {text} |" if text else ""
    names = ", ".join(f"`{each}`" for each in (*parameter.opts, *parameter.secondary_opts))
    if not parameter.is_flag:
        names += f" {parameter.metavar or _kind(parameter)}"
    default = parameter.default
    if not parameter.is_flag and isinstance(default, str | int | float) and not isinstance(default, bool):
        text = f"{text} Default: {default}.".strip()
    return f"| {names} | {text} |"


def _kind(parameter: Any) -> str:
    return str(parameter.name).rsplit("_", 1)[-1].upper() if str(parameter.name).endswith("seconds") else "VALUE"


def _prose(text: str | None) -> str:
    return " ".join((text or "").split())


def _settings() -> str:
    """Every setting with what its docstring says."""
    lines = ["| variable | what it is | default |", "| --- | --- | --- |"]
    explained = _docstrings(Settings)
    for name, field in Settings.model_fields.items():
        default = "the user's data folder" if field.default_factory else str(field.default or "")
        lines.append(f"| `{PREFIX}{name.upper()}` | {_prose(explained[name])} | {default} |")
    return "\n".join([*lines, ""])


def _docstrings(model: type) -> dict[str, str]:
    """What stands below each field in the source. Read here, not by the model: every process makes that one."""
    (definition,) = ast.parse(inspect.getsource(model)).body
    assert isinstance(definition, ast.ClassDef)  # noqa: S101 - the source of a class
    return {
        field.target.id: text.value.value
        for field, text in itertools.pairwise(definition.body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }


if __name__ == "__main__":
    sys.stdout.write(reference())
