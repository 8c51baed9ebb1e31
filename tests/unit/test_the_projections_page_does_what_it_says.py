"""The worked example of `docs/projections.md` is executed as it is printed."""

import re
from pathlib import Path
from typing import Any

import pytest
from support.contract import World, call, result, turn_of

from wakeful.domain.appends import RunChange
from wakeful.domain.events.turns import CallCompleted, CallFailed
from wakeful.domain.states import InvocationStatus
from wakeful.persistence.memory import MemoryStore

pytestmark = [pytest.mark.checkout, pytest.mark.anyio]

PAGE = Path(__file__).parents[2] / "docs" / "projections.md"


async def test_the_example_counts_what_the_page_says() -> None:
    define, use = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    world = World(MemoryStore())
    lease = await world.running()
    calls = [call(lease.run, position) for position in range(3)]
    await world.append(lease, turn_of(), run=RunChange(step=1), proposals=tuple(calls))
    for new in calls[:2]:
        await world.store.log.append(world.ending(lease, new, CallCompleted, result()))
    await world.store.log.append(world.ending(lease, calls[2], CallFailed, result(InvocationStatus.FAILED)))

    names: dict[str, Any] = {"store": world.store, "session": lease.run.session}
    exec(define, names)
    body = "".join(f"    {line}\n" for line in use.rstrip().splitlines())
    *lines, last = body.rstrip().splitlines()
    expression, _, expected = last.strip().partition("  # ")
    exec("async def use():\n" + "\n".join(lines) + f"\n    return {expression}\n", names)
    assert await names["use"]() == eval(expected)
