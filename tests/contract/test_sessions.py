"""Sessions: opened once, owned by one principal, listed by activity, closed once."""

from dataclasses import replace

import pytest
from support.contract import World, outcomes

from wakeful.domain.errors import Conflict, InvalidInput, InvalidPayload, NotFound, SessionBusy
from wakeful.domain.events.runs import SessionCreated
from wakeful.domain.ids import new_id
from wakeful.domain.scopes import Scope
from wakeful.domain.sessions import NewSession

pytestmark = [pytest.mark.anyio, pytest.mark.spec("ORM-4")]


async def test_a_session_is_opened_with_its_event(world: World) -> None:
    new = NewSession(world.scope, "helper", title="Über 日本", metadata={"k": [1, None]})
    session = await world.store.sessions.create(new)
    assert (session.scope, session.session_id, session.agent) == (world.scope, new.session_id, "helper")
    assert (session.title, session.metadata, session.purpose) == (new.title, new.metadata, None)
    assert (session.status, session.closed, session.closed_at, session.last_sequence) == ("active", False, None, 1)
    (event,) = await world.store.log.read(session.ref)
    assert event.payload == SessionCreated(agent="helper", title=new.title)
    assert (event.sequence, event.actor.id) == (1, str(world.scope.principal_id))
    assert session.updated_at == event.created_at
    assert session.created_at <= session.updated_at


async def test_opening_the_same_session_again_returns_it_unchanged(world: World) -> None:
    new = NewSession(world.scope, "helper", title="first")
    session = await world.store.sessions.create(new)
    again = await world.store.sessions.create(replace(new, agent="other", title="second"))
    assert again == session
    assert await world.types(session.ref) == ["session.created"]


async def test_one_id_opens_one_session_however_many_open_it_at_once(world: World) -> None:
    new = NewSession(world.scope, "helper")
    answers, raised = await outcomes(*(world.store.sessions.create(new) for _ in range(5)))
    assert raised == []
    assert len({answer.created_at for answer in answers}) == 1
    assert await world.types(answers[0].ref) == ["session.created"]


async def test_an_id_that_another_principal_took_is_a_conflict(world: World) -> None:
    session = await world.session()
    with pytest.raises(Conflict):
        await world.session(Scope(world.scope.tenant_id, new_id()), session_id=session.session_id)
    assert await world.store.sessions.get(world.scope, session.session_id) == session


async def test_the_same_id_in_another_tenant_is_another_session(world: World) -> None:
    mine = await world.session()
    other = Scope(new_id(), world.scope.principal_id)
    theirs = await world.session(other, session_id=mine.session_id, title="theirs")
    assert theirs.title == "theirs"
    assert await world.store.sessions.get(world.scope, mine.session_id) == mine


async def test_a_tenant_has_one_session_for_a_purpose(world: World) -> None:
    await world.session(purpose="rebuild")
    with pytest.raises(Conflict):
        await world.session(purpose="rebuild")
    await world.session(purpose="retention")
    await world.session(Scope(new_id(), new_id()), purpose="rebuild")


async def test_metadata_that_cannot_be_stored_is_refused(world: World) -> None:
    with pytest.raises(InvalidPayload):
        await world.session(metadata={"a": "\x00"})
    assert await world.store.sessions.page(world.scope) == []


async def test_what_was_given_and_what_was_read_share_nothing_with_the_store(world: World) -> None:
    metadata = {"list": [1]}
    session = await world.session(metadata=metadata)
    metadata["list"].append(2)
    session.metadata["list"].append(3)
    assert (await world.store.sessions.get(world.scope, session.session_id)).metadata == {"list": [1]}


@pytest.mark.spec("LOG-9")
@pytest.mark.parametrize("method", ["get", "close"])
async def test_sessions_of_other_owners_look_unknown(world: World, method: str) -> None:
    session = await world.session()
    act = getattr(world.store.sessions, method)
    for scope in (Scope(world.scope.tenant_id, new_id()), Scope(new_id(), world.scope.principal_id)):
        with pytest.raises(NotFound) as refused:
            await act(scope, session.session_id)
        assert str(refused.value) == str(NotFound("session", session.session_id))
    with pytest.raises(NotFound):
        await act(world.scope, new_id())
    assert await world.store.sessions.get(world.scope, session.session_id) == session


@pytest.mark.spec("LOG-7")
async def test_sessions_are_listed_by_latest_activity(world: World) -> None:
    sessions = [await world.session() for _ in range(3)]
    await world.store.queue.submit(world.submission(sessions[0], "hello"))
    page = await world.store.sessions.page(world.scope)
    expected = [sessions[0].session_id, sessions[2].session_id, sessions[1].session_id]
    assert [session.session_id for session in page] == expected


async def test_pages_follow_each_other_without_gap_or_repetition(world: World) -> None:
    sessions = [(await world.session()).session_id for _ in range(5)]
    first = await world.store.sessions.page(world.scope, limit=2)
    second = await world.store.sessions.page(world.scope, limit=2, after=first[-1].session_id)
    third = await world.store.sessions.page(world.scope, limit=2, after=second[-1].session_id)
    assert [s.session_id for s in (*first, *second, *third)] == sessions[::-1]
    assert await world.store.sessions.page(world.scope, limit=2, after=third[-1].session_id) == []


@pytest.mark.spec("LOG-9")
async def test_only_the_owners_sessions_are_listed(world: World) -> None:
    await world.session(Scope(world.scope.tenant_id, new_id()))
    await world.session(Scope(new_id(), world.scope.principal_id))
    mine = await world.session()
    assert await world.store.sessions.page(world.scope) == [mine]


@pytest.mark.parametrize("limit", [0, -1, 1001])
async def test_a_page_size_that_is_none_is_refused(world: World, limit: int) -> None:
    with pytest.raises(InvalidInput):
        await world.store.sessions.page(world.scope, limit=limit)


async def test_a_session_is_closed_with_its_event(world: World) -> None:
    session = await world.session()
    closed = await world.store.sessions.close(world.scope, session.session_id)
    (_, event) = await world.store.log.read(session.ref)
    assert (closed.closed, closed.closed_at) == (True, event.created_at)
    assert (event.type, closed.last_sequence) == ("session.closed", 2)
    assert await world.store.sessions.get(world.scope, session.session_id) == closed


async def test_closing_again_changes_nothing(world: World) -> None:
    session = await world.session()
    closed = await world.store.sessions.close(world.scope, session.session_id)
    assert await world.store.sessions.close(world.scope, session.session_id) == closed
    assert await world.types(session.ref) == ["session.created", "session.closed"]


async def test_a_session_with_an_active_run_cannot_be_closed(world: World) -> None:
    lease = await world.running()
    before = await world.facts(lease.run)
    with pytest.raises(SessionBusy):
        await world.store.sessions.close(world.scope, lease.run.session_id)
    assert await world.facts(lease.run) == before
    await world.end(lease)
    assert (await world.store.sessions.close(world.scope, lease.run.session_id)).closed
