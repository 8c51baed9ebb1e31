"""What the checker says."""

from dataclasses import dataclass
from uuid import UUID

__all__ = ["Finding"]


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule that does not hold, for which run (or session), and what was seen instead. Holds ids, never content."""

    rule: str
    where: UUID | str
    seen: str

    def __str__(self) -> str:
        return f"{self.rule} [{self.where}]: {self.seen}"
