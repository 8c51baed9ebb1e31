"""Which operating-system user an embedded server runs as.

PostgreSQL refuses to run as root, and a cache server should not. As anyone else the server runs as its owner.
"""

import os
import pwd
import subprocess
from dataclasses import dataclass
from pathlib import Path

from wakeful.embedded.errors import EmbeddedError

__all__ = ["Account", "server_account"]

# Users that exist to own nothing. A user such as `postgres` is not among them: it may own a real cluster, and
# a superuser of our server could read it.
UNPRIVILEGED = ("nobody", "daemon")


@dataclass(frozen=True)
class Account:
    """A user to run as; `switched` says that it is another one than ours."""

    name: str
    uid: int
    gid: int
    switched: bool

    def may_run(self, program: Path) -> bool:
        """Whether this user can reach and execute the program, found out by doing it."""
        try:
            return self.run([str(program), "--version"]).returncode == 0
        except OSError:
            return False

    def may_enter(self, folder: Path) -> bool:
        """Whether this user can reach the folder, found out by doing it."""
        if not self.switched:
            return os.access(folder, os.X_OK)
        # `cd` in a shell asks the kernel as that user: groups, ACLs and mounts included.
        return self.run(["/bin/sh", "-c", 'cd -- "$1"', "sh", str(folder)]).returncode == 0

    def run(self, command: list[str], *, output: int = subprocess.DEVNULL) -> subprocess.CompletedProcess[bytes]:
        """Run to the end as this user, with a clean environment; OSError when it cannot even start."""
        return subprocess.run(
            command,
            check=False,
            cwd="/",
            env=clean_environment(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            umask=0o077,
            user=self.uid if self.switched else None,
            group=self.gid if self.switched else None,
            extra_groups=[] if self.switched else None,
        )

    def give(self, path: Path, mode: int) -> None:
        """Hand a path that we have just made to this user. Never called on a path that was there before."""
        path.chmod(mode)
        if self.switched:
            os.chown(path, self.uid, self.gid)


def clean_environment() -> dict[str, str]:
    """PGDATA, PGPORT and their like in the owner's environment must not steer a server that is not theirs."""
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH") if name in os.environ}
    return kept | {"LC_ALL": "C", "TZ": "UTC"}


def server_account(run_as: str | None = None) -> Account:
    """Ourselves, or as root an existing unprivileged user (`run_as`, else the first that there is).

    No user is ever created. Raises EmbeddedError when root finds none.
    """
    if os.geteuid() != 0:
        if run_as is not None:
            raise EmbeddedError("run_as needs root: without it a server runs as the user who starts it")
        return Account(name=str(os.geteuid()), uid=os.geteuid(), gid=os.getegid(), switched=False)
    for name in (run_as,) if run_as is not None else UNPRIVILEGED:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        if entry.pw_uid != 0:
            return Account(name=name, uid=entry.pw_uid, gid=entry.pw_gid, switched=True)
    wanted = run_as or " or ".join(UNPRIVILEGED)
    raise EmbeddedError(
        f"PostgreSQL does not run as root and there is no unprivileged user {wanted}: "
        "name an existing one with run_as, or start as another user"
    )
