"""What the demonstration shows while it runs."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from uuid import UUID

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from wakeful.bootstrap.build import ClientParts
from wakeful.demo.acting import Played
from wakeful.domain.runs import Run
from wakeful.domain.scopes import Scope
from wakeful.domain.states import RunStatus

__all__ = ["Stagehand", "live_table"]

REFRESH_SECONDS = 0.15
MOST_NEWS = 6
_COLOURS = {
    RunStatus.QUEUED: "dim",
    RunStatus.RUNNING: "cyan",
    RunStatus.COMPLETED: "green",
    RunStatus.FAILED: "bold red",
    RunStatus.CANCELLED: "red",
}


class Stagehand:
    """Keeps the news of a play: what was done to the system, with the second it happened in."""

    def __init__(self) -> None:
        self.news: list[str] = []
        self._started = asyncio.get_running_loop().time()

    def tell(self, text: str) -> None:
        seconds = asyncio.get_running_loop().time() - self._started
        self.news.append(f"{seconds:5.1f} s  {text}")


@asynccontextmanager
async def live_table(
    title: str, parts: ClientParts, scope: Scope, cast: Sequence[Played], stagehand: Stagehand, console: Console
) -> AsyncIterator[None]:
    """A table of the runs, moving for as long as the block runs; where there is no terminal, only its last state."""

    async def picture() -> Group:
        rows = {run.ref.run_id: run for run in await parts.store.runs.page(scope, limit=200)}
        return Group(_table(title, cast, rows), *(Text(line, "yellow") for line in stagehand.news[-MOST_NEWS:]))

    with Live(console=console, auto_refresh=False) as live:

        async def refresh() -> None:
            while True:
                live.update(await picture(), refresh=True)
                await asyncio.sleep(REFRESH_SECONDS)

        task = asyncio.create_task(refresh())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        live.update(await picture(), refresh=True)
    if not console.is_terminal:
        console.print()  # Without a terminal the display ends in the middle of its last line.


def _table(title: str, cast: Sequence[Played], rows: Mapping[UUID, Run]) -> Table:
    table = Table(title=title, title_justify="left", expand=False)
    for heading in ("conversation", "class", "state", "step", "calls", "executions", "crashes"):
        table.add_column(heading, justify="right" if heading in ("step", "calls", "executions", "crashes") else "left")
    for played in cast:
        run = rows.get(played.run.id)
        if run is not None:
            crashes = Text(str(run.lease_expirations or ""), "bold yellow")
            state = Text(run.status.value, _COLOURS.get(run.status, "magenta"))
            figures = (str(run.step), str(run.tool_call_count), str(run.attempts))
            table.add_row(played.story.name, played.story.priority.label, state, *figures, crashes)
    return table
