"""A model is told what a function takes, and its arguments are checked before the function is called."""

import asyncio
import re
import threading
from datetime import timedelta
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from pydantic import BaseModel, Field

from wakeful.app import App, RetryPolicy, Tool, ToolCall
from wakeful.domain.errors import ConfigurationError
from wakeful.domain.scopes import RunRef, Scope
from wakeful.domain.states import IdempotencyClass

NOBODY = UUID(int=0)
CALL = ToolCall(
    key="k", tool="t", run=RunRef(NOBODY, NOBODY, NOBODY), scope=Scope(NOBODY, NOBODY), step=1, position=0, attempt=1
)


def registered(function: Any, **options: Any) -> Tool:
    app = App()
    app.tool(**{"idempotency": "read_only", **options})(function)
    return app.tools[0]


class Address(BaseModel):
    street: str
    number: int


async def send(call: ToolCall, order_id: str, address: Address, copies: Annotated[int, Field(ge=1)] = 1) -> str:
    """Send an order.

    To any address.
    """
    return f"{call.key} {order_id} {address.street} {copies}"


def test_the_schema_names_every_parameter_but_the_call() -> None:
    tool = registered(send)
    assert tool.name == "send"
    assert tool.description == "Send an order.\n\nTo any address."
    assert set(tool.parameters["properties"]) == {"order_id", "address", "copies"}
    assert tool.parameters["required"] == ["order_id", "address"]
    assert tool.parameters["additionalProperties"] is False
    assert tool.parameters["properties"]["copies"] == {"type": "integer", "minimum": 1, "default": 1}


@pytest.mark.anyio
async def test_checked_arguments_reach_the_function_with_their_types() -> None:
    tool = registered(send)
    arguments = tool.validate({"order_id": "7", "address": {"street": "Main", "number": 1}})
    assert isinstance(arguments["address"], Address)
    assert await tool.function(CALL, **arguments) == "k 7 Main 1"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"address": {"street": "a", "number": 1}}, "order_id: Field required"),
        ({"order_id": "7", "address": {"street": "a"}}, "address.number: Field required"),
        ({"order_id": "7", "address": {"street": "a", "number": 1}, "copies": 0}, "copies: Input should be greater"),
        ({"order_id": "7", "address": {"street": "a", "number": 1}, "x": 1}, "x: unknown argument (accepted: address"),
        ([], "arguments must be a JSON object, not an array"),
        (None, "not null"),
    ],
)
def test_what_is_wrong_is_said_by_name(arguments: Any, expected: str) -> None:
    with pytest.raises(ValueError, match=re.escape(expected)):
        registered(send).validate(arguments)


def test_a_refusal_never_repeats_a_value() -> None:
    def login(password: Annotated[str, Field(max_length=3)], pin: int, kind: Literal["a"]) -> None:
        """Log in."""

    with pytest.raises(ValueError, match="password") as caught:
        registered(login).validate({"password": "hunter2-secret", "pin": "swordfish", "kind": "opensesame"})
    for value in ("hunter2", "swordfish", "opensesame"):
        assert value not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


@pytest.mark.anyio
async def test_parameters_may_have_names_that_pydantic_or_wakeful_use_themselves() -> None:
    def odd(schema: int, model_config: int, json: str, call: str) -> list[Any]:
        return [schema, model_config, json, call]

    tool = registered(odd)
    arguments = {"schema": 1, "model_config": 2, "json": "j", "call": "c"}
    assert set(tool.parameters["properties"]) == set(arguments)
    assert await tool.function(CALL, **tool.validate(arguments)) == [1, 2, "j", "c"]


@pytest.mark.anyio
async def test_a_function_that_is_not_async_runs_in_a_thread_of_its_own() -> None:
    def where() -> int:
        return threading.get_ident()

    assert await registered(where).function(CALL) != threading.get_ident()


@pytest.mark.anyio
async def test_what_a_tool_raises_is_raised_as_it_is() -> None:
    async def fail() -> None:
        raise TimeoutError

    with pytest.raises(asyncio.TimeoutError):
        await registered(fail).function(CALL)


def test_the_options_are_kept_with_the_tool() -> None:
    retry = RetryPolicy(attempts=1)
    tool = registered(
        send,
        idempotency="non_idempotent",
        timeout_seconds=0.5,
        approval=True,
        approval_expires_seconds=3,
        retry=retry,
        name="a.b-c",
    )
    assert tool.idempotency is IdempotencyClass.NON_IDEMPOTENT
    assert (tool.name, tool.timeout, tool.retry, tool.approval) == ("a.b-c", timedelta(seconds=0.5), retry, True)
    assert tool.approval_expires == timedelta(seconds=3)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"idempotency": "maybe"}, "'maybe' is none of read_only, idempotent"),
        ({"timeout_seconds": 0}, "timeout_seconds must be a positive number"),
        ({"timeout_seconds": float("inf")}, "timeout_seconds must be a positive number"),
        ({"name": "no blanks"}, "use 1 to 64 letters"),
        ({"name": "conversation.ask_user"}, "built in"),
    ],
)
def test_wrong_options_are_refused_at_registration(options: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        registered(send, **options)
    assert expected in str(caught.value)


def test_signatures_that_a_model_cannot_be_told_are_refused() -> None:
    def untyped(a) -> None: ...  # type: ignore[no-untyped-def]

    def star(*values: int) -> None: ...

    def late(a: int, call: ToolCall) -> None: ...

    def alien(a: threading.Lock) -> None: ...

    for function, expected in (
        (untyped, "'a' has no type"),
        (star, "*values cannot be described"),
        (late, "must be the first parameter"),
        (alien, "has no JSON schema"),
    ):
        with pytest.raises(ConfigurationError) as caught:
            registered(function)
        assert expected in str(caught.value)
