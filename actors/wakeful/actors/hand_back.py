"""Giving runs back to the queue from outside the loop that executed them."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager

import structlog

from wakeful.domain.appends import Append, RunChange
from wakeful.domain.errors import WakefulError
from wakeful.domain.events import Actor, NewEvent
from wakeful.domain.events.runs import RunRequeued
from wakeful.domain.ids import derived_id
from wakeful.domain.ports.event_log import EventLog
from wakeful.domain.runs import Lease
from wakeful.domain.states import RunStatus

__all__ = ["OpenLog", "hand_back"]

OpenLog = Callable[[], AbstractAsyncContextManager[EventLog]]
"""Opens an event log of its own, on whatever loop runs: the process's store belongs to the loop that does not turn."""

_log = structlog.get_logger(__name__)


async def hand_back(open_log: OpenLog, leases: Sequence[Lease]) -> int:
    """Hand each run back as a drain does: QUEUED, no crash counted; how many were. A run that refuses (lost, ended,
    cancel asked) is left to its lease."""
    handed = 0
    async with open_log() as log:
        for lease in leases:
            try:
                await log.append(_requeued(lease))
                handed += 1
            except WakefulError as error:
                _log.warning("run.not_handed_back", run_id=str(lease.run.run_id), error=error.code)
    return handed


def _requeued(lease: Lease) -> Append:
    event = NewEvent(
        RunRequeued(reason="drain", epoch=lease.epoch),
        Actor("worker", str(lease.owner)),
        run_id=lease.run.run_id,
        event_id=derived_id("handed-back", lease.run.run_id, lease.epoch),
    )
    return Append(lease.run.session, (event,), lease=lease, run=RunChange(status=RunStatus.QUEUED))
