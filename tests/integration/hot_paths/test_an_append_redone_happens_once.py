"""An append whose answer was lost is done again with the same ids, and happened once."""

import asyncio
import gc
import os
import socket

import psycopg
import pytest
from support.contract import World, call
from support.hot_paths import HELD, Admin
from support.notes import noted

from wakeful.domain.appends import RunChange
from wakeful.domain.errors import Fenced, OutcomeUnknown, WakefulError
from wakeful.domain.events.runs import RunCheckpointed, RunCompleted
from wakeful.domain.states import RunStatus
from wakeful.persistence.store import PostgresStore

pytestmark = [pytest.mark.anyio, pytest.mark.gate("sequence_integrity"), pytest.mark.spec("LOG-2")]


async def test_a_backend_ended_before_its_commit_leaves_the_outcome_unknown_and_the_redo_succeeds(
    world: World, store: PostgresStore, admin: Admin
) -> None:
    lease = await world.running()
    request = world.request(lease, RunCheckpointed(trigger=HELD), run=RunChange(add_tokens=3))
    async with admin.holding():
        first = asyncio.create_task(store.log.append(request))
        (pid,) = await admin.waiting(1)
        await admin.fetch("SELECT pg_terminate_backend(%s)", [pid])
        with pytest.raises(OutcomeUnknown):
            await first
    assert not (await store.log.append(request)).repeated
    assert (await store.log.append(request)).repeated
    assert (await world.facts(lease.run)).run.token_count == 3


async def test_an_append_that_commits_after_its_socket_was_cut_is_recognized_by_the_redo(
    world: World, store: PostgresStore, admin: Admin
) -> None:
    lease = await world.running()
    request = world.request(lease, RunCheckpointed(trigger=HELD), run=RunChange(RunStatus.COMPLETED))
    async with admin.holding():
        first = asyncio.create_task(store.log.append(request))
        (pid,) = await admin.waiting(1)
        cut_the_connection_to(pid)
        with pytest.raises(OutcomeUnknown):
            await first
        # Nobody told the server: its statement still waits, and commits when it can.
        redo = asyncio.create_task(store.log.append(request))
        await admin.waiting(2)
    answer = await redo
    assert answer.repeated
    facts = await world.facts(lease.run)
    assert facts.run.status is RunStatus.COMPLETED
    assert facts.types.count("run.checkpointed") == 1


async def test_a_redo_while_the_first_still_waits_for_its_lock_gives_one_success(
    world: World, store: PostgresStore, admin: Admin
) -> None:
    lease = await world.running()
    request = world.request(lease, RunCheckpointed(trigger="x"), run=RunChange(step=1, add_tokens=5))
    async with admin.locking(lease.run.session):
        first = asyncio.create_task(store.log.append(request))
        await admin.waiting(1)
        redo = asyncio.create_task(store.log.append(request))
        await admin.waiting(2)
    answers = await asyncio.gather(first, redo)
    assert sorted(answer.repeated for answer in answers) == [False, True]
    assert answers[0].first_sequence == answers[1].first_sequence
    facts = await world.facts(lease.run)
    assert (facts.run.token_count, facts.types.count("run.checkpointed")) == (5, 1)


async def test_a_redo_of_a_step_finds_it_although_its_calls_have_moved_on(world: World, store: PostgresStore) -> None:
    lease = await world.running()
    new = call(lease.run)
    request = world.request(
        lease, RunCheckpointed(trigger="x"), run=RunChange(step=1, tool_call_count=1), proposals=(new,)
    )
    first = await store.log.append(request)
    await world.start_call(lease, new)
    again = await store.log.append(request)
    assert (again.repeated, again.first_sequence, again.at) == (True, first.first_sequence, first.at)


async def test_a_refused_append_whose_events_are_not_there_stays_refused(world: World, store: PostgresStore) -> None:
    lease = await world.running()
    await world.end(lease)
    with pytest.raises(Fenced):
        await world.append(lease, RunCompleted(steps=1, tool_calls=0))


async def test_ids_of_which_only_some_are_there_are_a_defect_and_change_nothing(
    world: World, store: PostgresStore
) -> None:
    session = (await world.session()).ref
    known, fresh = noted(session, "a", "a"), noted(session, "b", "b")
    await store.log.append(known)
    before = await world.types(session)
    mixed = type(known)(session, (*fresh.events, *known.events))
    with pytest.raises(WakefulError, match="stand in session"):
        await store.log.append(mixed)
    assert await world.types(session) == before
    stored = await world.store.sessions.get(world.scope, session.session_id)
    assert stored.last_sequence == 2


def cut_the_connection_to(pid: int) -> None:
    """End the socket from this side, as a lost network does; the server is told nothing it would look at now."""
    (connection,) = [
        found
        for found in gc.get_objects()
        if isinstance(found, psycopg.AsyncConnection) and not found.closed and found.info.backend_pid == pid
    ]
    with socket.socket(fileno=os.dup(connection.pgconn.socket)) as cut:
        cut.shutdown(socket.SHUT_RDWR)
