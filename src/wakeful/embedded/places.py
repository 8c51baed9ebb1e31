"""Where an embedded server keeps its files. No permission of a folder that was there before is changed."""

import contextlib
import fcntl
import os
import re
import shutil
import stat
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from wakeful.embedded.account import Account
from wakeful.embedded.errors import EmbeddedError, EmbeddedInUse

__all__ = ["Place", "cache_directory", "make_folder", "prepare", "take_lock"]

# sizeof(sun_path) less the closing NUL.
SOCKET_PATH_BYTES = 103 if sys.platform == "darwin" else 107
# How long a start waits for the server of an owner that died just now to finish its shutdown.
ORPHAN_WAIT_SECONDS = 60.0


@dataclass(frozen=True)
class Place:
    """`folder` is ours and holds data and log; `run` belongs to the server's user and is gone after it."""

    folder: Path
    run: Path
    temporary: bool

    @property
    def remove(self) -> list[Path]:
        return [self.run, self.folder] if self.temporary else [self.run]

    def socket_fits(self, name: str) -> bool:
        return _fits(self.run, name)


def cache_directory(name: str) -> Path:
    """The place for a server's lasting files: the user's cache, or for root the machine's.

    Root's servers run as another user, who may not enter root's home.
    """
    if os.geteuid() == 0:
        return platformdirs.site_cache_path("wakeful") / name
    return platformdirs.user_cache_path("wakeful") / name


def prepare(kind: str, directory: Path | None, account: Account, *, socket_name: str) -> tuple[Place, int]:
    """Make the folders and lock them; the descriptor is the lock (`take_lock`).

    EmbeddedError when the given folder is not private or the server may not enter it.
    """
    if directory is None:
        folder = Path(tempfile.mkdtemp(prefix=f"wakeful-{kind}-", dir=_temporary_base(account)))
        folder.chmod(_own_mode(account))
    else:
        folder = _given(directory.absolute(), account)
    lock = take_lock(folder)
    run = folder / "run"
    # What is there under our lock is left from a crash.
    shutil.rmtree(run, ignore_errors=True)
    if _fits(run, socket_name):
        run.mkdir()
    else:
        run = Path(tempfile.mkdtemp(prefix="wakeful-", dir=_temporary_base(account)))
    account.give(run, 0o700)
    return Place(folder=folder, run=run, temporary=directory is None), lock


def take_lock(folder: Path) -> int:
    """Lock the folder for one server; the descriptor goes to the guardian, so the lock lives as long as that.

    EmbeddedInUse when a living process holds it. After an owner's death its server may need a moment to stop;
    that is waited for.
    """
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + ORPHAN_WAIT_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            owner = os.pread(descriptor, 32, 0).decode().strip()
            if _alive(owner) or time.monotonic() > deadline:
                os.close(descriptor)
                raise EmbeddedInUse(
                    f"{folder} is in use by process {owner}: stop it, or give another data directory"
                ) from None
            time.sleep(0.05)
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, str(os.getpid()).encode(), 0)
    return descriptor


def make_folder(folder: Path, mode: int) -> None:
    """Make it and what is missing above it, each with this mode whatever the umask.

    FileExistsError when it is there; that one is not touched, nor is any other that was there before.
    """
    if not folder.parent.exists():
        make_folder(folder.parent, mode)
    folder.mkdir()
    folder.chmod(mode)


def _alive(owner: str) -> bool:
    if not owner.isdigit():
        return True
    try:
        os.kill(int(owner), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _given(folder: Path, account: Account) -> Path:
    try:
        make_folder(folder, _own_mode(account))
    except FileExistsError:
        found = folder.stat()
        if not stat.S_ISDIR(found.st_mode):
            raise EmbeddedError(f"{folder} is not a folder") from None
        if found.st_uid != os.geteuid() or found.st_mode & stat.S_IWOTH:
            raise EmbeddedError(f"{folder} is not private to this user: give a folder of your own") from None
    except OSError as error:
        raise EmbeddedError(f"cannot make the data directory {folder}: {error.strerror}") from error
    if not account.may_enter(folder):
        raise EmbeddedError(
            f"the server runs as user {account.name}, who may not enter {folder}: give a data directory "
            "under a folder that every user may enter (its permissions are left as they are)"
        )
    return folder


def _own_mode(account: Account) -> int:
    return 0o711 if account.switched else 0o700


def _temporary_base(account: Account) -> Path:
    for base in dict.fromkeys((tempfile.gettempdir(), "/tmp", "/var/tmp")):  # noqa: S108 - mkdtemp inside
        path = Path(base).resolve()
        with contextlib.suppress(OSError):
            if os.access(path, os.W_OK | os.X_OK) and account.may_enter(path):
                return path
    raise EmbeddedError(f"no temporary folder that user {account.name} may enter: set TMPDIR to one")


def _fits(run: Path, socket_name: str) -> bool:
    # The server reads its socket folder as a list with quotes and commas: only plain names are passed.
    plain = re.fullmatch(r"[A-Za-z0-9/._+-]+", str(run)) is not None
    return plain and len(os.fsencode(run / socket_name)) <= SOCKET_PATH_BYTES
