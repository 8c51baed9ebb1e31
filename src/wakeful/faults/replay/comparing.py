"""Reading a session's history back and holding it against its recording."""

from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import Protocol

from wakeful.domain.history import CONVERSATION_TYPES
from wakeful.domain.history import Conversation as History
from wakeful.domain.ports.artifacts import Artifacts
from wakeful.domain.ports.event_log import EventLog
from wakeful.domain.scopes import SessionRef
from wakeful.faults.replay.normal_form import first_difference, of_recording, of_session
from wakeful.faults.replay.plan import Conversation, effect_name
from wakeful.faults.replay.submitting import SCOPE, Outcome

__all__ = ["ComparedStore", "compare", "expected_effects", "read_history"]

PAGE = 1000


class ComparedStore(Protocol):
    @property
    def log(self) -> EventLog: ...
    @property
    def artifacts(self) -> Artifacts: ...


async def compare(store: ComparedStore, outcome: Outcome) -> str | None:
    """The first difference between the session and its recording, None for none."""
    ref = SessionRef(SCOPE.tenant_id, outcome.conversation.session_id)
    replayed = await of_session(await read_history(store.log, ref), partial(store.artifacts.fetch, ref))
    difference = first_difference(of_recording(outcome.conversation.recording), replayed)
    if outcome.stopped is not None:
        return f"{outcome.stopped}; {difference or 'the history is equal all the same'}"
    return difference


async def read_history(log: EventLog, session: SessionRef) -> History:
    """The session's conversation, folded from its log."""
    history = History()
    after = 0
    while page := await log.read(session, after=after, limit=PAGE, types=CONVERSATION_TYPES):
        for event in page:
            history.apply(event)
        after = page[-1].sequence
    return history


def expected_effects(conversations: Iterable[Conversation]) -> "Counter[str]":
    """What the ledger should hold: the effect of every recorded call, once, also of those without a result."""
    return Counter(
        effect_name(each.recording.id, number, position)
        for each in conversations
        for number, turn in enumerate(each.recording.turns)
        for position in range(len(turn.calls))
    )
