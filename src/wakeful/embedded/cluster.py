"""The data of an embedded PostgreSQL: made whole or not at all, and checked before a server gets it."""

import os
import re
import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path

from wakeful.embedded.account import Account
from wakeful.embedded.errors import EmbeddedStartFailed
from wakeful.embedded.guarded import last_lines
from wakeful.embedded.places import Place

__all__ = ["SUPERUSER", "Cluster"]

SUPERUSER = "wakeful"


@dataclass(frozen=True)
class Cluster:
    """A place, the programs that serve it and the user they run as."""

    place: Place
    programs: Path
    account: Account

    @property
    def data(self) -> Path:
        return self.place.folder / "data"

    @property
    def log(self) -> Path:
        return self.place.folder / "postgres.log"

    def make_ready(self) -> str:
        """Initialize when there is no data yet, check its version, and return the superuser's password."""
        password = self._password()
        if not self.data.exists():
            self._initialize(password)
        self._check_version()
        return password

    def _password(self) -> str:
        path = self.place.folder / "password"
        if path.exists():
            return path.read_text(encoding="ascii")
        password = secrets.token_urlsafe(24)
        # Renamed into place, so that a kill in the middle leaves no half password for the next start.
        fresh = path.with_suffix(".new")
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(password)
        fresh.rename(path)
        return password

    def _initialize(self, password: str) -> None:
        """Make the data beside its place and move it there whole: a kill in the middle leaves none."""
        fresh = self.place.folder / "data.new"
        if fresh.exists():
            shutil.rmtree(fresh)
        fresh.mkdir()
        self.account.give(fresh, 0o700)
        secret = self.place.run / "password"
        secret.touch(mode=0o600)
        self.account.give(secret, 0o600)
        secret.write_text(password, encoding="ascii")
        command = [str(self.programs / "initdb"), f"--pgdata={fresh}", f"--username={SUPERUSER}"]
        command += [f"--pwfile={secret}", "--auth-local=trust", "--auth-host=scram-sha-256"]
        command += ["--encoding=UTF8", "--locale=C"]
        if self.place.temporary:
            command.append("--no-sync")
        log = self.place.folder / "initdb.log"
        try:
            code = self._run(command, log)
        finally:
            secret.unlink()
        if code != 0:
            raise EmbeddedStartFailed(f"initdb failed (log: {log}):\n{last_lines(log)}")
        fresh.rename(self.data)

    def _check_version(self) -> None:
        """Refuse data of another major version with a sentence, before the server does so in its log."""
        have = (self.data / "PG_VERSION").read_text(encoding="ascii").strip()
        log = self.place.folder / "version.log"
        self._run([str(self.programs / "postgres"), "--version"], log)
        text = last_lines(log)
        log.unlink()
        found = re.search(r"(\d+)", text)
        if found is None or found[1] != have:
            raise EmbeddedStartFailed(
                f"{self.place.folder} holds data of PostgreSQL {have} but the server is {text}: "
                "give another data directory, or the programs of that version"
            )

    def _run(self, command: list[str], log: Path) -> int:
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            return self.account.run(command, output=descriptor).returncode
        finally:
            os.close(descriptor)
