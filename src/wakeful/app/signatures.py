"""A tool function's signature, read as a JSON schema and as a check of what a model sends."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.errors import PydanticUserError

from wakeful.domain.errors import ConfigurationError
from wakeful.domain.tools import ToolCall

__all__ = ["Signature", "read_signature"]

MAX_PROBLEMS = 8
"""A model that got everything wrong is not helped by the ninth line."""


@dataclass(frozen=True, slots=True)
class Signature:
    """What a function takes. `takes_call` says whether its first parameter is the ToolCall."""

    parameters: Mapping[str, Any]
    takes_call: bool
    model: type[BaseModel]
    names: Mapping[str, str]
    """Field of the model to parameter of the function."""

    def validate(self, arguments: Any) -> dict[str, Any]:
        """Keyword arguments for the function. Raises ValueError that names the fields and what is wrong with each,
        and never repeats a value: what a model sends may hold secrets, and the message goes into the log."""
        if not isinstance(arguments, dict):
            raise ValueError(f"arguments must be a JSON object, not {_json_type(arguments)}")
        try:
            checked = self.model.model_validate(arguments)
        except ValidationError as error:
            raise ValueError(_explain(error, self.model)) from None
        return {parameter: getattr(checked, field) for field, parameter in self.names.items()}


def read_signature(function: Callable[..., Any], tool: str) -> Signature:
    """Read `function`'s parameters. Raises ConfigurationError for what cannot be told to a model: a parameter
    without a type, a type without a JSON schema, `*args`, `**kwargs`."""
    hints = _hints(function, tool)
    parameters = list(inspect.signature(function).parameters.values())
    takes_call = bool(parameters) and (hints.get(parameters[0].name) is ToolCall)
    fields: dict[str, Any] = {}
    names: dict[str, str] = {}
    for index, parameter in enumerate(parameters[1:] if takes_call else parameters):
        # Fields get neutral names: `schema`, `json` or `_x` are fine parameters and poor Pydantic fields.
        field = f"argument_{index}"
        fields[field] = (_type_of(parameter, hints, tool), _field(parameter))
        names[field] = parameter.name
    try:
        model = create_model(f"{tool}_arguments", __config__=ConfigDict(extra="forbid"), **fields)
        schema = model.model_json_schema()
    except PydanticUserError as error:
        raise ConfigurationError(
            f"tool {tool!r}: a parameter's type has no JSON schema: {_first_line(error)}"
        ) from error
    return Signature(_tidy(schema), takes_call, model, names)


def _first_line(error: PydanticUserError) -> str:
    return (error.message or "unknown").splitlines()[0]


def _hints(function: Callable[..., Any], tool: str) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except NameError as error:
        raise ConfigurationError(f"tool {tool!r}: a type of its signature cannot be found: {error}") from error


def _type_of(parameter: inspect.Parameter, hints: Mapping[str, Any], tool: str) -> Any:
    if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
        raise ConfigurationError(f"tool {tool!r}: *{parameter.name} cannot be described: name each parameter")
    if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
        raise ConfigurationError(f"tool {tool!r}: {parameter.name} is positional-only; arguments come by name")
    annotation = hints.get(parameter.name, inspect.Parameter.empty)
    if annotation is inspect.Parameter.empty:
        raise ConfigurationError(f"tool {tool!r}: parameter {parameter.name!r} has no type: annotate it")
    if annotation is ToolCall:
        raise ConfigurationError(f"tool {tool!r}: the ToolCall must be the first parameter")
    return annotation


def _field(parameter: inspect.Parameter) -> Any:
    if parameter.default is inspect.Parameter.empty:
        return Field(alias=parameter.name)
    return Field(default=parameter.default, alias=parameter.name)


def _tidy(schema: dict[str, Any]) -> dict[str, Any]:
    """Without the generated titles, which are names of ours and say nothing to a model."""
    schema.pop("title", None)
    for field in schema.get("properties", {}).values():
        field.pop("title", None)
    return {"properties": {}, **schema}


def _explain(error: ValidationError, model: type[BaseModel]) -> str:
    known = {field.alias for field in model.model_fields.values()}
    lines = []
    for problem in error.errors(include_url=False, include_context=False, include_input=False)[:MAX_PROBLEMS]:
        place = ".".join(str(part) for part in problem["loc"])
        if problem["type"] == "extra_forbidden" and place not in known:
            accepted = ", ".join(sorted(str(name) for name in known)) or "none"
            lines.append(f"{place[:80]}: unknown argument (accepted: {accepted})")
        else:
            lines.append(f"{place[:80]}: {_reason(problem['type'], problem['msg'])}")
    return "; ".join(lines)


# Messages of these types are made by code that saw the value and may repeat it.
_FOREIGN = frozenset({"value_error", "assertion_error"})


def _reason(kind: str, message: str) -> str:
    return "is not valid" if kind in _FOREIGN else message


def _json_type(value: Any) -> str:
    names = {type(None): "null", bool: "a boolean", str: "text", list: "an array", int: "a number", float: "a number"}
    return names.get(type(value), type(value).__name__)
