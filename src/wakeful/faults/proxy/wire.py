"""PostgreSQL's frames: enough of the protocol to know where a message ends and which statement it is about."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

__all__ = ["Frames", "Statements", "startup_length"]

_HEADER = struct.Struct("!cI")
_SSL, _GSS = 80877103, 80877104


class Frames:
    """Cuts a stream into (type, body) messages; keeps what is not whole yet."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The messages that are whole now; `bytes` of each are `raw(kind, body)`."""
        self._buffer += data
        while len(self._buffer) >= _HEADER.size:
            kind, length = _HEADER.unpack_from(self._buffer)
            if len(self._buffer) < length + 1:
                return
            body = bytes(self._buffer[_HEADER.size : length + 1])
            del self._buffer[: length + 1]
            yield kind, body

    @staticmethod
    def raw(kind: bytes, body: bytes) -> bytes:
        return _HEADER.pack(kind, len(body) + 4) + body


def startup_length(data: bytes) -> tuple[int, bool] | None:
    """The length of the untyped first message, and whether another follows it (a request for encryption, which a
    server without certificates declines); None while it is not whole."""
    if len(data) < 8:
        return None
    length, code = struct.unpack_from("!II", data)
    return None if len(data) < length else (length, code in (_SSL, _GSS))


@dataclass(slots=True)
class Statements:
    """Which statement each of a client's messages is about."""

    _prepared: dict[bytes, bytes] = field(default_factory=dict)
    _portals: dict[bytes, bytes] = field(default_factory=dict)
    _running: list[bytes] = field(default_factory=list)

    def see(self, kind: bytes, body: bytes) -> bytes | None:
        """At the message that asks for answers (Sync or Query): what was executed since the last one, joined."""
        match kind:
            case b"Q":
                return body.rstrip(b"\0")
            case b"P":
                name, _, rest = body.partition(b"\0")
                self._prepared[name] = rest.partition(b"\0")[0]
            case b"B":
                portal, _, rest = body.partition(b"\0")
                self._portals[portal] = self._prepared.get(rest.partition(b"\0")[0], b"")
            case b"E":
                self._running.append(self._portals.get(body.partition(b"\0")[0], b""))
            case b"S":
                said, self._running = b"; ".join(self._running), []
                return said
            case _:
                pass
        return None
