"""A provider that says what a model once said."""

from collections.abc import Mapping

from wakeful.domain.content import ProposedCall
from wakeful.domain.errors import PermanentModelError
from wakeful.domain.models import ModelRequest, ModelResponse, OnDelta
from wakeful.models.recording import RecordedTurn, Recording
from wakeful.models.streaming import stream
from wakeful.models.summaries import summary_of

__all__ = ["RECORDING", "ReplayProvider"]

RECORDING = "recording"
"""The key of a run's metadata that names its recording; without it, the agent's model does (`replay:<id>`)."""


class ReplayProvider:
    """Answers from a recording by the number of assistant messages that the session holds.

    It remembers nothing, so a turn that a crash lost is given again, the same. It is silent, which ends the run,
    when the recording goes on with a message of somebody else's, or not at all.
    """

    name = "replay"

    def __init__(self, recordings: Mapping[str, Recording]) -> None:
        self._recordings = recordings

    async def respond(self, request: ModelRequest, *, on_delta: OnDelta | None = None) -> ModelResponse:
        """The recorded turn. Raises PermanentModelError for a recording it does not have, and when the session has
        left the recording's path."""
        if request.purpose == "summary":
            return summary_of(request)
        turn = self._turn(request)
        if turn is None:
            return ModelResponse(silent=True)
        await stream(turn.content, on_delta)
        calls = tuple(
            ProposedCall(
                position=position, tool=call.tool, arguments=call.arguments, provider_call_id=call.provider_call_id
            )
            for position, call in enumerate(turn.calls)
        )
        return ModelResponse(content=turn.content, calls=calls, finish_reason="tool_calls" if calls else "stop")

    def _turn(self, request: ModelRequest) -> RecordedTurn | None:
        identity = str(request.run.metadata.get(RECORDING, request.model))
        if identity not in self._recordings:
            raise PermanentModelError(f"no recording {identity!r} was loaded", code="unknown_recording")
        turns = self._recordings[identity].turns
        if request.turn_index >= len(turns):
            return None
        turn = turns[request.turn_index]
        if turn.step == request.step:
            return turn
        if turn.step == 1:
            return None
        raise PermanentModelError(
            f"recording {identity!r}: turn {request.turn_index} is step {turn.step} of its run, the run is at step "
            f"{request.step}: the session has left the recording",
            code="replay_diverged",
        )
