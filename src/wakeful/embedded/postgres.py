"""A private PostgreSQL that lives as long as its owner."""

import os
import shutil
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

from wakeful.embedded.account import server_account
from wakeful.embedded.binaries import postgres_programs
from wakeful.embedded.cluster import SUPERUSER, Cluster
from wakeful.embedded.errors import EmbeddedError, EmbeddedStartFailed
from wakeful.embedded.guarded import GuardedProcess, Orders, last_lines
from wakeful.embedded.loopback import BIND_ATTEMPTS, free_port
from wakeful.embedded.places import prepare, take_lock

__all__ = ["EmbeddedPostgres"]

# Only the name of the socket file: nothing listens on a port.
SOCKET_PORT = 54329
SOCKET_NAME = f".s.PGSQL.{SOCKET_PORT}"
# Fast, then immediate shutdown. The postmaster itself kills what does not answer an immediate one within 5 s.
STOP = ((signal.SIGINT, 60.0), (signal.SIGQUIT, 15.0), (signal.SIGKILL, 10.0))


class EmbeddedPostgres:
    """PostgreSQL on a Unix socket in a folder of its own, or on a random loopback port with a password.

    Without `data_directory` the data is temporary and removed at the end. The server is stopped with this
    process, also when that is killed. Starting twice and stopping twice change nothing; after `stop` nothing
    runs any more. Not safe for use by several threads at once.
    """

    def __init__(
        self,
        data_directory: Path | None = None,
        *,
        postgres_bin: Path | None = None,
        settings: Mapping[str, str | int | bool] | None = None,
        loopback: bool = False,
        run_as: str | None = None,
        start_timeout_seconds: float = 60.0,
    ) -> None:
        """Nothing is started. `settings` are PostgreSQL's; `loopback` asks for TCP instead of a socket."""
        self._directory = data_directory
        self._given_programs = postgres_bin
        self._settings = dict(settings or {})
        self._loopback = loopback
        self._run_as = run_as
        self._start_timeout_seconds = start_timeout_seconds
        self._process: GuardedProcess | None = None
        self._cluster: Cluster | None = None
        self._port: int | None = None
        self._password = ""

    def start(self) -> Self:
        """Return when the server accepts connections.

        Raises EmbeddedMissing, EmbeddedInUse or EmbeddedStartFailed, and leaves nothing running then.
        """
        if self._process is None:
            account = server_account(self._run_as)
            programs = postgres_programs(account, self._given_programs)
            place, lock = prepare("postgres", self._directory, account, socket_name=SOCKET_NAME)
            self._serve(Cluster(place, programs, account), lock)
        return self

    def stop(self) -> None:
        """Fast shutdown; temporary data is removed."""
        self._end()
        self._cluster = None

    def restart(self, *, immediate: bool = False) -> None:
        """Stop and start over the same data at the same address; `immediate` is what a crash looks like."""
        cluster = self._running()
        self._end(keep=True, immediate=immediate)
        self._serve(cluster, take_lock(cluster.place.folder))

    def dsn(self, database: str = "postgres", *, user: str = SUPERUSER) -> str:
        """A `postgresql://` URL for the superuser or another role.

        Over TCP it holds the superuser's password; another role needs one of its own there.
        """
        cluster = self._running()
        role, name = quote(user, safe=""), quote(database, safe="")
        if self._port is None:
            host = quote(str(cluster.place.run), safe="")
            return f"postgresql://{role}@/{name}?host={host}&port={SOCKET_PORT}"
        secret = f":{self._password}" if user == SUPERUSER else ""
        return f"postgresql://{role}{secret}@127.0.0.1:{self._port}/{name}"

    @property
    def pid(self) -> int:
        """The postmaster's process id."""
        if self._process is None:
            raise EmbeddedError("the server is not running: call start() first")
        return self._process.pid

    @property
    def programs(self) -> Path:
        """The folder of the server's programs, `psql` and `pgbench` among them where they came with it."""
        return self._running().programs

    @property
    def log(self) -> Path:
        return self._running().log

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _running(self) -> Cluster:
        if self._cluster is None:
            raise EmbeddedError("the server is not running: call start() first")
        return self._cluster

    def _serve(self, cluster: Cluster, lock: int) -> None:
        try:
            self._password = cluster.make_ready()
            self._launch(cluster, lock)
            self._cluster = cluster
        except BaseException:
            self._cluster = None
            for folder in cluster.place.remove:
                shutil.rmtree(folder, ignore_errors=True)
            raise
        finally:
            os.close(lock)

    def _end(self, *, keep: bool = False, immediate: bool = False) -> None:
        if self._process is not None:
            self._process.stop(keep=keep, immediate=immediate)
            self._process = None

    def _launch(self, cluster: Cluster, lock: int) -> None:
        over_tcp = self._loopback or not cluster.place.socket_fits(SOCKET_NAME)
        for attempt in range(1, BIND_ATTEMPTS + 1):
            if over_tcp and (attempt > 1 or self._port is None):
                self._port = free_port()
            self._process = GuardedProcess(self._orders(cluster), keep_open=[lock])
            try:
                self._wait_until_ready(cluster, self._process)
                return
            except EmbeddedStartFailed as error:
                # Between choosing a free port and binding it somebody else may take it.
                again = over_tcp and "could not bind" in str(error) and attempt < BIND_ATTEMPTS
                self._end(keep=again)
                if not again:
                    raise
            except BaseException:
                self._end()
                raise

    def _orders(self, cluster: Cluster) -> Orders:
        settings: dict[str, str | int | bool] = {"timezone": "UTC", "log_timezone": "UTC", **self._settings}
        if self._port is None:
            settings["listen_addresses"] = ""
            settings["port"] = SOCKET_PORT
            settings["unix_socket_directories"] = str(cluster.place.run)
            settings["unix_socket_permissions"] = "0700"
        else:
            settings["listen_addresses"] = "127.0.0.1"
            settings["port"] = self._port
            settings["unix_socket_directories"] = ""
        command = [str(cluster.programs / "postgres"), "-D", str(cluster.data)]
        for name, value in settings.items():
            text = ("on" if value else "off") if isinstance(value, bool) else str(value)
            command += ["-c", f"{name}={text}"]
        return Orders(
            command=command,
            account=cluster.account,
            working_directory=cluster.data,
            log=cluster.log,
            stop=STOP,
            remove=cluster.place.remove,
        )

    def _wait_until_ready(self, cluster: Cluster, process: GuardedProcess) -> None:
        """The postmaster writes its state into its pid file, which nobody else can."""
        state = cluster.data / "postmaster.pid"
        deadline = time.monotonic() + self._start_timeout_seconds
        while time.monotonic() < deadline:
            if not process.running:
                raise EmbeddedStartFailed(f"PostgreSQL ended at once (log: {cluster.log}):\n{last_lines(cluster.log)}")
            try:
                lines = state.read_text(encoding="utf-8").splitlines()
            except FileNotFoundError:
                lines = []
            if len(lines) >= 8 and lines[0].strip() == str(process.pid) and lines[7].strip() == "ready":
                return
            time.sleep(0.01)
        raise EmbeddedStartFailed(
            f"PostgreSQL was not ready in {self._start_timeout_seconds} s (log: {cluster.log}):\n"
            f"{last_lines(cluster.log)}"
        )
