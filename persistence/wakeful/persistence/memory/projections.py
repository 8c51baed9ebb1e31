"""What the projection engine keeps, in memory."""

from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

from wakeful.domain.events import Event
from wakeful.domain.payloads import describe
from wakeful.domain.ports.projections import Batch, Behind, Lag, Move, Page, Stop, StoredState
from wakeful.domain.projections import Document, Projection, StateRef, StateScope, place
from wakeful.domain.scopes import SessionRef
from wakeful.domain.sessions import Session
from wakeful.domain.states import RunStatus
from wakeful.persistence.memory.appending import encode, insert, now_in
from wakeful.persistence.memory.codec import load_event, plain
from wakeful.persistence.memory.records import Records
from wakeful.persistence.memory.saved import SavedEvent, SavedState

__all__ = ["MemoryProjections"]

StateKey = tuple[UUID, UUID, str, int]


class MemoryProjections:
    """See `wakeful.domain.ports.projections`."""

    def __init__(self, records: Records) -> None:
        self._records = records

    async def behind(
        self, projections: Sequence[Projection], *, after: SessionRef | None, limit: int, retry_stopped: timedelta
    ) -> Page:
        with self._records.unit():
            refs = sorted(self._records.sessions, key=_order)
            page = [ref for ref in refs if after is None or _order(ref) > _order(after)][:limit]
            return Page(self._behind(projections, page, retry_stopped), page[-1] if len(page) == limit else None)

    async def behind_lately(
        self, projections: Sequence[Projection], *, within: timedelta, limit: int, retry_stopped: timedelta
    ) -> list[Behind]:
        with self._records.unit():
            since = self._records.clock() - within
            lately = {
                run.ref.session
                for run in self._records.runs.values()
                if run.status is RunStatus.RUNNING or (run.finished_at is not None and run.finished_at > since)
            }
            return self._behind(projections, sorted(lately, key=_order)[:limit], retry_stopped)

    def _behind(
        self, projections: Sequence[Projection], refs: Sequence[SessionRef], retry_stopped: timedelta
    ) -> list[Behind]:
        sessions = [session for ref in refs if (session := self._records.sessions.get(ref)) is not None]
        return [
            Behind(session.ref, session.scope.principal_id, names)
            for session in sessions
            if (names := self._names_behind(projections, session, retry_stopped))
        ]

    def _names_behind(
        self, projections: Sequence[Projection], session: Session, retry_stopped: timedelta
    ) -> tuple[str, ...]:
        names = []
        for projection in projections:
            state = _state_of(projection, session)
            saved = self._served(projection, state)
            stop = saved.stop if saved else None
            mark = self._mark(projection, session.ref, saved.generation if saved else 0)
            unseen = mark is None or mark[0] < session.last_sequence or mark[1] < projection.version
            if unseen and (stop is None or stop.at < self._records.clock() - retry_stopped):
                names.append(projection.name)
        return tuple(sorted(names))

    async def read(
        self, projection: Projection, state: StateRef, *, generation: int | None = None, limit: int = 500
    ) -> Batch:
        with self._records.unit():
            saved = self._state(projection, state, generation)
            chosen = generation if generation is not None else (saved.generation if saved else 0)
            sessions = self._sessions(projection, state)
            marks = {session.session_id: self._mark(projection, session.ref, chosen) for session in sessions}
            unseen = [
                session for session in sessions if (marks[session.session_id] or (0, 0))[0] < session.last_sequence
            ]
            if projection.scope is StateScope.PRINCIPAL:
                version = saved.version if saved else None
                sessions = unseen
            else:
                version = next((mark[1] for mark in marks.values() if mark), None)
            rows = [
                (session.ref, event)
                for session in unseen
                for event in self._after(projection, session.ref, (marks[session.session_id] or (0, 0))[0], limit)
            ]
            rows.sort(key=lambda row: (row[1].created_at, row[0].session_id, row[1].sequence))
            rows = rows[:limit]
            events, unreadable = _decoded(rows)
            more = unreadable is None and len(rows) >= limit
            through = {
                session.session_id: (marks[session.session_id] or (0, 0))[0] if more else session.last_sequence
                for session in sessions
            }
            if more:
                through.update((event.session_id, event.sequence) for event in events)
            return Batch(
                generation=chosen,
                version=version,
                revision=saved.revision if saved else 0,
                last_place=saved.last_place if saved else None,
                stopped=saved is not None and saved.stop is not None,
                events=events,
                marks={session.session_id: (marks[session.session_id] or (None,))[0] for session in sessions},
                through=through,
                more=more,
                unreadable=unreadable,
            )

    async def documents(
        self, projection: Projection, state: StateRef, read: Batch, *, keys: Collection[str] | None
    ) -> Mapping[str, Document] | None:
        with self._records.unit():
            if self._moved(projection, state, read):
                return None
            found = self._records.documents.get(_key(projection, state, read.generation)) or {}
            return {
                key: replace(document, body=plain(document.body))
                for key, document in found.items()
                if keys is None or key in keys
            }

    def _moved(self, projection: Projection, state: StateRef, read: Batch) -> bool:
        if projection.scope is StateScope.PRINCIPAL:
            saved = self._state(projection, state, read.generation)
            return (saved.revision if saved else 0) != read.revision
        marks = {
            session.session_id: self._mark(projection, session.ref, read.generation)
            for session in self._sessions(projection, state)
        }
        return {session: mark and mark[0] for session, mark in marks.items()} != read.marks

    async def move(self, projection: Projection, move: Move) -> bool:
        encoded = encode([derived.event for derived in move.derived])
        documents = {
            key: None if document is None else replace(document, body=plain(document.body))
            for key, document in move.documents.items()
        }
        with self._records.unit():
            session = SessionRef(move.state.tenant_id, move.session_id)
            if session not in self._records.sessions or not self._as_read(projection, move, session):
                return False
            fresh = []
            for derived, event in zip(move.derived, encoded, strict=True):
                if (session.tenant_id, derived.key) not in self._records.derived:
                    self._records.derived.put((session.tenant_id, derived.key), derived.event.event_id)
                    fresh.append(event)
            if fresh:
                insert(self._records, session, fresh, now_in(self._records, session))
            self._write(projection, move, documents)
            return True

    def _as_read(self, projection: Projection, move: Move, session: SessionRef) -> bool:
        mark = self._mark(projection, session, move.generation)
        if (mark is None) != (move.mark is None) or (mark is not None and mark != (move.mark, projection.version)):
            return False
        saved = self._state(projection, move.state, move.generation)
        return move.last_place is None or (saved.revision if saved else 0) == move.revision

    def _write(self, projection: Projection, move: Move, documents: Mapping[str, Document | None]) -> None:
        tenant = move.state.tenant_id
        self._records.watermarks.put(
            (tenant, move.session_id, projection.name, move.generation), (move.through, projection.version)
        )
        if move.last_place is not None:
            saved = self._state(projection, move.state, move.generation) or SavedState(
                move.generation, serving=move.generation == 0 and self._served(projection, move.state) is None
            )
            self._put(
                projection,
                move.state,
                replace(saved, revision=saved.revision + 1, version=projection.version, last_place=move.last_place),
            )
        if documents:
            key = _key(projection, move.state, move.generation)
            kept = {**(self._records.documents.get(key) or {}), **documents}
            self._records.documents.put(
                key, {name: document for name, document in kept.items() if document is not None}
            )
        served = self._served(projection, move.state)
        if move.clears_stop and served is not None:
            self._put(projection, move.state, replace(served, stop=None))

    async def stop(self, projection: Projection, move: Move, sequence: int, reason: str) -> bool:
        with self._records.unit():
            session = SessionRef(move.state.tenant_id, move.session_id)
            mark = self._mark(projection, session, move.generation)
            if mark is None or mark[0] != move.mark:
                return False
            served = self._served(projection, move.state) or SavedState(0, serving=True)
            stop = Stop(move.session_id, sequence, reason, self._records.clock())
            self._put(projection, move.state, replace(served, stop=stop))
            return True

    async def stored(self, projection: Projection, state: StateRef) -> StoredState:
        with self._records.unit():
            saved = self._served(projection, state)
            generation = saved.generation if saved else 0
            marks = {
                session.session_id: self._mark(projection, session.ref, generation)
                for session in self._sessions(projection, state)
            }
            version = saved.version if saved else None
            if projection.scope is StateScope.SESSION:
                version = next((mark[1] for mark in marks.values() if mark), None)
            found = self._records.documents.get(_key(projection, state, generation)) or {}
            documents = sorted(found.values(), key=lambda document: (document.position, document.key.encode()))
            return StoredState(
                version=version,
                generation=generation,
                revision=saved.revision if saved else 0,
                marks={session: mark[0] if mark else 0 for session, mark in marks.items()},
                documents=[replace(document, body=plain(document.body)) for document in documents],
                stop=saved.stop if saved else None,
            )

    async def begin_generation(self, projection: Projection, state: StateRef, *, anew: bool = True) -> int:
        with self._records.unit():
            saved = self._served(projection, state)
            generation = saved.generation if saved else 0
            if anew:
                self._drop_others(projection, state, generation)
            return generation + 1

    async def swap(self, projection: Projection, state: StateRef, *, generation: int) -> bool:
        with self._records.unit():
            served = self._served(projection, state)
            if (served.generation if served else 0) not in (generation, generation - 1):
                return False
            self._drop_others(projection, state, generation)
            saved = self._state(projection, state, generation) or SavedState(generation)
            self._put(projection, state, replace(saved, serving=True))
            return True

    def _drop_others(self, projection: Projection, state: StateRef, generation: int) -> None:
        sessions = {session.session_id for session in self._sessions(projection, state)}
        for key in self._records.states:
            if key[:3] == (state.tenant_id, state.scope, projection.name) and key[3] != generation:
                self._records.states.delete(key)
        for key in self._records.documents:
            if key[:3] == (state.tenant_id, state.scope, projection.name) and key[3] != generation:
                self._records.documents.delete(key)
        for key in self._records.watermarks:
            named = key[0] == state.tenant_id and key[1] in sessions and key[2] == projection.name
            if named and key[3] != generation:
                self._records.watermarks.delete(key)

    async def lag(
        self, projections: Sequence[Projection], *, tenant_id: UUID | None = None, limit: int = 100
    ) -> list[Lag]:
        with self._records.unit():
            found = [
                lag
                for session in self._records.sessions.values()
                if tenant_id in (None, session.scope.tenant_id)
                for projection in projections
                if (lag := self._lag(projection, session)) is not None
            ]
            return sorted(found, key=lambda lag: (-lag.sequences, lag.session_id, lag.projection))[:limit]

    def _lag(self, projection: Projection, session: Session) -> Lag | None:
        state = _state_of(projection, session)
        saved = self._served(projection, state)
        mark = self._mark(projection, session.ref, saved.generation if saved else 0)
        seen, stop = (mark[0] if mark else 0), (saved.stop if saved else None)
        if mark is not None and seen >= session.last_sequence and stop is None:
            return None
        unseen = self._records.log(session.ref)[seen:]
        seconds = (self._records.clock() - unseen[0].created_at).total_seconds() if unseen else 0.0
        return Lag(projection.name, state, session.session_id, seen, session.last_sequence, max(seconds, 0.0), stop)

    async def states(
        self, projection: Projection, *, tenant_id: UUID, after: UUID | None = None, limit: int = 100
    ) -> list[StateRef]:
        with self._records.unit():
            scopes = {
                _state_of(projection, session).scope
                for session in self._records.sessions.values()
                if session.scope.tenant_id == tenant_id
            }
            return [StateRef(tenant_id, scope) for scope in sorted(scopes) if after is None or scope > after][:limit]

    def _after(self, projection: Projection, session: SessionRef, mark: int, limit: int) -> list[SavedEvent]:
        log = self._records.log(session)
        unseen = log[bisect_right(log, mark, key=lambda event: event.sequence) :]
        return [event for event in unseen if projection.types is None or event.type in projection.types][:limit]

    def _sessions(self, projection: Projection, state: StateRef) -> list[Session]:
        if projection.scope is StateScope.SESSION:
            session = self._records.sessions.get(SessionRef(state.tenant_id, state.scope))
            return [session] if session else []
        return sorted(
            (
                session
                for session in self._records.sessions.values()
                if (session.scope.tenant_id, session.scope.principal_id) == (state.tenant_id, state.scope)
            ),
            key=lambda session: session.session_id,
        )

    def _mark(self, projection: Projection, session: SessionRef, generation: int) -> tuple[int, int] | None:
        return self._records.watermarks.get((session.tenant_id, session.session_id, projection.name, generation))

    def _state(self, projection: Projection, state: StateRef, generation: int | None) -> SavedState | None:
        if generation is None:
            return self._served(projection, state)
        return self._records.states.get(_key(projection, state, generation))

    def _served(self, projection: Projection, state: StateRef) -> SavedState | None:
        served = self._records.served.get((state.tenant_id, state.scope, projection.name))
        return None if served is None else self._records.states.get(_key(projection, state, served))

    def _put(self, projection: Projection, state: StateRef, saved: SavedState) -> None:
        self._records.states.put(_key(projection, state, saved.generation), saved)
        if saved.serving:
            self._records.served.put((state.tenant_id, state.scope, projection.name), saved.generation)


def _order(session: SessionRef) -> tuple[UUID, UUID]:
    return session.tenant_id, session.session_id


def _key(projection: Projection, state: StateRef, generation: int) -> StateKey:
    return state.tenant_id, state.scope, projection.name, generation


def _state_of(projection: Projection, session: Session) -> StateRef:
    principal = projection.scope is StateScope.PRINCIPAL
    return StateRef(session.scope.tenant_id, session.scope.principal_id if principal else session.session_id)


def _decoded(rows: Sequence[tuple[SessionRef, SavedEvent]]) -> tuple[list[Event], tuple[UUID, int, str] | None]:
    events: list[Event] = []
    for session, saved in rows:
        try:
            events.append(load_event(session, saved))
        except Exception as error:
            return events, (session.session_id, saved.sequence, describe(error))
    return sorted(events, key=place), None
