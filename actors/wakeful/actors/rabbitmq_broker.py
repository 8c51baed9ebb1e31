"""The RabbitMQ broker for hints. RabbitMQ pushes, so its consumers need no doorbell. Importing this needs pika."""

from typing import Any

import dramatiq
import pika  # type: ignore[import-untyped]
from dramatiq.brokers.rabbitmq import RabbitmqBroker

from wakeful.actors.queues import MESSAGE_MAX_AGE_MS
from wakeful.domain.errors import ConfigurationError

__all__ = ["HintRabbitmqBroker"]

MOST_WAITING = 1000
_CONNECT_SECONDS = 1.0
_ANSWER_SECONDS = 5.0


class HintRabbitmqBroker(RabbitmqBroker):
    """Dramatiq's RabbitMQ broker with confirmed publishes, bounded queues that drop what is a minute old, and no
    queue for delayed messages."""

    def __init__(self, url: str, *, middleware: list[dramatiq.Middleware]) -> None:
        """Nothing is connected. Raises ConfigurationError for a URL that pika cannot read."""
        super().__init__(confirm_delivery=True, middleware=middleware)
        try:
            parameters = pika.URLParameters(url)
        except Exception:
            # The cause would show the address, password included.
            raise ConfigurationError("broker address cannot be read: write amqp://user@host:5672/vhost") from None
        parameters.connection_attempts = 1
        parameters.socket_timeout = _CONNECT_SECONDS
        parameters.stack_timeout = _ANSWER_SECONDS
        parameters.blocked_connection_timeout = _ANSWER_SECONDS
        self.parameters = parameters

    def declare_queue(self, queue_name: str, *, ensure: bool = False) -> None:
        if queue_name not in self.queues:
            self.emit_before("declare_queue", queue_name)
            self.queues.add(queue_name)
            self.queues_pending.add(queue_name)
            self.emit_after("declare_queue", queue_name)
        if ensure:
            self._ensure_queue(queue_name)  # type: ignore[no-untyped-call]

    def enqueue(self, message: "dramatiq.Message[Any]", *, delay: int | None = None) -> "dramatiq.Message[Any]":
        if delay is not None:
            raise ConfigurationError("wakeups are not delayed: what is due later has a time in the database")
        return super().enqueue(message)

    def _build_queue_arguments(self, queue_name: str) -> dict[str, Any]:
        # Expired and surplus hints are dropped, not kept as dead letters: nobody would read them.
        return {"x-message-ttl": MESSAGE_MAX_AGE_MS, "x-max-length": MOST_WAITING}

    def _declare_dq_queue(self, queue_name: str) -> None:
        """Nothing is delayed."""

    def _declare_xq_queue(self, queue_name: str) -> None:
        """Nothing is kept as a dead letter."""
