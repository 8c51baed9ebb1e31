"""Driver errors of the hot paths as domain errors, by SQLSTATE and constraint name; the cause is kept.

The hot paths run in autocommit: one statement is one transaction, so a connection that ends before the answer came
may have ended after COMMIT. For a write that is OutcomeUnknown, for a read Unavailable. No message repeats the
driver's words about a connection, because they may hold an address.
"""

from collections.abc import Callable
from types import TracebackType
from typing import Any
from uuid import UUID

import psycopg

from wakeful.domain.appends import Append
from wakeful.domain.errors import (
    AlreadyAnswered,
    Arrived,
    CallMismatch,
    CancelAsked,
    Conflict,
    Fenced,
    IdempotencyConflict,
    InvalidPayload,
    NotAllowed,
    NotFound,
    OutcomeUnknown,
    SessionBusy,
    SessionClosed,
    SessionGone,
    Unavailable,
    WakefulError,
)
from wakeful.domain.runs import Submission

__all__ = ["CONNECTION_LOST", "Translated", "refused_append", "refused_submit", "repeats_an_event"]

CONNECTION_LOST = (psycopg.OperationalError, psycopg.InterfaceError)

_EVENT_ID = "uq_events_event_id"
_PAYLOAD_CHECKS = frozenset({"ck_events_payload_bytes", "ck_events_payload_object"})
_RUN_ID = "pk_runs"
_ACTIVE_RUN = "uq_runs_active_in_session"
# Rolled back for certain, and worth another try: lock not available, cancelled or timed out, deadlock, serialization.
_TRY_AGAIN = frozenset({"55P03", "57014", "40P01", "40001"})
# Character not in repertoire, untranslatable character, invalid text, too complex (nesting), program limit.
_UNSTORABLE = frozenset({"22021", "22P05", "22P02", "54001", "54000"})
# Too many connections, starting up or shutting down: raised while connecting, before anything was sent.
_NOT_SERVED = frozenset({"53300", "57P03"})

Refusal = Callable[[psycopg.Error], WakefulError | None]


class Translated:
    """`with Translated(write=…, refusal=…)` around one statement: domain errors come out, defects as they are.

    `refusal` knows what the statement's own SQLSTATEs mean; it is asked first.
    """

    __slots__ = ("_refusal", "_write")

    def __init__(self, *, write: bool, refusal: Refusal | None = None) -> None:
        self._write, self._refusal = write, refusal

    def __enter__(self) -> None:
        return

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, psycopg.Error):
            known = (self._refusal(error) if self._refusal else None) or _general(error, write=self._write)
            if known is not None:
                raise known from error


def _general(error: psycopg.Error, *, write: bool) -> WakefulError | None:
    state = error.sqlstate
    if state in _TRY_AGAIN:
        return Unavailable(f"the database gave up the statement ({state}): nothing was done, try again")
    if state in _UNSTORABLE or (state is None and isinstance(error, psycopg.DataError)):
        return InvalidPayload("a text or value that PostgreSQL cannot store")
    if error.diag.constraint_name in _PAYLOAD_CHECKS:
        return InvalidPayload("an event's payload is larger than 1 MiB: keep large contents as artifacts")
    if state == psycopg.errors.InsufficientPrivilege.sqlstate:
        return NotAllowed(f"the database role may not do this: {error.diag.message_primary}")
    if state in _NOT_SERVED:
        return Unavailable(f"the database takes no more connections now ({state}): try again")
    if not isinstance(error, CONNECTION_LOST):
        return None
    if write:
        return OutcomeUnknown("the connection ended before the answer came: do the same again, with the same ids")
    return Unavailable("the database cannot be reached, or ended the connection: try again")


def repeats_an_event(error: psycopg.Error) -> bool:
    """Whether the insert met an event id that is in the session already."""
    return error.diag.constraint_name == _EVENT_ID


def refused_append(append: Append) -> Refusal:
    """What the append function's refusals mean for this append."""

    def known(error: psycopg.Error) -> WakefulError | None:
        detail = error.diag.message_detail
        match error.sqlstate:
            case "WK001":
                lease = _lease(append)
                return Fenced(lease.run.run_id, lease.epoch)
            case "WK002":
                return Arrived(f"run {_lease(append).run.run_id}: {error.diag.message_primary}: read the log and go on")
            case "WK003":
                return CancelAsked(f"run {_lease(append).run.run_id} was asked to cancel: end it")
            case "WK004":
                return AlreadyAnswered(detail)
            case "WK006":
                return SessionGone(append.session.session_id)
            case "WK008":
                return CallMismatch(f"another tool or other arguments stand where call {detail} was proposed")
            case "WK010":
                return WakefulError(
                    f"run {_lease(append).run.run_id}: {error.diag.message_primary}: give each one its result in the "
                    "same append"
                )
            case _:
                return None

    return known


def refused_submit(submission: Submission) -> Refusal:
    """What the submit function's refusals mean for this submission."""
    session: UUID = submission.session_id

    def known(error: psycopg.Error) -> WakefulError | None:
        if error.diag.constraint_name == _ACTIVE_RUN:
            return SessionBusy(session)
        if error.diag.constraint_name == _RUN_ID:
            return Conflict(f"run id {submission.run_id} is being used in another session: choose a new one")
        match error.sqlstate:
            case "WK005":
                return SessionBusy(session)
            case "WK006":
                return SessionGone(session)
            case "WK007":
                return SessionClosed(session)
            case "WK009":
                return IdempotencyConflict(submission.key or "")
            case "WK012":
                return NotFound("session", session)
            case _:
                return None

    return known


def _lease(append: Append) -> Any:
    if append.lease is None:
        raise WakefulError(f"session {append.session.session_id}: an append without a lease was judged by one")
    return append.lease
