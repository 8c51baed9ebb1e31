"""The stories of the demonstration, undisturbed and in memory: each ends, and has the effects it declares."""

from collections import Counter
from collections.abc import Iterator

import pytest
from support.in_process import worker_in_process

from wakeful.client import Backend, Wakeful
from wakeful.demo.acting import Played, attend, play, submit
from wakeful.demo.desk import desk_app, effect, owner_notes
from wakeful.demo.stories import FOLLOW_UP, STORIES
from wakeful.domain.states import IdempotencyClass, PriorityClass
from wakeful.faults.ledger import LedgerProcess
from wakeful.persistence.memory import MemoryStore

pytestmark = pytest.mark.anyio


@pytest.fixture
def ledger() -> Iterator[LedgerProcess]:
    with LedgerProcess() as process:
        yield process


async def test_every_story_ends_with_the_effects_it_declares(ledger: LedgerProcess) -> None:
    store = MemoryStore()
    wakeful = Wakeful(Backend(store), tenant="t", principal="p")
    cast: list[Played] = []
    async with worker_in_process(store, desk_app(ledger.client(), owner_notes(ledger.socket))):
        await play(wakeful, STORIES, cast)
    assert [(each.story.name, each.ended and each.ended.status.value) for each in cast] == [
        (story.name, "COMPLETED") for story in STORIES
    ]
    expected = Counter(effect(each.session.id, what) for each in cast for what in each.story.effects)
    assert ledger.read().counts() == expected
    replies = {each.story.name: await each.run.result() for each in cast}
    assert replies["where is it"] == "Your office chair is on its way."
    assert replies["compare (parallel batch)"] == "4 orders, 1236.00 in all."


async def test_a_follow_up_without_a_resolution_does_not_pretend_to_know(ledger: LedgerProcess) -> None:
    store = MemoryStore()
    wakeful = Wakeful(Backend(store), tenant="t", principal="p")
    async with worker_in_process(store, desk_app(ledger.client(), owner_notes(ledger.socket))):
        played = await submit(wakeful, FOLLOW_UP)
        await attend(played)
    assert await played.run.result() == "We still do not know."


def test_the_stories_cover_every_priority_class_and_the_desk_every_idempotency_class(ledger: LedgerProcess) -> None:
    app = desk_app(ledger.client(), owner_notes(ledger.socket))
    assert {tool.idempotency for tool in app.tools} == set(IdempotencyClass)
    assert {story.priority for story in STORIES} == set(PriorityClass)
    assert len(STORIES) == 12
