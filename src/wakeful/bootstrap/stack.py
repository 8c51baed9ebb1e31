"""A whole Wakeful on one machine: private servers, the schema, workers and a scheduler as child processes.

```python
with Stack(app="support:app", workers=2) as stack:
    async with connect(stack.database_url, broker_url=stack.broker_url) as wakeful:
        ...
    stack.workers[0].kill()      # SIGKILL
    stack.workers[0].start()
```

Everything ends with the owner, also when that is killed: the servers by their guardians, the children by the
kernel, stopped ones too.
"""

import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from wakeful.bootstrap.children import READY_SECONDS, STOP_SECONDS, Child, ChildDied
from wakeful.bootstrap.settings import Settings, given_settings
from wakeful.domain.errors import WakefulError
from wakeful.embedded import EmbeddedPostgres, EmbeddedValkey
from wakeful.persistence.schema import upgrade

__all__ = ["Child", "ChildDied", "Stack"]


class Stack:
    """Start with `start()` or `with`; `stop()` ends everything. Both may be called twice.

    With `data_directory` the database and the artifacts are kept in it for the next start, else all of it is
    temporary. `settings` are more settings for the children by their names without prefix, for example
    `{"lease_seconds": 2}`. Synchronous: from a coroutine call it by `asyncio.to_thread`.
    """

    def __init__(
        self,
        *,
        app: str,
        workers: int = 2,
        scheduler: bool = True,
        worker_arguments: tuple[str, ...] = (),
        data_directory: Path | None = None,
        settings: Mapping[str, object] | None = None,
        server_settings: Mapping[str, str | int | bool] | None = None,
        loopback: bool = False,
        through: Callable[[str], str] | None = None,
    ) -> None:
        """Nothing is started. `worker_arguments` go to every `wakeful worker`; `loopback` makes the servers
        listen on 127.0.0.1 with passwords instead of on Unix sockets; `server_settings` are PostgreSQL's. The
        children reach the database at what `through` makes of its address."""
        data = data_directory.absolute() if data_directory else None
        self.app = app
        self.workers: list[Child] = []
        self.scheduler: Child | None = None
        self.postgres = EmbeddedPostgres(
            data / "postgres" if data else None, settings=server_settings, loopback=loopback
        )
        self.valkey = EmbeddedValkey(loopback=loopback)
        self._worker_count = workers
        self._with_scheduler = scheduler
        self._worker_arguments = worker_arguments
        self._given = dict(settings or {})
        self._through = through
        self._data = data
        self._folder: Path | None = None
        self._started = 0

    @property
    def database_url(self) -> str:
        return self.postgres.dsn()

    @property
    def broker_url(self) -> str:
        return self.valkey.url

    @property
    def settings(self) -> Settings:
        """For a client or worker in this process."""
        values: dict[str, object] = {
            "database_url": self.database_url,
            "broker_url": self.broker_url,
            "app": self.app,
            "artifacts_directory": self._artifacts_directory(),
        }
        return given_settings(**{**values, **self._given})

    @property
    def environment(self) -> dict[str, str]:
        """What the children are given as environment variables, passwords included."""
        settings = self.settings
        if self._through is not None:
            settings = given_settings(**{**settings.explicit(), "database_url": self._through(self.database_url)})
        return settings.environment()

    def start(self) -> Self:
        """Return when servers run, the schema is there and every child is ready. Raises what went wrong, with
        nothing left running then."""
        if self._folder is not None:
            return self
        try:
            self.start_servers()
            for _ in range(self._worker_count):
                self.spawn_worker()
            if self._with_scheduler:
                self.spawn_scheduler()
            self.wait_ready()
        except BaseException:
            self.stop(timeout_seconds=1.0)
            raise
        return self

    def start_servers(self) -> None:
        """Only PostgreSQL, Valkey and the schema."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="wakeful-"))
        self.postgres.start()
        self.valkey.start()
        upgrade(self.database_url, role_prefix=self.settings.role_prefix)

    def spawn_worker(self, *arguments: str) -> Child:
        """Start one more worker, without waiting; it is in `workers` from then on."""
        child = self._child("worker", "--app", self.app, *self._worker_arguments, *arguments)
        self.workers.append(child)
        child.start()
        return child

    def spawn_scheduler(self) -> Child:
        """Start the scheduler if it does not run, without waiting."""
        if self.scheduler is None:
            self.scheduler = self._child("scheduler")
        self.scheduler.start()
        return self.scheduler

    def wait_ready(self, timeout_seconds: float = READY_SECONDS) -> None:
        """Return when every child that runs is ready."""
        for child in self.children:
            child.wait_ready(timeout_seconds)

    @property
    def children(self) -> tuple[Child, ...]:
        return (*self.workers, *((self.scheduler,) if self.scheduler else ()))

    def stop(self, timeout_seconds: float = STOP_SECONDS) -> None:
        """Drain and end the children, at once all of them, then the servers; on return nothing runs."""
        for child in self.children:
            child.terminate()
        for child in self.children:
            child.stop(timeout_seconds)
        self.workers, self.scheduler = [], None
        self.valkey.stop()
        self.postgres.stop()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _child(self, role: str, *arguments: str) -> Child:
        self._started += 1
        name = f"{role} {self._started}"
        log = self.logs / f"{role}-{self._started}.log"
        return Child([role, *arguments], environment=self.environment, log=log, name=name)

    @property
    def logs(self) -> Path:
        """What the children write; kept with the data when that is kept."""
        folder = (self._data or self._temporary()) / "logs"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _artifacts_directory(self) -> Path:
        return (self._data or self._temporary()) / "artifacts"

    def _temporary(self) -> Path:
        if self._folder is None:
            raise WakefulError("the stack is not running: call start() first")
        return self._folder
