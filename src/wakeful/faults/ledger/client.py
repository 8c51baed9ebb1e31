"""What a tool calls to make its effect happen."""

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wakeful.domain.errors import WakefulError
from wakeful.faults.ledger.book import MAX_REQUEST_BYTES

__all__ = ["LedgerClient", "LedgerUnreachable", "Recorded"]


class LedgerUnreachable(WakefulError):
    """The ledger did not answer: whether it took the effect is unknown."""

    code = "ledger_unreachable"


@dataclass(frozen=True, slots=True)
class Recorded:
    """The ledger's answer. With `replayed`, number and payload are those of the first time."""

    number: int
    payload: Any
    replayed: bool


class LedgerClient:
    """Speaks to the ledger behind a Unix socket; a connection per request, so it has no state to lose."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket

    async def record(self, key: str, what: str, payload: Any = None, *, once: bool = True) -> Recorded:
        """Make an effect happen; durable on return. With `once`, the same key again is answered with the stored
        payload and has no second effect; without, every request is an effect. Raises LedgerUnreachable."""
        request = json.dumps({"key": key, "what": what, "payload": payload, "once": once}).encode("ascii") + b"\n"
        try:
            reader, writer = await asyncio.open_unix_connection(str(self._socket), limit=MAX_REQUEST_BYTES)
            try:
                writer.write(request)
                await writer.drain()
                line = await reader.readline()
            finally:
                writer.close()
        except OSError as error:
            raise LedgerUnreachable(f"the effect ledger cannot be reached: {type(error).__name__}") from error
        if not line:
            raise LedgerUnreachable("the effect ledger closed the connection without an answer")
        answer = json.loads(line)
        return Recorded(answer["number"], answer["payload"], answer["replayed"])
