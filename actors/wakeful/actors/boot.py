"""What `dramatiq wakeful.actors.boot -Q wakeful.wake.interactive …` loads: the one module that composes a process by
being imported, and sets Dramatiq's global broker.

Each worker process executes runs of the classes whose queues `-Q` names (all without it). Settings come from the
environment (`WAKEFUL_DATABASE_URL`, `WAKEFUL_BROKER_URL`, `WAKEFUL_APP`, …). `-t 1` is enough: actors return at once.
"""

import dramatiq

from wakeful.actors.broker import make_broker
from wakeful.actors.process import PoolProcess, Service
from wakeful.bootstrap import build
from wakeful.bootstrap.settings import Settings, load_settings
from wakeful.domain.errors import ConfigurationError
from wakeful.domain.states import PriorityClass

__all__ = ["broker"]


def _settings() -> Settings:
    settings = load_settings()
    missing = [name for name in ("app", "broker_url") if getattr(settings, name) is None]
    if missing:
        raise ConfigurationError(f"set {' and '.join(f'WAKEFUL_{name.upper()}' for name in missing)}")
    return settings


def _service(classes: frozenset[PriorityClass]) -> Service:
    app = build.load_app(str(_chosen.app))
    return build.worker(_chosen, app, classes=sorted(classes), consume=False)


try:
    _chosen = _settings()
    broker = make_broker(_chosen.broker_url.get_secret_value(), middleware=[PoolProcess(_service)])  # type: ignore[union-attr]
except ConfigurationError as error:
    # The one exception for which the Dramatiq command says what is wrong and exits with its code for arguments.
    raise ImportError(str(error)) from None

dramatiq.set_broker(broker)
