"""From what a caller writes to a Submission: one boundary that refuses what could not be stored."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from wakeful.client.backend import Backend
from wakeful.domain.canonical import sha256_hex
from wakeful.domain.content import ArtifactRef, Content
from wakeful.domain.errors import InvalidInput
from wakeful.domain.payloads import check
from wakeful.domain.runs import Message, Submission
from wakeful.domain.scopes import SessionRef
from wakeful.domain.states import PriorityClass

__all__ = ["Messages", "When", "inline_or_store", "messages_of", "moment_of", "priority_of", "request_hash"]

Messages = str | Message | Sequence[str | Message | Mapping[str, Any]]
"""Text, a Message, or a sequence of texts, Messages and `{"role": …, "content": …}`; an empty one is legal."""

When = datetime | timedelta
"""An aware moment, or how long from now."""

MAX_KEY_CHARACTERS = 512


def messages_of(given: Messages) -> tuple[Message, ...]:
    """Raises InvalidInput, and InvalidPayload for content that the log cannot hold."""
    if isinstance(given, str | Message):
        given = [given]
    return tuple(_message(item) for item in given)


def _message(item: str | Message | Mapping[str, Any]) -> Message:
    if isinstance(item, str):
        item = Message(item)
    elif isinstance(item, Mapping):
        if unknown := set(item) - {"role", "content"}:
            raise InvalidInput(f"a message has role and content, not {', '.join(sorted(map(str, unknown)))}")
        item = Message(item.get("content"), item.get("role", "user"))
    if not isinstance(item, Message):
        raise InvalidInput(f"a message is text, a Message or a mapping, not {type(item).__name__}")
    if item.role not in ("user", "system"):
        raise InvalidInput(f"a submitted message has role user or system, not {item.role!r}")
    content = item.content
    if isinstance(content, ArtifactRef):
        return item
    if isinstance(content, list) and not all(isinstance(part, dict) for part in content):
        raise InvalidInput("content in parts is a list of objects")
    if not isinstance(content, str | list):
        raise InvalidInput(f"content is text or a list of parts, not {type(content).__name__}")
    check(content)
    return item


def moment_of(name: str, when: When | None) -> datetime | None:
    """Raises InvalidInput for a moment without a time zone."""
    if isinstance(when, timedelta):
        return datetime.now(UTC) + when
    if when is not None and when.tzinfo is None:
        raise InvalidInput(f"{name} has no time zone: give an aware datetime, or a timedelta from now")
    return when


def priority_of(priority: "str | int | PriorityClass") -> PriorityClass:
    try:
        return PriorityClass.parse(priority)
    except ValueError as error:
        raise InvalidInput(str(error)) from None


def key_of(key: str | None) -> str | None:
    if key is None:
        return None
    if not key or len(key) > MAX_KEY_CHARACTERS:
        raise InvalidInput(f"an idempotency key has 1 to {MAX_KEY_CHARACTERS} characters, this one has {len(key)}")
    return cast("str", check(key))


def request_hash(submission: Submission, *, scheduled_for: When | None, deadline: When | None) -> str:
    """What makes two submissions under one key the same request: everything the caller said, as it was said, so
    that "in five minutes" said twice is the same."""
    return sha256_hex(
        {
            "session": str(submission.session_id),
            "agent": submission.agent,
            "agent_version": submission.agent_version,
            "messages": [{"role": m.role, "content": _plain(m.content)} for m in submission.messages],
            "priority": int(submission.priority),
            "scheduled_for": _said(scheduled_for),
            "deadline": _said(deadline),
            "budget": asdict(submission.budget),
            "metadata": submission.metadata,
        }
    )


async def inline_or_store(backend: Backend, submission: Submission) -> Submission:
    """Replace contents over the inline limit by artifacts. They are stored before the run is, so a submission that
    is refused afterwards leaves bytes behind that no event names."""
    session = submission.session
    messages = [replace(m, content=await _stored(backend, session, m.content)) for m in submission.messages]
    return replace(submission, messages=tuple(messages))


async def _stored(backend: Backend, session: SessionRef, content: Content) -> Content:
    if content is None or isinstance(content, ArtifactRef):
        return content
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    data = text.encode()
    if len(data) <= backend.inline_payload_bytes:
        return content
    kind = "text/plain; charset=utf-8" if isinstance(content, str) else "application/json"
    return await backend.store.artifacts.store(session, data, media_type=kind, origin="user")


def _plain(content: Content) -> Any:
    return content.model_dump(mode="json") if isinstance(content, ArtifactRef) else content


def _said(when: When | None) -> str | float | None:
    if isinstance(when, timedelta):
        return when.total_seconds()
    return when.astimezone(UTC).isoformat() if when else None
