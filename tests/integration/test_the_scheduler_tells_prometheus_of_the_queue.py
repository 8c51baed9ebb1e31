"""`/metrics` of a scheduler says what waits, for whom and since when, under the names that the page lists."""

import asyncio
import re
import urllib.request
from pathlib import Path
from uuid import uuid4

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from support.contract import World
from support.database import Database

from wakeful.bootstrap.metrics import AGENTS, QueueCollector, SchedulerMetrics, serve_metrics
from wakeful.bootstrap.scheduler import Scheduler
from wakeful.bootstrap.settings import given_settings
from wakeful.domain.errors import ConfigurationError, Unavailable
from wakeful.persistence.overview import AgentQueue, Overview
from wakeful.persistence.store import Addresses, PostgresStore

pytestmark = [pytest.mark.anyio, pytest.mark.spec("MET-1")]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"


def scraped(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
        return str(answer.read().decode())


async def test_a_queued_run_that_nobody_serves_is_in_the_gauges_without_an_id(database: Database) -> None:
    store = PostgresStore(Addresses(app=database.dsn), role_prefix=database.role_prefix)
    await store.open()
    try:
        world = World(store)
        run = await world.queued(agent="nobody-serves-me")
    finally:
        await store.close()
    scheduler = Scheduler(
        given_settings(database_url=database.dsn, role_prefix=database.role_prefix).model_copy(
            update={"metrics_port": 0}
        )
    )
    await scheduler.start()
    try:
        assert scheduler.metrics_port
        text = await asyncio.to_thread(scraped, scheduler.metrics_port)
    finally:
        await scheduler.stop()
    assert 'wakeful_unclaimed_runs{agent="nobody-serves-me"} 1.0' in text
    assert re.search(r'wakeful_queue_depth\{class="\w+",state="QUEUED"\} 1\.0', text)
    assert "wakeful_queue_readable 1.0" in text
    assert 'wakeful_lease_expired_total{outcome="requeued"} 0.0' in text
    assert str(run.run_id) not in text and str(world.scope.tenant_id) not in text
    with pytest.raises(OSError):
        scraped(scheduler.metrics_port)


def test_an_unreachable_database_is_said_and_costs_the_queues_gauges_only() -> None:
    def read() -> Overview:
        raise Unavailable("no database")

    text = generate_latest(SchedulerMetrics(read).registry).decode()
    assert "wakeful_queue_readable 0.0" in text
    assert "wakeful_queue_depth" not in text
    assert "wakeful_lease_expired_total" in text


def test_agents_beyond_the_bound_share_one_label() -> None:
    due = tuple(AgentQueue(f"a{uuid4()}", 2, float(number)) for number in range(AGENTS + 3))
    registry = CollectorRegistry()
    registry.register(QueueCollector(lambda: Overview((), due, 0, 0, None)))
    text = generate_latest(registry).decode()
    assert text.count("wakeful_unclaimed_runs{") == AGENTS + 1
    assert 'wakeful_unclaimed_runs{agent="(others)"} 6.0' in text
    assert 'wakeful_unclaimed_oldest_seconds{agent="(others)"} 2.0' in text


def test_a_port_that_is_taken_is_named() -> None:
    port, end = serve_metrics(CollectorRegistry(), "127.0.0.1", 0)
    try:
        with pytest.raises(ConfigurationError, match=str(port)):
            serve_metrics(CollectorRegistry(), "127.0.0.1", port)
    finally:
        end()


@pytest.mark.checkout
def test_the_page_lists_exactly_the_metrics_there_are_with_their_labels() -> None:
    listed = {
        name: set(re.findall(r"`(\w+)`", labels))
        for name, labels in re.findall(r"(?m)^\| `(wakeful_\w+)` \|([^|]*)\|", PAGE.read_text("utf-8"))
    }
    seen = Overview((), (AgentQueue("a", 1, 1.0),), 0, 0, None)
    families = {family.name: family for family in SchedulerMetrics(lambda: seen).registry.collect()}
    names = {name + "_total" if family.type == "counter" else name for name, family in families.items()}
    assert names == set(listed)
    assert listed["wakeful_unclaimed_runs"] == {"agent"}
