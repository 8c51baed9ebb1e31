"""Reading session history in memory: one fold of the log, which costs what the log is long."""

from wakeful.domain.history import CONVERSATION_TYPES, Entry
from wakeful.domain.scopes import SessionRef
from wakeful.persistence.history import cut
from wakeful.persistence.memory.codec import load_event
from wakeful.persistence.memory.records import Records

__all__ = ["MemoryHistory"]


class MemoryHistory:
    """See `wakeful.domain.ports.history`."""

    def __init__(self, records: Records) -> None:
        self._records = records

    async def read(
        self,
        session: SessionRef,
        *,
        after: int = 0,
        before: int | None = None,
        limit: int | None = None,
        newest: bool = False,
    ) -> list[Entry]:
        with self._records.unit():
            saved = [event for event in self._records.log(session) if event.type in CONVERSATION_TYPES]
        events = [load_event(session, event) for event in saved]
        return cut(events, after=after, before=before, limit=limit, newest=newest)
