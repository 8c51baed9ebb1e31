"""Within one session commit order is sequence order, so a reader with a watermark sees every event exactly once."""

import asyncio
import random
from datetime import UTC, datetime

import pytest
from support.contract import World
from support.database import Database
from support.hot_paths import HELD, Admin, Writer
from support.notes import noted

from wakeful.domain.events.runs import RunCheckpointed
from wakeful.domain.scopes import SessionRef
from wakeful.persistence.store import PostgresStore

pytestmark = [pytest.mark.anyio, pytest.mark.gate("sequence_integrity")]


class Reader:
    """Keeps one watermark per session, as a projection does, and polls."""

    def __init__(self, store: PostgresStore, *sessions: SessionRef) -> None:
        self._store = store
        self._watermarks = dict.fromkeys(sessions, 0)
        self.seen: dict[SessionRef, list[str]] = {session: [] for session in sessions}

    async def look(self) -> None:
        for session, watermark in self._watermarks.items():
            for event in await self._store.log.read(session, after=watermark, limit=7):
                assert event.sequence > self._watermarks[session]
                self._watermarks[session] = event.sequence
                if isinstance(event.payload, RunCheckpointed):
                    self.seen[session].append(event.payload.trigger)

    async def follow(self, done: asyncio.Event) -> None:
        while not done.is_set():
            await self.look()
            await asyncio.sleep(0.002)  # leaves the writers some of the processor
        # A look reads seven at a time at most.
        for _ in range(200):
            await self.look()


async def following(reader: Reader, *work: "asyncio.Task[object] | asyncio.Future[object]") -> None:
    done = asyncio.Event()
    watching = asyncio.create_task(reader.follow(done))
    await asyncio.gather(*work)
    done.set()
    await watching


async def logged(admin: Admin, session: SessionRef) -> list[str]:
    return [text for _, text in await admin.events(session)]


@pytest.mark.spec("LOG-1")
@pytest.mark.spec("LOG-4")
@pytest.mark.spec("LOG-5")
async def test_a_reader_beside_many_appenders_of_one_session_sees_each_event_once_and_in_order(
    world: World, store: PostgresStore, admin: Admin
) -> None:
    session = (await world.session()).ref

    async def append(name: str) -> None:
        for number in range(15):
            await store.log.append(noted(session, f"{name}-{number}"))

    reader = Reader(store, session)
    await following(reader, *(asyncio.ensure_future(append(f"w{number}")) for number in range(12)))
    assert reader.seen[session] == await logged(admin, session)
    assert len(set(reader.seen[session])) == 12 * 15


@pytest.mark.spec("LOG-4")
async def test_processes_that_write_into_shared_sessions_interleave_without_a_gap_that_matters(
    world: World, store: PostgresStore, admin: Admin, database: Database
) -> None:
    sessions = [(await world.session()).ref for _ in range(2)]
    reader = Reader(store, *sessions)

    async def write(session: SessionRef, name: str) -> None:
        async with Writer(database, session, name, 40) as writer:
            assert await writer.ended() == 0
            assert writer.acknowledged == 40

    await following(reader, *(asyncio.ensure_future(write(session, f"p{n}")) for n, session in enumerate(sessions * 2)))
    for session in sessions:
        assert reader.seen[session] == await logged(admin, session)
        assert len(set(reader.seen[session])) == 80


@pytest.mark.spec("LOG-5")
async def test_gaps_in_the_sequence_stall_no_reader(world: World, store: PostgresStore, admin: Admin) -> None:
    """A rolled-back append gives its sequence back with the counter, so gaps are made by moving the counter on."""
    session = (await world.session()).ref
    choose = random.Random(7)

    async def append() -> None:
        for number in range(60):
            await store.log.append(noted(session, str(number)))

    async def tear() -> None:
        for _ in range(30):
            statement = "UPDATE wakeful.sessions SET next_event_sequence = next_event_sequence + %s WHERE id = %s"
            await admin.fetch(statement, [choose.randint(1, 5), session.session_id])

    reader = Reader(store, session)
    await following(reader, asyncio.ensure_future(append()), asyncio.ensure_future(tear()))
    found = await admin.events(session)
    sequences = [sequence for sequence, _ in found]
    assert sequences[-1] - sequences[0] > len(sequences)
    assert reader.seen[session] == [text for _, text in found] == [str(number) for number in range(60)]


@pytest.mark.spec("LOG-4")
@pytest.mark.spec("LOG-5")
async def test_behind_an_invisible_event_its_session_waits_and_other_sessions_go_on(
    world: World, store: PostgresStore, admin: Admin
) -> None:
    held, other = (await world.session()).ref, (await world.session()).ref
    reader = Reader(store, held, other)
    async with admin.holding():
        first = asyncio.create_task(store.log.append(noted(held, HELD)))
        await admin.waiting(1)
        second = asyncio.create_task(store.log.append(noted(held, "behind")))
        await admin.waiting(2)
        await store.log.append(noted(other, "aside"))
        await reader.look()
        assert reader.seen == {held: [], other: ["aside"]}
        assert not first.done()
        assert not second.done()
    appended = await first, await second
    assert appended[0].last_sequence < appended[1].first_sequence
    assert appended[0].at <= appended[1].at
    await reader.look()
    assert reader.seen[held] == [HELD, "behind"]


@pytest.mark.spec("LOG-2")
@pytest.mark.spec("LOG-4")
async def test_writers_killed_at_any_moment_leave_each_event_once_when_somebody_redoes_them(
    world: World, store: PostgresStore, admin: Admin, database: Database
) -> None:
    session = (await world.session()).ref
    choose = random.Random(11)
    reader = Reader(store, session)

    async def write(name: str) -> None:
        start = 0
        for kill_after in (choose.randint(1, 15), None):
            async with Writer(database, session, name, 25, start=start) as writer:
                if kill_after is None:
                    assert await writer.ended() == 0
                else:
                    await writer.until(max(kill_after, start))
                    writer.kill()
                    await writer.ended()
            # What it was told of is committed; the one in flight may be, and is done again under the same id.
            start = writer.acknowledged
        assert start >= 25

    await following(reader, *(asyncio.ensure_future(write(f"k{n}")) for n in range(3)))
    texts = await logged(admin, session)
    assert reader.seen[session] == texts
    assert sorted(texts) == sorted(f"k{writer}-{number}" for writer in range(3) for number in range(25))


@pytest.mark.spec("LOG-2")
async def test_a_writer_killed_between_insert_and_commit_leaves_nothing_and_keeps_nobody_waiting(
    world: World, store: PostgresStore, admin: Admin
) -> None:
    session = (await world.session()).ref
    reader = Reader(store, session)
    async with admin.holding():
        lost = asyncio.create_task(store.log.append(noted(session, HELD, "lost")))
        (pid,) = await admin.waiting(1)
        behind = asyncio.create_task(store.log.append(noted(session, "behind")))
        await admin.waiting(2)
        await admin.fetch("SELECT pg_terminate_backend(%s)", [pid])
        await behind
        await reader.look()
    with pytest.raises(Exception, match="do the same again"):
        await lost
    await store.log.append(noted(session, HELD, "lost"))
    await reader.look()
    assert reader.seen[session] == ["behind", HELD]


async def test_the_time_of_an_append_is_taken_after_it_waited_for_its_session(
    world: World, store: PostgresStore, admin: Admin
) -> None:
    session = (await world.session()).ref
    async with admin.locking(session):
        append = asyncio.create_task(store.log.append(noted(session, "late")))
        await admin.waiting(1)
        ((before,),) = await admin.fetch("SELECT clock_timestamp()")
    assert (await append).at >= before
    assert before < datetime.now(UTC)
