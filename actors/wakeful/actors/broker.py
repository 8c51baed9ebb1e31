"""A broker by URL. PostgreSQL is the authority; a broker only carries hints, so every choice here favours speed over
delivery: no retries, no results, no delays, short timeouts."""

from collections.abc import Sequence
from urllib.parse import urlsplit

import dramatiq
from dramatiq.middleware import AgeLimit, ShutdownNotifications

from wakeful.actors.queues import MESSAGE_MAX_AGE_MS
from wakeful.actors.redis_broker import DoorbellBroker
from wakeful.actors.wake import Hints, declare_wake_actors
from wakeful.domain.errors import ConfigurationError

__all__ = ["make_broker"]

_REDIS = frozenset({"redis", "rediss", "unix"})
_AMQP = frozenset({"amqp", "amqps"})


def make_broker(url: str, *, middleware: Sequence[dramatiq.Middleware] = ()) -> dramatiq.Broker:
    """The broker at `url` (`redis://`, `rediss://`, `unix://`, `amqp://`, `amqps://`) with the wake actors declared.

    Nothing is connected yet, and Dramatiq's global broker is left alone. `middleware` is added to the list, which is
    complete: no Retries (a hint that is lost is replaced by the poll), no TimeLimit (actors return at once), no
    Results, Callbacks or Pipelines (the database owns what follows what). Raises ConfigurationError.
    """
    hints = Hints()
    complete = [AgeLimit(max_age=MESSAGE_MAX_AGE_MS), ShutdownNotifications(notify_shutdown=True), hints, *middleware]
    scheme = urlsplit(url).scheme
    broker: dramatiq.Broker
    if scheme in _REDIS:
        broker = DoorbellBroker(url, middleware=complete)
    elif scheme in _AMQP:
        broker = _rabbitmq(url, complete)
    else:
        raise ConfigurationError(
            f"broker scheme {scheme!r} is not supported: use redis://, rediss://, unix:// or amqp://"
        )
    declare_wake_actors(broker, hints)
    return broker


def _rabbitmq(url: str, middleware: list[dramatiq.Middleware]) -> dramatiq.Broker:
    try:
        from wakeful.actors.rabbitmq_broker import HintRabbitmqBroker
    except ImportError:
        raise ConfigurationError("amqp:// needs pika: install wakeful[rabbitmq]") from None
    return HintRabbitmqBroker(url, middleware=middleware)
