"""A workload on disk, read by pieces: a worker that was started anew, and a suspect's own process, must be quick."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from wakeful.domain.states import IdempotencyClass
from wakeful.faults.replay.plan import Workload
from wakeful.models.recording import Recording, read_recording

__all__ = ["read_workload", "write_workload"]


class _RecordingFile(Mapping[str, Recording]):
    """Recordings read from their line when they are first asked for, and kept."""

    def __init__(self, path: Path, places: Mapping[str, tuple[int, int]]) -> None:
        self._path, self._places = path, places
        self._read: dict[str, Recording] = {}

    def __getitem__(self, identity: str) -> Recording:
        if identity not in self._read:
            offset, size = self._places[identity]
            with self._path.open("rb") as file:
                file.seek(offset)
                self._read[identity] = read_recording(json.loads(file.read(size)))
        return self._read[identity]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def write_workload(path: Path, workload: Workload, lines: Sequence[Mapping[str, Any]]) -> None:
    """Write `workload`, whose recordings are `lines`, to `path` and a second file beside it."""
    places: dict[str, tuple[int, int]] = {}
    with _lines_of(path).open("wb") as file:
        for line in lines:
            data = json.dumps(line).encode("ascii") + b"\n"
            places[str(line["id"])] = (file.tell(), len(data))
            file.write(data)
    text = json.dumps(
        {
            "places": places,
            "runs": {str(run_id): place for run_id, place in workload.runs.items()},
            "tools": workload.tools,
            "ledger": str(workload.ledger),
            "owners": str(workload.owners),
            "tool_class": workload.tool_class.value,
            "tool_delay_seconds": workload.tool_delay_seconds,
        }
    )
    path.write_text(text, encoding="ascii")


def read_workload(path: Path) -> Workload:
    """What `write_workload` wrote."""
    stored = json.loads(path.read_text(encoding="ascii"))
    return Workload(
        recordings=_RecordingFile(_lines_of(path), {key: tuple(place) for key, place in stored["places"].items()}),
        runs={UUID(run_id): (identity, turns) for run_id, (identity, turns) in stored["runs"].items()},
        tools=tuple(stored["tools"]),
        ledger=Path(stored["ledger"]),
        owners=Path(stored["owners"]),
        tool_class=IdempotencyClass(stored["tool_class"]),
        tool_delay_seconds=stored["tool_delay_seconds"],
    )


def _lines_of(path: Path) -> Path:
    return path.with_suffix(".recordings")
