"""What the projection engine keeps, on PostgreSQL: every read one snapshot, every move one round trip."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
from psycopg.rows import dict_row
from sqlalchemy import text

from wakeful.domain.ports.projections import Batch, Behind, Lag, Move, Page, StoredState
from wakeful.domain.projections import Document, Projection, StateRef, StateScope
from wakeful.domain.scopes import SessionRef
from wakeful.persistence import projection_statements as sql
from wakeful.persistence.connections import Connection, HotPool
from wakeful.persistence.errors import Translated
from wakeful.persistence.mappers.projections import batch_of, document_of, move_parameters, stop_of, stored_of
from wakeful.persistence.unit_of_work import AcrossTenants

__all__ = ["PostgresProjections"]

_MOVED = "WK020"
# The session is gone, or somebody else wrote the first row of a state.
_OVERTAKEN = frozenset({_MOVED, "23503", "23505"})

_BEFORE_ALL = SessionRef(UUID(int=0), UUID(int=0))

Rows = list[dict[str, Any]]
Parameters = Mapping[str, Any]


class PostgresProjections:
    """See `wakeful.domain.ports.projections`."""

    def __init__(self, pool: HotPool, across: AcrossTenants) -> None:
        self._pool, self._across = pool, across

    async def behind(
        self, projections: Sequence[Projection], *, after: SessionRef | None, limit: int, retry_stopped: timedelta
    ) -> Page:
        last = after or _BEFORE_ALL
        place = {"tenant": last.tenant_id, "id": last.session_id, "limit": limit, "retry_stopped": retry_stopped}
        async with self._across.begin() as session:
            rows = (await session.execute(text(sql.BEHIND), _wanted(projections) | place)).all()
        return Page(_behind(rows), SessionRef(rows[-1].tenant_id, rows[-1].id) if len(rows) == limit else None)

    async def behind_lately(
        self, projections: Sequence[Projection], *, within: timedelta, limit: int, retry_stopped: timedelta
    ) -> list[Behind]:
        looked = {"within": within, "limit": limit, "retry_stopped": retry_stopped}
        async with self._across.begin() as session:
            rows = (await session.execute(text(sql.BEHIND_LATELY), _wanted(projections) | looked)).all()
        return _behind(rows)

    async def read(
        self, projection: Projection, state: StateRef, *, generation: int | None = None, limit: int = 500
    ) -> Batch:
        principal = projection.scope is StateScope.PRINCIPAL
        parameters = _of(projection, state) | {
            "generation": generation,
            "limit": limit,
            "types": None if projection.types is None else sorted(projection.types),
        }
        found, marks, events = await self._snapshot(
            parameters,
            sql.STATE,
            sql.MARKS_OF_PRINCIPAL if principal else sql.MARKS_OF_SESSION,
            sql.EVENTS_OF_PRINCIPAL if principal else sql.EVENTS_OF_SESSION,
        )
        return batch_of(projection, generation, found[0] if found else None, marks, events, limit)

    async def documents(
        self, projection: Projection, state: StateRef, read: Batch, *, keys: Collection[str] | None
    ) -> Mapping[str, Document] | None:
        wanted = None if keys is None else sorted(keys)
        parameters = _of(projection, state) | {"generation": read.generation, "keys": wanted}
        found, marks, rows = await self._snapshot(parameters, sql.STATE, sql.MARKS_OF_SESSION, sql.DOCUMENTS)
        if projection.scope is StateScope.PRINCIPAL:
            moved = (found[0]["revision"] if found else 0) != read.revision
        else:
            moved = {mark["id"]: mark["watermark_seq"] for mark in marks} != read.marks
        return None if moved else {row["key"]: document_of(row) for row in rows}

    async def move(self, projection: Projection, move: Move) -> bool:
        parameters = move_parameters(projection, move)
        try:
            with Translated(write=True):
                async with self._pool.connection() as connection:
                    await connection.execute(sql.MOVE, parameters)
        except psycopg.Error as error:
            if error.sqlstate in _OVERTAKEN:
                return False
            raise
        return True

    async def stop(self, projection: Projection, move: Move, sequence: int, reason: str) -> bool:
        parameters = _of(projection, move.state) | {
            "generation": move.generation,
            "session": move.session_id,
            "mark": move.mark,
            "sequence": sequence,
            "reason": reason,
        }
        with Translated(write=True):
            async with self._pool.connection() as connection:
                async with connection.pipeline():
                    await connection.execute(sql.TENANT, {"tenant": str(move.state.tenant_id)})
                    cursor = await connection.execute(sql.STOP, parameters)
                return cursor.rowcount == 1

    async def stored(self, projection: Projection, state: StateRef) -> StoredState:
        parameters = _of(projection, state) | {"generation": None}
        found, marks, rows = await self._snapshot(parameters, sql.STATE, sql.MARKS, sql.STORED)
        return stored_of(projection, found[0] if found else None, marks, rows)

    async def begin_generation(self, projection: Projection, state: StateRef, *, anew: bool = True) -> int:
        parameters = _of(projection, state)
        with Translated(write=True):
            async with self._pool.connection() as connection, connection.transaction():
                await connection.execute(sql.TENANT, {"tenant": str(state.tenant_id)})
                generation = await _lock_served(connection, parameters)
                for statement in sql.DROP_OTHERS if anew else ():
                    await connection.execute(statement, parameters | {"generation": generation})
        return generation + 1

    async def swap(self, projection: Projection, state: StateRef, *, generation: int) -> bool:
        parameters = _of(projection, state) | {"generation": generation}
        with Translated(write=True):
            async with self._pool.connection() as connection, connection.transaction():
                await connection.execute(sql.TENANT, {"tenant": str(state.tenant_id)})
                if await _lock_served(connection, parameters) not in (generation, generation - 1):
                    return False
                for statement in sql.DROP_OTHERS:
                    await connection.execute(statement, parameters)
                await connection.execute(sql.SERVE, parameters)
        return True

    async def lag(
        self, projections: Sequence[Projection], *, tenant_id: UUID | None = None, limit: int = 100
    ) -> list[Lag]:
        known = {projection.name: projection for projection in projections}
        async with self._across.begin() as session:
            wanted = _wanted(projections) | {"tenant": tenant_id, "limit": limit}
            rows = (await session.execute(text(sql.LAGGING), wanted)).all()
        by_tenant: dict[UUID, list[Any]] = defaultdict(list)
        for row in rows:
            by_tenant[row.tenant_id].append(row)
        found = {tenant: await self._details(tenant, its, known) for tenant, its in by_tenant.items()}
        return sorted((lag for lags in found.values() for lag in lags), key=lambda lag: -lag.sequences)

    async def _details(self, tenant: UUID, rows: Sequence[Any], known: Mapping[str, Projection]) -> list[Lag]:
        """What only the tenant may see: how old the oldest unseen event is, and why a state does not move."""
        lags = []
        for row in rows:
            state = StateRef(tenant, row.principal_id if row.principal else row.id)
            parameters = _of(known[row.name], state) | {
                "generation": None,
                "session": row.id,
                "mark": row.watermark,
            }
            oldest, found = await self._snapshot(parameters, sql.OLDEST_UNSEEN, sql.STATE)
            stop = stop_of(found[0] if found else None)
            seconds = max(next(iter(oldest[0].values())), 0.0) if oldest else 0.0
            lags.append(Lag(row.name, state, row.id, row.watermark, row.last_sequence, seconds, stop))
        return lags

    async def states(
        self, projection: Projection, *, tenant_id: UUID, after: UUID | None = None, limit: int = 100
    ) -> list[StateRef]:
        statement = sql.PRINCIPALS if projection.scope is StateScope.PRINCIPAL else sql.SESSIONS
        (rows,) = await self._snapshot({"tenant": tenant_id, "after": after, "limit": limit}, statement)
        return [StateRef(tenant_id, row["id"]) for row in rows]

    async def _snapshot(self, parameters: Parameters, *statements: bytes) -> list[Rows]:
        """Every statement's rows, in one read-only snapshot and one round trip."""
        with Translated(write=False):
            async with self._pool.connection() as connection:
                cursors = []
                async with connection.pipeline():
                    await connection.execute(sql.BEGIN)
                    await connection.execute(sql.TENANT, {"tenant": str(parameters["tenant"])})
                    for statement in statements:
                        cursor = connection.cursor(row_factory=dict_row)
                        await cursor.execute(statement, parameters)
                        cursors.append(cursor)
                    await connection.execute(sql.COMMIT)
                return [await cursor.fetchall() for cursor in cursors]


async def _lock_served(connection: Connection, parameters: Parameters) -> int:
    """The served generation; nobody moves or swaps any of the state's until this transaction ends."""
    await connection.execute(sql.LOCK, parameters)
    row = await (await connection.execute(sql.SERVED, parameters)).fetchone()
    return int(row[0]) if row else 0


def _behind(rows: Sequence[Any]) -> list[Behind]:
    return [
        Behind(SessionRef(row.tenant_id, row.id), row.principal_id, tuple(row.behind)) for row in rows if row.behind
    ]


def _of(projection: Projection, state: StateRef) -> dict[str, Any]:
    return {"tenant": state.tenant_id, "scope": state.scope, "name": projection.name}


def _wanted(projections: Sequence[Projection]) -> dict[str, Any]:
    return {
        "names": [projection.name for projection in projections],
        "versions": [projection.version for projection in projections],
        "principals": [projection.scope is StateScope.PRINCIPAL for projection in projections],
    }
