"""The Redis broker with a doorbell: an idle consumer sleeps on a socket instead of polling.

Every enqueue publishes on the queue's bell channel. A consumer subscribes before it first fetches, so a message put
in after an empty fetch has rung a bell that is still unread. A ring that is lost (a restart, a failover) costs at
most the consumer's timeout, after which it looks anyway.
"""

import contextlib
import time
from typing import Any, NoReturn

import dramatiq
import redis
from dramatiq.brokers.redis import RedisBroker, _RedisConsumer
from redis.backoff import NoBackoff
from redis.retry import Retry

from wakeful.actors.outage import Outage
from wakeful.domain.errors import ConfigurationError

__all__ = ["NAMESPACE", "DoorbellBroker"]

NAMESPACE = "{wakeful}"
"""The braces make every key hash to one slot of a Redis Cluster, which Dramatiq's scripts need."""

MOST_WAITING = 1000
"""A queue holds no more messages than this: so many hints to look are enough, and without any consumer it would grow
for ever."""

_DEAD_KEPT_MS = 3_600_000
_NETWORK: dict[str, Any] = {"socket_connect_timeout": 1.0, "socket_keepalive": True}
_ANSWER_SECONDS = 2.0
_RETRY_SECONDS = 1.0


class DoorbellBroker(RedisBroker):
    """Dramatiq's Redis broker for hints: bounded queues, no delayed messages, and consumers that do not poll."""

    def __init__(self, url: str, *, middleware: list[dramatiq.Middleware]) -> None:
        """Nothing is connected. Raises ConfigurationError for a URL that redis-py cannot read."""
        try:
            client = redis.Redis.from_url(
                url,
                socket_timeout=_ANSWER_SECONDS,
                **_NETWORK if not url.startswith("unix:") else {},
                # One retry replaces a connection that a restarted server has closed; more would stall a caller.
                retry=Retry(NoBackoff(), 1),
            )
        except (ValueError, TypeError):
            # The cause would show the address, password included.
            raise ConfigurationError("broker address cannot be read: write redis://host:6379/0") from None
        super().__init__(  # type: ignore[no-untyped-call]
            client=client,
            middleware=middleware,
            namespace=NAMESPACE,
            dead_message_ttl=_DEAD_KEPT_MS,
        )
        self._full: set[str] = set()

    @property
    def consumer_class(self) -> type["DoorbellConsumer"]:
        return DoorbellConsumer

    def bell(self, queue_name: str) -> str:
        """The channel on which an enqueue to this queue rings."""
        return f"{self.namespace}:bell:{queue_name}"

    def declare_queue(self, queue_name: str) -> None:
        """Without Dramatiq's second queue for delayed messages: its consumer would poll for what is never sent."""
        if queue_name not in self.queues:
            self.emit_before("declare_queue", queue_name)
            self.queues.add(queue_name)
            self.emit_after("declare_queue", queue_name)

    def enqueue(self, message: "dramatiq.Message[Any]", *, delay: int | None = None) -> "dramatiq.Message[Any]":
        """Enqueue and ring. A full queue takes no more: the message is dropped, its ring is not."""
        if delay is not None:
            _refuse_delay()
        queue = message.queue_name
        if queue not in self._full:
            message = super().enqueue(message)
        self.client.publish(self.bell(queue), b"")
        # Looked at after the ring, so that nobody waits for it; the next enqueue goes by the answer.
        if self.client.llen(f"{self.namespace}:{queue}") >= MOST_WAITING:
            self._full.add(queue)
        else:
            self._full.discard(queue)
        return message

    def close(self) -> None:
        """Close every connection; one that is used again is opened again."""
        self.client.close()
        self.client.connection_pool.disconnect()


def _refuse_delay() -> NoReturn:
    raise ConfigurationError("wakeups are not delayed: what is due later has a time in the database")


class DoorbellConsumer(_RedisConsumer):
    """Waits for the bell between fetches. An unreachable server is waited for here, in silence but for one line
    when it goes and one when it is back."""

    def __init__(self, broker: DoorbellBroker, queue_name: str, prefetch: int, timeout: int) -> None:
        super().__init__(broker, queue_name, prefetch, timeout)  # type: ignore[no-untyped-call]
        self._channel = broker.bell(queue_name)
        self._bell: redis.client.PubSub | None = None
        self._outage = Outage("broker", queue=queue_name)

    def __next__(self) -> dramatiq.MessageProxy | None:
        try:
            bell = self._bell or self._subscribe()
            message = self._fetch()
            if message is None:
                self._wait(bell, self.timeout / 1000)
            self._outage.over()
            return message
        except redis.RedisError as error:
            self._outage.began(error)
            self._unsubscribe()
            time.sleep(_RETRY_SECONDS)
            return None

    def ack(self, message: dramatiq.MessageProxy) -> None:
        """An acknowledgement that is lost leaves a message that comes again: a hint too many, no harm. Waiting for
        the server here would stop the worker thread."""
        self._settle("do_ack", message)

    def nack(self, message: dramatiq.MessageProxy) -> None:
        self._settle("do_nack", message)

    def requeue(self, messages: Any) -> None:
        with contextlib.suppress(redis.RedisError):
            super().requeue(messages)  # type: ignore[no-untyped-call]

    def close(self) -> None:
        self._unsubscribe()

    def _subscribe(self) -> "redis.client.PubSub":
        bell: redis.client.PubSub = self.broker.client.pubsub(ignore_subscribe_messages=True)
        bell.subscribe(self._channel)
        # The confirmation: only what is rung after it is heard, so the first fetch must not be before it.
        bell.get_message(timeout=_ANSWER_SECONDS)
        self._bell = bell
        return bell

    def _unsubscribe(self) -> None:
        bell, self._bell = self._bell, None
        if bell is not None:
            with contextlib.suppress(redis.RedisError):
                bell.close()

    def _fetch(self) -> dramatiq.MessageProxy | None:
        if not self.message_cache:
            wanted = self.prefetch - self.outstanding_message_count
            # Everything that may be prefetched is still being handled: the ring that comes next is not for us.
            self.message_cache = self.broker.do_fetch(self.queue_name, wanted) if wanted > 0 else []
        while self.message_cache:
            data = self.message_cache.pop(0)
            if data is not None:  # its body was deleted beneath it, by FLUSHALL for example
                message = dramatiq.Message.decode(data)
                self.queued_message_ids.add(message.message_id)
                return dramatiq.MessageProxy(message)
        return None

    def _wait(self, bell: "redis.client.PubSub", seconds: float) -> None:
        """Until the next ring, or the time is over; every ring so far is taken off, one fetch answers them all."""
        if bell.get_message(timeout=seconds) is not None:
            while bell.get_message(timeout=0) is not None:
                pass

    def _settle(self, command: str, message: dramatiq.MessageProxy) -> None:
        self.queued_message_ids.discard(message.message_id)
        with contextlib.suppress(redis.RedisError):
            getattr(self.broker, command)(self.queue_name, message.options["redis_message_id"])
