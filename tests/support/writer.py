"""A process that appends notes: `python -m support.writer DSN PREFIX TENANT SESSION NAME START COUNT`.

It opens the log alone, not a whole store: many of these start and are killed, and their start should cost little.
"""

import asyncio
import sys
from uuid import UUID

from support.notes import noted
from wakeful.domain.scopes import SessionRef
from wakeful.persistence.connecting import ConnectionSettings, connector
from wakeful.persistence.connections import HotPool
from wakeful.persistence.event_log import PostgresEventLog
from wakeful.persistence.roles import Role


async def main(dsn: str, prefix: str, tenant: str, session: str, name: str, start: str, count: str) -> None:
    pool = HotPool(connector(ConnectionSettings(dsn, Role.APP, prefix)), size=1)
    await pool.open()
    log = PostgresEventLog(pool)
    for number in range(int(start), int(count)):
        text = f"{name}-{number}"
        await log.append(noted(SessionRef(UUID(tenant), UUID(session)), text, text))
        sys.stdout.write(f"{number}\n")
        sys.stdout.flush()
    await pool.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
