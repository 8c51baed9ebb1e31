"""What an agent process imports.

```python
async with connect("postgresql://…") as wakeful:
    session = await wakeful.sessions.create(tenant=acme, principal=ada, agent="support")
    run = await session.submit("Refund order 7", key="ticket-481")
    async for event in run.events():
        ...
    print(await run.result())
```

Errors are those of `wakeful.domain.errors`. A tenant or principal is a UUID, or any text of yours: text that is
no UUID stands for the UUIDv5 derived from it.
"""

from wakeful.client.backend import Backend
from wakeful.client.calls import Call
from wakeful.client.owners import Owner, owner_id
from wakeful.client.runs import TERMINAL_EVENTS, RunHandle, Runs
from wakeful.client.sessions import SessionHandle, Sessions
from wakeful.client.wakeful import Wakeful, connect
from wakeful.domain.runs import Budget, Message
from wakeful.domain.states import PriorityClass, RunStatus

__all__ = [
    "TERMINAL_EVENTS",
    "Backend",
    "Budget",
    "Call",
    "Message",
    "Owner",
    "PriorityClass",
    "RunHandle",
    "RunStatus",
    "Runs",
    "SessionHandle",
    "Sessions",
    "Wakeful",
    "connect",
    "owner_id",
]
