"""Sessions: opening, closing and paging."""

import asyncio
from dataclasses import replace
from typing import ClassVar
from uuid import uuid4

import pytest
from support.acting import World

from wakeful.domain.errors import Conflict, InvalidInput, InvalidPayload, SessionBusy, SessionGone
from wakeful.domain.events import Actor, NewEvent
from wakeful.domain.events.envelope import Payload
from wakeful.domain.scopes import Scope
from wakeful.domain.sessions import NewSession
from wakeful.domain.states import RunStatus

pytestmark = pytest.mark.anyio

ADA = Scope(uuid4(), uuid4())


async def logged(world: World, session_id: object) -> list[tuple[int, str]]:
    found = await world.admin.execute(
        "SELECT sequence, event_type FROM wakeful.events WHERE session_id = %s ORDER BY sequence", [session_id]
    )
    return [(row["sequence"], row["event_type"]) for row in await found.fetchall()]


async def test_opening_again_with_the_same_id_finds_the_session(world: World) -> None:
    new = NewSession(ADA, "support", title="refunds", metadata={"ticket": 7})
    first = await world.sessions.create(new)
    again = await world.sessions.create(replace(new, title="another"))
    assert again == first
    assert (first.title, first.metadata, first.last_sequence) == ("refunds", {"ticket": 7}, 1)
    assert await logged(world, first.session_id) == [(1, "session.created")]


async def test_a_new_tenant_opens_many_sessions_at_once(world: World) -> None:
    new = NewSession(ADA, "support")
    opened = await asyncio.gather(
        *(world.sessions.create(new) for _ in range(4)),
        *(world.sessions.create(NewSession(ADA, "support")) for _ in range(4)),
    )
    assert len({session.session_id for session in opened}) == 5
    assert await logged(world, new.session_id) == [(1, "session.created")]


async def test_another_principals_id_is_taken(world: World) -> None:
    new = NewSession(ADA, "support")
    await world.sessions.create(new)
    with pytest.raises(Conflict, match="taken"):
        await world.sessions.create(replace(new, scope=Scope(ADA.tenant_id, uuid4())))


async def test_a_tenant_has_one_session_for_a_purpose(world: World) -> None:
    await world.sessions.create(NewSession(ADA, "keeper", purpose="maintenance"))
    with pytest.raises(Conflict, match="maintenance"):
        await world.sessions.create(NewSession(ADA, "keeper", purpose="maintenance"))
    await world.sessions.create(NewSession(Scope(uuid4(), uuid4()), "keeper", purpose="maintenance"))


@pytest.mark.spec("DEL-1")
async def test_a_deleted_sessions_id_is_never_used_again(world: World) -> None:
    session_id = uuid4()
    await world.insert(
        "session_deletions",
        {"tenant_id": ADA.tenant_id, "session_id": session_id, "principal_id": ADA.principal_id},
    )
    with pytest.raises(SessionGone):
        await world.sessions.create(NewSession(ADA, "support", session_id=session_id))


async def test_what_cannot_be_stored_is_refused(world: World) -> None:
    for broken in (
        NewSession(ADA, "support", title="a\x00"),
        NewSession(ADA, "support", metadata={"x": float("inf")}),
    ):
        with pytest.raises(InvalidPayload):
            await world.sessions.create(broken)


async def test_closing_is_an_event_and_closing_again_changes_nothing(world: World) -> None:
    session = await world.sessions.create(NewSession(ADA, "support"))
    closed = await world.sessions.close(ADA, session.session_id)
    assert closed.closed
    assert closed.closed_at == closed.updated_at
    assert await world.sessions.close(ADA, session.session_id) == closed
    assert await logged(world, session.session_id) == [(1, "session.created"), (2, "session.closed")]


async def test_a_session_with_an_active_run_stays_open(world: World) -> None:
    run = await world.run(RunStatus.WAITING_INPUT, scope=ADA)
    with pytest.raises(SessionBusy):
        await world.sessions.close(ADA, run.session_id)
    await world.control.cancel(ADA, run.run_id)
    assert (await world.sessions.close(ADA, run.session_id)).closed


@pytest.mark.spec("LOG-7")
async def test_pages_are_by_latest_activity_and_complete(world: World) -> None:
    runs = [await world.run(scope=ADA) for _ in range(5)]
    await world.control.cancel(ADA, runs[1].run_id)
    wanted = [runs[n].session_id for n in (1, 4, 3, 2, 0)]
    paged, after = [], None
    while page := await world.sessions.page(ADA, limit=2, after=after):
        after = page[-1].session_id
        paged += [session.session_id for session in page]
    assert paged == wanted


async def test_runs_page_newest_first_by_session_and_status(world: World) -> None:
    runs = [await world.run(scope=ADA) for _ in range(5)]
    await world.control.cancel(ADA, runs[2].run_id)
    paged, before = [], None
    while page := await world.runs.page(ADA, limit=2, before=before):
        before = page[-1].ref.run_id
        paged += [run.ref for run in page]
    assert paged == runs[::-1]
    assert [r.ref for r in await world.runs.page(ADA, statuses=[RunStatus.CANCELLED])] == [runs[2]]
    assert [r.ref for r in await world.runs.page(ADA, session_id=runs[0].session_id)] == [runs[0]]


@pytest.mark.parametrize("limit", [0, -1, 1001])
async def test_a_page_has_a_bounded_size(world: World, limit: int) -> None:
    with pytest.raises(InvalidInput, match="limit"):
        await world.sessions.page(ADA, limit=limit)
    with pytest.raises(InvalidInput, match="limit"):
        await world.runs.page(ADA, limit=limit)


class Decayed(Payload):
    TYPE: ClassVar[str] = "memory.decayed"


@pytest.mark.spec("LOG-7")
async def test_forgetting_in_a_unit_of_work_leaves_the_activity_alone(world: World) -> None:
    opened = await world.sessions.create(NewSession(ADA, "support"))
    for actor, moves in ((Actor("memory"), False), (Actor("user"), True)):
        async with world.units.begin(ADA.tenant_id) as unit:
            before = await unit.sessions.lock(opened.session_id)
            stand = await unit.log.append(opened.session_id, [NewEvent(Decayed(), actor)])
        after = await world.sessions.get(ADA, opened.session_id)
        assert after.updated_at == (stand.at if moves else before.updated_at)
        assert before.updated_at < stand.at
