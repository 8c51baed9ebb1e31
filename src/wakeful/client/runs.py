"""A run in the hands of its owner: watch it, answer it, stop it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from wakeful.client.backend import Backend, surely
from wakeful.client.calls import Call, described, the_one
from wakeful.client.following import Pause, batches
from wakeful.client.owners import Owner, scope_of, uuid_of
from wakeful.client.results import final_reply
from wakeful.domain.errors import RunFailure, Timeout, Unavailable
from wakeful.domain.events import Event
from wakeful.domain.events.runs import RunCancelled, RunCompleted, RunFailed
from wakeful.domain.ids import new_id
from wakeful.domain.payloads import check
from wakeful.domain.ports.run_control import Controlled
from wakeful.domain.runs import Run
from wakeful.domain.scopes import RunRef, Scope
from wakeful.domain.states import AWAITING, InvocationStatus, RunStatus

__all__ = ["TERMINAL_EVENTS", "RunHandle", "Runs"]

TERMINAL_EVENTS = frozenset({RunCompleted.TYPE, RunFailed.TYPE, RunCancelled.TYPE})


class RunHandle:
    """One run. Holds no state: every method asks the database."""

    def __init__(self, backend: Backend, scope: Scope, ref: RunRef, *, created: bool = True) -> None:
        self._backend = backend
        self._store = backend.store
        self.scope = scope
        self.ref = ref
        self.created = created
        """After a submit with a key: False when the key stood for this run already."""

    @property
    def id(self) -> UUID:
        return self.ref.run_id

    def __repr__(self) -> str:
        return f"<run {self.id}>"

    async def read(self) -> Run:
        """The run's row as it is now. Raises NotFound when it was deleted."""
        return await self._store.runs.get(self.scope, self.id)

    async def events(self, *, after: int = 0) -> AsyncIterator[Event]:
        """The run's events with a session sequence greater than `after`, as they are committed, each once.

        Goes on by itself after any disconnect and ends behind the run's terminal event. Raises Unavailable when
        the database stays unreachable for a minute, NotFound when the run is deleted meanwhile.
        """
        ended = False
        async for page in batches(self._store.log, self.ref.session, hints=self._store.event_hints, after=after):
            for event in page:
                if event.run_id != self.id:
                    continue
                yield event
                if event.type in TERMINAL_EVENTS:
                    return
            if not page:
                if ended:
                    return
                # The terminal event may stand at or before `after`. Read once more behind this answer: what
                # was committed with the status is visible by then.
                ended = await self._ended()

    async def history(self) -> "list[Event]":
        """The run's events so far, in order."""
        found: list[Event] = []
        after = 0
        while page := await self._store.log.read(self.ref.session, after=after):
            after = page[-1].sequence
            found += [event for event in page if event.run_id == self.id]
        return found

    async def _ended(self) -> bool:
        try:
            return (await self.read()).status.terminal
        except Unavailable:
            return False

    async def wait(self, *, timeout: timedelta | float | None = None) -> Run:  # noqa: ASYNC109 - Timeout says how it ended
        """Return the row once the run is terminal. Raises Timeout; the run goes on then."""
        return await self._wait(timeout, lambda run: run.status.terminal)

    async def wait_for_calls(self, *, timeout: timedelta | float | None = None) -> list[Call]:  # noqa: ASYNC109
        """Return the open questions and approvals as soon as the run waits for one, or nothing once it is terminal.
        Raises Timeout."""
        people = {RunStatus.WAITING_INPUT, RunStatus.WAITING_APPROVAL}
        await self._wait(timeout, lambda run: run.status in people or run.status.terminal)
        return await self.calls()

    async def result(self, *, timeout: timedelta | float | None = None) -> Any:  # noqa: ASYNC109
        """The final reply: text, parts as the model gave them, or None for a run that ended without saying anything.

        A run that waits for a person is waited for. Raises RunFailure with the stored code for a run that failed
        (`cancelled` for one that was cancelled), Timeout (the run goes on), Unavailable.
        """
        run = await self.wait(timeout=timeout)
        if run.status is RunStatus.CANCELLED:
            raise RunFailure(f"run {self.id} was cancelled", code="cancelled")
        if run.status is RunStatus.FAILED:
            code, message = (run.failure.code, run.failure.message) if run.failure else ("failed", "no reason stored")
            raise RunFailure(f"run {self.id} failed ({code}): {message}", code=code)
        return await final_reply(self._store, self.ref)

    async def calls(self) -> list[Call]:
        """The open questions and approvals, in (step, position) order."""
        open_to_people = AWAITING - {InvocationStatus.AWAITING_CHILD}
        return [call for call in await self.all_calls() if call.status in open_to_people]

    async def all_calls(self) -> list[Call]:
        """Every call of the run with its arguments, in (step, position) order."""
        records = await self._store.runs.invocations(self.scope, self.id)
        return await described(self._store.log, self.ref, records)

    async def answer(self, answer: Any, *, call: UUID | str | None = None) -> Controlled:
        """Answer an open question; `call` may be left out when there is only one. The answer is any JSON value.

        Raises AlreadyAnswered, Conflict (several are open, or the call is no question), NotFound, RunEnded,
        InvalidPayload.
        """
        check(answer)
        chosen = await self._chosen(call, InvocationStatus.AWAITING_INPUT)
        event_id = new_id()
        control = self._store.control
        return await self._act(lambda: control.answer(self.scope, self.id, chosen, answer, event_id=event_id))

    async def approve(self, *, call: UUID | str | None = None, note: str | None = None) -> Controlled:
        """Allow a call that awaits approval; it is then executed. Errors as in `answer`."""
        check(note)
        chosen = await self._chosen(call, InvocationStatus.AWAITING_APPROVAL)
        event_id = new_id()
        control = self._store.control
        return await self._act(lambda: control.approve(self.scope, self.id, chosen, note=note, event_id=event_id))

    async def deny(self, *, call: UUID | str | None = None, note: str | None = None) -> Controlled:
        """Refuse a call that awaits approval; the model is told. Errors as in `answer`."""
        check(note)
        chosen = await self._chosen(call, InvocationStatus.AWAITING_APPROVAL)
        event_id = new_id()
        control = self._store.control
        return await self._act(lambda: control.deny(self.scope, self.id, chosen, note=note, event_id=event_id))

    async def resolve(self, *, happened: bool, call: UUID | str | None = None, note: str | None = None) -> Controlled:
        """Say what really happened to a call whose outcome is UNCERTAIN, also after the run's end. The model reads
        it as a note. Errors: NotFound, Conflict (resolved already, or not uncertain)."""
        check(note)
        chosen = await self._chosen(call, InvocationStatus.UNCERTAIN)
        event_id = new_id()
        control = self._store.control
        return await self._act(
            lambda: control.resolve(self.scope, self.id, chosen, happened=happened, note=note, event_id=event_id)
        )

    async def cancel(self, *, reason: str | None = None) -> Controlled:
        """End the run: at once when nobody executes it, else as soon as its worker notices. A run that has ended
        stays as it is (`applied` is False)."""
        check(reason)
        return await surely(lambda: self._store.control.cancel(self.scope, self.id, reason=reason))

    async def _chosen(self, call: UUID | str | None, status: InvocationStatus) -> UUID:
        if call is not None:
            return uuid_of("call", call)
        return the_one(await self._store.runs.invocations(self.scope, self.id), status, self.id)

    async def _act(self, action: Callable[[], Awaitable[Controlled]]) -> Controlled:
        done = await surely(action)
        if done.status is RunStatus.QUEUED:
            self._backend.wakeups.wake((await self.read()).priority)
        return done

    async def _wait(self, timeout: timedelta | float | None, enough: Callable[[Run], bool]) -> Run:  # noqa: ASYNC109
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        pause = Pause(self._store.event_hints.watch(self.ref.session))
        try:
            async with asyncio.timeout(seconds):
                while not enough(run := await self.read()):
                    await pause()
                return run
        except TimeoutError:
            raise Timeout(f"run {self.id} has not got there in {seconds:g} s: it goes on without us") from None


class Runs:
    """The runs of an owner."""

    def __init__(self, backend: Backend, tenant: Owner | None, principal: Owner | None) -> None:
        self._backend, self._tenant, self._principal = backend, tenant, principal

    async def get(
        self, run_id: UUID | str, *, tenant: Owner | None = None, principal: Owner | None = None
    ) -> RunHandle:
        """Raises NotFound, also for another owner's."""
        scope = scope_of(tenant or self._tenant, principal or self._principal)
        run = await self._backend.store.runs.get(scope, uuid_of("run", run_id))
        return RunHandle(self._backend, scope, run.ref, created=False)

    async def list(
        self,
        *,
        session: UUID | str | None = None,
        statuses: Sequence[RunStatus] = (),
        limit: int = 50,
        before: UUID | str | None = None,
        tenant: Owner | None = None,
        principal: Owner | None = None,
    ) -> "list[Run]":
        """Rows, newest first; `before` is the last id of the page before."""
        scope = scope_of(tenant or self._tenant, principal or self._principal)
        session_id = uuid_of("session", session) if session is not None else None
        return await self._backend.store.runs.page(
            scope,
            session_id=session_id,
            statuses=statuses,
            limit=limit,
            before=uuid_of("run", before) if before is not None else None,
        )
