"""A drain before or after every append of every run shape: handed back uncounted, every effect once and known."""

import asyncio
from typing import Any

import pytest
from support.runs import Office
from support.shapes import SCRIPTS, answer, build, checked

from wakeful.domain.appends import Append, Appended
from wakeful.domain.events import Event
from wakeful.domain.scopes import RunRef, SessionRef
from wakeful.domain.states import InvocationStatus, RunStatus
from wakeful.runtime.holding import Holding
from wakeful.runtime.outcomes import Ending

pytestmark = pytest.mark.anyio


class Draining:
    """A log whose process is asked to stop while its n-th append (from 1) is under way, before or after the commit."""

    def __init__(self, place: Office, *, at: int, after: bool) -> None:
        self._place, self._at, self._after = place, at, after
        self._appends = 0
        self.holding: Holding | None = None
        self.drained = False

    async def append(self, append: Append) -> Appended:
        self._appends += 1
        here = self._appends == self._at
        if here and not self._after:
            await self._drain()
        appended = await self._place.store.log.append(append)
        if here and self._after:
            await self._drain()
        return appended

    async def read(self, session: SessionRef, **options: Any) -> list[Event]:
        return await self._place.store.log.read(session, **options)

    async def _drain(self) -> None:
        assert self.holding is not None
        self.drained = True
        self.holding.draining = True
        self.holding.changed.set()
        for _ in range(10):
            await asyncio.sleep(0)  # the run sees it while this append has not returned


async def drained_at(place: Office, run: RunRef, at: int, *, after: bool) -> tuple[bool, list[Ending]]:
    log, endings = Draining(place, at=at, after=after), []
    for _ in range(20):
        while claims := await place.claim():
            for claim in claims:
                log.holding = place.holding(claim)
                endings.append(await place.executor(log).execute(log.holding))
            await place.sweep()
        if (await place.run(run)).status.terminal:
            return log.drained, endings
        await answer(place, run)
    raise AssertionError(f"the run never ended: {await place.run(run)}")


@pytest.mark.gate("exactly_once")
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("shape", SCRIPTS)
async def test_a_drain_at_any_append_costs_nothing(shape: str, after: bool) -> None:
    handed_back = 0
    for at in range(1, 40):
        place, effects = build()
        ref = await place.submit(shape, "Go")
        drained, endings = await drained_at(place, ref, at, after=after)
        run = await place.run(ref)
        assert (run.status, run.lease_expirations) == (RunStatus.COMPLETED, 0), (at, run.failure)
        checked(await place.conversation(ref))
        for call in await place.calls(ref):
            assert call.status is not InvocationStatus.UNCERTAIN, (at, call)
            if call.tool in ("pay", "refund"):
                assert (call.status, effects[call.idempotency_key]) == (InvocationStatus.COMPLETED, 1), at
        assert Ending.ABANDONED not in endings
        handed_back += endings.count(Ending.HANDED_BACK)
        if not drained:
            assert handed_back > 2, "hardly any drain was noticed"
            return
    raise AssertionError("the run never ended by itself")
