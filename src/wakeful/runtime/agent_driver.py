"""The agent driver: assembles the context from session history and asks a model.

Context, in order: the agent's instructions; the summary of what outgrew the agent's limit; messages as they came; each
turn followed by one result per call, in call order, wherever in the log it was committed; a later word on an uncertain
call after the results of the turn it falls into. Calls and results are paired by ids of our own, since providers' ids
repeat and may be empty.
"""

import json
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace

from wakeful.domain.content import ArtifactRef, CallResult, Content, ProposedCall
from wakeful.domain.drivers import Summary, Turn, View
from wakeful.domain.errors import PermanentModelError
from wakeful.domain.history import Entry, MessageEntry, NoteEntry, TurnEntry
from wakeful.domain.models import ModelMessage, ModelProvider, ModelRequest, ToolSchema
from wakeful.domain.states import InvocationStatus
from wakeful.runtime.context_limit import cut

__all__ = ["AgentDriver", "assemble"]

_SUMMARIZE = (
    "Summarize the conversation so far for yourself: you will go on with the summary in its place. Keep what was "
    "asked, what was decided, what was found and done, with names, numbers and identifiers, and what is still open."
)

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
        context_limit_bytes: int | None = None,
    ) -> None:
        self._agent, self._provider, self._model = agent, provider, model
        self._instructions, self._tools = instructions, tuple(tools)
        self._context_limit_bytes = context_limit_bytes

    async def next_turn(self, view: View) -> Turn:
        messages = await assemble(_recent(view), view.fetch, instructions=self._instructions, summary=view.summary)
        request = replace(
            self._request(view, messages),
            tools=self._tools if view.tools_allowed else (),
            continuation=view.continuation,
        )
        response = await self._provider.respond(request)
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

    async def compact(self, view: View) -> Summary | None:
        if self._context_limit_bytes is None:
            return None
        recent = _recent(view)
        through = cut(recent, self._context_limit_bytes, summary_bytes=len((view.summary or "").encode()))
        if through is None:
            return None
        older = [entry for entry in recent if entry.sequence <= through]
        messages = await assemble(older, view.fetch, instructions=self._instructions, summary=view.summary)
        messages.append(ModelMessage("user", _SUMMARIZE))
        response = await self._provider.respond(replace(self._request(view, messages), purpose="summary"))
        if not isinstance(response.content, str) or not response.content.strip():
            raise PermanentModelError(f"provider {self._provider.name} gave no text as a summary", code="no_summary")
        return Summary(response.content, through, response.usage)

    def _request(self, view: View, messages: list[ModelMessage]) -> ModelRequest:
        return ModelRequest(
            run=view.run,
            agent=self._agent,
            model=self._model,
            messages=messages,
            step=view.step,
            turn_index=sum(1 for entry in view.conversation.entries if isinstance(entry, TurnEntry)),
        )


def _recent(view: View) -> Sequence[Entry]:
    """What the summary, if there is one, does not stand for."""
    entries = view.conversation.entries
    if view.summary is None or view.summary_through is None:
        return entries
    return entries[bisect_right(entries, view.summary_through, key=lambda entry: entry.sequence) :]


async def assemble(
    entries: Iterable[Entry], fetch: Fetch, *, instructions: str = "", summary: str | None = None
) -> list[ModelMessage]:
    """The messages of a model request: every call is followed by exactly one result."""
    messages = [ModelMessage("system", instructions)] if instructions else []
    if summary is not None:
        messages.append(ModelMessage("system", f"What was said before, in short:\n{summary}"))
    for entry in entries:
        match entry:
            case MessageEntry(role="system"):
                messages.append(ModelMessage("system", await _content(entry.content, fetch)))
            case MessageEntry():
                messages.append(ModelMessage("user", await _content(entry.content, fetch)))
            case TurnEntry():
                messages += entry.rendered or _turn(entry if _complete(entry) else await _fetched(entry, fetch))
            case NoteEntry():
                messages.append(ModelMessage("system", _note(entry)))
    return messages


def _turn(turn: TurnEntry) -> tuple[ModelMessage, ...]:
    ids = tuple([f"s{turn.step}p{record.call.position}" for record in turn.calls])
    calls = tuple([record.call for record in turn.calls])
    assistant = ModelMessage("assistant", turn.content, calls=calls, call_ids=ids)
    results = [
        ModelMessage("tool", call_id=call_id, result=record.result or NO_RESULT)
        for call_id, record in zip(ids, turn.calls, strict=True)
    ]
    messages = (assistant, *results)
    if not turn.unanswered:
        turn.rendered = messages
    return messages


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
