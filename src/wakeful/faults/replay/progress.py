"""Progress on standard error while a replay runs."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from wakeful.domain.runs import Run
from wakeful.faults.chaos import ChaosCounts

__all__ = ["ReplayProgress", "replay_progress"]


class ReplayProgress:
    """A bar of ended runs, and beside it what the faults have hit so far."""

    def __init__(self, progress: Progress, task: TaskID, total: int) -> None:
        self._progress, self._task, self._total = progress, task, total
        self.ended = 0

    def say(self, text: str) -> None:
        """What is being done now."""
        self._progress.update(self._task, doing=text)

    def run_ended(self, run: Run) -> None:
        self.ended += 1
        self._progress.update(self._task, completed=self.ended)

    def hit(self, counts: ChaosCounts) -> None:
        """Show the faults, when there are any."""
        words = [
            (counts.kills, f"{counts.kills} kills hit {counts.runs_hit} runs"),
            (counts.checkpoints_deleted, f"{counts.checkpoints_deleted} checkpoints deleted"),
            (counts.broker_flushes, f"broker emptied {counts.broker_flushes} times"),
        ]
        self._progress.update(self._task, faults=", ".join(text for number, text in words if number))


@contextmanager
def replay_progress(total: int, console: Console) -> Iterator[ReplayProgress]:
    """A live display for as long as the block runs; nothing but its last state where there is no terminal."""
    columns = (
        TextColumn("{task.fields[doing]}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("runs"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[faults]}"),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=total, doing="starting servers", faults="")
        yield ReplayProgress(progress, task, total)
