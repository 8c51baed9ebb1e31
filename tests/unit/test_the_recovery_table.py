"""Every row of the recovery table leads to its decision, and through the executor to the end it would have had."""

import pytest
from support.recovery_checking import held
from support.recovery_rows import ROWS
from support.recovery_table import Row

from wakeful.persistence.memory import MemoryStore

pytestmark = [pytest.mark.anyio, pytest.mark.gate("crash_recovery")]

TABLE = [pytest.param(row, id=row.name, marks=pytest.mark.spec(*row.rows)) for row in ROWS]


@pytest.mark.parametrize("row", TABLE)
async def test_a_log_is_taken_up_as_the_table_says_and_ends_as_without_a_crash(row: Row) -> None:
    await held(MemoryStore(), MemoryStore(), row)


def test_every_rule_of_recovery_has_its_rows() -> None:
    held = {rule for row in ROWS for rule in row.rows}
    assert held >= {f"REC-{number}" for number in range(1, 9)}
    assert len({row.name for row in ROWS}) == len(ROWS)
