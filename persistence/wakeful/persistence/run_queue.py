"""The run queue on PostgreSQL: submit and load as the app role, claim as the worker role."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from wakeful.domain.ports.run_queue import DEFAULT_MAX_ATTEMPTS, Execution
from wakeful.domain.runs import Claim, Lease, Submission, Submitted
from wakeful.domain.states import PriorityClass
from wakeful.persistence.claiming import claim, claim_parameters
from wakeful.persistence.connections import HotPool
from wakeful.persistence.errors import Translated, refused_submit
from wakeful.persistence.loading import load
from wakeful.persistence.mappers.submissions import submission_parameters, submitted_of

__all__ = ["SUBMIT", "PostgresRunQueue"]

SUBMIT = b"SELECT * FROM wakeful.submit_v1(" + b", ".join([b"%s"] * 21) + b")"


class PostgresRunQueue:
    """See `wakeful.domain.ports.run_queue` for what each method guarantees.

    `scoped` is single-role mode, where the worker's view is opened by a transaction-local setting.
    """

    def __init__(self, app: HotPool, worker: HotPool, *, scoped: bool = False) -> None:
        self._app, self._worker, self._scoped = app, worker, scoped

    async def submit(self, submission: Submission) -> Submitted:
        parameters = submission_parameters(submission)
        with Translated(write=True, refusal=refused_submit(submission)):
            async with self._app.connection() as connection:
                row = await (await connection.execute(SUBMIT, parameters)).fetchone()
        return submitted_of(submission, row or ())

    async def claim(
        self,
        owner: UUID,
        *,
        capacity: Mapping[PriorityClass, int],
        agents: Sequence[str],
        lease: timedelta,
        suspects: int,
        max_attempts: int = DEFAULT_MAX_ATTEMPTS,
        now: datetime | None = None,
    ) -> list[Claim]:
        parameters = claim_parameters(
            owner,
            capacity=capacity,
            agents=agents,
            lease=lease,
            suspects=suspects,
            max_attempts=max_attempts,
            now=now,
        )
        if not parameters["classes"] or not parameters["agents"]:
            return []
        return await claim(self._worker, parameters, scoped=self._scoped)

    async def load(self, lease: Lease) -> Execution:
        return await load(self._app, lease)
