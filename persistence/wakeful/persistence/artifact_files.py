"""A byte store in a local folder: tenant / session / artifact / sha256.

A put is durable on return and never half there: the bytes go to a file beside the target, are synced, take its
name, and the folders that hold the new names are synced too. Only keys of exactly this shape are accepted, so no
key can lead out of the folder.
"""

import asyncio
import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from uuid import UUID, uuid4

from wakeful.domain.errors import InvalidInput, NotFound

__all__ = ["LocalArtifactFiles", "StoredFile"]

_UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_KEY = re.compile(f"({_UUID})/({_UUID})/({_UUID})/([0-9a-f]{{64}})")
_UNFINISHED = ".part"


@dataclass(frozen=True, slots=True)
class StoredFile:
    """Bytes in the store and whose they would be."""

    key: str
    tenant_id: UUID
    session_id: UUID
    artifact_id: UUID


class LocalArtifactFiles:
    """See `wakeful.domain.ports.artifacts.ArtifactBytes`. Several processes may share the folder."""

    def __init__(self, root: Path) -> None:
        self._root = root

    async def put(self, key: str, data: bytes) -> None:
        """Raises InvalidInput for a key of another shape."""
        await asyncio.to_thread(_put, self._root, self._path(key), data)

    async def get(self, key: str) -> bytes:
        path = self._path(key)
        try:
            return await asyncio.to_thread(path.read_bytes)
        except FileNotFoundError:
            raise NotFound("artifact bytes", key) from None

    async def delete(self, key: str) -> None:
        await asyncio.to_thread(_delete, self._root, self._path(key))

    async def older_than(self, age: timedelta) -> list[StoredFile]:
        """The files last written longer ago than `age`; unfinished ones of that age are removed."""
        return await asyncio.to_thread(_older_than, self._root, time.time() - age.total_seconds())

    def _path(self, key: str) -> Path:
        if _KEY.fullmatch(key) is None:
            raise InvalidInput("an artifact key has the form tenant/session/artifact/sha256")
        return self._root / key


def _put(root: Path, target: Path, data: bytes) -> None:
    if target.exists():
        return
    unfinished = target.with_name(f"{uuid4().hex}{_UNFINISHED}")
    while True:
        _make_folders(root, target.parent)
        try:
            _write(unfinished, data)
            break
        except FileNotFoundError:
            # A delete has just removed the empty folder.
            continue
    unfinished.replace(target)
    _sync_folder(target.parent)


def _make_folders(root: Path, folder: Path) -> None:
    """Create what is missing below `root` and make the new names durable, outermost first."""
    missing: list[Path] = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for path in reversed(missing):
        path.mkdir(mode=0o700, exist_ok=True)
        _sync_folder(path.parent)


def _write(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _delete(root: Path, target: Path) -> None:
    try:
        target.unlink()
    except FileNotFoundError:
        return
    _sync_folder(target.parent)
    # Empty folders go as well; one that is not empty, or is gone already, ends it.
    with suppress(OSError):
        for folder in target.parents:
            if folder == root:
                break
            folder.rmdir()


def _older_than(root: Path, before: float) -> list[StoredFile]:
    found: list[StoredFile] = []
    for path in _files(root):
        with suppress(FileNotFoundError):
            if path.stat().st_mtime > before:
                continue
            if path.name.endswith(_UNFINISHED):
                path.unlink()
                continue
            match = _KEY.fullmatch(path.relative_to(root).as_posix())
            if match is not None:
                tenant, session, artifact = (UUID(part) for part in match.groups()[:3])
                found.append(StoredFile(match.group(), tenant, session, artifact))
    return found


def _files(root: Path) -> Iterator[Path]:
    return (path for path in root.glob("*/*/*/*") if path.is_file())
