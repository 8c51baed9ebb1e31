"""The client over every store: open, submit, follow, answer, stop."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from support.contract import Store
from support.desk import DeskWorker, Wakes, backend

from wakeful.client import Message, PriorityClass, RunHandle, RunStatus, SessionHandle, Wakeful
from wakeful.domain.content import ArtifactRef
from wakeful.domain.errors import (
    AlreadyAnswered,
    ConfigurationError,
    Conflict,
    IdempotencyConflict,
    InvalidInput,
    InvalidPayload,
    NotFound,
    RunFailure,
    SessionBusy,
    SessionClosed,
    Timeout,
    Unavailable,
)
from wakeful.domain.events import Event
from wakeful.domain.events.runs import UserMessageReceived
from wakeful.domain.ports.event_log import EventLog
from wakeful.domain.states import InvocationStatus

pytestmark = pytest.mark.anyio


@pytest.fixture
def wakes() -> Wakes:
    return Wakes()


@pytest.fixture
def wakeful(store: Store, wakes: Wakes) -> Wakeful:
    return Wakeful(backend(store, wakes), tenant="acme", principal="ada")


@pytest.fixture
def worker(store: Store) -> DeskWorker:
    return DeskWorker(store)


@pytest.fixture
async def session(wakeful: Wakeful) -> SessionHandle:
    return await wakeful.sessions.create(agent="desk")


async def events_of(run: RunHandle, after: int = 0) -> list[Event]:
    return [event async for event in run.events(after=after)]


async def test_a_submitted_run_is_executed_and_its_result_is_the_final_reply(
    session: SessionHandle, worker: DeskWorker
) -> None:
    run = await session.submit("hello")
    await worker.work()
    assert await run.result() == "You said: hello"
    assert (await run.read()).status is RunStatus.COMPLETED


async def test_a_silent_run_has_no_result(session: SessionHandle, worker: DeskWorker) -> None:
    run = await session.submit("silent")
    await worker.work()
    assert await run.result() is None


async def test_a_failed_run_raises_its_stored_code(session: SessionHandle, worker: DeskWorker) -> None:
    run = await session.submit("fail")
    await worker.work()
    with pytest.raises(RunFailure) as raised:
        await run.result()
    assert raised.value.code == "unwilling"


async def test_a_cancelled_run_raises_cancelled(session: SessionHandle) -> None:
    run = await session.submit("hello")
    done = await run.cancel(reason="changed my mind")
    assert (done.applied, done.status) == (True, RunStatus.CANCELLED)
    assert (await run.cancel()).applied is False
    with pytest.raises(RunFailure) as raised:
        await run.result()
    assert raised.value.code == "cancelled"


async def test_waiting_ends_with_timeout_and_the_run_goes_on(session: SessionHandle) -> None:
    run = await session.submit("hello")
    with pytest.raises(Timeout, match=str(run.id)):
        await run.result(timeout=0.05)
    assert (await run.read()).status is RunStatus.QUEUED


async def test_events_come_in_order_each_once_and_end_with_the_run(session: SessionHandle, worker: DeskWorker) -> None:
    run = await session.submit("hello")
    following = asyncio.create_task(events_of(run))
    await worker.work()
    events = await following
    sequences = [event.sequence for event in events]
    assert sequences == sorted(set(sequences))
    assert [event.type for event in events][:2] == ["user.message.received", "run.queued"]
    assert events[-1].type == "run.completed"


async def test_events_resume_behind_a_sequence(session: SessionHandle, worker: DeskWorker) -> None:
    run = await session.submit("hello")
    await worker.work()
    everything = await events_of(run)
    middle = everything[2].sequence
    assert await events_of(run, after=middle) == everything[3:]


async def test_events_behind_the_end_of_an_ended_run_are_none(session: SessionHandle, worker: DeskWorker) -> None:
    run = await session.submit("hello")
    await worker.work()
    last = (await events_of(run))[-1].sequence
    assert await events_of(run, after=last) == []


async def test_events_are_of_this_run_only(session: SessionHandle, worker: DeskWorker) -> None:
    for text in ("one", "two"):
        run = await session.submit(text)
        await worker.work()
    assert {event.run_id for event in await events_of(run)} == {run.id}


class Interrupted:
    """A log whose reads fail a number of times."""

    def __init__(self, log: EventLog, failures: int) -> None:
        self._log, self.failures = log, failures

    def __getattr__(self, name: str) -> object:
        return getattr(self._log, name)

    async def read(self, *arguments: object, **options: object) -> list[Event]:
        if self.failures:
            self.failures -= 1
            raise Unavailable("gone for a moment")
        return await self._log.read(*arguments, **options)  # type: ignore[arg-type]


class WithLog:
    def __init__(self, store: Store, log: object) -> None:
        self._store, self.log = store, log

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)


async def test_following_survives_disconnects(store: Store, session: SessionHandle, worker: DeskWorker) -> None:
    run = await session.submit("hello")
    await worker.work()
    expected = await events_of(run)
    log = Interrupted(store.log, failures=4)
    broken = Wakeful(backend(WithLog(store, log)), tenant="acme", principal="ada")
    assert await events_of(await broken.runs.get(run.id)) == expected
    assert log.failures == 0


async def test_one_key_gives_one_run_also_while_it_is_active(session: SessionHandle, worker: DeskWorker) -> None:
    first = await session.submit("hello", key="ticket-1")
    again = await session.submit("hello", key="ticket-1")
    await worker.work()
    later = await session.submit("hello", key="ticket-1")
    assert (first.created, again.created, later.created) == (True, False, False)
    assert first.id == again.id == later.id


async def test_a_key_with_another_request_is_a_conflict(session: SessionHandle) -> None:
    await session.submit("hello", key="ticket-1")
    with pytest.raises(IdempotencyConflict, match="ticket-1"):
        await session.submit("goodbye", key="ticket-1")


async def test_the_same_relative_deadline_said_twice_is_the_same_request(session: SessionHandle) -> None:
    first = await session.submit("hello", key="k", deadline=timedelta(hours=1))
    assert (await session.submit("hello", key="k", deadline=timedelta(hours=1))).id == first.id


async def test_a_session_with_an_active_run_is_busy(session: SessionHandle) -> None:
    await session.submit("hello")
    with pytest.raises(SessionBusy):
        await session.submit("another")


async def test_a_closed_session_takes_no_run(wakeful: Wakeful, session: SessionHandle) -> None:
    assert (await session.close()).closed
    assert (await wakeful.sessions.close(session.id)).closed
    with pytest.raises(SessionClosed):
        await session.submit("hello")


async def test_a_session_with_an_active_run_is_not_closed(session: SessionHandle) -> None:
    await session.submit("hello")
    with pytest.raises(SessionBusy):
        await session.close()


async def test_opening_the_same_session_again_finds_it(wakeful: Wakeful) -> None:
    chosen = uuid4()
    first = await wakeful.sessions.create(agent="desk", title="one", session_id=chosen)
    again = await wakeful.sessions.create(agent="desk", title="two", session_id=chosen)
    assert (again.id, again.record.title) == (first.id, "one")


async def test_a_question_is_answered_and_the_run_goes_on(
    session: SessionHandle, worker: DeskWorker, wakes: Wakes
) -> None:
    run = await session.submit("ask What colour?")
    await worker.work()
    [question] = await run.wait_for_calls(timeout=5)
    assert (question.question, question.status) == ("What colour?", InvocationStatus.AWAITING_INPUT)
    done = await run.answer("blue")
    assert (done.applied, done.status) == (True, RunStatus.QUEUED)
    assert wakes.given == [PriorityClass.INTERACTIVE, PriorityClass.INTERACTIVE]
    await worker.work()
    assert "blue" in await run.result()
    assert await run.calls() == []


async def test_a_call_answered_twice_is_a_conflict(session: SessionHandle, worker: DeskWorker) -> None:
    run = await session.submit("ask-twice")
    await worker.work()
    first, second = await run.calls()
    await run.answer("one", call=first.id)
    with pytest.raises(AlreadyAnswered):
        await run.answer("another", call=first.id)
    assert [call.id for call in await run.calls()] == [second.id]


async def test_with_several_open_questions_one_has_to_say_which(session: SessionHandle, worker: DeskWorker) -> None:
    run = await session.submit("ask-twice")
    await worker.work()
    first, second = await run.calls()
    with pytest.raises(Conflict, match=f"{first.id}, {second.id}"):
        await run.answer("one")


async def test_an_approved_call_is_executed(session: SessionHandle, worker: DeskWorker) -> None:
    run = await session.submit("refund")
    await worker.work()
    [asked] = await run.calls()
    assert (asked.tool, asked.parsed, asked.question) == ("refund", {"order": 7}, None)
    await run.approve(note="fine")
    await worker.work()
    assert await run.result() == "refund: COMPLETED"


async def test_a_denied_call_is_told_to_the_model(session: SessionHandle, worker: DeskWorker) -> None:
    run = await session.submit("refund")
    await worker.work()
    await run.deny(note="too much")
    await worker.work()
    assert await run.result() == "refund: DENIED"


async def test_nothing_to_answer_is_not_found(session: SessionHandle) -> None:
    run = await session.submit("hello")
    with pytest.raises(NotFound):
        await run.answer("blue")
    with pytest.raises(NotFound):
        await run.approve(call=uuid4())


async def test_an_uncertain_call_is_resolved_once(session: SessionHandle, worker: DeskWorker) -> None:
    run = await session.submit("wire")
    await worker.work()
    assert await run.result() == "wire: UNCERTAIN"
    await run.resolve(happened=True, note="seen on the statement")
    with pytest.raises(Conflict):
        await run.resolve(happened=False)
    assert (await run.history())[-1].type == "tool.call.resolved"


async def test_submit_wakes_the_class_after_it_is_queued(session: SessionHandle, wakes: Wakes) -> None:
    await session.submit("hello", priority="async")
    assert wakes.given == [PriorityClass.ASYNC]


async def test_a_run_for_later_wakes_nobody(session: SessionHandle, wakes: Wakes, worker: DeskWorker) -> None:
    run = await session.submit("hello", scheduled_for=timedelta(hours=1))
    assert wakes.given == []
    assert await worker.work() == []
    scheduled = (await run.read()).scheduled_for
    assert scheduled is not None
    assert timedelta(minutes=59) < scheduled - datetime.now(UTC) < timedelta(minutes=61)


async def test_messages_may_be_given_in_every_documented_form(session: SessionHandle) -> None:
    parts = [{"type": "text", "text": "three"}]
    given: list[str | Message | dict[str, Any]] = [
        "one",
        Message("two", role="system"),
        {"role": "user", "content": parts},
    ]
    run = await session.submit(given)
    payloads = [event.payload for event in await run.history()]
    messages = [payload for payload in payloads if isinstance(payload, UserMessageReceived)]
    assert [(m.role, m.content) for m in messages] == [("user", "one"), ("system", "two"), ("user", parts)]


async def test_a_large_message_becomes_an_artifact_and_is_understood(store: Store, worker: DeskWorker) -> None:
    small = Wakeful(backend(store, inline_payload_bytes=1024), tenant="acme", principal="ada")
    session = await small.sessions.create(agent="desk")
    text = "long " + "x" * 5000
    run = await session.submit(text)
    [message] = [e.payload for e in await run.history() if isinstance(e.payload, UserMessageReceived)]
    assert isinstance(message.content, ArtifactRef)
    assert message.content.size_bytes == len(text)
    await worker.work()
    assert await run.result() == f"You said: {text}"


@pytest.mark.parametrize("text", ["a\x00b", "a\ud800b"], ids=["NUL", "lone surrogate"])
async def test_text_that_cannot_be_stored_is_refused_before_anything_happens(session: SessionHandle, text: str) -> None:
    with pytest.raises(InvalidPayload):
        await session.submit(text)
    with pytest.raises(InvalidPayload):
        await session.submit("hello", metadata={"note": text})
    with pytest.raises(InvalidPayload):
        await session.submit("hello", key=text)
    assert (await session.read()).last_sequence == session.record.last_sequence


async def test_json_20000_deep_is_refused(session: SessionHandle) -> None:
    deep: list[object] = []
    for _ in range(20_000):
        deep = [deep]
    with pytest.raises(InvalidPayload, match="nested deeper"):
        await session.submit("hello", metadata={"deep": deep})


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ({"priority": "urgent"}, "priority class 'urgent'"),
        ({"scheduled_for": datetime(2030, 1, 1)}, "time zone"),
        ({"key": ""}, "1 to 512"),
        ({"messages": [{"role": "assistant", "content": "I"}]}, "assistant"),
        ({"messages": [7]}, "int"),
        ({"messages": [{"text": "hello"}]}, "text"),
    ],
)
async def test_a_wrong_argument_is_named(session: SessionHandle, arguments: dict[str, object], what: str) -> None:
    with pytest.raises(InvalidInput, match=what):
        await session.submit(**({"messages": "hello"} | arguments))  # type: ignore[arg-type]


async def test_another_owners_session_and_run_do_not_exist(wakeful: Wakeful, session: SessionHandle) -> None:
    run = await session.submit("hello")
    for tenant, principal in (("other", None), (None, "other")):
        with pytest.raises(NotFound):
            await wakeful.sessions.get(session.id, tenant=tenant, principal=principal)
        with pytest.raises(NotFound):
            await wakeful.runs.get(run.id, tenant=tenant, principal=principal)
        assert await wakeful.runs.list(tenant=tenant, principal=principal) == []
        assert await wakeful.sessions.list(tenant=tenant, principal=principal) == []


async def test_owners_are_uuids_or_text_that_stands_for_one(wakeful: Wakeful) -> None:
    tenant = uuid4()
    by_uuid = await wakeful.sessions.create(agent="desk", tenant=tenant)
    assert by_uuid.record.scope.tenant_id == tenant
    assert (await wakeful.sessions.get(by_uuid.id, tenant=str(tenant))).id == by_uuid.id
    assert wakeful.sessions.scope(tenant="acme") == wakeful.sessions.scope(tenant="acme")
    assert wakeful.sessions.scope(tenant="acme").tenant_id != wakeful.sessions.scope(tenant="acme2").tenant_id


async def test_an_owner_cannot_be_left_out(store: Store) -> None:
    nobody = Wakeful(backend(store))
    with pytest.raises(InvalidInput, match="tenant"):
        await nobody.sessions.create(agent="desk")
    with pytest.raises(InvalidInput, match="principal"):
        await nobody.runs.list(tenant="acme")


async def test_an_id_that_is_no_uuid_is_named(wakeful: Wakeful) -> None:
    with pytest.raises(InvalidInput, match="'seven' is no run id"):
        await wakeful.runs.get("seven")


async def test_runs_are_listed_newest_first_and_page_by_page(
    wakeful: Wakeful, session: SessionHandle, worker: DeskWorker
) -> None:
    ids: list[UUID] = []
    for number in range(3):
        ids.append((await session.submit(f"number {number}")).id)
        await worker.work()
    page = await wakeful.runs.list(limit=2)
    rest = await wakeful.runs.list(limit=2, before=page[-1].ref.run_id)
    assert [run.ref.run_id for run in [*page, *rest]] == ids[::-1]
    assert await wakeful.runs.list(session=session.id, statuses=[RunStatus.FAILED]) == []


async def test_a_sessions_events_go_on_until_the_reader_stops(session: SessionHandle, worker: DeskWorker) -> None:
    run = await session.submit("hello")
    await worker.work()
    seen = []
    async for event in session.events():
        seen.append(event.type)
        if event.type == "run.completed":
            break
    assert seen[0] == "session.created"
    assert (await run.history())[-1].type == "run.completed"


async def test_a_store_without_transactions_of_callers_says_so(session: SessionHandle) -> None:
    with pytest.raises(ConfigurationError, match="PostgreSQL"):
        await session.submit("hello", connection=object())
