"""What a holder writes as a delta, what full, and what that costs beside the log."""

import json

import pytest
from support.runs import Crash, CrashingLog, Office, office

from wakeful.app import App
from wakeful.domain.appends import Append, Appended
from wakeful.domain.checkpoints import DELTAS_MAX, Base, Checkpoint, CheckpointState, NewCheckpoint, changes, whole
from wakeful.domain.ports.event_log import EventLog
from wakeful.domain.runs import Budget
from wakeful.domain.states import RunStatus
from wakeful.models.scripted import call, calls, say
from wakeful.runtime.chain import Chain

pytestmark = [pytest.mark.anyio, pytest.mark.spec("CKP-1")]

KIB = "x" * 1024
TURNS = 200


class Recording:
    """A log that keeps what is appended to it."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self.appends: list[tuple[Append, Appended]] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._log, name)

    async def append(self, append: Append) -> Appended:
        appended = await self._log.append(append)
        self.appends.append((append, appended))
        return appended

    @property
    def checkpoints(self) -> list[NewCheckpoint]:
        return [append.checkpoint for append, _ in self.appends if append.checkpoint is not None]


def conversation(turns: int) -> Office:
    """An agent that looks something up in every turn, and gets 1 KiB each time."""

    def register(app: App) -> None:
        @app.tool(idempotency="read_only")
        async def look(n: int) -> str:
            """Look."""
            return KIB

        app.agent("agent", model="scripted:agent", tools=[look])

    return office(register, agent=[*(calls(call("look", n=n)) for n in range(turns - 1)), say(KIB)])


def test_after_a_number_of_deltas_the_next_is_full() -> None:
    chain = Chain()
    kinds = []
    for number in range(1, 2 * DELTAS_MAX + 4):
        new = chain.link(NewCheckpoint("turn", CheckpointState()))
        kinds.append(new.base is None)
        chain.written(new, number)
    assert [number for number, full in enumerate(kinds) if full] == [0, DELTAS_MAX + 1, 2 * (DELTAS_MAX + 1)]


@pytest.mark.parametrize("trigger", ["run_start", "compaction", "terminal", "browser_auth_resume"])
def test_a_boundary_is_full_whatever_stands_before_it(trigger: str) -> None:
    chain = Chain(Base(3, CheckpointState()))
    assert chain.link(NewCheckpoint(trigger, CheckpointState())).base is None
    assert chain.link(NewCheckpoint("turn", CheckpointState())).base == chain.base


def test_what_was_written_under_an_unknown_number_is_no_base() -> None:
    chain = Chain(Base(3, CheckpointState()))
    chain.written(chain.link(NewCheckpoint("turn", CheckpointState())), None)
    assert chain.link(NewCheckpoint("turn", CheckpointState())).base is None


async def test_a_run_begins_and_ends_with_a_full_one_and_has_deltas_between() -> None:
    place = conversation(4)
    ref = await place.submit("agent", "Go")
    log = Recording(place.store.log)
    await place.work(log)
    assert [(new.trigger, new.base is None) for new in log.checkpoints] == [
        ("run_start", True),
        *[("tool_pending", False), ("tool_call", False)] * 3,
        ("terminal", True),
    ]
    assert [new.base.number for new in log.checkpoints if new.base] == list(range(1, 7))
    found = await place.store.checkpoints.latest(ref)
    assert found is not None
    assert (found.trigger, found.kind) == ("terminal", "full")
    assert await place.store.checkpoints.drop(ref) == 1


async def test_a_resumed_run_goes_on_with_the_chain_it_came_from() -> None:
    place = conversation(4)
    ref = await place.submit("agent", "Go")
    with pytest.raises(Crash):
        await place.work(CrashingLog(place.store.log, crash_at=5, after=True))
    await place.expire_leases()
    before: Checkpoint | None = await place.store.checkpoints.latest(ref)
    assert before is not None
    assert before.deltas > 0
    log = Recording(place.store.log)
    await place.work(log)
    assert (await place.run(ref)).status is RunStatus.COMPLETED
    assert log.checkpoints[0].base == Base(before.number, before.state)


@pytest.mark.spec("CKP-3")
async def test_checkpoints_of_a_long_conversation_are_a_fifth_of_its_payload_at_most() -> None:
    """Before pruning, counted as they are stored."""
    place = conversation(TURNS)
    ref = await place.submit("agent", "Go", budget=Budget(max_steps=TURNS, max_tool_calls=TURNS))
    log = Recording(place.store.log)
    await place.work(log)
    assert (await place.run(ref)).status is RunStatus.COMPLETED
    assert len(await place.turns(ref)) == TURNS
    states = [whole(new.state) if new.base is None else changes(new.base.state, new.state) for new in log.checkpoints]
    payload = sum(len(event.payload.model_dump_json()) for event in await place.events(ref))
    stored = sum(len(json.dumps(state)) for state in states)
    assert len(states) == 2 * TURNS
    assert stored <= 0.2 * payload, (stored, payload, stored / payload)


def test_a_delta_holds_what_changed_and_nothing_else() -> None:
    before = CheckpointState(continuation={"blob": "b" * 5000}, summary="s" * 5000, summary_through=3)
    after = before.model_copy(update={"summary_through": 4})
    assert changes(before, after) == {"summary_through": 4}
    assert changes(before, before) == {}
