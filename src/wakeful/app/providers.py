"""Model providers by name, and the driver that bootstrap hands in."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from wakeful.domain.drivers import Driver
from wakeful.domain.errors import ConfigurationError
from wakeful.domain.models import ModelProvider, ToolSchema

__all__ = ["MakeDriver", "ModelName", "named"]


class MakeDriver(Protocol):
    """What makes an agent's driver; `wakeful.bootstrap` passes the runtime's."""

    def __call__(
        self,
        *,
        agent: str,
        provider: ModelProvider,
        model: str,
        instructions: str,
        tools: Sequence[ToolSchema],
        context_limit_bytes: int | None,
    ) -> Driver: ...


@dataclass(frozen=True, slots=True)
class ModelName:
    """`provider:model`, as an agent names what answers it."""

    provider: str
    model: str

    @classmethod
    def parse(cls, text: str, *, agent: str) -> "ModelName":
        provider, colon, model = text.partition(":")
        if not (provider and colon and model):
            raise ConfigurationError(
                f"agent {agent!r}: model {text!r} must read provider:model, such as 'scripted:support'"
            )
        return cls(provider, model)


def named(providers: Mapping[str, ModelProvider], name: str, *, agent: str) -> ModelProvider:
    """The provider called `name`. Raises ConfigurationError naming those there are."""
    try:
        return providers[name]
    except KeyError:
        known = ", ".join(sorted(providers)) or "none"
        raise ConfigurationError(
            f"agent {agent!r}: no model provider {name!r} (registered: {known}): call app.model_provider first"
        ) from None
