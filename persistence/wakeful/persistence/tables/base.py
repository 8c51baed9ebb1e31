"""The declarative base: schema, naming convention, and what a Python type means as a column."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import DateTime, MetaData, Text, Uuid
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase
from sqlalchemy.sql.elements import TextClause
from sqlalchemy.sql.expression import text

__all__ = ["EMPTY_ARRAY", "EMPTY_OBJECT", "NOW", "SCHEMA", "Base", "metadata"]

SCHEMA = "wakeful"

metadata = MetaData(
    schema=SCHEMA,
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
        "uq": "uq_%(table_name)s_%(constraint_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    },
)

# The database's clock, and the time of the row rather than of its transaction: a lock wait lies between.
NOW: TextClause = text("clock_timestamp()")
EMPTY_OBJECT: TextClause = text("'{}'::jsonb")
EMPTY_ARRAY: TextClause = text("'[]'::jsonb")


class Base(DeclarativeBase):
    """Row classes stay inside this package: repositories return what `wakeful.domain` declares."""

    metadata = metadata
    type_annotation_map = {
        str: Text(),
        UUID: Uuid(),
        datetime: DateTime(timezone=True),
        dict[str, Any]: JSONB(none_as_null=True),
        list[Any]: JSONB(none_as_null=True),
    }
