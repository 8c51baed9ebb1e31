"""The app object: where a team registers tools, agents and model providers."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from wakeful.app.built_in import ASK_USER_SCHEMA, delegate_schema
from wakeful.app.functions import make_tool, positive_seconds
from wakeful.app.providers import MakeDriver, ModelName, named
from wakeful.domain.agents import Agent, Catalogue
from wakeful.domain.drivers import Driver
from wakeful.domain.errors import ConfigurationError
from wakeful.domain.models import ModelProvider, ToolSchema
from wakeful.domain.states import IdempotencyClass
from wakeful.domain.tools import ASK_USER, DEFAULT_TIMEOUT, DELEGATE, RetryPolicy, Tool

__all__ = ["App"]

Function = TypeVar("Function", bound=Callable[..., Any])

DEFAULT_REPEAT_LIMIT = 3


@dataclass(frozen=True, slots=True)
class _Definition:
    """An agent as registered; its driver is made when the catalogue is."""

    name: str
    version: int
    model: ModelName | None
    instructions: str
    tools: tuple[Tool, ...]
    asks: bool
    question_expires: timedelta | None
    delegates: tuple[str, ...]
    repeat_limit: int | None
    context_limit_bytes: int | None
    driver: Driver | None

    def schemas(self) -> tuple[ToolSchema, ...]:
        offered = [ToolSchema(tool.name, tool.description, tool.parameters) for tool in self.tools]
        if self.asks:
            offered.append(ASK_USER_SCHEMA)
        if self.delegates:
            offered.append(delegate_schema(self.delegates))
        return tuple(offered)


class App:
    """Tools, agents and model providers of one team. Everything wrong is said when it is registered."""

    def __init__(self) -> None:
        self._tools: dict[str, Tool] = {}
        self._functions: dict[Any, Tool] = {}
        self._providers: dict[str, ModelProvider] = {}
        self._agents: dict[str, _Definition] = {}

    @property
    def tools(self) -> tuple[Tool, ...]:
        """Every registered tool, in the order of registration."""
        return tuple(self._tools.values())

    def tool(
        self,
        *,
        idempotency: str | IdempotencyClass,
        timeout_seconds: float = DEFAULT_TIMEOUT.total_seconds(),
        approval: bool = False,
        approval_expires_seconds: float | None = None,
        retry: RetryPolicy = RetryPolicy(),  # noqa: B008 - frozen
        reconcile: Callable[[str], Any] | None = None,
        name: str | None = None,
    ) -> Callable[[Function], Function]:
        """Register a function as a tool and leave it as it is.

        Its first parameter may be the ToolCall; the others are described to the model by their types, the whole by
        the docstring. `idempotency` says what repeating a call would do and has no default, because recovery
        depends on it. `reconcile(key)` asks the service what became of the call with that key, whenever it would
        become UNCERTAIN: it returns Happened, DidNotHappen or None, and may be asked any number of times.
        Raises ConfigurationError.
        """

        def register(function: Function) -> Function:
            tool = make_tool(
                function,
                name=name,
                idempotency=idempotency,
                timeout_seconds=timeout_seconds,
                retry=retry,
                approval=approval,
                approval_expires_seconds=approval_expires_seconds,
                reconcile=reconcile,
            )
            self.add_tool(tool)
            self._functions[function] = tool
            return function

        return register

    def add_tool(self, tool: Tool) -> Tool:
        """Register a tool that brings its own JSON schema and validation. Raises ConfigurationError for a name that
        is taken or built in."""
        if tool.name in (ASK_USER, DELEGATE):
            raise ConfigurationError(f"tool name {tool.name!r} is built in: choose another")
        if tool.name in self._tools:
            raise ConfigurationError(f"tool {tool.name!r} is registered twice: give one of them another name")
        self._tools[tool.name] = tool
        return tool

    def model_provider(self, name: str, provider: ModelProvider) -> None:
        """Make `provider` answer agents whose model reads `name:...`. Raises ConfigurationError for a second one."""
        if not name or ":" in name:
            raise ConfigurationError(f"model provider name {name!r} must not be empty nor contain a colon")
        if name in self._providers:
            raise ConfigurationError(f"model provider {name!r} is registered twice")
        self._providers[name] = provider

    def agent(
        self,
        name: str,
        *,
        version: int = 1,
        model: str | None = None,
        instructions: str = "",
        tools: Iterable[Callable[..., Any] | Tool | str] = (),
        asks: bool = False,
        question_expires_seconds: float | None = None,
        delegates: Sequence[str] = (),
        repeat_limit: int | None = DEFAULT_REPEAT_LIMIT,
        context_limit_bytes: int | None = None,
        driver: Driver | None = None,
    ) -> None:
        """Register an agent: a `model` with instructions and tools, or a `driver` of one's own.

        `tools` are functions registered with `tool`, Tools, or their names. `asks` lets it question its owner,
        `delegates` names the agents it may start child runs of. The `repeat_limit`-th identical call in a row
        is refused; None switches that guard off. When messages, calls and results together take more than
        `context_limit_bytes`, the model is asked to summarize the older part and gets that in its place; None sends
        the whole conversation.
        Raises ConfigurationError.
        """
        if name in self._agents:
            raise ConfigurationError(f"agent {name!r} is registered twice")
        if version < 1:
            raise ConfigurationError(f"agent {name!r}: version must be 1 or more, not {version}")
        if (model is None) == (driver is None):
            raise ConfigurationError(f"agent {name!r}: give either a model or a driver")
        if repeat_limit is not None and repeat_limit < 2:
            raise ConfigurationError(f"agent {name!r}: repeat_limit must be 2 or more, or None")
        if context_limit_bytes is not None and (context_limit_bytes < 1 or driver is not None):
            raise ConfigurationError(f"agent {name!r}: context_limit_bytes must be 1 or more, and goes with a model")
        expires = None
        if question_expires_seconds is not None:
            expires = positive_seconds(question_expires_seconds, f"agent {name!r}: question_expires_seconds")
        parsed = None if model is None else ModelName.parse(model, agent=name)
        if parsed is not None:
            named(self._providers, parsed.provider, agent=name)
        self._agents[name] = _Definition(
            name=name,
            version=version,
            model=parsed,
            instructions=instructions,
            tools=self._resolve(tools, name),
            asks=asks,
            question_expires=expires,
            delegates=tuple(delegates),
            repeat_limit=repeat_limit,
            context_limit_bytes=context_limit_bytes,
            driver=driver,
        )

    def catalogue(self, *, make_driver: MakeDriver) -> Catalogue:
        """Everything registered, for a worker to serve. Raises ConfigurationError for a delegate nobody registered
        and for an app without agents."""
        if not self._agents:
            raise ConfigurationError("the app has no agents: register one with app.agent(...)")
        for definition in self._agents.values():
            missing = [name for name in definition.delegates if name not in self._agents]
            if missing:
                raise ConfigurationError(f"agent {definition.name!r} delegates to {missing[0]!r}, no agent here")
        return Catalogue({name: self._built(each, make_driver) for name, each in self._agents.items()})

    def _built(self, definition: _Definition, make_driver: MakeDriver) -> Agent:
        return Agent(
            name=definition.name,
            version=definition.version,
            driver=self._driver(definition, make_driver),
            tools={tool.name: tool for tool in definition.tools},
            asks=definition.asks,
            question_expires=definition.question_expires,
            delegates=definition.delegates,
            repeat_limit=definition.repeat_limit,
        )

    def _driver(self, definition: _Definition, make_driver: MakeDriver) -> Driver:
        if definition.driver is not None:
            return definition.driver
        if definition.model is None:
            raise ConfigurationError(f"agent {definition.name!r} has neither a model nor a driver")
        return make_driver(
            agent=definition.name,
            provider=named(self._providers, definition.model.provider, agent=definition.name),
            model=definition.model.model,
            instructions=definition.instructions,
            tools=definition.schemas(),
            context_limit_bytes=definition.context_limit_bytes,
        )

    def _resolve(self, given: Iterable[Callable[..., Any] | Tool | str], agent: str) -> tuple[Tool, ...]:
        tools: dict[str, Tool] = {}
        for item in given:
            tool = self._find(item)
            if tool is None:
                what = item if isinstance(item, str) else getattr(item, "__name__", item)
                raise ConfigurationError(f"agent {agent!r}: {what!r} is no registered tool: decorate it with @app.tool")
            if tool.name in tools:
                raise ConfigurationError(f"agent {agent!r} lists tool {tool.name!r} twice")
            tools[tool.name] = tool
        return tuple(tools.values())

    def _find(self, item: Callable[..., Any] | Tool | str) -> Tool | None:
        if isinstance(item, Tool):
            return self._tools.get(item.name) if self._tools.get(item.name) is item else None
        if isinstance(item, str):
            return self._tools.get(item)
        return self._functions.get(item)
