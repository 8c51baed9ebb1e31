"""A scheduler's metrics and where they are served: `docs/metrics.md` is the table of their names.

Labels are classes, statuses, agents and outcomes, never ids. Projection lag belongs into `QueueCollector` likewise: it
is a fact of the database, so one kind of process reports it.
"""

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import structlog
from prometheus_client import CollectorRegistry, Counter, start_http_server
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from wakeful.domain.errors import ConfigurationError, WakefulError
from wakeful.persistence.overview import Overview
from wakeful.scheduler.leases import ReclaimCounts
from wakeful.scheduler.sweeping import Sweep

__all__ = ["AGENTS", "ObservedSweep", "QueueCollector", "SchedulerMetrics", "serve_metrics"]

AGENTS = 100
"""Agents with a label of their own, those whose runs have waited longest; the others are summed as `OTHERS`. Whoever
submits chooses the name, so their number is not bounded by what is served."""
OTHERS = "(others)"

_log = structlog.get_logger(__name__)


class QueueCollector(Collector):
    """Reads the queue once per scrape, in the scrape's own thread. A database that does not answer costs the queue's
    gauges only, and is said by `wakeful_queue_readable`."""

    def __init__(self, read: Callable[[], Overview]) -> None:
        self._read = read

    def describe(self) -> list[Any]:
        """No names beforehand: registering must not read the database."""
        return []

    def collect(self) -> Iterator[GaugeMetricFamily]:
        readable = GaugeMetricFamily("wakeful_queue_readable", "1 when this scrape could read the queue, else 0")
        try:
            seen = self._read()
        except WakefulError as error:
            _log.warning("metrics.queue_unreadable", error=error.code)
            readable.add_metric([], 0)
            yield readable
            return
        readable.add_metric([], 1)
        yield readable
        yield from _classes(seen)
        yield from _agents(seen)
        yield _gauge("wakeful_leases_overdue", "RUNNING runs whose lease is over", seen.expired_leases)
        yield _gauge("wakeful_busy_workers", "Processes that hold at least one run", seen.busy_workers)


def _classes(seen: Overview) -> Iterator[GaugeMetricFamily]:
    depth = GaugeMetricFamily("wakeful_queue_depth", "Active runs", labels=["class", "state"])
    oldest = GaugeMetricFamily("wakeful_queue_oldest_seconds", "How long the first due run waits", labels=["class"])
    for each in seen.counts:
        depth.add_metric([each.priority.label, each.status.value], each.count)
        if each.status.value == "QUEUED":
            oldest.add_metric([each.priority.label], each.oldest_seconds or 0)
    yield depth
    yield oldest


def _agents(seen: Overview) -> Iterator[GaugeMetricFamily]:
    due = GaugeMetricFamily("wakeful_unclaimed_runs", "Due runs that nobody has claimed", labels=["agent"])
    oldest = GaugeMetricFamily(
        "wakeful_unclaimed_oldest_seconds", "How long the agent's first due run waits", labels=["agent"]
    )
    ordered = sorted(seen.due, key=lambda each: -each.oldest_seconds)
    for each in ordered[:AGENTS]:
        due.add_metric([each.agent], each.due)
        oldest.add_metric([each.agent], each.oldest_seconds)
    if rest := ordered[AGENTS:]:
        due.add_metric([OTHERS], sum(each.due for each in rest))
        oldest.add_metric([OTHERS], rest[0].oldest_seconds)
    yield due
    yield oldest


def _gauge(name: str, help_text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, help_text, value=value)


class SchedulerMetrics:
    """What one scheduler process reports."""

    def __init__(self, read: Callable[[], Overview]) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(QueueCollector(read))
        self.lease_expired = Counter(
            "wakeful_lease_expired_total", "Leases taken from dead holders", ["outcome"], registry=self.registry
        )
        for outcome in ("requeued", "failed", "cancelled"):
            self.lease_expired.labels(outcome)  # a rate needs the zero before the first

    def observed(self, sweep: Sweep) -> Sweep:
        return ObservedSweep(sweep, self)


class ObservedSweep:
    """A sweep whose reclaims are counted."""

    def __init__(self, sweep: Sweep, metrics: SchedulerMetrics) -> None:
        self._sweep, self._metrics = sweep, metrics

    @property
    def name(self) -> str:
        return self._sweep.name

    @property
    def interval(self) -> timedelta:
        return self._sweep.interval

    async def run_once(self) -> Any:
        counts = await self._sweep.run_once()
        if isinstance(counts, ReclaimCounts):
            for outcome in ("requeued", "failed", "cancelled"):
                self._metrics.lease_expired.labels(outcome).inc(getattr(counts, outcome))
        return counts


def serve_metrics(registry: CollectorRegistry, host: str, port: int) -> tuple[int, Callable[[], None]]:
    """Serve `/metrics` from a thread: the port (the system's choice for 0), and what ends it.

    Raises ConfigurationError when the address cannot be listened on.
    """
    try:
        server, thread = start_http_server(port, addr=host, registry=registry)
    except OSError as error:
        raise ConfigurationError(f"metrics cannot be served on {host}:{port}: {error.strerror or error}") from None
    _log.info("metrics.served", host=host, port=server.server_port)

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return server.server_port, stop
