"""Driver errors of units of work as domain errors: unwrapped from SQLAlchemy, then judged like everybody's.

In a unit of work COMMIT is a statement of its own, so only there an ended connection leaves the outcome unknown.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from wakeful.domain.errors import Unavailable
from wakeful.persistence.errors import Translated

__all__ = ["committing", "translated"]


@contextmanager
def translated() -> Iterator[None]:
    """Around everything before COMMIT: whatever it raises, nothing of the transaction stands."""
    try:
        with Translated(write=False):
            yield
    except DBAPIError as error:
        _raise(error, write=False)
    except PoolTimeout as error:
        raise Unavailable("every connection of the pool is in use: raise the pool size or try again") from error


@contextmanager
def committing() -> Iterator[None]:
    """Around COMMIT: a connection that ends here leaves the outcome unknown."""
    try:
        with Translated(write=True):
            yield
    except DBAPIError as error:
        _raise(error, write=True)


def _raise(error: DBAPIError, *, write: bool) -> None:
    if not isinstance(error.orig, psycopg.Error):
        raise error
    with Translated(write=write):
        raise error.orig from error
