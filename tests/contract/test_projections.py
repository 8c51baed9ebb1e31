"""The projection engine over every store: exactly once, in order, in one transaction with the watermark."""

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any, ClassVar

import pytest
from support.contract import World, note, outcomes, said

from wakeful.domain.appends import Append
from wakeful.domain.errors import ProjectionStopped
from wakeful.domain.events import Actor, Event, NewEvent
from wakeful.domain.events.runs import RunCheckpointed, UserMessageReceived
from wakeful.domain.ids import new_id
from wakeful.domain.ports.projections import Move
from wakeful.domain.projections import EVERY_DOCUMENT, EveryDocument, Projection, State, StateRef, StateScope
from wakeful.domain.scopes import SessionRef
from wakeful.domain.sessions import Session
from wakeful.domain.states import InvocationStatus
from wakeful.projections.advancing import Outcome, advance, catch_up
from wakeful.projections.following import FollowConfig, Followed, Follower
from wakeful.projections.rebuilding import rebuild

pytestmark = pytest.mark.anyio

MESSAGES = frozenset({UserMessageReceived.TYPE})


class Seen(Projection):
    """Every event's sequence, in the order applied."""

    name: ClassVar[str] = "seen"

    def apply(self, event: Event, state: State) -> None:
        state.put([*(state.get() or []), event.sequence])


class Words(Projection):
    """How often each word was said, by word; a message `bad` cannot be applied."""

    name: ClassVar[str] = "words"
    types: ClassVar[frozenset[str] | None] = MESSAGES

    def keys(self, event: Event) -> Iterable[str]:
        return _words(event)

    def apply(self, event: Event, state: State) -> None:
        for word in _words(event):
            state.put((state.get(word) or 0) + 1, word, position=event.sequence)
            if word == "bad":
                raise ValueError("cannot be counted")
            if word == "forget":
                state.delete(word)


class Told(Projection):
    """A principal's messages in fold order; every third one derives an event."""

    name: ClassVar[str] = "told"
    scope: ClassVar[StateScope] = StateScope.PRINCIPAL
    types: ClassVar[frozenset[str] | None] = MESSAGES
    actor: ClassVar[Actor] = Actor("memory")

    def keys(self, event: Event) -> EveryDocument:
        return EVERY_DOCUMENT

    def apply(self, event: Event, state: State) -> None:
        texts = [*(state.get() or []), " ".join(_words(event))]
        state.put(texts)
        if len(texts) % 3 == 0:
            state.derive("third", RunCheckpointed(trigger="third"))


def _words(event: Event) -> list[str]:
    assert isinstance(event.payload, UserMessageReceived)
    return str(event.payload.content).split()


async def say(world: World, session: SessionRef, *texts: str) -> None:
    await world.store.log.append(Append(session, tuple(said(text) for text in texts)))


def state_of(session: Session) -> StateRef:
    return StateRef(session.scope.tenant_id, session.session_id)


def principal_of(world: World) -> StateRef:
    return StateRef(world.scope.tenant_id, world.scope.principal_id)


async def stored(world: World, projection: Projection, state: StateRef) -> dict[str, Any]:
    found = await world.store.projections.stored(projection, state)
    return {document.key: document.body for document in found.documents}


@pytest.mark.spec("LOG-11")
@pytest.mark.spec("PRJ-2")
async def test_every_event_is_applied_once_in_order_however_small_the_batches(world: World) -> None:
    session = await world.session()
    for number in range(7):
        await say(world, session.ref, f"n{number}")
    found = await catch_up(world.store.projections, Seen(), state_of(session), batch=2)
    assert (found.outcome, found.events) == (Outcome.CAUGHT_UP, 8)
    assert await stored(world, Seen(), state_of(session)) == {"": [1, 2, 3, 4, 5, 6, 7, 8]}
    state = await world.store.projections.stored(Seen(), state_of(session))
    assert (state.version, state.marks) == (1, {session.session_id: 8})


async def test_the_watermark_passes_events_of_other_types(world: World) -> None:
    session = await world.session()
    await say(world, session.ref, "a b a")
    await world.store.log.append(Append(session.ref, (NewEvent(note(), Actor("platform")),)))
    await catch_up(world.store.projections, Words(), state_of(session))
    state = await world.store.projections.stored(Words(), state_of(session))
    assert state.marks == {session.session_id: 3}
    assert [(document.key, document.body, document.position) for document in state.documents] == [
        ("a", 2, 2),
        ("b", 1, 2),
    ]


@pytest.mark.spec("PRJ-2")
async def test_any_number_of_workers_at_once_apply_each_event_once(world: World) -> None:
    session = await world.session()
    for number in range(20):
        await say(world, session.ref, f"n{number}")
    store, state = world.store.projections, state_of(session)
    found, raised = await outcomes(*(catch_up(store, Seen(), state, batch=3) for _ in range(6)))
    assert raised == []
    assert sum(one.events for one in found) == 21
    assert await stored(world, Seen(), state) == {"": list(range(1, 22))}


async def test_a_move_on_what_was_read_before_somebody_elses_changes_nothing(world: World) -> None:
    session = await world.session()
    state = state_of(session)
    await catch_up(world.store.projections, Seen(), state)
    move = Move(state=state, generation=0, session_id=session.session_id, mark=None, through=1)
    assert not await world.store.projections.move(Seen(), move)
    assert not await world.store.projections.move(Seen(), replace(move, mark=0))
    assert not await world.store.projections.move(Seen(), replace(move, mark=1, generation=4))
    assert await stored(world, Seen(), state) == {"": [1]}


async def test_a_move_of_a_session_that_is_gone_changes_nothing(world: World) -> None:
    state = StateRef(world.scope.tenant_id, new_id())
    move = Move(state=state, generation=0, session_id=state.scope, mark=None, through=1)
    assert not await world.store.projections.move(Seen(), move)
    assert (await catch_up(world.store.projections, Seen(), state)).outcome is Outcome.CAUGHT_UP


async def test_a_document_that_is_deleted_is_gone(world: World) -> None:
    session = await world.session()
    await say(world, session.ref, "keep")
    await catch_up(world.store.projections, Words(), state_of(session))
    await say(world, session.ref, "forget keep")
    await catch_up(world.store.projections, Words(), state_of(session))
    assert await stored(world, Words(), state_of(session)) == {"keep": 2}


async def test_a_poisoned_event_stops_its_own_state_with_the_reason_and_nothing_of_it_stays(world: World) -> None:
    session, healthy = await world.session(), await world.session()
    await say(world, session.ref, "one", "two bad", "three")
    await say(world, healthy.ref, "fine")
    follower = Follower(world.store.projections, [Words(), Seen()])
    done = await follower.run_once()
    assert (done.stopped, done.advanced) == (1, 3)
    assert await stored(world, Words(), state_of(session)) == {"one": 1}
    assert await stored(world, Words(), state_of(healthy)) == {"fine": 1}
    assert await stored(world, Seen(), state_of(session)) == {"": [1, 2, 3, 4]}
    (lag,) = await world.store.projections.lag([Words(), Seen()], tenant_id=world.scope.tenant_id)
    assert lag.stop is not None
    assert (lag.projection, lag.session_id, lag.watermark, lag.sequences) == ("words", session.session_id, 2, 2)
    assert (lag.stop.sequence, lag.stop.reason) == (3, "ValueError: cannot be counted")
    assert lag.seconds >= 0
    assert (await follower.run_once()).stopped == 0, "a stopped state is left alone for a while"


async def test_a_stopped_state_goes_on_once_its_code_can_apply_the_event(world: World) -> None:
    class Tolerant(Words):
        def apply(self, event: Event, state: State) -> None:
            for word in _words(event):
                state.put((state.get(word) or 0) + 1, word)

    session = await world.session()
    await say(world, session.ref, "one", "bad", "three")
    await Follower(world.store.projections, [Words()]).run_once()
    impatient = FollowConfig(retry_stopped=timedelta(0))
    assert (await Follower(world.store.projections, [Words()], config=impatient).run_once()).stopped == 1
    assert (await Follower(world.store.projections, [Tolerant()], config=impatient).run_once()).advanced == 1
    assert await stored(world, Words(), state_of(session)) == {"one": 1, "bad": 1, "three": 1}
    assert await world.store.projections.lag([Words()], tenant_id=world.scope.tenant_id) == []


async def test_a_follower_finds_whoever_has_grown_since(world: World) -> None:
    sessions = [await world.session() for _ in range(5)]
    follower = Follower(world.store.projections, [Seen()], config=FollowConfig(sessions=2))
    assert (await follower.run_once()).advanced == 5
    assert await follower.run_once() == Followed()
    await say(world, sessions[1].ref, "more")
    done = await follower.run_once()
    assert (done.advanced, done.events) == (1, 1)


async def test_sessions_of_current_runs_are_found_before_all_others(world: World) -> None:
    for _ in range(6):
        await world.session()
    lease, ended = await world.running(), await world.running()
    await world.end(ended)
    waiting, _ = await world.waiting(InvocationStatus.AWAITING_INPUT)
    everything = {lease.run.session_id, ended.run.session_id}
    found = await world.store.projections.behind_lately(
        [Seen()], within=timedelta(minutes=1), limit=100, retry_stopped=timedelta(0)
    )
    assert {one.session.session_id for one in found} == everything
    assert waiting.session_id not in everything
    follower = Follower(world.store.projections, [Seen()], config=FollowConfig(sessions=1, pages=1))
    for _ in range(9):
        await follower.run_once()
    assert await world.store.projections.lag([Seen()], tenant_id=world.scope.tenant_id) == []


@pytest.mark.spec("PRJ-4")
async def test_lag_counts_what_is_unseen_and_how_old_the_oldest_of_it_is(world: World) -> None:
    session = await world.session()
    await say(world, session.ref, "a", "b")
    (lag,) = await world.store.projections.lag([Seen()], tenant_id=world.scope.tenant_id)
    assert (lag.watermark, lag.last_sequence, lag.sequences, lag.stop) == (0, 3, 3, None)
    assert 0 <= lag.seconds < 60
    await catch_up(world.store.projections, Seen(), state_of(session))
    assert await world.store.projections.lag([Seen()], tenant_id=world.scope.tenant_id) == []


async def test_a_document_that_keys_did_not_name_stops_the_state(world: World) -> None:
    class Sloppy(Seen):
        name: ClassVar[str] = "sloppy"

        def apply(self, event: Event, state: State) -> None:
            state.put(1, "elsewhere")

    session = await world.session()
    found = await catch_up(world.store.projections, Sloppy(), state_of(session))
    assert found.outcome is Outcome.STOPPED
    state = await world.store.projections.stored(Sloppy(), state_of(session))
    assert state.stop is not None
    assert "'elsewhere'" in state.stop.reason


async def test_a_value_that_cannot_be_stored_stops_the_state_at_its_event(world: World) -> None:
    class Broken(Seen):
        name: ClassVar[str] = "broken"

        def apply(self, event: Event, state: State) -> None:
            state.put("nul \x00" if event.sequence == 2 else "fine")

    session = await world.session()
    await say(world, session.ref, "a")
    assert (await catch_up(world.store.projections, Broken(), state_of(session))).outcome is Outcome.STOPPED
    state = await world.store.projections.stored(Broken(), state_of(session))
    assert (state.marks[session.session_id], state.documents[0].body) == (1, "fine")


@pytest.mark.spec("PRJ-3")
async def test_a_rebuild_equals_what_was_there_and_is_served_at_once(world: World) -> None:
    session = await world.session()
    for number in range(9):
        await say(world, session.ref, f"n{number} again")
    state = state_of(session)
    await catch_up(world.store.projections, Words(), state, batch=2)
    before = await world.store.projections.stored(Words(), state)
    rebuilt = await rebuild(world.store.projections, Words(), state, batch=4)
    after = await world.store.projections.stored(Words(), state)
    assert (rebuilt.generation, rebuilt.events, after.generation) == (1, 9, 1)
    assert (after.documents, after.marks, after.version) == (before.documents, before.marks, before.version)


async def test_readers_get_the_old_state_until_the_new_one_is_complete(world: World) -> None:
    session = await world.session()
    await say(world, session.ref, "a", "b", "c")
    store, state = world.store.projections, state_of(session)
    await catch_up(store, Seen(), state)
    before = await store.stored(Seen(), state)
    generation = await store.begin_generation(Seen(), state)
    await advance(store, Seen(), state, generation=generation, batch=2)
    assert await store.stored(Seen(), state) == before
    await say(world, session.ref, "d")
    await catch_up(store, Seen(), state)
    assert await stored(world, Seen(), state) == {"": [1, 2, 3, 4, 5]}
    await catch_up(store, Seen(), state, generation=generation)
    assert await store.swap(Seen(), state, generation=generation)
    assert await store.swap(Seen(), state, generation=generation), "again: unchanged"
    assert (await store.stored(Seen(), state)).generation == generation
    assert await stored(world, Seen(), state) == {"": [1, 2, 3, 4, 5]}
    assert not await store.swap(Seen(), state, generation=generation + 2)


async def test_an_abandoned_rebuild_is_dropped_by_the_next(world: World) -> None:
    session = await world.session()
    await say(world, session.ref, "a", "b", "c")
    store, state = world.store.projections, state_of(session)
    await catch_up(store, Seen(), state)
    generation = await store.begin_generation(Seen(), state)
    await advance(store, Seen(), state, generation=generation, batch=2)
    assert (await rebuild(store, Seen(), state)).generation == generation
    assert await stored(world, Seen(), state) == {"": [1, 2, 3, 4]}


async def test_rebuilds_of_one_state_at_the_same_time_all_end_well(world: World) -> None:
    session = await world.session()
    await say(world, session.ref, *[f"n{number}" for number in range(10)])
    store, state = world.store.projections, state_of(session)
    _, raised = await outcomes(*(rebuild(store, Seen(), state, batch=3) for _ in range(3)))
    assert raised == []
    await catch_up(store, Seen(), state)
    assert await stored(world, Seen(), state) == {"": list(range(1, 12))}


async def test_documents_of_a_generation_that_was_begun_again_are_not_taken_for_those_that_were_read(
    world: World,
) -> None:
    session = await world.session()
    await say(world, session.ref, "a", "b", "c")
    store, state = world.store.projections, state_of(session)
    generation = await store.begin_generation(Seen(), state)
    await advance(store, Seen(), state, generation=generation, batch=2)
    read = await store.read(Seen(), state, generation=generation)
    assert await store.documents(Seen(), state, read, keys=None)
    await store.begin_generation(Seen(), state)
    assert await store.documents(Seen(), state, read, keys=None) is None
    await advance(store, Seen(), state, generation=generation, batch=2)
    documents = await store.documents(Seen(), state, read, keys=None)
    assert documents is not None
    assert documents[""].body == [1, 2], "made again up to the same place it is the same"


async def test_a_newer_builder_builds_anew_and_an_older_one_keeps_its_hands_off(world: World) -> None:
    class Newer(Seen):
        version: ClassVar[int] = 2

        def apply(self, event: Event, state: State) -> None:
            state.put([*(state.get() or []), f"#{event.sequence}"])

    session = await world.session()
    state = state_of(session)
    await Follower(world.store.projections, [Seen()]).run_once()
    assert (await Follower(world.store.projections, [Newer()]).run_once()).rebuilt == 1
    assert await stored(world, Newer(), state) == {"": ["#1"]}
    await say(world, session.ref, "a")
    assert (await Follower(world.store.projections, [Seen()]).run_once()).events == 0
    await Follower(world.store.projections, [Newer()]).run_once()
    assert await stored(world, Newer(), state) == {"": ["#1", "#2"]}


async def test_a_rebuild_that_meets_a_poisoned_event_says_so_and_changes_nothing(world: World) -> None:
    class Newer(Words):
        version: ClassVar[int] = 2

    class First(Words):
        def apply(self, event: Event, state: State) -> None:
            for word in _words(event):
                state.put(1, word)

    session = await world.session()
    await say(world, session.ref, "one", "bad")
    state = state_of(session)
    await catch_up(world.store.projections, First(), state)
    with pytest.raises(ProjectionStopped):
        await rebuild(world.store.projections, Newer(), state)
    assert await stored(world, First(), state) == {"one": 1, "bad": 1}
    (lag,) = await world.store.projections.lag([Newer()], tenant_id=world.scope.tenant_id)
    assert lag.stop is not None
    assert lag.stop.sequence == 3


async def test_a_principals_state_is_folded_over_its_sessions_in_the_order_of_their_times(world: World) -> None:
    one, two = await world.session(), await world.session()
    await world.session(replace(world.scope, principal_id=new_id()))
    for text, session in (("a", one), ("b", two), ("c", one), ("d", two), ("e", two)):
        await say(world, session.ref, text)
    found = await catch_up(world.store.projections, Told(), principal_of(world))
    assert (found.outcome, found.events) == (Outcome.CAUGHT_UP, 5)
    assert await stored(world, Told(), principal_of(world)) == {"": ["a", "b", "c", "d", "e"]}


async def test_projectors_of_two_sessions_of_one_principal_lose_no_fact(world: World) -> None:
    sessions = [await world.session() for _ in range(4)]
    for number in range(5):
        for index, session in enumerate(sessions):
            await say(world, session.ref, f"{number}.{index}")
    store, state = world.store.projections, principal_of(world)
    found, raised = await outcomes(*(catch_up(store, Told(), state, batch=7) for _ in range(5)))
    assert raised == []
    assert sum(one.events for one in found) == 20
    expected = [f"{number}.{index}" for number in range(5) for index in range(4)]
    assert await stored(world, Told(), state) == {"": expected}


async def test_an_event_that_belongs_before_what_was_folded_makes_the_state_be_built_anew(world: World) -> None:
    early, late = await world.session(), await world.session()
    await say(world, early.ref, "first")
    await say(world, late.ref, "second")
    store, state = world.store.projections, principal_of(world)
    read = await store.read(Told(), state)
    (event,) = [event for event in read.events if event.session_id == late.session_id]
    mark = Move(
        state=state,
        generation=0,
        session_id=late.session_id,
        mark=None,
        through=event.sequence,
        last_place=(event.created_at, event.session_id, event.sequence),
    )
    assert await store.move(Told(), mark), "as if the early session's event had not been committed yet"
    assert (await advance(store, Told(), state)).outcome is Outcome.DISORDERED
    assert (await Follower(store, [Told()]).run_once()).rebuilt == 1
    assert await stored(world, Told(), state) == {"": ["first", "second"]}


@pytest.mark.spec("PRJ-7")
async def test_a_derived_event_is_appended_once_to_the_session_of_its_latest_source(world: World) -> None:
    one, two = await world.session(), await world.session()
    for text, session in (("a", one), ("b", one), ("c", two)):
        await say(world, session.ref, text)
    store, state = world.store.projections, principal_of(world)
    await catch_up(store, Told(), state)
    assert (await world.types(two.ref))[-1] == "run.checkpointed"
    (derived,) = [event for event in await world.store.log.read(two.ref) if event.type == "run.checkpointed"]
    assert derived.actor == Actor("memory")
    for _ in range(2):
        await rebuild(store, Told(), state)
    await catch_up(store, Told(), state)
    assert [(await world.types(session.ref)).count("run.checkpointed") for session in (one, two)] == [0, 1]


@pytest.mark.spec("PRJ-7")
async def test_another_builder_version_derives_a_set_of_its_own(world: World) -> None:
    class Newer(Told):
        version: ClassVar[int] = 2

    session = await world.session()
    await say(world, session.ref, "a", "b", "c")
    for projection in (Told(), Newer(), Newer()):
        await Follower(world.store.projections, [projection]).run_once()
    events = [event for event in await world.store.log.read(session.ref) if event.type == "run.checkpointed"]
    assert len({event.event_id for event in events}) == len(events) == 2


async def test_a_move_that_is_refused_derives_nothing(world: World) -> None:
    session = await world.session()
    await say(world, session.ref, "a", "b", "c")
    store, state = world.store.projections, principal_of(world)

    class Racing(Told):
        """Somebody else is faster between reading and writing."""

    class Faster:
        def __getattr__(self, name: str) -> Any:
            return getattr(store, name)

        async def move(self, projection: Projection, move: Move) -> bool:
            await catch_up(store, Told(), state)
            return await store.move(projection, move)

    found = await advance(Faster(), Racing(), state)
    assert found.outcome is Outcome.OVERTAKEN
    assert (await world.types(session.ref)).count("run.checkpointed") == 1
    assert await stored(world, Told(), state) == {"": ["a", "b", "c"]}


async def test_deriving_moves_the_sessions_activity_only_when_the_event_is_activity(world: World) -> None:
    session = await world.session()
    await say(world, session.ref, "a", "b", "c")
    before = (await world.store.sessions.get(world.scope, session.session_id)).updated_at
    await catch_up(world.store.projections, Told(), principal_of(world))
    assert (await world.store.sessions.get(world.scope, session.session_id)).updated_at > before


async def test_states_are_listed_by_scope_in_pages(world: World) -> None:
    sessions = sorted([(await world.session()).session_id for _ in range(3)])
    store, tenant = world.store.projections, world.scope.tenant_id
    first = await store.states(Seen(), tenant_id=tenant, limit=2)
    assert [state.scope for state in first] == sessions[:2]
    rest = await store.states(Seen(), tenant_id=tenant, after=first[-1].scope)
    assert [state.scope for state in rest] == sessions[2:]
    assert await store.states(Told(), tenant_id=tenant) == [principal_of(world)]
    assert await store.states(Told(), tenant_id=new_id()) == []


@pytest.mark.spec("LOG-5")
@pytest.mark.spec("LOG-9")
async def test_another_tenant_has_no_state(world: World) -> None:
    session = await world.session()
    await catch_up(world.store.projections, Seen(), state_of(session))
    stranger = StateRef(new_id(), session.session_id)
    assert (await world.store.projections.stored(Seen(), stranger)).documents == []
    read = await world.store.projections.read(Seen(), stranger)
    assert (read.events, read.marks) == ([], {})
    assert await world.store.projections.documents(Seen(), stranger, read, keys=None) == {}


async def test_a_state_grows_while_it_is_read(world: World) -> None:
    session = await world.session()
    store, state = world.store.projections, state_of(session)

    async def speak() -> None:
        for number in range(30):
            await say(world, session.ref, f"n{number}")
            await asyncio.sleep(0)

    async def follow() -> None:
        for _ in range(10):
            await catch_up(store, Seen(), state, batch=5)
            await asyncio.sleep(0)

    await asyncio.gather(speak(), follow(), follow())
    await catch_up(store, Seen(), state)
    assert await stored(world, Seen(), state) == {"": list(range(1, 32))}
