"""Wake actors: they hand a hint to this process's pool and return, acknowledged."""

from functools import partial
from typing import Protocol

import dramatiq

from wakeful.actors.queues import MESSAGE_MAX_AGE_MS, actor_name, wake_queue
from wakeful.domain.states import PriorityClass

__all__ = ["Hintable", "Hints", "declare_wake_actors", "hints_of"]


class Hintable(Protocol):
    def hint(self, priority: PriorityClass) -> None:
        """Say that runs of this class may be due; from any thread, at any time, without waiting."""
        ...


class Hints(dramatiq.Middleware):
    """What a broker's wake actors hint at: the pool of this process, or nothing yet."""

    def __init__(self) -> None:
        self._pool: Hintable | None = None

    def attach(self, pool: Hintable) -> None:
        """From now on hints go to `pool`, and to no other."""
        self._pool = pool

    def detach(self) -> None:
        """From now on hints are dropped."""
        self._pool = None

    def hint(self, priority: PriorityClass) -> None:
        pool = self._pool
        if pool is not None:
            pool.hint(priority)


def declare_wake_actors(broker: dramatiq.Broker, hints: Hints) -> None:
    """Declare the actor of every class on `broker`; no message of theirs is retried or outlives a minute."""
    for priority in PriorityClass:
        declare = dramatiq.actor(
            actor_name=actor_name(priority),
            queue_name=wake_queue(priority),
            broker=broker,
            max_age=MESSAGE_MAX_AGE_MS,
        )
        declare(partial(hints.hint, priority))


def hints_of(broker: dramatiq.Broker) -> Hints | None:
    """The hints of a broker that `make_broker` made; None for another's."""
    return next((m for m in broker.middleware if isinstance(m, Hints)), None)
