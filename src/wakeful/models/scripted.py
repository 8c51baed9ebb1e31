"""A provider that plays scripts: for tests, demonstrations and examples without a model."""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from wakeful.domain.content import Content, ProposedCall, Usage
from wakeful.domain.errors import PermanentModelError
from wakeful.domain.models import ModelRequest, ModelResponse, OnDelta
from wakeful.models.streaming import stream
from wakeful.models.summaries import summary_of

__all__ = ["Line", "Script", "ScriptedProvider", "call", "calls", "last_result", "say"]

Line = ModelResponse | str | Exception
"""What a script says: a response, a text (a final reply), or an exception to raise."""

Script = Callable[[ModelRequest], Line] | Sequence[Line]
"""A function of the request, or one line per assistant message of the session."""

NO_TIME = timedelta(0)


def say(text: str, **usage: int) -> ModelResponse:
    """A final reply; `input_tokens` and `output_tokens` say what it cost."""
    return ModelResponse(content=text, usage=_usage(usage, text))


def call(tool: str, /, **arguments: Any) -> ProposedCall:
    """One call, to be given to `calls`."""
    return ProposedCall(position=0, tool=tool, arguments=json.dumps(arguments, ensure_ascii=False))


def calls(*proposed: ProposedCall, text: Content = None) -> ModelResponse:
    """A turn that proposes calls, numbered in the order given."""
    numbered = tuple(
        each.model_copy(update={"position": index, "provider_call_id": each.provider_call_id or f"call_{index}"})
        for index, each in enumerate(proposed)
    )
    return ModelResponse(content=text, calls=numbered, finish_reason="tool_calls", usage=_usage({}, str(text or "")))


def last_result(request: ModelRequest, tool: str) -> Any:
    """The data of the newest result of `tool` in the request, None when there is none: what scripts decide by."""
    names: dict[str, str] = {}
    found: Any = None
    # Forward, because the ids that pair calls and results count anew in each run.
    for message in request.messages:
        names.update(zip(message.call_ids, (each.tool for each in message.calls), strict=False))
        if message.result is not None and names.get(message.call_id or "") == tool:
            found = message.result.data
    return found


class ScriptedProvider:
    """Plays the script that the agent's model names (`scripted:<name>`).

    It remembers nothing: the line is a pure function of the request, so after a crash the same line comes again.
    A script that counts for itself loses that. A summary is no line of a script. `latency` is how long each line
    takes.
    """

    name = "scripted"

    def __init__(self, scripts: Mapping[str, Script], *, latency: timedelta = NO_TIME) -> None:
        self._scripts = dict(scripts)
        self._latency = latency

    async def respond(self, request: ModelRequest, *, on_delta: OnDelta | None = None) -> ModelResponse:
        """The script's line for this request. Raises the line when it is an exception, and PermanentModelError when
        there is no such script or it has ended."""
        if request.purpose == "summary":
            return summary_of(request)
        script = self._scripts.get(request.model)
        if script is None:
            known = ", ".join(sorted(self._scripts)) or "none"
            raise PermanentModelError(f"no script {request.model!r} (there are: {known})", code="unknown_script")
        if self._latency:
            await asyncio.sleep(self._latency.total_seconds())
        response = _response(script(request) if callable(script) else _line(script, request))
        await stream(response.content, on_delta)
        return response


def _line(script: Sequence[Line], request: ModelRequest) -> Line:
    if request.turn_index >= len(script):
        return PermanentModelError(
            f"script {request.model!r} has {len(script)} lines, line {request.turn_index + 1} was asked for",
            code="script_ended",
        )
    return script[request.turn_index]


def _response(line: Line) -> ModelResponse:
    if isinstance(line, Exception):
        raise line
    return say(line) if isinstance(line, str) else line


def _usage(given: Mapping[str, int], text: str) -> Usage:
    # Four characters a token is what English text comes to; budgets need some figure, not a true one.
    return Usage(**{"output_tokens": len(text) // 4 + 1, **given})
