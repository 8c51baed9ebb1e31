"""Every method that takes a scope answers another principal, and another tenant, as it answers an unknown id."""

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import pytest
from support.acting import World

from wakeful.domain.errors import NotFound
from wakeful.domain.ports.run_control import RunControl
from wakeful.domain.ports.sessions import RunReader, Sessions
from wakeful.domain.scopes import RunRef, Scope
from wakeful.domain.sessions import NewSession
from wakeful.domain.states import InvocationStatus, RunStatus

pytestmark = [pytest.mark.anyio, pytest.mark.spec("LOG-9")]

ADA = Scope(uuid4(), uuid4())
STRANGERS = {
    "another principal of the tenant": Scope(ADA.tenant_id, uuid4()),
    "another tenant's principal of the same id": Scope(uuid4(), ADA.principal_id),
}


@dataclass(frozen=True)
class Known:
    """What the stranger has got hold of: every id there is."""

    run: RunRef
    call: UUID


Ask = Callable[[World, Scope, UUID, UUID, UUID], Awaitable[Any]]

REFUSED: dict[str, Ask] = {
    "RunControl.cancel": lambda w, s, session, run, call: w.control.cancel(s, run),
    "RunControl.answer": lambda w, s, session, run, call: w.control.answer(s, run, call, "yes"),
    "RunControl.approve": lambda w, s, session, run, call: w.control.approve(s, run, call),
    "RunControl.deny": lambda w, s, session, run, call: w.control.deny(s, run, call),
    "RunControl.resolve": lambda w, s, session, run, call: w.control.resolve(s, run, call, happened=True),
    "Sessions.get": lambda w, s, session, run, call: w.sessions.get(s, session),
    "Sessions.close": lambda w, s, session, run, call: w.sessions.close(s, session),
    "Sessions.page": lambda w, s, session, run, call: w.sessions.page(s, after=session),
    "RunReader.get": lambda w, s, session, run, call: w.runs.get(s, run),
    "RunReader.invocations": lambda w, s, session, run, call: w.runs.invocations(s, run),
    "RunReader.page": lambda w, s, session, run, call: w.runs.page(s, before=run),
}


def test_every_method_that_takes_a_scope_is_asked() -> None:
    scoped = {
        f"{port.__name__}.{name}"
        for port in (RunControl, Sessions, RunReader)
        for name, method in inspect.getmembers(port, inspect.isfunction)
        if not name.startswith("_") and "scope" in inspect.signature(method).parameters
    }
    assert scoped == set(REFUSED)


async def known(world: World) -> Known:
    run = await world.run(RunStatus.WAITING_INPUT, scope=ADA)
    return Known(run, await world.call(run, InvocationStatus.AWAITING_INPUT))


@pytest.mark.parametrize("who", STRANGERS)
@pytest.mark.parametrize("method", REFUSED)
async def test_a_stranger_is_told_what_an_unknown_id_is_told(world: World, method: str, who: str) -> None:
    facts, stranger = await known(world), STRANGERS[who]
    before = await world.row(facts.run)
    with pytest.raises(NotFound) as foreign:
        await REFUSED[method](world, stranger, facts.run.session_id, facts.run.run_id, facts.call)
    unknown = RunRef(ADA.tenant_id, uuid4(), uuid4())
    with pytest.raises(NotFound) as missing:
        await REFUSED[method](world, ADA, unknown.session_id, unknown.run_id, facts.call)
    asked = {str(unknown.session_id): str(facts.run.session_id), str(unknown.run_id): str(facts.run.run_id)}
    expected = str(missing.value)
    for there, here in asked.items():
        expected = expected.replace(there, here)
    assert (type(foreign.value), str(foreign.value)) == (type(missing.value), expected)
    assert await world.row(facts.run) == before
    assert await world.events(facts.run) == []


@pytest.mark.parametrize("who", STRANGERS)
async def test_a_strangers_pages_are_empty(world: World, who: str) -> None:
    facts, stranger = await known(world), STRANGERS[who]
    assert await world.sessions.page(stranger) == []
    assert await world.runs.page(stranger) == []
    assert await world.runs.page(stranger, session_id=facts.run.session_id) == []
    assert [run.ref for run in await world.runs.page(ADA)] == [facts.run]


async def test_a_session_id_that_is_another_tenants_is_a_free_one(world: World) -> None:
    """Keys contain the tenant: one tenant cannot even learn that another uses an id."""
    facts = await known(world)
    stranger = STRANGERS["another tenant's principal of the same id"]
    own = await world.sessions.create(NewSession(stranger, "support", session_id=facts.run.session_id))
    assert own.scope == stranger
    assert (await world.sessions.get(ADA, facts.run.session_id)).scope == ADA
