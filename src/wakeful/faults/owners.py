"""Which worker process holds which leases: noted by the workers, read by whoever is about to kill one."""

import os
from collections.abc import Mapping
from pathlib import Path
from uuid import UUID

from wakeful.domain.models import ModelProvider, ModelRequest, ModelResponse, OnDelta

__all__ = ["OwnerNotes", "WitnessedProvider"]


class OwnerNotes:
    """One small file per lease owner, with the process ids that speak for it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._noted: set[tuple[UUID, int]] = set()

    def note(self, owner: UUID) -> None:
        """Note that this process executes runs under leases of `owner`, and which worker it belongs to: a suspect's
        process is in the session of the worker, which leads it."""
        if (owner, os.getpid()) in self._noted:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / str(owner)).open("a", encoding="ascii") as file:
            file.write(f"{os.getpid()} {os.getsid(0)}\n")
        self._noted.add((owner, os.getpid()))

    def read(self) -> Mapping[UUID, frozenset[int]]:
        """Process ids by owner."""
        if not self._folder.is_dir():
            return {}
        return {
            UUID(file.name): frozenset(int(pid) for pid in file.read_text(encoding="ascii").split())
            for file in self._folder.iterdir()
        }

    def processes(self, owner: UUID) -> tuple[int, ...]:
        """The processes that executed runs of `owner`, in the order they noted it."""
        file = self._folder / str(owner)
        lines = file.read_text(encoding="ascii").splitlines() if file.exists() else []
        return tuple(dict.fromkeys(int(line.split()[0]) for line in lines))


class WitnessedProvider:
    """A model provider that notes on the way whose leases this process executes."""

    def __init__(self, provider: ModelProvider, notes: OwnerNotes) -> None:
        self._provider, self._notes = provider, notes
        self.name = provider.name

    async def respond(self, request: ModelRequest, *, on_delta: OnDelta | None = None) -> ModelResponse:
        if request.run.lease_owner is not None:
            self._notes.note(request.run.lease_owner)
        return await self._provider.respond(request, on_delta=on_delta)
