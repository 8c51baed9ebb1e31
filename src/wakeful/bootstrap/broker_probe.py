"""Whether the broker answers, for `wakeful doctor`."""

from wakeful.bootstrap.settings import Settings

__all__ = ["probe_broker"]

PROBE_SECONDS = 2.0


def probe_broker(settings: Settings) -> str | None:
    """None when the broker takes connections, else why not (without its address, which may hold a password)."""
    url = settings.broker_url.get_secret_value() if settings.broker_url else ""
    try:
        _amqp(url) if url.startswith("amqp") else _redis(url)
    except Exception as error:
        # Two client libraries and the operating system raise here, and each means the same to the reader.
        cause = error.__cause__ or error
        return f"{type(cause).__name__}"
    return None


def _redis(url: str) -> None:
    import redis

    with redis.Redis.from_url(url, socket_connect_timeout=PROBE_SECONDS, socket_timeout=PROBE_SECONDS) as client:
        client.ping()


def _amqp(url: str) -> None:
    import pika  # type: ignore[import-untyped]

    parameters = pika.URLParameters(url)
    parameters.socket_timeout = parameters.blocked_connection_timeout = PROBE_SECONDS
    parameters.stack_timeout = PROBE_SECONDS
    pika.BlockingConnection(parameters).close()
