"""Reading session history: the stored entries' events and everything behind the watermark, in one snapshot."""

from collections.abc import Sequence
from typing import Any

from psycopg.rows import dict_row

from wakeful.domain.events import Event
from wakeful.domain.history import CONVERSATION_TYPES, Conversation, Entry
from wakeful.domain.scopes import SessionRef
from wakeful.domain.session_history import SessionHistory
from wakeful.persistence.connections import HotPool
from wakeful.persistence.errors import Translated
from wakeful.persistence.mappers.events import event_of

__all__ = ["ALL_HISTORY", "PostgresHistory", "cut", "history_parameters"]

_TENANT = b"SELECT set_config('wakeful.tenant', %(tenant)s, true)"
# Documents of another builder are none: then everything is behind the watermark.
_HISTORY = b"""
WITH served AS MATERIALIZED (
        SELECT g.generation, coalesce(w.watermark_seq, 0) AS mark
          FROM (SELECT coalesce((SELECT st.generation FROM wakeful.projection_states AS st
                                  WHERE st.tenant_id = %(tenant)s::uuid AND st.scope = %(session)s
                                    AND st.projection_name = %(projection)s AND st.serving), 0) AS generation) AS g
          LEFT JOIN wakeful.projection_watermarks AS w
            ON w.tenant_id = %(tenant)s::uuid AND w.scope = %(session)s AND w.projection_name = %(projection)s
               AND w.generation = g.generation AND w.builder_version = %(version)s::integer),
     entries AS (
        SELECT d.body
          FROM wakeful.projection_documents AS d
         WHERE d.tenant_id = %(tenant)s::uuid AND d.session_id = %(session)s AND d.projection_name = %(projection)s
           AND d.generation = (SELECT generation FROM served) AND (SELECT mark FROM served) > 0
           AND d.position > %(after)s::bigint AND d.position < %(before)s::bigint
         ORDER BY d.position {order}
         LIMIT %(limit)s::bigint)
SELECT e.*
  FROM (SELECT s.value::bigint AS sequence FROM entries, jsonb_array_elements_text(entries.body) AS s
        UNION ALL
        SELECT t.sequence FROM wakeful.events AS t
         WHERE t.tenant_id = %(tenant)s::uuid AND t.session_id = %(session)s
           AND t.sequence > (SELECT mark FROM served) AND t.event_type = ANY (%(types)s)) AS wanted
  JOIN wakeful.events AS e
    ON e.tenant_id = %(tenant)s::uuid AND e.session_id = %(session)s AND e.sequence = wanted.sequence
 ORDER BY e.sequence
"""
ALL_HISTORY, _NEWEST = _HISTORY.replace(b"{order}", b""), _HISTORY.replace(b"{order}", b"DESC")
_TYPES = sorted(CONVERSATION_TYPES)
_NO_END = 2**63 - 1


class PostgresHistory:
    """See `wakeful.domain.ports.history`."""

    def __init__(self, pool: HotPool) -> None:
        self._pool = pool

    async def read(
        self,
        session: SessionRef,
        *,
        after: int = 0,
        before: int | None = None,
        limit: int | None = None,
        newest: bool = False,
    ) -> list[Entry]:
        parameters = history_parameters(session, after=after, before=before, limit=limit)
        with Translated(write=False):
            async with self._pool.connection() as connection, connection.cursor(row_factory=dict_row) as cursor:
                async with connection.pipeline():
                    await connection.execute(_TENANT, parameters)
                    await cursor.execute(_NEWEST if newest else ALL_HISTORY, parameters)
                rows = await cursor.fetchall()
        return cut([event_of(row) for row in rows], after=after, before=before, limit=limit, newest=newest)


def history_parameters(
    session: SessionRef, *, after: int = 0, before: int | None = None, limit: int | None = None
) -> dict[str, Any]:
    """`after` -1 also asks for items that make no entry."""
    return {
        "tenant": str(session.tenant_id),
        "session": session.session_id,
        "projection": SessionHistory.name,
        "version": SessionHistory.version,
        "types": _TYPES,
        "after": after,
        "before": _NO_END if before is None else before,
        "limit": limit,
    }


def cut(events: Sequence[Event], *, after: int, before: int | None, limit: int | None, newest: bool) -> list[Entry]:
    """The entries that were asked for. What lies behind the watermark may make more of them."""
    entries = [
        entry
        for entry in Conversation.of(events).entries
        if entry.sequence > after and (before is None or entry.sequence < before)
    ]
    if limit is None:
        return entries
    return entries[-limit:] if newest else entries[:limit]
