"""No transaction is open across anything but SQL: who opens one says so here, and who goes outside asks.

Holding a row lock while a model thinks would stop every other writer of the session, so this is checked while
running, beside the check of the sources in the tests.
"""

from contextvars import ContextVar, Token

__all__ = ["entered", "left", "must_be_outside"]

_inside: ContextVar[bool] = ContextVar("wakeful_inside_transaction", default=False)


def entered() -> "Token[bool]":
    """A connection was taken or a transaction opened, for this task; give what is returned to `left`."""
    return _inside.set(True)


def left(token: "Token[bool]") -> None:
    _inside.reset(token)


def must_be_outside() -> None:
    """Raises AssertionError when this task holds a connection: a defect of ours, never of user code."""
    if _inside.get():
        raise AssertionError("a transaction is open across a call to the outside")
