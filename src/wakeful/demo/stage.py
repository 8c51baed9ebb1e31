"""What both scenes need."""

import random
from dataclasses import dataclass
from uuid import UUID

from rich.console import Console

from wakeful.bootstrap.build import ClientParts
from wakeful.bootstrap.stack import Stack
from wakeful.client import Backend, Wakeful
from wakeful.client.owners import scope_of
from wakeful.demo.desk import owner_notes
from wakeful.demo.verdict import Verdict
from wakeful.domain.scopes import Scope
from wakeful.faults.chaos import Chaos
from wakeful.faults.ledger import LedgerProcess
from wakeful.faults.owners import OwnerNotes

__all__ = ["OWNER", "Stage", "set_stage"]

OWNER = "demo"
LONGEST_STOP_SECONDS = 1.2
"""Shorter than a lease. On a crowded machine it takes a while to see what a stopped worker holds."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A running stack, its client, its ledger, and the verdict so far."""

    parts: ClientParts
    wakeful: Wakeful
    scope: Scope
    ledger: LedgerProcess
    chaos: Chaos
    notes: OwnerNotes
    console: Console
    verdict: Verdict

    def worker(self, owner: UUID) -> str:
        """The processes behind a lease owner: a worker, and those in which it ran suspects alone."""
        return "worker " + "/".join(map(str, self.notes.processes(owner)))


def set_stage(stack: Stack, parts: ClientParts, ledger: LedgerProcess, console: Console, seed: int | None) -> Stage:
    scope, notes = scope_of(OWNER, OWNER), owner_notes(ledger.socket)
    return Stage(
        parts=parts,
        wakeful=Wakeful(Backend(parts.store, parts.wakeups), tenant=OWNER, principal=OWNER),
        scope=scope,
        ledger=ledger,
        chaos=Chaos(
            stack,
            parts.store,
            scope,
            notes,
            random.Random(seed),  # noqa: S311 - dice, no secret
            longest_stop_seconds=LONGEST_STOP_SECONDS,
        ),
        notes=notes,
        console=console,
        verdict=Verdict(),
    )
