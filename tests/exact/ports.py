"""A port for a group of processes."""

from __future__ import annotations

import socket


def free_port() -> int:
    """A TCP port of this machine that nothing listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
