"""How much of a conversation is sent to a model, and where it is cut when it is too much. Pure."""

from collections.abc import Sequence

from pydantic_core import to_json

from wakeful.domain.content import CallResult, Content, ProposedCall
from wakeful.domain.history import CallRecord, Entry, NoteEntry, TurnEntry

__all__ = ["cut"]


def cut(entries: Sequence[Entry], limit_bytes: int, *, summary_bytes: int = 0) -> int | None:
    """The sequence through which `entries` are to be summarized; None while they and the summary fit the limit.

    What stays is the longest end that takes half of the limit at most, so that the next summary is a while off, and
    the newest entry whatever its size. The same entries are cut at the same place in every process.
    """
    sizes = [_size(entry) for entry in entries]
    if summary_bytes + sum(sizes) <= limit_bytes:
        return None
    kept, index = 0, len(entries) - 1
    while index > 0 and kept + sizes[index] <= limit_bytes // 2:
        kept += sizes[index]
        index -= 1
    last = min(index, len(entries) - 2)
    return entries[last].sequence if last >= 0 else None


def _size(entry: Entry) -> int:
    """Bytes of text. What is kept as an artifact counts as its reference: it was too large to stand in the log."""
    if isinstance(entry, NoteEntry):
        return len(to_json(entry.resolution))
    if not isinstance(entry, TurnEntry):
        return _content(entry.content)
    return _content(entry.content) + sum(_record(record) for record in entry.calls)


def _record(record: CallRecord) -> int:
    return _json(record.call) + (0 if record.result is None else _json(record.result))


def _content(content: Content) -> int:
    return len(content.encode("utf-8", "replace")) if isinstance(content, str) else len(to_json(content))


def _json(value: ProposedCall | CallResult) -> int:
    return len(to_json(value))
