"""The agents that the benchmarks run, loaded by worker processes as `benchmarks.sample:app`."""

import asyncio
import json
import time
from statistics import quantiles

from wakeful.app import App
from wakeful.domain.content import ProposedCall
from wakeful.domain.models import ModelRequest, ModelResponse, OnDelta

__all__ = ["CLOCK", "LAG", "PHOENIX", "STEPS", "TRIVIAL", "WAITING", "app"]

CLOCK, TRIVIAL, STEPS, WAITING, LAG = "clock", "trivial", "steps", "waiting", "lag"
PHOENIX = "phoenix"
"""Waits for ever in its first execution, and says in the second when that asked."""

LAG_TICK_SECONDS = 0.01

app = App()


class SampleProvider:
    """A model that takes no time, or all of it."""

    name = "sample"

    async def respond(self, request: ModelRequest, *, on_delta: OnDelta | None = None) -> ModelResponse:
        match request.model:
            case "clock":
                # CLOCK_MONOTONIC is the machine's: the submitter compares it with its own.
                return ModelResponse(content=str(time.monotonic_ns()))
            case "steps":
                return _step(request)
            case "phoenix" if request.run.lease_epoch > 1:
                return ModelResponse(content=str(time.monotonic_ns()))
            case "waiting" | "phoenix":
                await asyncio.Event().wait()
            case "lag":
                return ModelResponse(content=json.dumps(await _lag(float(request.run.metadata["seconds"]))))
        return ModelResponse(content="done")


def _step(request: ModelRequest) -> ModelResponse:
    """One call in each of as many steps as the run's metadata asks for, then the reply."""
    if request.step > request.run.metadata["steps"]:
        return ModelResponse(content="done")
    arguments = json.dumps({"number": request.step})
    return ModelResponse(
        content="x" * request.run.metadata.get("content_bytes", 0),
        calls=(ProposedCall(position=0, tool="double", arguments=arguments, provider_call_id="call_0"),),
        finish_reason="tool_calls",
    )


async def _lag(seconds: float) -> dict[str, float]:
    """By how much the loop was late for a tick, over so many seconds."""
    late: list[float] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        due = time.monotonic() + LAG_TICK_SECONDS
        await asyncio.sleep(LAG_TICK_SECONDS)
        late.append((time.monotonic() - due) * 1000)
    cuts = quantiles(late, n=100)
    return {"p50_ms": cuts[49], "p99_ms": cuts[98], "max_ms": max(late)}


@app.tool(idempotency="idempotent")
async def double(number: int) -> dict[str, int]:
    """Twice the number."""
    return {"number": number * 2}


app.model_provider("sample", SampleProvider())
app.agent(CLOCK, model="sample:clock")
app.agent(TRIVIAL, model="sample:trivial")
app.agent(STEPS, model="sample:steps", tools=[double])
app.agent(WAITING, model="sample:waiting")
app.agent(LAG, model="sample:lag")
app.agent(PHOENIX, model="sample:phoenix")
