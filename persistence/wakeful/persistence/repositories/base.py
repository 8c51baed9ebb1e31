"""What the repositories share."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from sqlalchemy import Executable, Table
from sqlalchemy.ext.asyncio import AsyncSession

from wakeful.persistence.tables import Base

__all__ = ["first", "rows", "table_of"]


def table_of(row_class: type[Base]) -> Table:
    """The table itself. Statements over it answer with plain mappings: nothing is kept between two reads, so a
    row read before a lock cannot answer for the row read under it."""
    table = row_class.__table__
    if not isinstance(table, Table):
        raise TypeError(f"{row_class.__name__} is mapped to no table")
    return table


async def rows(session: AsyncSession, statement: Executable) -> Sequence[Mapping[str, Any]]:
    """Every row, by column name."""
    result = await session.execute(statement)
    return cast("Sequence[Mapping[str, Any]]", result.mappings().all())


async def first(session: AsyncSession, statement: Executable) -> Mapping[str, Any] | None:
    """The only row, or none."""
    result = await session.execute(statement)
    return cast("Mapping[str, Any] | None", result.mappings().one_or_none())
