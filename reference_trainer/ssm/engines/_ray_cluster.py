"""Joining a Ray cluster and leaving it: what can be seen of it at once is seen, and Ctrl-C does not tear its start."""

from __future__ import annotations

import importlib
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from reference_trainer.errors import TrainerError
from reference_trainer.ssm.placement import cores

_STORE: Final = 100 << 20
"""Bytes of the object store of a cluster of our own, near the least that Ray takes: results are small."""
_ANSWER_S: Final = 10.0
_FRAME_BYTES: Final = 9
"""Of the head of a frame of HTTP/2."""


def imported() -> Any:
    """Ray.

    :raises TrainerError: it is not installed.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        return importlib.import_module("ray")
    except ImportError:
        raise TrainerError(
            "engine ray: Ray is not installed: pip install ray (or the extra ray of this project)"
        ) from None


class Membership:
    """Of this process in a cluster.

    :param ray: the library.
    :param address: None: a cluster of its own, on this machine.
    """

    def __init__(self, ray: Any, address: str | None) -> None:
        self._ray, self._address = ray, address
        self._joined = False

    def join(self, workers: int | None) -> None:
        """Once.

        :param workers: that a cluster of its own gets cores for; None: all cores.
        :raises TrainerError: it cannot be reached.
        """
        if self._joined:
            return
        self._knock()
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        if self._address is None:
            local = {"num_cpus": workers or cores(), "object_store_memory": _STORE, "_node_ip_address": "127.0.0.1"}
            options |= {"address": "local", "include_dashboard": False, **local}
        else:
            options["address"] = self._address
        with _uninterrupted():
            try:
                self._ray.init(**options)
            except Exception as error:  # noqa: BLE001 - of Ray, which raises plain ones too: it is reported
                raise self._unreachable(error) from None
            self._joined = True

    def leave(self) -> None:
        """One of its own ends."""
        if self._joined:
            self._joined = False
            self._ray.shutdown()

    def has(self, resource: str) -> int:
        """Of CPU or GPU, on all nodes."""
        return int(self._ray.cluster_resources().get(resource, 0))

    def _knock(self) -> None:
        """Ray itself waits for minutes where nobody answers, or something else than Ray does."""
        host, _, port = (self._address or "").rpartition(":")
        if host and port.isdecimal() and "/" not in host:
            try:
                with socket.create_connection((host, int(port)), timeout=_ANSWER_S) as line:
                    if not os.environ.get("RAY_USE_TLS"):
                        _must_be_grpc(line)
            except (OSError, OverflowError) as error:
                raise self._unreachable(error) from None

    def _unreachable(self, error: Exception) -> TrainerError:
        where = "engine ray" if self._address is None else f"--address {self._address}"
        return TrainerError(f"{where}: no cluster could be reached: {' '.join(str(error).split())}")


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ctrl-C and SIGTERM wait until Ray is there: torn out of its start it dies by SIGSEGV, and leaves its processes.

    The second one does not wait: where an address does not answer as Ray does, that may take minutes. Ray takes SIGTERM
    meanwhile; the handlers that were there before are again at the end.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    signals: list[int] = []
    handled: tuple[int, ...] = (signal.SIGINT, signal.SIGTERM)
    usual = {number: signal.getsignal(number) for number in handled}

    def put_back() -> None:
        for number, handler in usual.items():
            signal.signal(number, handler)

    def wait(number: int, _: object) -> None:
        signals.append(number)
        put_back()
        print("waiting until Ray has started; once more, and it ends at once", file=sys.stderr)

    for number in usual:
        signal.signal(number, wait)
    try:
        yield
    finally:
        put_back()
        for number in signals:
            signal.raise_signal(number)


def _must_be_grpc(line: socket.socket) -> None:
    """Whether it answers as servers of gRPC do: with the SETTINGS of HTTP/2 (RFC 9113, 3.4 and 6.5).

    :raises OSError: it does not, or not in time.
    """
    line.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0")
    answer = b""
    while len(answer) < _FRAME_BYTES:
        more = line.recv(_FRAME_BYTES - len(answer))
        if not more:
            break
        answer += more
    if len(answer) < _FRAME_BYTES or answer[3:5] != b"\4\0":
        raise OSError("what listens there is not Ray")
