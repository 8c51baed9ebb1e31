"""The ledger's file: one JSON line per effect or repeated request, in the order they were taken."""

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["MAX_REQUEST_BYTES", "Book", "Effect", "Judgement", "judge_book", "line_of", "read_book"]

MAX_REQUEST_BYTES = 64 * 1024 * 1024
"""One request line; results of recorded tools are stored here whole."""


@dataclass(frozen=True, slots=True)
class Effect:
    """Something that happened. `number` counts from 1; `what` names it for people and for comparison."""

    number: int
    key: str
    what: str
    payload: Any = None
    at: float = 0.0
    """When the ledger took it, in seconds of the epoch by its own clock."""


@dataclass(slots=True)
class Book:
    """Everything the ledger took, and how often it was asked again for what it had."""

    effects: list[Effect] = field(default_factory=list)
    replayed: int = 0
    _first: dict[str, Effect] = field(default_factory=dict)

    def known(self, key: str) -> Effect | None:
        """The first effect under this key."""
        return self._first.get(key)

    def take(self, effect: Effect) -> None:
        self.effects.append(effect)
        self._first.setdefault(effect.key, effect)

    def counts(self) -> Counter[str]:
        """How often each `what` happened."""
        return Counter(effect.what for effect in self.effects)


@dataclass(frozen=True, slots=True)
class Judgement:
    duplicate: tuple[str, ...]
    """Effects beyond the first of what should have happened once, and effects nobody asked for."""
    lost: tuple[str, ...]
    """What should have happened and did not."""


def judge_book(book: Book, expected: Counter[str]) -> Judgement:
    """Compare what happened with what should have: each of `expected` that many times and nothing else."""
    happened = book.counts()
    return Judgement(
        duplicate=tuple(sorted((happened - expected).elements())), lost=tuple(sorted((expected - happened).elements()))
    )


def line_of(effect: Effect) -> str:
    return json.dumps(
        {"number": effect.number, "key": effect.key, "what": effect.what, "payload": effect.payload, "at": effect.at},
        ensure_ascii=True,
        separators=(",", ":"),
    )


REPLAYED = '{"replayed":'


def read_book(path: Path) -> Book:
    """Read the file back; a last line that a power failure tore is left out, as nobody was told of it."""
    book = Book()
    if not path.exists():
        return book
    *lines, _torn = path.read_text(encoding="ascii").split("\n")
    for line in lines:
        if line.startswith(REPLAYED):
            book.replayed += 1
            continue
        stored = json.loads(line)
        book.take(Effect(stored["number"], stored["key"], stored["what"], stored["payload"], stored.get("at", 0.0)))
    return book
