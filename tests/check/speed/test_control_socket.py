"""The control server delivers complete JSON objects and drops clients that send anything else."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from profiler.check.speed import control
from profiler.check.speed.control import ControlServer, private_folder
from profiler.core.errors import ProfilerError


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ControlServer]:
    server = ControlServer(tmp_path / "s")
    yield server
    server.close()


def connect(server: ControlServer) -> socket.socket:
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    client.connect(str(server.path))
    assert server.poll(10.0) == []
    return client


def test_messages_in_both_directions(server: ControlServer) -> None:
    with connect(server) as client, connect(server) as silent:
        client.sendall(b'{"a": 1}\n{"b"')
        ((connection, message),) = server.poll(10.0)
        assert (message, server.connections) == ({"a": 1}, [connection])
        assert connection.peer_pid == os.getpid()
        silent.sendall(b'{"half')
        assert server.poll(10.0) == []
        assert server.connections == [connection], "a connection counts from its first complete message"
        client.sendall(b": 2}\n")
        assert server.poll(10.0) == [(connection, {"b": 2})]
        connection.send({"steps": 3})
        assert client.recv(100) == b'{"steps": 3}\n'
        silent.sendall(b'": 2}\n')
        assert [message for _, message in server.poll(10.0)] == [{"half": 2}]
        client.close()
        assert server.poll(10.0) == []
        assert len(server.connections) == 1


@pytest.mark.parametrize(
    "data", [b"7\n", b"[1]\n", b"{\n", b"\xff\xfe\n", b"[" * 100_000 + b"\n"], ids=lambda data: repr(data[:8])
)
def test_clients_that_send_no_json_objects_are_dropped(server: ControlServer, data: bytes) -> None:
    with connect(server) as good, connect(server) as bad:
        bad.sendall(data)
        for _ in range(1 + len(data) // control._RECEIVE_BYTES):
            assert server.poll(10.0) == []
        assert bad.recv(1) == b"", "the connection was closed"
        good.sendall(b'{"a": 1}\n')
        assert [message for _, message in server.poll(10.0)] == [{"a": 1}]


def test_closing_ends_all_connections_and_removes_the_socket(tmp_path: Path) -> None:
    server = ControlServer(tmp_path / "s")
    with connect(server) as client:
        server.close()
        assert client.recv(1) == b"", "clients that have sent nothing are closed too"
    assert not server.path.exists()
    with pytest.raises(ProfilerError, match="No such file or directory"):
        ControlServer(tmp_path / "none" / "s")


def test_sockets_lie_in_a_private_folder_with_a_short_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / ("long" * 30)))
    with private_folder() as folder:
        assert Path(folder).stat().st_mode & 0o077 == 0, "nobody else may connect"
        ControlServer(Path(folder) / "candidate-…candid").close()
    monkeypatch.setattr(control, "_FOLDERS", (str(tmp_path / "none"),))
    with pytest.raises(ProfilerError, match="set TMPDIR"):
        private_folder()
