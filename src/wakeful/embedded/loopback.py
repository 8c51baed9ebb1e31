"""Random loopback ports."""

import socket

__all__ = ["BIND_ATTEMPTS", "free_port"]

# How often a server is started again because its port was taken between `free_port` and its own bind.
BIND_ATTEMPTS = 5


def free_port() -> int:
    """A port that was free a moment ago, chosen by the kernel."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
