"""Real servers for the whole suite; what cannot start fails the run and is never skipped."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
import redis
from support.database import ROLE_PREFIX, TEMPLATE, Database, database_from, drop_roles, make_template

from wakeful.embedded import EmbeddedPostgres, EmbeddedValkey

ROOT = Path(__file__).resolve().parents[1]
POSTGRES_BIN = os.environ.get("WAKEFUL_TEST_POSTGRES_BIN")
RECORDED = Path(os.environ.get("WAKEFUL_TRAJECTORIES") or ROOT.parent / "shared" / "data" / "trajectories")

# No test is about losing power, so the disk is not waited for.
SETTINGS: dict[str, str | int | bool] = {"fsync": False, "full_page_writes": False, "max_connections": 200}


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def postgres() -> Iterator[EmbeddedPostgres]:
    """The session's server: PostgreSQL 18 from the wheel, or the programs in WAKEFUL_TEST_POSTGRES_BIN."""
    programs = Path(POSTGRES_BIN) if POSTGRES_BIN else None
    with EmbeddedPostgres(postgres_bin=programs, settings=SETTINGS) as server:
        yield server


@pytest.fixture(scope="session")
def migrated_template(postgres: EmbeddedPostgres) -> str:
    """The name of a database migrated to the head, to be cloned and never connected to."""
    make_template(postgres)
    return TEMPLATE


@pytest.fixture
def database(postgres: EmbeddedPostgres, migrated_template: str) -> Iterator[Database]:
    """A migrated database of the test's own. A connection left open at the end fails the test."""
    with database_from(postgres, migrated_template, role_prefix=ROLE_PREFIX) as clone:
        yield clone


@pytest.fixture
def empty_database(postgres: EmbeddedPostgres) -> Iterator[Database]:
    """A database without a schema and with a role prefix of its own; the roles go with it."""
    prefix = f"t{uuid4().hex[:8]}_"
    try:
        with database_from(postgres, "template0", role_prefix=prefix) as fresh:
            yield fresh
    finally:
        drop_roles(postgres, prefix)


@pytest.fixture(scope="session")
def valkey_server() -> Iterator[EmbeddedValkey]:
    with EmbeddedValkey() as server:
        yield server


@pytest.fixture
def valkey(valkey_server: EmbeddedValkey) -> str:
    """The URL of an emptied server."""
    with redis.Redis.from_url(valkey_server.url) as client:
        client.flushall()
    return valkey_server.url


@pytest.fixture(scope="session")
def trajectories() -> Path:
    """The folder of recorded conversations (WAKEFUL_TRAJECTORIES)."""
    if not RECORDED.is_dir():
        pytest.skip(f"no recorded conversations in {RECORDED}: set WAKEFUL_TRAJECTORIES")
    return RECORDED


@pytest.fixture(scope="session")
def amqp_url() -> str:
    """A RabbitMQ of the tests' own (`tests/support/rabbitmq`), which CI always has."""
    url = os.environ.get("WAKEFUL_TEST_AMQP_URL")
    if url is None:
        assert not os.environ.get("CI"), "CI must set WAKEFUL_TEST_AMQP_URL"
        pytest.skip("no RabbitMQ: install rabbitmq-server, start tests/support/rabbitmq, set WAKEFUL_TEST_AMQP_URL")
    return url


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Without the sources (`tools/wheel-test`), a file that is all about the checkout is not even imported."""
    if (ROOT / "src").is_dir() or collection_path.suffix != ".py":
        return None
    return bool(re.search(r"(?m)^pytestmark = .*\bmark\.checkout\b", collection_path.read_text("utf-8"))) or None


def pytest_report_header() -> str:
    return f"postgresql: {POSTGRES_BIN or 'embedded'}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not RECORDED.is_dir():
        terminalreporter.write_line(
            f"recorded conversations are missing ({RECORDED}): their tests were skipped; set WAKEFUL_TRAJECTORIES"
        )
