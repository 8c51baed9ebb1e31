"""Every setting of Wakeful, in one frozen object, validated once.

Sources, the first that has a value wins: arguments, environment variables `WAKEFUL_…`, the TOML file that
`WAKEFUL_CONFIG` names (the same names, lower case, without the prefix). Unknown names fail.
"""

import difflib
import os
import tomllib
from collections.abc import Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import platformdirs
from pydantic import Field, SecretStr, ValidationError, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from wakeful.bootstrap.redaction import redacted
from wakeful.domain.errors import ConfigurationError

__all__ = ["CONFIG_VARIABLE", "PREFIX", "Settings", "given_settings", "load_settings"]

PREFIX = "WAKEFUL_"
CONFIG_VARIABLE = "WAKEFUL_CONFIG"
# Read by the test suite, not by the product; a worker started under it must not stumble over them.
_NOT_SETTINGS = ("WAKEFUL_TEST_", "WAKEFUL_TRAJECTORIES", CONFIG_VARIABLE)
_DATABASE_SCHEMES = ("postgresql", "postgres")
_BROKER_SCHEMES = ("redis", "rediss", "unix", "amqp", "amqps")


class Settings(BaseSettings):
    """Immutable. Printing it shows no secret; `environment()` is what a child process is given."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        frozen=True,
        extra="forbid",
        hide_input_in_errors=True,
        env_ignore_empty=True,
    )

    database_url: SecretStr = SecretStr("")
    """`postgresql://…`, a pooler in transaction mode allowed. Needed by everything that touches the database."""
    direct_database_url: SecretStr | None = None
    """PostgreSQL itself, for heartbeats and migrations; `database_url` when unset."""
    worker_database_url: SecretStr | None = None
    """For the worker role, when a pooler needs an address (and a login) per role; `database_url` when unset."""
    broker_url: SecretStr | None = None
    """`redis://`, `rediss://`, `unix://` or `amqp://`. Unset: no wakeups, runs start at poll speed."""
    role_prefix: str | None = None
    """Of the three database roles; unset, the one that `wakeful db upgrade` recorded."""
    app: str | None = None
    """`module:app`, what a worker serves."""

    app_pool_size: int = Field(default=8, ge=1, le=1000)
    """Connections of the app role in one process, opened as they are needed."""
    worker_pool_size: int = Field(default=3, ge=1, le=1000)
    """Connections of the worker role in one process (claims and sweeps)."""
    prepared_statements: bool = True
    """Off behind PgBouncer before 1.21."""
    connect_timeout_seconds: float = Field(default=5.0, gt=0)
    """Per attempt to reach the database."""

    slots: int = Field(default=64, ge=1, le=100_000)
    """Runs that one worker process executes at once."""
    lease_seconds: float = Field(default=30.0, gt=0)
    """How long a worker holds a run without a heartbeat."""
    heartbeat_seconds: float | None = Field(default=None, gt=0)
    """A third of the lease when unset."""
    death_notice_seconds: float = Field(default=3.0, ge=0.5)
    """How long the database misses a worker's connection before the worker counts as dead. Never through a pooler."""
    poll_interactive_ms: int = Field(default=250, ge=10)
    """How often a worker looks for work that no wakeup told it of."""
    sweep_seconds: float = Field(default=1.0, gt=0)
    """How often the scheduler's sweeps look."""
    projection_seconds: float = Field(default=1.0, gt=0)
    """How often the scheduler looks for projections that are behind the log."""
    metrics_port: int | None = Field(default=None, ge=0, le=65_535)
    """Where the scheduler serves `/metrics`; unset: nowhere. 0 takes a free port, which the log names."""
    metrics_host: str = "127.0.0.1"
    """The address that it listens on."""
    drain_grace_seconds: float = Field(default=25.0, ge=0)
    """How long a stopping worker waits for calls that must not be cut off."""
    tool_timeout_seconds: float = Field(default=60.0, gt=0)
    """For tools that declare none."""
    inline_payload_bytes: int = Field(default=262_144, ge=1024)
    """Larger contents become artifacts."""
    submit_key_kept_hours: float = Field(default=24.0, gt=0)
    """How long an idempotency key is kept, and never shorter than its run lives."""
    artifacts_directory: Path = Field(
        default_factory=lambda: Path(platformdirs.user_data_dir("wakeful", appauthor=False)) / "artifacts"
    )
    """Where artifact bytes are; every process that shares a database must see the same folder."""

    tenant: str = "default"
    """Whose data the command line works on, a UUID or any text."""
    principal: str = "default"
    """Whose data within the tenant, likewise."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for name in ("database_url", "direct_database_url", "worker_database_url"):
            _check_database_url(name, getattr(self, name))
        _check_broker_url(self.broker_url)
        if self.heartbeat_seconds is not None and self.heartbeat_seconds * 2 > self.lease_seconds:
            raise ValueError(
                f"heartbeat_seconds ({self.heartbeat_seconds:g}) must be at most half of lease_seconds "
                f"({self.lease_seconds:g}), or one late heartbeat loses the lease"
            )
        return self

    @property
    def lease(self) -> timedelta:
        return timedelta(seconds=self.lease_seconds)

    @property
    def heartbeat(self) -> timedelta:
        return timedelta(seconds=self.heartbeat_seconds or self.lease_seconds / 3)

    @property
    def submit_key_kept(self) -> timedelta:
        return timedelta(hours=self.submit_key_kept_hours)

    def required_database_url(self) -> str:
        """The address with its password. Raises ConfigurationError when there is none."""
        url = self.database_url.get_secret_value()
        if not url:
            raise ConfigurationError(
                "no database address: set WAKEFUL_DATABASE_URL=postgresql://…, or try `wakeful up` first"
            )
        return url

    def direct_url(self) -> str:
        """The address of PostgreSQL itself, with its password."""
        direct = self.direct_database_url
        return direct.get_secret_value() if direct else self.required_database_url()

    def environment(self) -> dict[str, str]:
        """What was set explicitly, as environment variables for a child process, secrets included."""
        return {PREFIX + name.upper(): value for name, value in self.explicit().items() if value}

    def explicit(self) -> dict[str, str]:
        """What was set explicitly, by name, as text, secrets included: `given_settings` reads it back."""
        return {name: _plain(getattr(self, name)) for name in sorted(self.model_fields_set)}

    def described(self) -> dict[str, Any]:
        """Every setting as plain data for people, passwords replaced."""
        return {name: _shown(getattr(self, name)) for name in type(self).model_fields}

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        # Only what is documented above: a .env file in the working directory must not steer a worker.
        return (init_settings, env_settings)


class _GivenOnly(Settings):
    """Settings of a system of our own making: the environment speaks of another one."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings,)


def given_settings(**given: Any) -> Settings:
    """Settings of exactly these values, the defaults for the rest, and nothing of the environment or the file.

    Raises ConfigurationError as `load_settings` does.
    """
    _refuse_unknown(given, where="setting")
    return _validated(_GivenOnly, {name: value for name, value in given.items() if value not in (None, "")})


def load_settings(**given: Any) -> Settings:
    """The settings of this process. `given` wins over the environment; None means not given.

    Raises ConfigurationError naming what is wrong and never the value, which may hold a password.
    """
    _refuse_unknown((name for name in os.environ if name.startswith(PREFIX)), where="environment variable")
    explicit = {name: value for name, value in given.items() if value is not None}
    filed = {k: v for k, v in _from_file().items() if k not in explicit and not os.environ.get(PREFIX + k.upper())}
    return _validated(Settings, {**filed, **explicit})


def _validated(model: type[Settings], values: Mapping[str, Any]) -> Settings:
    try:
        return model(**values)
    except ValidationError as error:
        raise ConfigurationError("; ".join(_sentences(error))) from None


def _from_file() -> Mapping[str, Any]:
    name = os.environ.get(CONFIG_VARIABLE)
    if not name:
        return {}
    try:
        values = tomllib.loads(Path(name).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{CONFIG_VARIABLE}: cannot read {name}: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{CONFIG_VARIABLE}: {name} is no TOML: {error}") from None
    _refuse_unknown(values, where=f"setting in {name}")
    return values


def _refuse_unknown(names: Iterable[str], *, where: str) -> None:
    for name in sorted(names):
        short = name.removeprefix(PREFIX)
        upper = short != name
        if name.startswith(_NOT_SETTINGS) or (short.lower() if upper else short) in Settings.model_fields:
            continue
        known = [field.upper() if upper else field for field in Settings.model_fields]
        near = difflib.get_close_matches(short, known, n=1, cutoff=0.5)
        hint = f": did you mean {PREFIX if upper else ''}{near[0]}?" if near else ""
        raise ConfigurationError(f"unknown {where} {name}{hint}")


def _sentences(error: ValidationError) -> Iterable[str]:
    for detail in error.errors(include_url=False, include_input=False):
        field = ".".join(str(part) for part in detail["loc"])
        message = detail["msg"].removeprefix("Value error, ")
        yield f"setting {field}: {message}" if field else message


def _check_database_url(name: str, url: SecretStr | None) -> None:
    text = url.get_secret_value() if url else ""
    if text and "://" in text and urlsplit(text).scheme not in _DATABASE_SCHEMES:
        raise ValueError(f"{name} must begin with postgresql:// (it begins with {text.split('://')[0]}://)")
    if "://" in text and not _has_usable_port(text):
        raise ValueError(
            f"{name} is no address: its port is no number. Special characters in a password are written as %XX"
        )
    if text and "://" not in text and "=" not in text:
        raise ValueError(f"{name} is no address: write postgresql://user@host/database")


def _has_usable_port(text: str) -> bool:
    if "," in urlsplit(text).netloc:
        return True  # several hosts, which only libpq can read
    try:
        _ = urlsplit(text).port
    except ValueError:
        return False
    return True


def _check_broker_url(url: SecretStr | None) -> None:
    text = url.get_secret_value() if url else ""
    if text and text.split("://")[0] not in _BROKER_SCHEMES:
        raise ValueError(f"broker_url must begin with one of {', '.join(s + '://' for s in _BROKER_SCHEMES)}")


def _plain(value: Any) -> str:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


def _shown(value: Any) -> Any:
    if isinstance(value, SecretStr):
        return redacted(value.get_secret_value())
    return str(value) if isinstance(value, Path) else value
