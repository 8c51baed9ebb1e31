"""What replay's workers serve: one agent whose model and tools answer from the recordings."""

import asyncio
import os
from pathlib import Path
from typing import Any

from wakeful.app import App
from wakeful.domain.errors import ConfigurationError
from wakeful.domain.states import IdempotencyClass
from wakeful.domain.tools import RetryPolicy, Tool, ToolCall, ToolFailed
from wakeful.faults.ledger import LedgerClient
from wakeful.faults.owners import OwnerNotes, WitnessedProvider
from wakeful.faults.replay.plan import Workload, effect_name
from wakeful.faults.replay.workload_file import read_workload
from wakeful.models.recording import RecordedCall
from wakeful.models.replay import ReplayProvider

__all__ = ["AGENT", "NO_RESULT", "RECORDED_ERROR", "WORKLOAD_VARIABLE", "RecordedTools", "replay_app"]

AGENT = "replay"
WORKLOAD_VARIABLE = "REPLAY_WORKLOAD"
"""The environment variable that names a worker's workload. Not a setting: only replay's own workers have it."""
NO_RESULT = "no_result"
"""The code of a result that stands for none: the recording never answered that call."""
RECORDED_ERROR = "recorded_error"
"""The code of a result that the recording marks as an error; its content is the data."""


class RecordedTools:
    """Every tool of the recordings. A call's effect goes into the ledger, its result comes from the recording."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._ledger = LedgerClient(workload.ledger)
        self._once = workload.tool_class is not IdempotencyClass.NON_IDEMPOTENT

    def tools(self) -> list[Tool]:
        return [self._tool(name) for name in self._workload.tools]

    def _tool(self, name: str) -> Tool:
        return Tool(
            name=name,
            description="Answers as it did when it was recorded.",
            parameters={"type": "object"},
            idempotency=self._workload.tool_class,
            function=self._answer,
            validate=dict,
            # A recorded error is a result to keep, not a reason to try again.
            retry=RetryPolicy(attempts=1),
        )

    async def _answer(self, call: ToolCall, /, **arguments: Any) -> Any:
        name, recorded = self._recorded(call)
        result = None if recorded.result is None else recorded.result.content
        # The result is what the ledger stored first, so a repeated key is answered as a real service answers it.
        taken = await self._ledger.record(call.key, name, {"result": result}, once=self._once)
        if self._workload.tool_delay_seconds:
            await asyncio.sleep(self._workload.tool_delay_seconds)
        stored = taken.payload["result"]
        if recorded.result is None:
            raise ToolFailed("the recording holds no result of this call", code=NO_RESULT)
        if recorded.result.is_error:
            raise ToolFailed("the recording marks this result as an error", code=RECORDED_ERROR, data=stored)
        return stored

    def _recorded(self, call: ToolCall) -> tuple[str, RecordedCall]:
        identity, turns_before = self._workload.runs[call.run.run_id]
        turn = turns_before + call.step - 1
        recorded = self._workload.recordings[identity].turns[turn].calls[call.position]
        return effect_name(identity, turn, call.position), recorded


def replay_app(workload: Workload) -> App:
    """The app of a workload."""
    made = App()
    provider = ReplayProvider(workload.recordings)
    made.model_provider("replay", WitnessedProvider(provider, OwnerNotes(workload.owners)))
    tools = [made.add_tool(tool) for tool in RecordedTools(workload).tools()]
    # People repeat themselves in recordings, and so does the replay: the guard against it is off.
    made.agent(AGENT, model="replay:recorded", tools=tools, repeat_limit=None)
    return made


def _app_of_this_process() -> App:
    path = os.environ.get(WORKLOAD_VARIABLE)
    if not path:
        raise ConfigurationError(
            f"this app is started by `wakeful replay`, which says in {WORKLOAD_VARIABLE} what to do"
        )
    return replay_app(read_workload(Path(path)))


def __getattr__(name: str) -> App:
    # Built when a worker asks for it: importing this module needs no workload.
    if name == "app":
        return _app_of_this_process()
    raise AttributeError(name)
