"""Playing the conversations: as the agent process that submits them, and as the people who are asked."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from wakeful.bootstrap.build import ClientParts
from wakeful.client import RunHandle, SessionHandle, Wakeful
from wakeful.demo.desk import AGENT
from wakeful.demo.stories import STORY, Story
from wakeful.domain.runs import Run
from wakeful.domain.states import InvocationStatus
from wakeful.faults.replay.comparing import read_history
from wakeful.faults.replay.normal_form import Item, of_session

__all__ = ["Played", "attend", "history", "play", "submit"]

LONGEST_SECONDS = 60.0


@dataclass(slots=True)
class Played:
    """A story with its session and its run; `ended` once the run is terminal."""

    story: Story
    session: SessionHandle
    run: RunHandle
    ended: Run | None = None


async def submit(wakeful: Wakeful, story: Story, session: SessionHandle | None = None) -> Played:
    """Submit a story, in a session of its own unless one is given."""
    where = session or await wakeful.sessions.create(agent=AGENT, title=story.name)
    run = await where.submit(story.message, priority=story.priority, metadata={STORY: story.name})
    return Played(story, where, run)


async def attend(played: Played) -> None:
    """Answer what the run asks and approve what it may not do alone, until it ends. Raises Timeout."""
    while calls := await played.run.wait_for_calls(timeout=LONGEST_SECONDS):
        for call in calls:
            if call.question is not None:
                await played.run.answer(played.story.answer, call=call.id)
            elif call.status is InvocationStatus.AWAITING_APPROVAL:
                await played.run.approve(call=call.id, note="agreed")
    played.ended = await played.run.wait(timeout=LONGEST_SECONDS)


async def play(wakeful: Wakeful, stories: Sequence[Story], cast: list[Played]) -> None:
    """Play all stories at once; `cast` is filled as they are submitted. Raises Timeout."""
    cast.extend(await asyncio.gather(*(submit(wakeful, story) for story in stories)))
    await asyncio.gather(*(attend(each) for each in cast))


async def history(parts: ClientParts, played: Played) -> list[Item]:
    """The session's history in the form in which two plays are compared."""
    ref = played.session.record.ref
    return await of_session(await read_history(parts.store.log, ref), partial(parts.store.artifacts.fetch, ref))
