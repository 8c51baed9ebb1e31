"""Mistakes in an app show on the developer's machine, not in a worker at night."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from wakeful.app import App, ModelProvider
from wakeful.domain.drivers import Turn, View
from wakeful.domain.errors import ConfigurationError
from wakeful.domain.models import ToolSchema
from wakeful.models.scripted import ScriptedProvider


@dataclass
class Driver:
    agent: str
    provider: ModelProvider
    model: str
    instructions: str
    tools: Sequence[ToolSchema]
    context_limit_bytes: int | None

    async def next_turn(self, view: View) -> Turn:
        raise AssertionError("not asked")


def lookup(order_id: str) -> str:
    """Look up an order."""
    return order_id


@pytest.fixture
def app() -> App:
    app = App()
    app.tool(idempotency="read_only")(lookup)
    app.model_provider("scripted", ScriptedProvider({"a": ["hello"]}))
    return app


def test_the_catalogue_holds_agents_whose_driver_knows_model_and_tools(app: App) -> None:
    app.agent("helper", model="scripted:h")
    app.agent(
        "support",
        version=3,
        model="scripted:a:b",
        tools=[lookup],
        instructions="Help",
        asks=True,
        delegates=["helper"],
    )
    agent = app.catalogue(make_driver=Driver).agent("support")
    assert (agent.version, agent.asks, agent.delegates, list(agent.tools)) == (3, True, ("helper",), ["lookup"])
    driver = agent.driver
    assert isinstance(driver, Driver)
    assert (driver.agent, driver.model, driver.instructions) == ("support", "a:b", "Help")
    assert [tool.name for tool in driver.tools] == ["lookup", "conversation.ask_user", "agent.delegate"]
    assert driver.tools[2].parameters["properties"]["agent"]["enum"] == ["helper"]


def test_a_registered_function_stays_the_function_it_was(app: App) -> None:
    assert app.tool(idempotency="read_only", name="again")(lookup) is lookup


def test_a_driver_of_ones_own_takes_the_place_of_a_model(app: App) -> None:
    driver = Driver("d", ScriptedProvider({}), "m", "", (), None)
    app.agent("own", driver=driver)
    assert app.catalogue(make_driver=Driver).agent("own").driver is driver


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"model": "scripted"}, "must read provider:model"),
        ({"model": ":a"}, "must read provider:model"),
        ({"model": "openai:x"}, "no model provider 'openai' (registered: scripted)"),
        ({}, "either a model or a driver"),
        ({"model": "scripted:a", "version": 0}, "version must be 1 or more"),
        ({"model": "scripted:a", "tools": ["nothing"]}, "'nothing' is no registered tool"),
        ({"model": "scripted:a", "tools": [len]}, "'len' is no registered tool"),
        ({"model": "scripted:a", "tools": [lookup, "lookup"]}, "lists tool 'lookup' twice"),
        ({"model": "scripted:a", "repeat_limit": 1}, "repeat_limit must be 2 or more"),
        ({"model": "scripted:a", "question_expires_seconds": -1}, "question_expires_seconds must be a positive"),
    ],
)
def test_a_wrong_agent_is_refused_at_registration(app: App, options: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        app.agent("support", **options)
    assert expected in str(caught.value)


def test_names_are_given_once(app: App) -> None:
    app.agent("support", model="scripted:a")
    with pytest.raises(ConfigurationError, match="agent 'support' is registered twice"):
        app.agent("support", model="scripted:a")
    with pytest.raises(ConfigurationError, match="tool 'lookup' is registered twice"):
        app.tool(idempotency="read_only")(lookup)
    with pytest.raises(ConfigurationError, match="model provider 'scripted' is registered twice"):
        app.model_provider("scripted", ScriptedProvider({}))


def test_a_delegate_that_nobody_registered_is_refused(app: App) -> None:
    app.agent("support", model="scripted:a", delegates=["ghost"])
    with pytest.raises(ConfigurationError, match="delegates to 'ghost'"):
        app.catalogue(make_driver=Driver)


def test_an_app_without_agents_is_refused(app: App) -> None:
    with pytest.raises(ConfigurationError, match="no agents"):
        app.catalogue(make_driver=Driver)
