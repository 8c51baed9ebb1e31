"""The open questions and approvals of a run, with what they ask."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from wakeful.domain.content import ArtifactRef
from wakeful.domain.errors import Conflict, NotFound
from wakeful.domain.events.turns import AssistantMessageCreated
from wakeful.domain.invocations import Invocation
from wakeful.domain.ports.event_log import EventLog
from wakeful.domain.scopes import RunRef
from wakeful.domain.states import InvocationStatus

__all__ = ["Call", "described", "the_one"]

Arguments = str | ArtifactRef


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a run: its record, and the argument text as the model wrote it."""

    record: Invocation
    arguments: Arguments

    @property
    def id(self) -> UUID:
        return self.record.id

    @property
    def tool(self) -> str:
        return self.record.tool

    @property
    def status(self) -> InvocationStatus:
        return self.record.status

    @property
    def expires_at(self) -> datetime | None:
        return self.record.expires_at

    @property
    def parsed(self) -> Any:
        """The arguments as JSON, or None where the text is none or is kept outside."""
        if isinstance(self.arguments, ArtifactRef):
            return None
        try:
            return json.loads(self.arguments)
        except (ValueError, RecursionError):
            return None

    @property
    def question(self) -> str | None:
        """What the owner is asked, for a call that awaits input."""
        if self.status is not InvocationStatus.AWAITING_INPUT or not isinstance(self.parsed, dict):
            return None
        return str(self.parsed.get("question", ""))


async def described(log: EventLog, run: RunRef, records: Sequence[Invocation]) -> list[Call]:
    """The calls with their arguments, read from the turns that proposed them."""
    if not records:
        return []
    wanted = {(record.step, record.position) for record in records}
    arguments: dict[tuple[int, int], Arguments] = {}
    after = 0
    while wanted - arguments.keys():
        page = await log.read(run.session, after=after, types=[AssistantMessageCreated.TYPE])
        if not page:
            break
        after = page[-1].sequence
        for event in page:
            if event.run_id == run.run_id and isinstance(event.payload, AssistantMessageCreated):
                arguments |= {(event.payload.step, call.position): call.arguments for call in event.payload.calls}
    return [Call(record, arguments.get((record.step, record.position), "")) for record in records]


def the_one(calls: Sequence[Invocation], status: InvocationStatus, run_id: UUID) -> UUID:
    """The id of the only call in `status`. Raises NotFound if there is none, Conflict naming them if several."""
    found = [call.id for call in calls if call.status is status]
    if not found:
        raise NotFound(f"call that is {status.value} in run", run_id)
    if len(found) > 1:
        raise Conflict(f"{len(found)} calls are {status.value}, say which: {', '.join(map(str, found))}")
    return found[0]
