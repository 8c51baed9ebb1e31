"""Driver errors of units of work as domain errors, by SQLSTATE and constraint name; the cause is kept.

Whatever is not known here stays as it is: it is a defect, and its own words say more than ours would.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from wakeful.domain.errors import InvalidPayload, NotAllowed, OutcomeUnknown, Unavailable, WakefulError

__all__ = ["committing", "translated"]

_PAYLOAD_BYTES = "ck_events_payload_bytes"
# Lock not available, query cancelled, deadlock, serialization: nothing was done, and trying again may work.
_TRY_AGAIN = frozenset({"55P03", "57014", "40P01", "40001"})
# Character not in repertoire, untranslatable character, statement too complex (nesting), program limit.
_UNSTORABLE = frozenset({"22021", "22P05", "22P02", "54001", "54000"})


@contextmanager
def translated() -> Iterator[None]:
    """Around everything before COMMIT: whatever it raises, nothing of the transaction stands."""
    try:
        yield
    except PoolTimeout as error:
        raise Unavailable("every connection of the pool is in use: raise the pool size or try again") from error
    except (DBAPIError, psycopg.Error) as error:
        known = _domain_error(_driver_error(error))
        if known is None:
            raise
        raise known from error


@contextmanager
def committing() -> Iterator[None]:
    """Around COMMIT: a connection that ends here leaves the outcome unknown."""
    try:
        yield
    except (DBAPIError, psycopg.Error) as error:
        driver = _driver_error(error)
        if isinstance(driver, psycopg.OperationalError | psycopg.InterfaceError):
            raise OutcomeUnknown("the connection ended during COMMIT: do the same again, with the same ids") from error
        known = _domain_error(driver)
        if known is None:
            raise
        raise known from error


def _driver_error(error: DBAPIError | psycopg.Error) -> BaseException | None:
    return error.orig if isinstance(error, DBAPIError) else error


def _domain_error(error: BaseException | None) -> WakefulError | None:
    if not isinstance(error, psycopg.Error):
        return None
    state = error.sqlstate
    if state == psycopg.errors.CheckViolation.sqlstate and error.diag.constraint_name == _PAYLOAD_BYTES:
        return InvalidPayload("the event's payload is larger than 1 MiB: keep large contents as artifacts")
    if state in _UNSTORABLE:
        return InvalidPayload("PostgreSQL cannot store a text or value in the payload")
    if state == psycopg.errors.InsufficientPrivilege.sqlstate:
        return NotAllowed(f"the database role may not do this: {error.diag.message_primary}")
    if state in _TRY_AGAIN:
        return Unavailable(f"the database gave up waiting ({state}): try again")
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        # libpq names host, port and login here, never the password.
        return Unavailable(f"the database cannot be reached, or ended the connection: {str(error).strip()}")
    return None
