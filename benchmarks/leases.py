"""Runs that are being executed: sessions, runs and leases made by the product, with ids that pgbench can compute."""

from datetime import timedelta
from uuid import UUID, uuid4

from benchmarks.bench import SCOPE
from wakeful.domain.runs import Lease, Message, Submission
from wakeful.domain.sessions import NewSession
from wakeful.domain.states import PriorityClass
from wakeful.persistence.store import PostgresStore

__all__ = ["hold_runs", "run_id", "session_id", "sql_run_id", "sql_session_id"]

# The version digits tell sessions and runs apart; twelve decimal digits count them.
_SESSION, _RUN = "00000000-0000-7000-8000-", "00000000-0000-7000-9000-"


def session_id(number: int) -> UUID:
    return UUID(f"{_SESSION}{number:012d}")


def run_id(number: int) -> UUID:
    return UUID(f"{_RUN}{number:012d}")


def sql_session_id(number: str) -> str:
    """The same as an SQL expression."""
    return f"('{_SESSION}' || lpad(({number})::text, 12, '0'))::uuid"


def sql_run_id(number: str) -> str:
    return f"('{_RUN}' || lpad(({number})::text, 12, '0'))::uuid"


async def hold_runs(store: PostgresStore, first: int, count: int) -> list[Lease]:
    """`count` sessions from number `first` on, each with a RUNNING run of one owner; their leases in order."""
    agent = f"held from {first}"
    for number in range(first, first + count):
        await store.sessions.create(NewSession(SCOPE, agent, session_id=session_id(number)))
        await store.queue.submit(
            Submission(SCOPE, session_id(number), agent, 1, messages=(Message("go"),), run_id=run_id(number))
        )
    claims = await store.queue.claim(
        uuid4(),
        capacity={PriorityClass.INTERACTIVE: count},
        agents=[agent],
        lease=timedelta(hours=1),
        suspects=0,
    )
    if len(claims) != count:
        raise RuntimeError(f"{len(claims)} runs were claimed, not {count}")
    return sorted((claim.lease for claim in claims), key=lambda lease: lease.run.run_id)
