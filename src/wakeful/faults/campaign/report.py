"""What a campaign did and found."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table

from wakeful.faults.storm.counts import StormCounts

__all__ = ["CampaignReport", "Part", "print_report"]


@dataclass(slots=True)
class Part:
    """Experiments of one kind: how many there are, were performed, and killed where they should."""

    of: int
    done: int = 0
    landed: int = 0
    findings: list[str] = field(default_factory=list)
    """Each with the command that reproduces it."""


@dataclass(slots=True)
class CampaignReport:
    seed: int
    seconds: float = 0.0
    parts: dict[str, Part] = field(default_factory=dict)
    storm: StormCounts | None = None
    storm_findings: list[str] = field(default_factory=list)
    clocks: list[int] = field(default_factory=list)
    logs: str | None = None

    @property
    def findings(self) -> list[str]:
        return [finding for part in self.parts.values() for finding in part.findings] + self.storm_findings

    @property
    def holds(self) -> bool:
        return not self.findings

    def as_json(self) -> dict[str, Any]:
        storm = None
        if self.storm is not None:
            storm = asdict(self.storm)
            recovered = storm.pop("recovery_seconds")
            storm["recovery"] = {
                "count": len(recovered),
                "p50_seconds": quantile(recovered, 0.5),
                "p99_seconds": quantile(recovered, 0.99),
            }
            storm["clocks_ahead_hours"] = self.clocks
        return {
            "holds": self.holds,
            "seed": self.seed,
            "seconds": round(self.seconds, 1),
            **{name: {"of": part.of, "done": part.done, "landed": part.landed} for name, part in self.parts.items()},
            "storm": storm,
            "findings": self.findings,
            "logs": self.logs,
        }


def quantile(values: Sequence[float], share: float) -> float | None:
    """The smallest value that so many are not above; None of nothing."""
    ordered = sorted(values)
    return round(ordered[max(0, math.ceil(share * len(ordered)) - 1)], 3) if ordered else None


def print_report(report: CampaignReport, console: Console) -> None:
    table = Table("what", "done", "of", "killed as meant", box=None, pad_edge=False)
    for name, part in report.parts.items():
        table.add_row(name.replace("_", " "), str(part.done), str(part.of), str(part.landed))
    if report.parts:
        console.print(table)
    plain = report.as_json()["storm"]
    if plain is not None:
        console.print("\nThe storm:", ", ".join(f"{value} {name}" for name, value in _figures(plain)), highlight=False)
        recovery = plain["recovery"]
        console.print(
            f"From SIGKILL to the run executing elsewhere: p50 {recovery['p50_seconds']} s, "
            f"p99 {recovery['p99_seconds']} s ({recovery['count']} runs)",
            highlight=False,
        )
    for finding in report.findings:
        console.print(f"[bold red]FOUND[/]  {finding}", highlight=False)
    if report.logs is not None:
        console.print(f"What the processes said is kept in {report.logs}", highlight=False)
    console.print(f"{'[green]holds[/]' if report.holds else '[bold red]FAILS[/]'}  seed {report.seed}", highlight=False)


def _figures(storm: dict[str, Any]) -> list[tuple[str, int]]:
    return [(name.replace("_", " "), value) for name, value in storm.items() if isinstance(value, int)]
