"""Agents, and the catalogue of everything a worker registered."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from wakeful.domain.drivers import Driver
from wakeful.domain.errors import NotFound
from wakeful.domain.tools import Tool

__all__ = ["Agent", "Catalogue"]


@dataclass(frozen=True, slots=True)
class Agent:
    """A registered agent. A run stores its name and version; a claim takes any run of a name registered here."""

    name: str
    version: int
    driver: Driver
    tools: Mapping[str, Tool] = field(default_factory=dict)
    asks: bool = False
    """Whether it may ask its owner (`conversation.ask_user`)."""
    question_expires: timedelta | None = None
    delegates: tuple[str, ...] = ()
    """Agents it may start child runs of (`agent.delegate`)."""
    repeat_limit: int | None = 3
    """The this-many-th identical call in a row is refused; None allows any number."""


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Every agent a process serves, by name."""

    agents: Mapping[str, Agent] = field(default_factory=dict)

    def agent(self, name: str) -> Agent:
        """Raises NotFound for an agent this process does not serve."""
        try:
            return self.agents[name]
        except KeyError:
            raise NotFound("agent", name) from None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self.agents))
