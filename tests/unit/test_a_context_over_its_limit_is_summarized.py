"""Compaction: the model summarizes what outgrew the limit; the log keeps everything, a checkpoint the text."""

import pytest
from support.runs import Office, office

from wakeful.app import App
from wakeful.domain.checkpoints import Checkpoint
from wakeful.domain.content import Usage
from wakeful.domain.errors import ConfigurationError
from wakeful.domain.models import ModelRequest, ModelResponse, OnDelta
from wakeful.domain.scopes import RunRef
from wakeful.domain.states import RunStatus
from wakeful.models.scripted import ScriptedProvider, call, calls, say

pytestmark = [pytest.mark.anyio, pytest.mark.spec("CKP-1", "CKP-2")]

LIMIT = 4000
WORDS = "w" * 1000
LOOKS = 10


class Listening(ScriptedProvider):
    """Keeps what it is asked."""

    name = "listening"

    def __init__(self) -> None:
        super().__init__({"agent": [*(calls(call("look", n=n)) for n in range(LOOKS)), say("Done.")]})
        self.asked: list[ModelRequest] = []

    async def respond(self, request: ModelRequest, *, on_delta: OnDelta | None = None) -> ModelResponse:
        self.asked.append(request)
        return await super().respond(request, on_delta=on_delta)

    def of(self, purpose: str) -> list[ModelRequest]:
        return [request for request in self.asked if request.purpose == purpose]


def build(limit: int | None = LIMIT) -> tuple[Office, Listening]:
    provider = Listening()

    def register(app: App) -> None:
        @app.tool(idempotency="read_only")
        async def look(n: int) -> str:
            """Look."""
            return WORDS

        app.model_provider("listening", provider)
        app.agent("agent", model="listening:agent", tools=[look], instructions="Help.", context_limit_bytes=limit)

    return office(register), provider


def size(request: ModelRequest) -> int:
    """Bytes of the text of a request, without names and instructions."""
    texts = [str(m.content or "") + str(m.result.data if m.result else "") for m in request.messages[1:]]
    return sum(len(text) for text in texts)


async def latest(place: Office, ref: RunRef) -> Checkpoint:
    found = await place.store.checkpoints.latest(ref)
    assert found is not None
    return found


async def test_no_turn_is_asked_with_more_than_the_limit_and_the_log_keeps_everything() -> None:
    place, provider = build()
    ref = await place.submit("agent", "Go")
    await place.work()
    run = await place.run(ref)
    assert run.status is RunStatus.COMPLETED
    assert len(provider.of("turn")) == LOOKS + 1
    assert max(size(request) for request in provider.of("turn")) <= LIMIT
    assert len(await place.turns(ref)) == LOOKS + 1
    assert (await place.types(ref)).count("context.compacted") == len(provider.of("summary")) > 1


async def test_without_a_limit_nothing_is_summarized() -> None:
    place, provider = build(limit=None)
    ref = await place.submit("agent", "Go")
    await place.work()
    assert provider.of("summary") == []
    assert size(provider.asked[-1]) > LIMIT
    assert "context.compacted" not in await place.types(ref)


async def test_a_summary_takes_the_place_of_what_it_stands_for_and_goes_into_the_next() -> None:
    place, provider = build()
    await place.submit("agent", "Go")
    await place.work()
    first, second = provider.of("summary")[:2]
    after = provider.asked[provider.asked.index(first) + 1]
    assert [message.role for message in after.messages[:3]] == ["system", "system", "assistant"]
    told = str(after.messages[1].content)
    assert f"A summary of {len(first.messages) - 1} messages" in told
    assert second.messages[1].content == told
    assert first.tools == ()


async def test_the_text_stands_in_a_full_checkpoint_and_in_no_event() -> None:
    place, _ = build()
    ref = await place.submit("agent", "Go")
    await place.work()
    found = await latest(place, ref)
    assert found.state.summary is not None
    assert found.state.summary not in str(await place.events(ref))
    [*_, last] = [e for e in await place.events(ref) if e.type == "context.compacted"]
    assert found.state.summary_through == last.payload.model_dump()["through_sequence"]


async def stopped_after_compaction() -> tuple[Office, Listening, RunRef]:
    """A run whose worker was lost between a summary and the turn behind it."""
    place, provider = build()
    ref = await place.submit("agent", "Go")
    [claim] = await place.claim()
    holding = place.holding(claim)
    ask = provider.respond

    async def respond(request: ModelRequest, *, on_delta: OnDelta | None = None) -> ModelResponse:
        if provider.of("summary") and request.purpose == "turn":
            holding.lost = True
            holding.changed.set()
        return await ask(request, on_delta=on_delta)

    provider.respond = respond  # type: ignore[method-assign]
    await place.executor().execute(holding)
    provider.respond = ask  # type: ignore[method-assign]
    await place.expire_leases()
    assert (await place.types(ref)).count("context.compacted") == 1
    provider.asked.clear()
    return place, provider, ref


async def test_a_resumed_run_goes_on_with_the_summary_of_its_checkpoint() -> None:
    place, provider, ref = await stopped_after_compaction()
    assert ((await latest(place, ref)).trigger, (await latest(place, ref)).kind) == ("compaction", "full")
    await place.work()
    assert provider.asked[0].purpose == "turn"
    assert "A summary of" in str(provider.asked[0].messages[1].content)
    assert (await place.run(ref)).status is RunStatus.COMPLETED


@pytest.mark.spec("CKP-4")
@pytest.mark.gate("checkpoint_dispensable")
async def test_losing_the_checkpoint_costs_the_summary_again_and_nothing_else() -> None:
    place, provider, ref = await stopped_after_compaction()
    await place.store.checkpoints.drop(ref)
    await place.work()
    assert [request.purpose for request in provider.asked[:2]] == ["summary", "turn"]
    assert (await place.run(ref)).status is RunStatus.COMPLETED
    assert len(await place.turns(ref)) == LOOKS + 1
    assert len(provider.of("turn")) == LOOKS + 1 - provider.asked[1].turn_index
    through = [e.payload.model_dump()["through_sequence"] for e in await place.events(ref) if e.type == COMPACTED]
    assert through == sorted(set(through))


COMPACTED = "context.compacted"


async def test_a_model_that_gives_no_summary_fails_the_run_with_a_code_of_its_own() -> None:
    place, provider = build()
    ref = await place.submit("agent", "Go")
    ask = provider.respond

    async def respond(request: ModelRequest, *, on_delta: OnDelta | None = None) -> ModelResponse:
        if request.purpose == "summary":
            return ModelResponse(content=None, usage=Usage())
        return await ask(request, on_delta=on_delta)

    provider.respond = respond  # type: ignore[method-assign]
    await place.work()
    run = await place.run(ref)
    assert run.failure is not None
    assert (run.status, run.failure.code) == (RunStatus.FAILED, "no_summary")


def test_a_limit_that_makes_no_sense_is_refused() -> None:
    app = App()
    app.model_provider("scripted", ScriptedProvider({}))
    with pytest.raises(ConfigurationError, match="context_limit_bytes"):
        app.agent("agent", model="scripted:agent", context_limit_bytes=0)
