"""One transaction of an actor without a lease: lock in the one order, read, decide, write.

Session, then run, then calls. What is decided is `wakeful.domain.edges` and `wakeful.domain.sweeping`; what was
read before the locks (a candidate, a client's idea of a status) only says where to look.
"""

from datetime import datetime
from uuid import UUID

from wakeful.domain.edges import Edge, Locked
from wakeful.domain.runs import Run
from wakeful.domain.scopes import RunRef
from wakeful.persistence.unit_of_work import Unit

__all__ = ["lock", "write"]


async def lock(unit: Unit, run: RunRef, call: UUID | None = None) -> Locked:
    """Lock session, run and the run's open calls, and `call` in whatever state it is.

    Raises NotFound (SessionGone) when the run has gone with its session.
    """
    await unit.sessions.lock(run.session_id)
    locked = await unit.runs.lock(run)
    return Locked(locked, await unit.invocations.lock_open(run.run_id, call))


async def write(unit: Unit, run: Run, edge: Edge) -> datetime | None:
    """Write what was decided under the locks; the time of it, None when nothing was to be written."""
    if not edge.applied:
        return None
    stand = await unit.log.append(run.ref.session_id, edge.events)
    await unit.runs.write(run, edge, stand.at)
    await unit.invocations.apply(edge.changes, stand.at)
    if edge.resolved is not None:
        await unit.invocations.resolved(edge.resolved, stand.at)
    return stand.at
