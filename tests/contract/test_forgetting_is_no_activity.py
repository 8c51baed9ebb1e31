"""What the memory forgets by itself is logged and moves no session up in lists; everything else does."""

from typing import ClassVar
from uuid import UUID

import pytest
from support.contract import Store, World, said
from support.desk import Wakes, backend

from wakeful.client import Wakeful
from wakeful.domain.appends import Append
from wakeful.domain.events import Actor, NewEvent
from wakeful.domain.events.envelope import Payload
from wakeful.domain.ids import new_id

pytestmark = [pytest.mark.anyio, pytest.mark.spec("LOG-7")]


class Decayed(Payload):
    TYPE: ClassVar[str] = "memory.decayed"


class Retired(Payload):
    TYPE: ClassVar[str] = "memory.retired"


class Formed(Payload):
    TYPE: ClassVar[str] = "memory.formed"


MEMORY = Actor("memory")
FORGETTING = [Decayed, Retired]


@pytest.mark.parametrize("kind", FORGETTING)
async def test_forgetting_takes_a_sequence_and_leaves_the_activity_alone(world: World, kind: type[Payload]) -> None:
    before = await world.session()
    appended = await world.store.log.append(Append(before.ref, (NewEvent(kind(), MEMORY),)))
    after = await world.store.sessions.get(world.scope, before.session_id)
    assert after.updated_at == before.updated_at < appended.at
    assert (appended.first_sequence, after.last_sequence) == (2, 2)
    assert [event.created_at for event in await world.store.log.read(before.ref, after=1)] == [appended.at]


@pytest.mark.parametrize(
    "event",
    [
        *(NewEvent(kind(), Actor("user")) for kind in FORGETTING),
        *(NewEvent(kind(), MEMORY, run_id=new_id()) for kind in FORGETTING),
        NewEvent(Formed(), MEMORY),
    ],
    ids=lambda event: f"{event.type} by {event.actor.type}, {'in a run' if event.run_id else 'no run'}",
)
async def test_whatever_is_not_the_memorys_own_forgetting_is_activity(world: World, event: NewEvent) -> None:
    session = await world.session()
    appended = await world.store.log.append(Append(session.ref, (event,)))
    assert (await world.store.sessions.get(world.scope, session.session_id)).updated_at == appended.at


async def test_an_append_that_holds_activity_as_well_is_activity(world: World) -> None:
    session = await world.session()
    appended = await world.store.log.append(Append(session.ref, (NewEvent(Decayed(), MEMORY), said("hello"))))
    assert (await world.store.sessions.get(world.scope, session.session_id)).updated_at == appended.at


async def test_a_client_lists_by_the_activity_that_forgetting_leaves_alone(store: Store) -> None:
    wakeful = Wakeful(backend(store, Wakes()), tenant="acme", principal="ada")
    old, middle, new = [await wakeful.sessions.create(agent="desk") for _ in range(3)]

    async def listed() -> list[UUID]:
        first = await wakeful.sessions.list(limit=2)
        return [found.session_id for found in (*first, *await wakeful.sessions.list(after=first[-1].session_id))]

    await store.log.append(Append(old.record.ref, (NewEvent(Decayed(), MEMORY),)))
    assert await listed() == [new.record.session_id, middle.record.session_id, old.record.session_id]
    await middle.submit("hello")
    assert await listed() == [middle.record.session_id, new.record.session_id, old.record.session_id]
