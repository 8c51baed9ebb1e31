"""Exit codes: one table, read by the commands, the documentation and its test."""

from enum import IntEnum

from wakeful.domain.errors import (
    Conflict,
    InvalidInput,
    NotAllowed,
    NotFound,
    RunFailure,
    Timeout,
    Unavailable,
    WakefulError,
)

__all__ = ["MEANINGS", "ExitCode", "exit_code"]


class ExitCode(IntEnum):
    OK = 0
    FAILURE = 1
    USAGE = 2
    CONFLICT = 4
    NOT_ALLOWED = 5
    UNREACHABLE = 6
    RUN_FAILED = 7
    TIMED_OUT = 8
    INTERRUPTED = 130


MEANINGS: dict[ExitCode, str] = {
    ExitCode.OK: "It was done.",
    ExitCode.FAILURE: "It failed: the schema is not at the expected revision, a check or a verdict is negative.",
    ExitCode.USAGE: "It was asked wrongly: usage, settings, text that cannot be stored, an unknown id.",
    ExitCode.CONFLICT: "The state does not allow it: answered already, session busy, key used with another request.",
    ExitCode.NOT_ALLOWED: "The database role or the policy forbids it.",
    ExitCode.UNREACHABLE: "The database cannot be reached.",
    ExitCode.RUN_FAILED: "The run that was waited for failed or was cancelled.",
    ExitCode.TIMED_OUT: "Waiting took longer than asked.",
    ExitCode.INTERRUPTED: "Interrupted by Ctrl-C.",
}

_BY_ERROR: tuple[tuple[type[WakefulError], ExitCode], ...] = (
    (InvalidInput, ExitCode.USAGE),
    (NotFound, ExitCode.USAGE),
    (Conflict, ExitCode.CONFLICT),
    (NotAllowed, ExitCode.NOT_ALLOWED),
    (Unavailable, ExitCode.UNREACHABLE),
    (RunFailure, ExitCode.RUN_FAILED),
    (Timeout, ExitCode.TIMED_OUT),
)


def exit_code(error: WakefulError) -> ExitCode:
    """The code of an expected error; FAILURE for every class the table does not name."""
    return next((code for kind, code in _BY_ERROR if isinstance(error, kind)), ExitCode.FAILURE)
