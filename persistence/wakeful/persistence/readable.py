"""Waiting on descriptors from a thread of its own."""

import selectors

__all__ = ["readable"]


def readable(seconds: float, *descriptors: int) -> set[int]:
    """Those that can be read, as soon as one can; none after `seconds`."""
    with selectors.DefaultSelector() as selector:
        for descriptor in descriptors:
            selector.register(descriptor, selectors.EVENT_READ)
        return {key.fd for key, _ in selector.select(seconds)}
