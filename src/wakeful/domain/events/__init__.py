"""The event log's vocabulary: envelope, payload models per type and version, decoding.

Event types are `noun.verb`; each has one Pydantic payload model, its current version, and an upcaster
from every earlier version.
"""

from wakeful.domain.events.envelope import Actor, Event, NewEvent
from wakeful.domain.events.registry import CURRENT_VERSIONS, HISTORY_TYPES, decode, payload_type

__all__ = ["CURRENT_VERSIONS", "HISTORY_TYPES", "Actor", "Event", "NewEvent", "decode", "payload_type"]
