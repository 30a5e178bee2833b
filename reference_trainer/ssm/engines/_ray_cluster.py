"""Joins and leaves a Ray cluster: a wrong address is noticed at once, and Ctrl-C cannot interrupt the start of Ray."""

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
"""Bytes of the object store of a cluster that we start, close to Ray's minimum: results are small."""
_ANSWER_S: Final = 10.0
_FRAME_BYTES: Final = 9
"""Length of the header of an HTTP/2 frame."""


def imported() -> Any:
    """Import Ray.

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
    """The membership of this process in a cluster.

    :param ray: the library.
    :param address: None: a cluster of its own, on this machine.
    """

    def __init__(self, ray: Any, address: str | None) -> None:
        self._ray, self._address = ray, address
        self._joined = False

    def join(self, workers: int | None) -> None:
        """Join the cluster, or start one, unless that has been done.

        :param workers: number of workers for which a cluster of its own gets cores; None: all cores.
        :raises TrainerError: it cannot be reached.
        """
        if self._joined:
            return
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        if self._address is None:
            local = {"num_cpus": workers or cores(), "object_store_memory": _STORE, "_node_ip_address": "127.0.0.1"}
            options |= {"address": "local", "include_dashboard": False, **local}
        else:
            options["address"] = self._address
        try:
            _check_address(self._address or "")
            with _uninterrupted():
                self._ray.init(**options)
                self._joined = True
        except Exception as error:  # noqa: BLE001 - Ray raises many kinds; each is reported
            where = "engine ray" if self._address is None else f"--address {self._address}"
            message = f"{where}: no cluster could be reached: {' '.join(str(error).split())}"
            raise TrainerError(message) from None

    def leave(self) -> None:
        """Leave the cluster; one that we started ends."""
        if self._joined:
            self._joined = False
            self._ray.shutdown()

    def count(self, resource: str) -> int:
        """The number of CPU or GPU on all nodes."""
        return int(self._ray.cluster_resources().get(resource, 0))


def _check_address(address: str) -> None:
    """Check that a gRPC server answers: Ray itself would wait for minutes if nothing or something else listens there.

    A gRPC server sends the SETTINGS of HTTP/2 (RFC 9113, 3.4 and 6.5).

    :raises OSError: it does not answer so, or not in time.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or "/" in host:
        return
    with socket.create_connection((host, int(port)), timeout=_ANSWER_S) as line:
        if os.environ.get("RAY_USE_TLS"):
            return
        line.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0")
        answer = b""
        while len(answer) < _FRAME_BYTES and (more := line.recv(_FRAME_BYTES - len(answer))):
            answer += more
    if len(answer) < _FRAME_BYTES or answer[3:5] != b"\4\0":
        raise OSError("what listens there is not Ray")


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Delay Ctrl-C and SIGTERM until Ray has started: interrupted, it dies by SIGSEGV and leaves its processes behind.

    A second signal is not delayed: if an address does not answer as Ray does, the start may take minutes. Ray installs
    a handler of SIGTERM meanwhile; at the end the earlier handlers are restored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    signals: list[int] = []
    usual: dict[int, Any] = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in usual.items():
            signal.signal(number, handler)

    def delay(number: int, _: object) -> None:
        signals.append(number)
        restore()
        print("waiting until Ray has started; once more, and it ends at once", file=sys.stderr)

    for number in usual:
        signal.signal(number, delay)
    try:
        yield
    finally:
        restore()
        for number in signals:
            signal.raise_signal(number)
