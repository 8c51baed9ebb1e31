"""Brokers and wakeups: fast when the broker is there, free of charge when it is not."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dramatiq
import pytest
import redis
from support.pools import until

from wakeful.actors.broker import make_broker
from wakeful.actors.queues import wake_queue
from wakeful.actors.redis_broker import MOST_WAITING, NAMESPACE, DoorbellBroker
from wakeful.actors.wake import hints_of
from wakeful.actors.wakeups import BrokerWakeups
from wakeful.domain.errors import ConfigurationError
from wakeful.domain.states import PriorityClass
from wakeful.embedded import EmbeddedValkey

pytestmark = pytest.mark.anyio

INTERACTIVE, ASYNC, MAINTENANCE = PriorityClass


class Hinted:
    def __init__(self) -> None:
        self.classes: list[PriorityClass] = []
        self.came = threading.Event()

    def hint(self, priority: PriorityClass) -> None:
        self.classes.append(priority)
        self.came.set()


@contextmanager
def consuming(url: str, *, queues: set[str] | None = None, timeout_ms: int = 100) -> Iterator[Hinted]:
    broker, hinted = make_broker(url), Hinted()
    hints = hints_of(broker)
    assert hints is not None
    hints.attach(hinted)
    worker = dramatiq.Worker(broker, queues=queues, worker_threads=1, worker_timeout=timeout_ms)
    worker.start()
    try:
        yield hinted
    finally:
        worker.stop()
        broker.close()


@contextmanager
def waking(url: str) -> Iterator[BrokerWakeups]:
    broker = make_broker(url)
    wakeups = BrokerWakeups(broker)
    try:
        yield wakeups
    finally:
        wakeups.close()
        broker.close()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def subscribed(url: str, count: int) -> bool:
    with redis.Redis.from_url(url) as client:
        return bool(sum(number for _, number in client.pubsub_numsub(*bells())) >= count)


def bells() -> list[str]:
    return [f"{NAMESPACE}:bell:{wake_queue(priority)}" for priority in PriorityClass]


def keys(url: str) -> set[bytes]:
    with redis.Redis.from_url(url) as client:
        return set(client.keys("*"))


async def test_each_class_has_a_queue_whose_wakeups_say_nothing_else(valkey: str) -> None:
    with consuming(valkey) as hinted, waking(valkey) as wakeups:
        for priority in PriorityClass:
            wakeups.wake(priority)
        await until(lambda: set(hinted.classes) == set(PriorityClass))


async def test_a_consumer_of_one_queue_hears_of_its_class_only(valkey: str) -> None:
    with consuming(valkey, queues={wake_queue(ASYNC)}) as hinted, waking(valkey) as wakeups:
        wakeups.wake(MAINTENANCE)
        wakeups.wake(ASYNC)
        await until(lambda: hinted.classes)
    assert hinted.classes == [ASYNC]


async def test_an_idle_consumer_sleeps_until_the_bell_rings(valkey: str) -> None:
    broker = make_broker(valkey)
    consumer = broker.consume(wake_queue(INTERACTIVE), prefetch=1, timeout=3_600_000)
    looks: list[dramatiq.MessageProxy | None] = []

    def listen() -> None:
        while not any(looks):
            looks.append(next(consumer))

    listening = threading.Thread(target=listen, daemon=True)
    listening.start()
    await until(lambda: subscribed(valkey, 1))
    with waking(valkey) as wakeups:
        wakeups.wake(INTERACTIVE)
        await until(lambda: not listening.is_alive())
    assert len(looks) <= 2  # the ring, and the message it was about
    consumer.close()
    broker.close()


async def test_a_lost_ring_costs_no_more_than_a_timed_look(valkey: str) -> None:
    broker = make_broker(valkey)
    with consuming(valkey) as hinted:
        await until(lambda: subscribed(valkey, 3))
        message: dramatiq.Message[Any] = dramatiq.Message(
            queue_name=wake_queue(ASYNC), actor_name="wake_async", args=(), kwargs={}, options={}
        )
        super(DoorbellBroker, broker).enqueue(message)  # type: ignore[misc]
        assert hinted.came.wait(10)
    broker.close()


async def test_consumers_and_wakeups_outlive_a_broker_that_was_never_there() -> None:
    url = f"redis://127.0.0.1:{free_port()}/0"
    with consuming(url) as hinted, waking(url) as wakeups:
        started = time.perf_counter()
        for _ in range(1000):
            wakeups.wake(INTERACTIVE)
        assert time.perf_counter() - started < 1
        assert hinted.classes == []


async def test_a_broker_that_comes_back_is_used_again() -> None:
    with EmbeddedValkey() as server:
        url = server.url
        with consuming(url) as hinted, waking(url) as wakeups:
            wakeups.wake(INTERACTIVE)
            assert hinted.came.wait(10)
            with redis.Redis.from_url(url) as client:
                client.flushall()
                client.client_kill_filter(_type="normal")
                client.client_kill_filter(_type="pubsub")
            hinted.came.clear()
            deadline = time.monotonic() + 20
            while not hinted.came.wait(0.1):
                assert time.monotonic() < deadline
                wakeups.wake(INTERACTIVE)


async def test_hints_faster_than_they_can_be_sent_are_coalesced(valkey: str) -> None:
    broker = make_broker(valkey)
    gate, sent = threading.Event(), 0
    enqueue = broker.enqueue

    def slow(message: Any, **options: Any) -> Any:
        nonlocal sent
        gate.wait(10)
        sent += 1
        return enqueue(message, **options)

    broker.enqueue = slow  # type: ignore[method-assign]
    wakeups = BrokerWakeups(broker)
    for _ in range(1000):
        wakeups.wake(ASYNC)
    gate.set()
    wakeups.close()
    broker.close()
    assert 1 <= sent <= 2


async def test_closing_sends_what_waits(valkey: str) -> None:
    broker = make_broker(valkey)
    wakeups = BrokerWakeups(broker)
    wakeups.wake(MAINTENANCE)
    wakeups.close()
    wakeups.close()
    wakeups.wake(ASYNC)
    with redis.Redis.from_url(valkey) as client:
        assert client.llen(f"{NAMESPACE}:{wake_queue(MAINTENANCE)}") == 1
        assert client.llen(f"{NAMESPACE}:{wake_queue(ASYNC)}") == 0
    broker.close()


async def test_a_queue_that_nobody_reads_does_not_grow_for_ever(valkey: str) -> None:
    broker = make_broker(valkey)
    with redis.Redis.from_url(valkey) as client:
        queue = f"{NAMESPACE}:{wake_queue(ASYNC)}"
        client.rpush(queue, *(f"m{number}" for number in range(MOST_WAITING)))
        for _ in range(5):
            message: dramatiq.Message[Any] = dramatiq.Message(
                queue_name=wake_queue(ASYNC), actor_name="wake_async", args=(), kwargs={}, options={}
            )
            broker.enqueue(message)
        assert client.llen(queue) <= MOST_WAITING + 1
    broker.close()


async def test_a_wakeup_older_than_a_minute_is_dropped(valkey: str) -> None:
    broker = make_broker(valkey)
    old: dramatiq.Message[Any] = dramatiq.Message(
        queue_name=wake_queue(ASYNC),
        actor_name="wake_async",
        args=(),
        kwargs={},
        options={},
        message_timestamp=int(time.time() * 1000) - 61_000,
    )
    broker.enqueue(old)
    with consuming(valkey) as hinted:
        broker.enqueue(old.copy(message_timestamp=int(time.time() * 1000)))
        await until(lambda: hinted.classes)
    assert hinted.classes == [ASYNC]
    broker.close()


async def test_acknowledged_wakeups_leave_nothing_behind(valkey: str) -> None:
    with consuming(valkey) as hinted, waking(valkey) as wakeups:
        wakeups.wake(ASYNC)
        assert hinted.came.wait(10)
        await until(lambda: all(b"heartbeats" in key for key in keys(valkey)))


def test_every_key_hashes_to_one_slot_of_a_cluster(valkey: str) -> None:
    broker = make_broker(valkey)
    assert isinstance(broker, DoorbellBroker)
    message: dramatiq.Message[Any] = dramatiq.Message(
        queue_name=wake_queue(ASYNC), actor_name="wake_async", args=(), kwargs={}, options={}
    )
    broker.enqueue(message)
    assert all(key.startswith(b"{wakeful}") for key in keys(valkey))
    broker.close()


@pytest.mark.parametrize("url", ["http://localhost", "redis", "", "kafka://x", "redis://h:port/0", "amqp://h:port"])
def test_an_address_that_is_no_brokers_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError):
        make_broker(url)


def test_making_a_broker_leaves_the_global_one_alone(valkey: str) -> None:
    before = dramatiq.broker.global_broker
    make_broker(valkey).close()
    assert dramatiq.broker.global_broker is before


def test_a_delayed_wakeup_is_refused(valkey: str) -> None:
    broker = make_broker(valkey)
    with pytest.raises(ConfigurationError, match="not delayed"):
        broker.enqueue(broker.get_actor("wake_async").message(), delay=1000)
    broker.close()


def test_a_password_appears_in_no_error_and_no_representation() -> None:
    with pytest.raises(ConfigurationError) as raised:
        make_broker("redis://:sesame@host:port/0")
    assert "sesame" not in str(raised.value)
    assert "sesame" not in repr(make_broker("redis://:sesame@localhost:1/0"))
