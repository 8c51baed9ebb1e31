"""What a replay found, as one JSON object and as a verdict for people."""

from dataclasses import asdict, dataclass, field

from rich.console import Console
from rich.table import Table

__all__ = ["Report", "print_report"]

MOST_SHOWN = 20


@dataclass(slots=True)
class Report:
    """The object that `--json` prints. `different` and `skipped` are by conversation id."""

    conversations: int = 0
    """Replayed, the skipped ones not counted."""
    identical: int = 0
    different: dict[str, str] = field(default_factory=dict)
    """The first difference of each."""
    skipped: dict[str, str] = field(default_factory=dict)
    """Why each cannot be expressed."""
    calls: int = 0
    effects: int = 0
    replayed: int = 0
    """Repeated requests that the ledger answered from its book."""
    duplicate_effects: int = 0
    lost_effects: int = 0
    kills: int = 0
    interrupted_runs: int = 0
    """Runs whose lease expired at least once, by the database."""
    checkpoints_deleted: int = 0
    broker_flushes: int = 0
    seconds: float = 0.0

    @property
    def holds(self) -> bool:
        """Whether nothing differs, nothing happened twice, nothing was lost, and anything was replayed at all."""
        return (
            self.conversations > 0
            and self.identical == self.conversations
            and not self.different
            and not self.duplicate_effects
            and not self.lost_effects
        )

    def as_json(self) -> dict[str, object]:
        return {**asdict(self), "seconds": round(self.seconds, 3)}


def print_report(report: Report, console: Console) -> None:
    """The verdict and the figures behind it."""
    table = Table(show_header=False, box=None, pad_edge=False)
    for name, value in report.as_json().items():
        table.add_row(name.replace("_", " "), str(len(value)) if isinstance(value, dict) else str(value))
    console.print(table)
    for title, entries in (("different", report.different), ("skipped", report.skipped)):
        for identity, reason in list(entries.items())[:MOST_SHOWN]:
            console.print(f"{title}: {identity}: {reason}", markup=False, highlight=False)
        if len(entries) > MOST_SHOWN:
            console.print(f"{title}: and {len(entries) - MOST_SHOWN} more (--json lists all)")
    if report.holds:
        console.print("[bold green]Every conversation came out as it went in; every effect happened once.")
    else:
        console.print("[bold red]The replay does not hold.")
