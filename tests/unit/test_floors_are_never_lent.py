"""Slots: a floor per class, and the rest shared."""

import pytest

from wakeful.actors.slots import Slots
from wakeful.domain.errors import ConfigurationError
from wakeful.domain.states import PriorityClass

INTERACTIVE, ASYNC, MAINTENANCE = PriorityClass


def take(slots: Slots, priority: PriorityClass, count: int) -> None:
    for _ in range(count):
        slots.take(priority)


@pytest.mark.spec("QUE-2")
def test_a_flood_of_one_class_leaves_the_others_their_floors() -> None:
    slots = Slots(10, floors={INTERACTIVE: 2, ASYNC: 1, MAINTENANCE: 1})
    take(slots, MAINTENANCE, slots.capacity([MAINTENANCE])[MAINTENANCE])
    assert slots.used == 7
    assert slots.capacity() == {INTERACTIVE: 2, ASYNC: 1}


def test_one_claim_is_never_offered_more_than_there_is() -> None:
    slots = Slots(10, floors={ASYNC: 3})
    assert slots.capacity() == {INTERACTIVE: 7, ASYNC: 3}


def test_shared_slots_go_to_the_next_class_when_the_most_urgent_one_is_not_asked_for() -> None:
    slots = Slots(10, floors={ASYNC: 3})
    assert slots.capacity([ASYNC, MAINTENANCE]) == {ASYNC: 10}
    assert slots.capacity([MAINTENANCE]) == {MAINTENANCE: 7}


def test_a_released_slot_is_offered_again() -> None:
    slots = Slots(1)
    slots.take(ASYNC)
    assert slots.capacity() == {}
    slots.release(ASYNC)
    assert slots.capacity() == {INTERACTIVE: 1}


def test_a_floor_is_refilled_before_shared_slots_count() -> None:
    slots = Slots(4, floors={INTERACTIVE: 2})
    take(slots, INTERACTIVE, 3)
    slots.release(INTERACTIVE)
    assert slots.capacity([ASYNC]) == {ASYNC: 2}


def test_an_adopted_run_may_exceed_the_slots_and_nothing_is_offered_until_there_is_room() -> None:
    slots = Slots(1)
    take(slots, INTERACTIVE, 2)
    slots.release(INTERACTIVE)
    assert slots.capacity() == {}


@pytest.mark.parametrize(
    ("total", "floors", "classes", "says"),
    [
        (2, {INTERACTIVE: 2, ASYNC: 1}, tuple(PriorityClass), "do not fit"),
        (2, {INTERACTIVE: 2}, tuple(PriorityClass), "no slot is left for class async, maintenance"),
        (2, {ASYNC: 1}, (INTERACTIVE,), "does not serve"),
        (0, {}, (INTERACTIVE,), "at least one"),
        (2, {}, (), "at least one"),
        (2, {INTERACTIVE: -1}, (INTERACTIVE,), "less than 0"),
    ],
)
def test_slots_that_cannot_work_are_refused(
    total: int, floors: dict[PriorityClass, int], classes: tuple[PriorityClass, ...], says: str
) -> None:
    with pytest.raises(ConfigurationError, match=says):
        Slots(total, floors=floors, classes=classes)
