"""What a replay will do: which conversations, under which ids, with which tools."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from wakeful.domain.errors import InvalidInput
from wakeful.domain.ids import derived_id
from wakeful.domain.states import IdempotencyClass
from wakeful.models.recording import Inexpressible, RecordedRun, Recording, read_recording

__all__ = ["Conversation", "Plan", "Selection", "Workload", "effect_name", "read_selection"]


@dataclass(frozen=True, slots=True)
class Conversation:
    """A recording with the ids it is replayed under; they follow from the batch, so workers find them alone."""

    recording: Recording
    session_id: UUID

    def run_id(self, index: int) -> UUID:
        return derived_id("replay-run", self.session_id, index)

    def runs(self) -> Iterator[tuple[UUID, RecordedRun, int]]:
        """Each run's id, the run, and how many turns of the conversation stand before it."""
        turns = 0
        for index, run in enumerate(self.recording.runs):
            yield self.run_id(index), run, turns
            turns += len(run.turns)


@dataclass(frozen=True, slots=True)
class Selection:
    """What the files hold: lines that can be replayed, and why others cannot."""

    lines: tuple[dict[str, Any], ...]
    skipped: dict[str, str]


def read_selection(files: Sequence[Path], *, limit: int | None = None) -> Selection:
    """Read the files, at most `limit` conversations evenly spread over all that can be replayed.

    Raises InvalidInput for a file that cannot be read or a line that is no JSON object; a conversation that the
    rules cannot express, or whose id was used before, is skipped with the reason.
    """
    lines: dict[str, dict[str, Any]] = {}
    skipped: dict[str, str] = {}
    for file in files:
        for number, line in _lines(file):
            identity = line.get("id") if isinstance(line.get("id"), str) else f"{file.name}:{number}"
            if identity in lines or identity in skipped:
                skipped[f"{identity} ({file.name}:{number})"] = "another conversation has this id"
                continue
            try:
                read_recording(line)
            except Inexpressible as error:
                skipped[str(identity)] = str(error)
            else:
                lines[str(identity)] = line
    return Selection(tuple(_spread(list(lines.values()), limit)), skipped)


@dataclass(frozen=True, slots=True)
class Workload:
    """What replay's workers have to know. `runs` says of a run id which recording it is of, and how many turns of
    the conversation stand before it."""

    recordings: Mapping[str, Recording]
    runs: Mapping[UUID, tuple[str, int]]
    tools: tuple[str, ...]
    ledger: Path
    owners: Path
    tool_class: IdempotencyClass
    tool_delay_seconds: float


@dataclass(frozen=True, slots=True)
class Plan:
    """One replay: its batch gives every id, so a second replay of the same files meets no session of the first."""

    batch: UUID
    lines: tuple[dict[str, Any], ...]
    ledger: Path
    owners: Path
    tool_class: IdempotencyClass
    tool_delay_seconds: float

    def conversations(self) -> list[Conversation]:
        recordings = [read_recording(line) for line in self.lines]
        return [Conversation(each, derived_id("replay-session", self.batch, each.id)) for each in recordings]

    def workload(self) -> Workload:
        conversations = self.conversations()
        return Workload(
            recordings={each.recording.id: each.recording for each in conversations},
            runs={run_id: (each.recording.id, turns) for each in conversations for run_id, _, turns in each.runs()},
            tools=tuple(sorted({call.tool for each in conversations for call in each.recording.calls})),
            ledger=self.ledger,
            owners=self.owners,
            tool_class=self.tool_class,
            tool_delay_seconds=self.tool_delay_seconds,
        )


def effect_name(recording: str, turn: int, position: int) -> str:
    """How the ledger names the effect of one recorded call; both count from 0."""
    return f"{recording} turn {turn} call {position}"


def _lines(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"cannot read {file}: {error}") from None
    # Not splitlines: U+2028 and others are part of a JSON line.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InvalidInput(f"{file}, line {number} is no JSON: {error}") from None
        if not isinstance(value, dict):
            raise InvalidInput(f"{file}, line {number} is no JSON object")
        yield number, value


def _spread(lines: list[dict[str, Any]], limit: int | None) -> list[dict[str, Any]]:
    if limit is None or limit >= len(lines):
        return lines
    return [lines[index * len(lines) // limit] for index in range(limit)]
