"""Whether the demonstration showed what it claims."""

from collections import Counter
from dataclasses import dataclass, field

from rich.console import Console

__all__ = ["Verdict"]


@dataclass(slots=True)
class Verdict:
    """Claims, each with whether it held and what was seen."""

    claims: list[tuple[bool, str, str]] = field(default_factory=list)

    def claim(self, holds: bool, what: str, seen: str = "") -> None:
        self.claims.append((holds, what, seen))

    def claim_effects(self, what: str, expected: "Counter[str]", happened: "Counter[str]") -> None:
        """That exactly the expected happened, each as often as expected."""
        twice, lost = happened - expected, expected - happened
        seen = (
            f"{happened.total()} effects" if not (twice or lost) else f"{twice.total()} too many, {lost.total()} lost"
        )
        self.claim(not twice and not lost, what, seen)

    @property
    def holds(self) -> bool:
        return bool(self.claims) and all(holds for holds, _, _ in self.claims)

    def show(self, console: Console) -> None:
        console.rule("Verdict")
        for holds, what, seen in self.claims:
            mark = "[green]holds[/]" if holds else "[bold red]FAILS[/]"
            console.print(f"{mark}  {what}" + (f" [dim]({seen})[/]" if seen else ""), highlight=False)
