"""Identifiers: UUIDv7 made by the application, and UUIDv5 where a second attempt must find the first.

A derived id is how an unknown COMMIT is redone safely: the same facts give the same id, and the
database recognizes it.
"""

from functools import lru_cache
from uuid import UUID, uuid5

from uuid_utils.compat import uuid7

__all__ = ["child_run_id", "child_session_id", "derived_id", "invocation_id", "new_id", "result_event_id"]

_NAMESPACE = UUID("5f0c1c5e-6d6e-5c1b-9a36-0a2f3f7f8f10")


def new_id() -> UUID:
    """A new UUIDv7: sorts by creation time, unique without asking anybody."""
    return uuid7()


def derived_id(*parts: object) -> UUID:
    """The UUIDv5 of `parts`: the same parts give the same id in every process, for ever."""
    return uuid5(_NAMESPACE, "\x1f".join(str(part) for part in parts))


@lru_cache(maxsize=4096)  # planned, written, folded: one call's id is asked for several times within its step
def invocation_id(run_id: UUID, step: int, position: int, origin: str = "model") -> UUID:
    """The id of the call at `position` (from 0) of `step` (from 1) of a run; providers' call ids play no part."""
    return derived_id("invocation", run_id, origin, step, position)


def result_event_id(invocation: UUID) -> UUID:
    """The id of a call's one result event: whoever writes it, a second result is refused."""
    return derived_id("result", invocation)


def child_run_id(invocation: UUID) -> UUID:
    """The run that a delegating call starts: submitting it again finds it."""
    return derived_id("child-run", invocation)


def child_session_id(invocation: UUID) -> UUID:
    """The session of its own in which a delegating call's run lives."""
    return derived_id("child-session", invocation)
