"""The agent driver: assembles the context from session history and asks a model.

Context, in order: the agent's instructions; messages as they came; each turn followed by one result per call, in call
order, wherever in the log it was committed; a later word on an uncertain call after the results of the turn it falls
into. Calls and results are paired by ids of our own, since providers' ids repeat and may be empty.
"""

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from wakeful.domain.content import ArtifactRef, CallResult, Content, ProposedCall
from wakeful.domain.drivers import Turn, View
from wakeful.domain.errors import PermanentModelError
from wakeful.domain.history import Conversation, MessageEntry, NoteEntry, TurnEntry
from wakeful.domain.models import ModelMessage, ModelProvider, ModelRequest, ToolSchema
from wakeful.domain.states import InvocationStatus

__all__ = ["AgentDriver", "assemble"]

Fetch = Callable[[ArtifactRef], Awaitable[bytes]] | None

NO_RESULT = CallResult(status=InvocationStatus.CANCELLED, code="no_result", message="the call never got a result")


class AgentDriver:
    """A model with instructions and tools. Stateless: everything it knows is in the view."""

    def __init__(
        self,
        agent: str,
        provider: ModelProvider,
        model: str,
        *,
        instructions: str = "",
        tools: Sequence[ToolSchema] = (),
    ) -> None:
        self._agent, self._provider, self._model = agent, provider, model
        self._instructions, self._tools = instructions, tuple(tools)

    async def next_turn(self, view: View) -> Turn:
        messages = await assemble(view.conversation, view.fetch, instructions=self._instructions)
        response = await self._provider.respond(
            ModelRequest(
                run=view.run,
                agent=self._agent,
                model=self._model,
                messages=messages,
                tools=self._tools if view.tools_allowed else (),
                step=view.step,
                turn_index=sum(1 for entry in view.conversation.entries if isinstance(entry, TurnEntry)),
                continuation=view.continuation,
            )
        )
        if not isinstance(response.calls, tuple):
            raise PermanentModelError(f"provider {self._provider.name} gave its calls as no tuple")
        return Turn(
            content=response.content,
            calls=response.calls,
            silent=response.silent,
            finish_reason=response.finish_reason,
            usage=response.usage,
            provider=self._provider.name,
            model=self._model,
            continuation=response.continuation,
        )


async def assemble(conversation: Conversation, fetch: Fetch, *, instructions: str = "") -> list[ModelMessage]:
    """The messages of a model request: every call is followed by exactly one result."""
    messages = [ModelMessage("system", instructions)] if instructions else []
    for entry in conversation.entries:
        match entry:
            case MessageEntry(role="system"):
                messages.append(ModelMessage("system", await _content(entry.content, fetch)))
            case MessageEntry():
                messages.append(ModelMessage("user", await _content(entry.content, fetch)))
            case TurnEntry():
                messages += _turn(entry if _complete(entry) else await _fetched(entry, fetch))
            case NoteEntry():
                messages.append(ModelMessage("system", _note(entry)))
    return messages


def _turn(turn: TurnEntry) -> list[ModelMessage]:
    ids = tuple([f"s{turn.step}p{record.call.position}" for record in turn.calls])
    calls = tuple([record.call for record in turn.calls])
    assistant = ModelMessage("assistant", turn.content, calls=calls, call_ids=ids)
    results = [
        ModelMessage("tool", call_id=call_id, result=record.result or NO_RESULT)
        for call_id, record in zip(ids, turn.calls, strict=True)
    ]
    return [assistant, *results]


def _complete(turn: TurnEntry) -> bool:
    """Whether everything of the turn stands in the log itself. Nearly all do, and are assembled without waiting."""
    if isinstance(turn.content, ArtifactRef):
        return False
    for record in turn.calls:
        if isinstance(record.call.arguments, ArtifactRef):
            return False
        if record.result is not None and record.result.artifact is not None:
            return False
    return True


async def _fetched(turn: TurnEntry, fetch: Fetch) -> TurnEntry:
    """The turn with what is kept as artifacts in its place."""
    records = [
        replace(
            record,
            call=await _call(record.call, fetch),
            result=None if record.result is None else await _result(record.result, fetch),
        )
        for record in turn.calls
    ]
    return replace(turn, content=await _content(turn.content, fetch), calls=records)


async def _content(content: Content, fetch: Fetch) -> Content:
    if not isinstance(content, ArtifactRef):
        return content
    data = await _bytes(content, fetch)
    return json.loads(data) if content.media_type == "application/json" else data.decode()


async def _call(call: ProposedCall, fetch: Fetch) -> ProposedCall:
    if not isinstance(call.arguments, ArtifactRef):
        return call
    return call.model_copy(update={"arguments": (await _bytes(call.arguments, fetch)).decode()})


async def _result(result: CallResult, fetch: Fetch) -> CallResult:
    if result.artifact is None:
        return result
    return result.model_copy(update={"data": json.loads(await _bytes(result.artifact, fetch))})


async def _bytes(ref: ArtifactRef, fetch: Fetch) -> bytes:
    if fetch is None:
        raise PermanentModelError(f"artifact {ref.artifact_id} is needed, and no artifact store is configured")
    return await fetch(ref)


def _note(entry: NoteEntry) -> str:
    resolution = entry.resolution
    said = "did happen" if resolution.happened else "did not happen"
    note = f" {resolution.note}" if resolution.note else ""
    return f"About the call of {resolution.tool} whose outcome was unknown: it {said}.{note}"
