"""Events that change nothing, for whoever only wants to write something."""

from wakeful.domain.appends import Append
from wakeful.domain.events import Actor, NewEvent
from wakeful.domain.events.runs import RunCheckpointed
from wakeful.domain.ids import derived_id
from wakeful.domain.scopes import SessionRef

__all__ = ["note", "noted"]


def note(text: str, *ids: object) -> NewEvent:
    """An event that changes nothing; the same `ids` are the same event."""
    payload = RunCheckpointed(trigger=text)
    actor = Actor("platform")
    return NewEvent(payload, actor, event_id=derived_id("note", *ids)) if ids else NewEvent(payload, actor)


def noted(session: SessionRef, text: str, *ids: object) -> Append:
    return Append(session, (note(text, *ids),))
