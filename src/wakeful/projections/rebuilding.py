"""Building a state from zero beside the served one, and serving it once it has caught up.

A rebuild that is killed leaves a generation nobody reads; beginning again drops it. Derived events carry their key,
so that building again appends only what was never derived.
"""

from collections.abc import Callable
from dataclasses import dataclass

from wakeful.domain.errors import ProjectionStopped, Unavailable
from wakeful.domain.ports.projections import Projections
from wakeful.domain.projections import Projection, StateRef
from wakeful.projections.advancing import BATCH, Outcome, advance

__all__ = ["Rebuilt", "rebuild"]

ATTEMPTS = 10
"""How often a rebuild begins again because others rebuild the same state, or write to it out of order."""


@dataclass(frozen=True, slots=True)
class Rebuilt:
    generation: int
    events: int
    """Events folded, those of abandoned attempts left out."""


async def rebuild(
    store: Projections,
    projection: Projection,
    state: StateRef,
    *,
    batch: int = BATCH,
    after_batch: Callable[[int], None] = lambda _events: None,
) -> Rebuilt:
    """Build the next generation from the whole log and swap it in. Until then the old one is served.

    Raises ProjectionStopped when an event cannot be applied, and Unavailable when others kept coming between; the old
    generation is served on then.
    """
    for attempt in range(ATTEMPTS):
        # What others have built meanwhile is as good as one's own: they would drop each other's for ever.
        generation = await store.begin_generation(projection, state, anew=attempt == 0)
        events = await _build(store, projection, state, generation, batch, after_batch)
        if events is not None and await store.swap(projection, state, generation=generation):
            return Rebuilt(generation, events)
    raise Unavailable(f"projection {projection.name} of {state.scope} is rebuilt by others at the same time")


async def _build(
    store: Projections,
    projection: Projection,
    state: StateRef,
    generation: int,
    batch: int,
    after_batch: Callable[[int], None],
) -> int | None:
    """The events folded; None when it has to begin again."""
    events = overtaken = 0
    while overtaken < 10 * ATTEMPTS:
        step = await advance(store, projection, state, generation=generation, batch=batch)
        events += step.events
        match step.outcome:
            case Outcome.CAUGHT_UP:
                return events
            case Outcome.MORE:
                after_batch(step.events)
            case Outcome.OVERTAKEN:
                overtaken += 1
            case Outcome.STOPPED:
                raise ProjectionStopped(projection.name, state.scope)
            case _:
                # Out of order, it can only begin from nothing.
                await store.begin_generation(projection, state)
                return None
    return None
