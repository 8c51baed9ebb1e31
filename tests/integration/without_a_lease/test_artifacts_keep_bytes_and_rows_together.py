"""Artifacts: bytes first, then the row; what a crash leaves between them is swept."""

import os
import time
from datetime import timedelta
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from support.acting import World
from support.database import Database
from support.hot_paths import store_on

from wakeful.domain.errors import InvalidInput, NotFound, SessionGone
from wakeful.domain.ports.wakeups import NoWakeups
from wakeful.domain.scopes import Scope, SessionRef
from wakeful.domain.sessions import NewSession
from wakeful.persistence.artifact_files import LocalArtifactFiles
from wakeful.persistence.artifact_orphans import GRACE, ArtifactOrphans
from wakeful.persistence.artifacts import PostgresArtifacts, storage_key
from wakeful.scheduler.service import standard_sweeps

pytestmark = pytest.mark.anyio

NO_GRACE = timedelta(seconds=-5)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "artifacts"


@pytest.fixture
def files(root: Path) -> LocalArtifactFiles:
    return LocalArtifactFiles(root)


@pytest.fixture
def artifacts(world: World, files: LocalArtifactFiles) -> PostgresArtifacts:
    return PostgresArtifacts(world.units, files)


async def session_of(world: World) -> SessionRef:
    return (await world.sessions.create(NewSession(Scope(uuid4(), uuid4()), "support"))).ref


def entries(root: Path) -> list[Path]:
    return sorted(root.iterdir())


def stored(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if path.is_file())


async def test_what_is_stored_comes_back_verified(world: World, artifacts: PostgresArtifacts, root: Path) -> None:
    session = await session_of(world)
    data = ("é" * 3000).encode()
    ref = await artifacts.store(session, data, media_type="text/plain", origin="PAYLOAD")
    assert await artifacts.fetch(session, ref) == data
    assert (ref.size_bytes, ref.preview) == (6000, "é" * 500)
    (path,) = stored(root)
    assert path.relative_to(root).as_posix() == storage_key(session, ref.artifact_id, ref.sha256)
    assert path.stat().st_mode & 0o077 == 0


async def test_another_session_or_tenant_cannot_fetch_it(world: World, artifacts: PostgresArtifacts) -> None:
    session = await session_of(world)
    ref = await artifacts.store(session, b"secret", media_type="application/octet-stream", origin="PAYLOAD")
    assert ref.preview == ""
    for stranger in (await session_of(world), SessionRef(uuid4(), session.session_id)):
        with pytest.raises(NotFound):
            await artifacts.fetch(stranger, ref)
    with pytest.raises(NotFound):
        await artifacts.fetch(session, ref.model_copy(update={"sha256": "0" * 64}))


async def test_changed_or_missing_bytes_are_never_handed_out(
    world: World, artifacts: PostgresArtifacts, root: Path
) -> None:
    session = await session_of(world)
    ref = await artifacts.store(session, b"data", media_type="text/plain", origin="PAYLOAD")
    (path,) = stored(root)
    path.write_bytes(b"atad")
    with pytest.raises(NotFound, match="intact"):
        await artifacts.fetch(session, ref)
    path.unlink()
    with pytest.raises(NotFound):
        await artifacts.fetch(session, ref)


async def test_nothing_is_written_for_a_session_that_is_gone(artifacts: PostgresArtifacts, root: Path) -> None:
    with pytest.raises(SessionGone):
        await artifacts.store(SessionRef(uuid4(), uuid4()), b"x", media_type="text/plain", origin="PAYLOAD")
    assert stored(root) == []


async def test_equal_bytes_are_two_artifacts(world: World, artifacts: PostgresArtifacts, root: Path) -> None:
    session = await session_of(world)
    refs = [await artifacts.store(session, b"same", media_type="text/plain", origin="PAYLOAD") for _ in range(2)]
    assert refs[0].artifact_id != refs[1].artifact_id
    assert len(stored(root)) == 2


@pytest.mark.parametrize("key", ["", "../../etc/passwd", "/etc/passwd", "a/b/c/d", f"{UUID(int=1)}/x/../{'0' * 64}"])
async def test_a_key_of_another_shape_is_refused(files: LocalArtifactFiles, key: str) -> None:
    for action in (files.get(key), files.put(key, b"x"), files.delete(key)):
        with pytest.raises(InvalidInput):
            await action


async def test_putting_again_and_deleting_again_change_nothing(files: LocalArtifactFiles, root: Path) -> None:
    key = storage_key(SessionRef(uuid4(), uuid4()), uuid4(), "0" * 64)
    await files.put(key, b"one")
    await files.put(key, b"one")
    assert await files.get(key) == b"one"
    await files.delete(key)
    await files.delete(key)
    with pytest.raises(NotFound):
        await files.get(key)
    assert entries(root) == []


async def test_a_put_that_fails_leaves_no_bytes_under_the_key(
    files: LocalArtifactFiles, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = storage_key(SessionRef(uuid4(), uuid4()), uuid4(), "0" * 64)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            await files.put(key, b"data")
    with pytest.raises(NotFound):
        await files.get(key)
    await files.put(key, b"data")
    assert await files.get(key) == b"data"


@pytest.mark.spec("DEL-2")
async def test_bytes_without_a_row_are_swept_after_the_grace_time(
    world: World, artifacts: PostgresArtifacts, files: LocalArtifactFiles, root: Path
) -> None:
    orphans = ArtifactOrphans(world.units, files)
    sessions = [await session_of(world) for _ in range(2)]
    kept = [await artifacts.store(s, b"kept", media_type="text/plain", origin="PAYLOAD") for s in sessions]
    for session in sessions:
        await files.put(storage_key(session, uuid4(), "0" * 64), b"orphan")
    unfinished = root / str(sessions[0].tenant_id) / str(sessions[0].session_id) / str(kept[0].artifact_id) / "x.part"
    unfinished.write_bytes(b"half")
    assert await orphans.sweep(10) == 0
    assert await orphans.sweep(1, grace=NO_GRACE) == 1
    assert await orphans.sweep(10, grace=NO_GRACE) == 1
    assert await orphans.sweep(10, grace=NO_GRACE) == 0
    assert [await artifacts.fetch(s, ref) for s, ref in zip(sessions, kept, strict=True)] == [b"kept"] * 2
    assert len(stored(root)) == 2


@pytest.mark.spec("DEL-2")
async def test_the_scheduler_sweeps_orphaned_bytes_of_the_store_it_is_given(
    database: Database, files: LocalArtifactFiles, root: Path
) -> None:
    async with store_on(database, artifact_bytes=files) as store:
        sweeps = standard_sweeps(
            run_sweeps=store.run_sweeps,
            child_sweeps=store.child_sweeps,
            housekeeping=store.housekeeping,
            wakeups=NoWakeups(),
        )
        (sweep,) = [sweep for sweep in sweeps if sweep.name == "artifact_bytes"]
        await files.put(storage_key(SessionRef(uuid4(), uuid4()), uuid4(), "0" * 64), b"orphan")
        (orphan,) = stored(root)
        assert (await sweep.run_once()).deleted == 0
        long_ago = time.time() - 2 * GRACE.total_seconds()
        os.utime(orphan, (long_ago, long_ago))
        assert (await sweep.run_once()).deleted == 1
        assert stored(root) == []
