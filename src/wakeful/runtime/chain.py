"""The run's chain of checkpoints as its holder knows it: what the next one is written on."""

from dataclasses import dataclass, replace

from wakeful.domain.checkpoints import DELTAS_MAX, FULL_TRIGGERS, Base, Checkpoint, NewCheckpoint

__all__ = ["Chain"]


@dataclass(slots=True)
class Chain:
    """Says what is written as a delta. The store has the last word: it writes full where the base is not there."""

    base: Base | None = None
    deltas: int = 0

    @classmethod
    def of(cls, checkpoint: Checkpoint | None) -> "Chain":
        """The chain that a run was resumed from."""
        if checkpoint is None:
            return cls()
        return cls(Base(checkpoint.number, checkpoint.state), checkpoint.deltas)

    def link(self, new: NewCheckpoint) -> NewCheckpoint:
        """`new` as the chain's next one."""
        full = new.trigger in FULL_TRIGGERS or self.deltas >= DELTAS_MAX
        return replace(new, base=None if full else self.base)

    def written(self, new: NewCheckpoint, number: int | None) -> None:
        """`new`, as linked, was committed. Without a number, nobody knows under which: the next one is full."""
        self.base = None if number is None else Base(number, new.state)
        self.deltas = 0 if new.base is None else self.deltas + 1
