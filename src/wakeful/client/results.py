"""The final reply of a run, read from the log."""

import json
from typing import Any

from wakeful.client.backend import Ports
from wakeful.domain.content import ArtifactRef
from wakeful.domain.events.turns import AssistantMessageCreated
from wakeful.domain.scopes import RunRef

__all__ = ["final_reply"]


async def final_reply(store: Ports, run: RunRef) -> Any:
    """The content of the run's last assistant message, or None when that only proposed calls (a silent end) or
    there is none. Content kept outside the log is fetched."""
    last: AssistantMessageCreated | None = None
    after = 0
    while page := await store.log.read(run.session, after=after, types=[AssistantMessageCreated.TYPE]):
        after = page[-1].sequence
        for event in page:
            if event.run_id == run.run_id and isinstance(event.payload, AssistantMessageCreated):
                last = event.payload
    if last is None or last.calls:
        return None
    if isinstance(last.content, ArtifactRef):
        return _decoded(last.content, await store.artifacts.fetch(run.session, last.content))
    return last.content


def _decoded(ref: ArtifactRef, data: bytes) -> Any:
    text = data.decode("utf-8", "replace")
    return json.loads(text) if ref.media_type.startswith("application/json") else text
