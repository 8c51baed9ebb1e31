"""The same wakeups over RabbitMQ."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import dramatiq
import pytest

from wakeful.actors.broker import make_broker
from wakeful.actors.queues import wake_queue
from wakeful.actors.wake import hints_of
from wakeful.actors.wakeups import BrokerWakeups
from wakeful.domain.states import PriorityClass

# pika leaves the closing of a socket to the garbage collector when a connection ends while it is being made.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


class Hinted:
    def __init__(self) -> None:
        self.classes: set[PriorityClass] = set()
        self.all, self.any = threading.Event(), threading.Event()

    def hint(self, priority: PriorityClass) -> None:
        self.classes.add(priority)
        self.any.set()
        if self.classes == set(PriorityClass):
            self.all.set()


@pytest.fixture
def broker(amqp_url: str) -> Iterator[dramatiq.Broker]:
    made = make_broker(amqp_url)
    yield made
    made.close()


@pytest.fixture
def hinted(amqp_url: str) -> Iterator[Hinted]:
    consumed, target = make_broker(amqp_url), Hinted()
    hints = hints_of(consumed)
    assert hints is not None
    hints.attach(target)
    worker = dramatiq.Worker(consumed, worker_threads=1, worker_timeout=200)
    worker.start()
    yield target
    worker.stop()
    consumed.close()


def test_a_wakeup_of_each_class_reaches_the_pool(broker: dramatiq.Broker, hinted: Hinted) -> None:
    wakeups = BrokerWakeups(broker)
    for priority in PriorityClass:
        wakeups.wake(priority)
    assert hinted.all.wait(20)
    wakeups.close()


def test_publishes_are_confirmed_and_nothing_is_delayed_or_kept_dead(broker: dramatiq.Broker) -> None:
    from wakeful.actors.rabbitmq_broker import HintRabbitmqBroker

    assert isinstance(broker, HintRabbitmqBroker)
    assert broker.confirm_delivery
    assert broker.get_declared_delay_queues() == set()


def test_a_wakeup_older_than_a_minute_is_dropped(broker: dramatiq.Broker, hinted: Hinted) -> None:
    old: dramatiq.Message[Any] = broker.get_actor("wake_async").message()
    broker.enqueue(old.copy(message_timestamp=int(time.time() * 1000) - 61_000))
    broker.enqueue(broker.get_actor("wake_interactive").message())
    assert hinted.any.wait(20)
    assert hinted.classes == {PriorityClass.INTERACTIVE}


def test_a_queue_that_was_deleted_is_declared_again(broker: Any, hinted: Hinted) -> None:
    broker.enqueue(broker.get_actor("wake_async").message())
    assert hinted.any.wait(20)
    broker.channel.queue_delete(wake_queue(PriorityClass.ASYNC))
    hinted.any.clear()
    deadline = time.monotonic() + 20
    while not hinted.any.wait(0.2):
        assert time.monotonic() < deadline
        broker.enqueue(broker.get_actor("wake_async").message())
