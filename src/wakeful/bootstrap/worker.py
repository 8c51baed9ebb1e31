"""A worker process: store, executor, suspects, pool and consumers, in the order they need each other."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import Any

from wakeful.actors.broker import make_broker
from wakeful.actors.pool import Pool
from wakeful.actors.slots import Slots
from wakeful.actors.suspect_child import SuspectHost
from wakeful.actors.suspect_forks import ForkedServer
from wakeful.actors.suspects import Suspects, SuspectSpec
from wakeful.actors.worker import Worker as ActorsWorker
from wakeful.app import App
from wakeful.bootstrap import resources
from wakeful.bootstrap.apps import catalogue_of, load_app
from wakeful.bootstrap.settings import Settings, given_settings
from wakeful.domain.agents import Catalogue
from wakeful.domain.errors import ConfigurationError
from wakeful.domain.ports.event_log import EventLog
from wakeful.domain.states import PriorityClass
from wakeful.persistence.store import PostgresStore
from wakeful.runtime.executor import Executor
from wakeful.runtime.settings import ExecutionSettings
from wakeful.scheduler.ticker import Ticker

__all__ = ["Worker", "suspect_host"]


class Worker:
    """One worker process. `start()` is idempotent; `drain()` and `stop()` tolerate never started and twice."""

    def __init__(
        self,
        settings: Settings,
        app: App,
        *,
        slots: int,
        classes: Sequence[PriorityClass],
        floors: Mapping[PriorityClass, int],
        consume: bool = True,
        forked: ForkedServer | None = None,
    ) -> None:
        """Raises ConfigurationError for an app without agents and for floors that do not fit. Without `consume`
        nothing is read from the broker here: whoever does calls `hint`."""
        self._settings = settings
        self._catalogue = catalogue_of(app)
        self._slots = Slots(slots, floors=floors, classes=classes)
        self._consume, self._forked = consume, forked
        self._open: AsyncExitStack | None = None
        self._worker: ActorsWorker | None = None

    @property
    def agents(self) -> tuple[str, ...]:
        return self._catalogue.names

    async def start(self) -> None:
        """Return when it claims. Raises Unavailable, and SchemaError when the database is not at the revision this
        code expects: nothing is claimed and nothing migrated then."""
        if self._worker is not None:
            return
        async with AsyncExitStack() as opening:
            store = await resources.open_store(self._settings)
            opening.push_async_callback(store.close)
            executor = await opening.enter_async_context(_executor(self._settings, store, self._catalogue))
            worker = ActorsWorker(
                self._pool(store, executor),
                broker=self._broker(),
                grace=timedelta(seconds=self._settings.drain_grace_seconds),
            )
            opening.push_async_callback(worker.stop)
            await worker.start()
            self._worker, self._open = worker, opening.pop_all()

    def hint(self, priority: PriorityClass) -> None:
        """Look for runs of this class now; from any thread, never raises."""
        if self._worker is not None:
            self._worker.pool.hint(priority)

    async def drain(self, grace: timedelta | None = None) -> None:
        """Claim no more, let runs go within the grace; on return nothing is executed any more."""
        if self._worker is not None:
            await self._worker.drain(grace)

    async def stop(self) -> None:
        """Drain without any grace, and close everything."""
        opened, self._open = self._open, None
        if opened is not None:
            await opened.aclose()

    def _pool(self, store: PostgresStore, executor: Executor) -> Pool:
        settings = self._settings
        return Pool(
            queue=store.queue,
            keeper=store.lease_keeper,
            executor=executor,
            agents=self._catalogue.names,
            slots=self._slots,
            ticker=Ticker(),
            lease=settings.lease,
            heartbeat=settings.heartbeat,
            poll=timedelta(milliseconds=settings.poll_interactive_ms),
            suspect_runner=self._suspects(),
            sweeps=store.run_sweeps,
            open_log=lambda: _own_log(settings),
        )

    def _suspects(self) -> Suspects | None:
        """A suspect's process loads the app by its name, so an app without one executes its suspects here."""
        if self._settings.app is None:
            return None
        spec = SuspectSpec(
            target="wakeful.bootstrap.worker:suspect_host",
            settings=self._settings.explicit(),
            preload=("wakeful.bootstrap.worker",),
        )
        return Suspects(spec, lease=self._settings.lease, heartbeat=self._settings.heartbeat, forked=self._forked)

    def _broker(self) -> Any:
        url = self._settings.broker_url
        return make_broker(url.get_secret_value()) if url is not None and self._consume else None


@asynccontextmanager
async def suspect_host(settings: Mapping[str, Any]) -> AsyncIterator[SuspectHost]:
    """What a suspect's process executes with: a small store of its own and the app loaded anew."""
    chosen = given_settings(**{**settings, "app_pool_size": 2, "worker_pool_size": 1})
    if chosen.app is None:
        raise ConfigurationError("a suspect's process needs the app's name")
    catalogue = catalogue_of(load_app(chosen.app))
    store = await resources.open_store(chosen)
    try:
        async with _executor(chosen, store, catalogue) as executor:
            yield SuspectHost(executor=executor, keeper=store.lease_keeper)
    finally:
        await store.close()


@asynccontextmanager
async def _executor(settings: Settings, store: PostgresStore, catalogue: Catalogue) -> AsyncIterator[Executor]:
    async with resources.open_wakeups(settings) as wakeups:
        yield Executor(
            log=store.log,
            queue=store.queue,
            sessions=store.sessions,
            catalogue=catalogue,
            artifacts=store.artifacts,
            wakeups=wakeups,
            settings=ExecutionSettings(inline_payload_bytes=settings.inline_payload_bytes),
        )


@asynccontextmanager
async def _own_log(settings: Settings) -> AsyncIterator[EventLog]:
    """A log for the loop that asks: the process's store belongs to a loop that no longer turns."""
    small = settings.model_copy(update={"app_pool_size": 1, "worker_pool_size": 1})
    store = await resources.open_store(small)
    try:
        yield store.log
    finally:
        await store.close()
