"""What messages and results hold: text, parts, or a reference to an artifact when too large to inline."""

from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict, JsonValue

from wakeful.domain.states import InvocationStatus

__all__ = ["ArtifactRef", "CallResult", "Content", "Failure", "ProposedCall", "Usage"]


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class ArtifactRef(_Value):
    """Points at bytes kept outside the log; `sha256` is of the bytes, `preview` their first characters."""

    artifact_id: UUID
    sha256: str
    size_bytes: int
    media_type: str
    preview: str = ""


Content = str | list[dict[str, Any]] | ArtifactRef | None
"""A message's content: text, a list of parts as the source gave them, a reference, or nothing."""


class ProposedCall(_Value):
    """One call of a turn. `position` counts from 0 and identifies it; the provider's id is data and may repeat."""

    position: int
    tool: str
    arguments: str | ArtifactRef
    """The argument text verbatim, as the model wrote it."""
    provider_call_id: str = ""


class Usage(_Value):
    """Tokens of one model call."""

    input_tokens: int = 0
    output_tokens: int = 0

    @property
    def total(self) -> int:
        return self.input_tokens + self.output_tokens


class CallResult(_Value):
    """The one result of a call, in the one shape the model is told it.

    `status` is a terminal InvocationStatus; `code` is a stable word for programs; `message` is for reading.
    """

    status: InvocationStatus
    code: str
    message: str = ""
    data: JsonValue = None
    artifact: ArtifactRef | None = None
    """Where the data is when it was too large to inline; `data` is then None."""


class Failure(_Value):
    """Why a run failed: plain data, stored. `code` is stable; `message` holds no secret."""

    code: str
    message: str
    step: int | None = None
    attempts: list[dict[str, Any]] = []
    """The earlier executions that ended without a result: epoch, reason, time."""


def utc_text(moment: datetime) -> str:
    """ISO 8601 with microseconds, for payloads that carry a time as data."""
    return moment.isoformat(timespec="microseconds")
