"""A private Valkey (Redis protocol) that lives as long as its owner."""

import os
import secrets
import shutil
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import redis

from wakeful.embedded.account import Account, server_account
from wakeful.embedded.binaries import valkey_program
from wakeful.embedded.errors import EmbeddedError, EmbeddedStartFailed
from wakeful.embedded.guarded import GuardedProcess, Orders, last_lines
from wakeful.embedded.loopback import BIND_ATTEMPTS, free_port
from wakeful.embedded.places import Place, prepare

__all__ = ["EmbeddedValkey"]

SOCKET_NAME = "valkey.sock"
STOP = ((signal.SIGTERM, 15.0), (signal.SIGKILL, 10.0))


class EmbeddedValkey:
    """Valkey on a Unix socket in a folder of its own, or on a random loopback port with a password.

    It keeps nothing on disk unless `settings` say so: messages are hints. Starting twice and stopping twice
    change nothing; after `stop` nothing runs any more. Not safe for use by several threads at once.
    """

    def __init__(
        self,
        data_directory: Path | None = None,
        *,
        settings: Mapping[str, str | int] | None = None,
        loopback: bool = False,
        run_as: str | None = None,
        start_timeout_seconds: float = 30.0,
    ) -> None:
        """Nothing is started. `settings` are lines of `valkey.conf`; `loopback` asks for TCP."""
        self._directory = data_directory
        self._settings = dict(settings or {})
        self._loopback = loopback
        self._run_as = run_as
        self._start_timeout_seconds = start_timeout_seconds
        self._process: GuardedProcess | None = None
        self._place: Place | None = None
        self._url: str | None = None

    def start(self) -> Self:
        """Return when the server answers.

        Raises EmbeddedMissing, EmbeddedInUse or EmbeddedStartFailed, and leaves nothing running then.
        """
        if self._process is not None:
            return self
        account = server_account(self._run_as)
        program = valkey_program(account)
        place, lock = prepare("valkey", self._directory, account, socket_name=SOCKET_NAME)
        try:
            data = place.folder / "data"
            if not data.exists():
                data.mkdir()
                account.give(data, 0o700)
            self._place = place
            self._launch(program, place, account, lock)
        except BaseException:
            self._place = None
            for folder in place.remove:
                shutil.rmtree(folder, ignore_errors=True)
            raise
        finally:
            os.close(lock)
        return self

    def stop(self) -> None:
        """Shut down; temporary data is removed."""
        if self._process is not None:
            self._process.stop()
            self._process = None
        self._place = None
        self._url = None

    @property
    def url(self) -> str:
        """A `unix://` or `redis://` URL with the password in it."""
        if self._url is None:
            raise EmbeddedError("the server is not running: call start() first")
        return self._url

    @property
    def pid(self) -> int:
        if self._process is None:
            raise EmbeddedError("the server is not running: call start() first")
        return self._process.pid

    @property
    def log(self) -> Path:
        if self._place is None:
            raise EmbeddedError("the server is not running: call start() first")
        return self._place.folder / "valkey.log"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _launch(self, program: Path, place: Place, account: Account, lock: int) -> None:
        over_tcp = self._loopback or not place.socket_fits(SOCKET_NAME)
        for attempt in range(1, BIND_ATTEMPTS + 1):
            url = self._configure(place, account, over_tcp=over_tcp)
            self._process = GuardedProcess(
                Orders(
                    command=[str(program), str(place.run / "valkey.conf")],
                    account=account,
                    working_directory=place.folder / "data",
                    log=place.folder / "valkey.log",
                    stop=STOP,
                    remove=place.remove,
                ),
                keep_open=[lock],
            )
            try:
                self._wait_until_ready(self._process, place, url)
                self._url = url
                return
            except EmbeddedStartFailed as error:
                # Between choosing a free port and binding it somebody else may take it.
                again = over_tcp and "already in use" in str(error) and attempt < BIND_ATTEMPTS
                self._process.stop(keep=again)
                self._process = None
                if not again:
                    raise
            except BaseException:
                self._process.stop()
                self._process = None
                raise

    def _configure(self, place: Place, account: Account, *, over_tcp: bool) -> str:
        """Write the configuration to a file only the server's user can read: a command line is public."""
        lines: dict[str, str | int] = {"daemonize": "no", "save": '""', "appendonly": "no", **self._settings}
        lines["dir"] = f'"{place.folder / "data"}"'
        if over_tcp:
            port, password = free_port(), secrets.token_urlsafe(24)
            lines |= {"bind": "127.0.0.1", "port": port, "requirepass": password}
            url = f"redis://:{password}@127.0.0.1:{port}/0"
        else:
            path = place.run / SOCKET_NAME
            lines |= {"port": 0, "unixsocket": str(path), "unixsocketperm": "700"}
            url = f"unix://{path}?db=0"
        file = place.run / "valkey.conf"
        file.touch(mode=0o600)
        account.give(file, 0o600)
        file.write_text("".join(f"{name} {value}\n" for name, value in lines.items()), encoding="utf-8")
        return url

    def _wait_until_ready(self, process: GuardedProcess, place: Place, url: str) -> None:
        log = place.folder / "valkey.log"
        deadline = time.monotonic() + self._start_timeout_seconds
        with redis.Redis.from_url(url, socket_connect_timeout=1, socket_timeout=1) as client:
            while time.monotonic() < deadline:
                if not process.running:
                    raise EmbeddedStartFailed(f"Valkey ended at once (log: {log}):\n{last_lines(log)}")
                try:
                    client.ping()
                    return
                except redis.exceptions.ConnectionError:
                    time.sleep(0.01)
        seconds = self._start_timeout_seconds
        raise EmbeddedStartFailed(f"Valkey was not ready in {seconds} s (log: {log}):\n{last_lines(log)}")
