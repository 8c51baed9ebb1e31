"""A cancel before or after every append of every run shape: the run ends, each call has one result, nothing is torn."""

from typing import Any

import pytest
from support.runs import Office
from support.shapes import SCRIPTS, answer, build, checked

from wakeful.domain.appends import Append, Appended
from wakeful.domain.errors import WakefulError
from wakeful.domain.events import Event
from wakeful.domain.events.turns import CallEnded
from wakeful.domain.scopes import RunRef, SessionRef
from wakeful.domain.states import InvocationStatus, RunStatus
from wakeful.runtime.outcomes import Ending

pytestmark = pytest.mark.anyio


class Cancelling:
    """A log that has the run cancelled before or after its n-th append (from 1), as its owner would."""

    def __init__(self, place: Office, run: RunRef, *, at: int, after: bool) -> None:
        self._place, self._run, self._at, self._after = place, run, at, after
        self._appends = 0
        self.asked: RunStatus | None = None
        """The status that the cancel met."""
        self.refused: list[str] = []

    async def append(self, append: Append) -> Appended:
        self._appends += append.lease is not None and append.lease.run == self._run
        here = self._appends == self._at and self.asked is None
        if here and not self._after:
            await self._cancel()
        try:
            return await self._place.store.log.append(append)
        except WakefulError as error:
            self.refused.append(error.code)
            raise
        finally:
            if here and self._after:
                await self._cancel()

    async def read(self, session: SessionRef, **options: Any) -> list[Event]:
        return await self._place.store.log.read(session, **options)

    async def _cancel(self) -> None:
        self.asked = (await self._place.run(self._run)).status
        await self._place.store.control.cancel(self._place.scope, self._run.run_id)


async def cancelled_at(place: Office, run: RunRef, at: int, *, after: bool) -> Cancelling:
    log = Cancelling(place, run, at=at, after=after)
    for _ in range(20):
        endings = await place.work(log)
        assert Ending.FAILED not in endings
        await answer_if_open(place, run)
        if (await place.run(run)).status.terminal:
            return log
    raise AssertionError(f"the run never ended: {await place.run(run)}")


async def answer_if_open(place: Office, run: RunRef) -> None:
    if not (await place.run(run)).status.terminal:
        await answer(place, run)


@pytest.mark.spec("QUE-4")
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("shape", SCRIPTS)
async def test_a_cancel_at_any_append_ends_the_run_with_one_result_per_call(shape: str, after: bool) -> None:
    met: set[RunStatus] = set()
    for at in range(1, 40):
        place, effects = build()
        ref = await place.submit(shape, "Go")
        log = await cancelled_at(place, ref, at, after=after)
        run = await place.run(ref)
        if log.asked is None:
            assert at > 3, "the run is too short to prove anything"
            assert RunStatus.RUNNING in met
            return
        met.add(log.asked)
        types = await place.types(ref)
        if run.status is RunStatus.COMPLETED:
            # Its last append was on the way already, or committed.
            assert types[-1] == "run.completed" or log.asked is RunStatus.COMPLETED
        else:
            assert run.status is RunStatus.CANCELLED, (at, run.failure)
            assert types.count("run.cancelled") == 1
        checked(await place.conversation(ref))
        payloads = [event.payload for event in await place.events(ref)]
        ended = [payload.invocation_id for payload in payloads if isinstance(payload, CallEnded)]
        assert sorted(ended) == sorted(call.id for call in await place.calls(ref))
        assert max(effects.values(), default=0) <= 1
        for call in await place.calls(ref):
            assert call.status.terminal
            # What happened is either told as such or said to be unknown, never denied.
            if effects[call.idempotency_key]:
                assert call.status in (InvocationStatus.COMPLETED, InvocationStatus.UNCERTAIN), (at, call)
        await place.sweep()
        for child in [call.child_run_id for call in await place.calls(ref) if call.child_run_id is not None]:
            assert (await child_status(place, child)).terminal
    raise AssertionError("the run never ended by itself")


async def child_status(place: Office, run_id: Any) -> RunStatus:
    try:
        return (await place.store.runs.get(place.scope, run_id)).status
    except WakefulError:
        return RunStatus.CANCELLED  # it was never submitted
