"""`docs/cli.md` says what the commands say, and the exit codes are one table."""

from pathlib import Path

import pytest

from wakeful.cli.exit_codes import MEANINGS, ExitCode, exit_code
from wakeful.cli.reference import exit_code_table, reference
from wakeful.domain import errors

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.checkout
def test_the_page_is_what_the_commands_say() -> None:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    assert page == reference(), "run `python -m wakeful.cli.reference > docs/cli.md`"


def test_every_exit_code_has_a_meaning_in_the_table() -> None:
    assert set(MEANINGS) == set(ExitCode)
    for code in ExitCode:
        assert f"| {int(code)} | {MEANINGS[code]} |" in exit_code_table()


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.InvalidPayload("NUL"), 2),
        (errors.ConfigurationError("no address"), 2),
        (errors.NotFound("run", "x"), 2),
        (errors.IdempotencyConflict("k"), 4),
        (errors.AlreadyAnswered("call"), 4),
        (errors.NotAllowed("role"), 5),
        (errors.Unavailable("down"), 6),
        (errors.OutcomeUnknown("down"), 6),
        (errors.RunFailure("failed"), 7),
        (errors.Timeout("late"), 8),
        (errors.SchemaError("old", current="a", expected="b"), 1),
        (errors.WakefulError("anything else"), 1),
    ],
)
def test_an_error_has_the_exit_code_of_its_class(error: errors.WakefulError, code: int) -> None:
    assert exit_code(error) == code
