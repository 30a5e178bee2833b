"""The control server delivers complete JSON objects, drops clients that send anything else, and works for any path."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from profiler.check.speed import control_socket
from profiler.check.speed.control_socket import ControlServer
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
    with connect(server) as client:
        client.sendall(b'{"a": 1}\n{"b"')
        ((connection, message),) = server.poll(10.0)
        assert message == {"a": 1}
        assert server.connections == [connection]
        assert connection.peer_pid == os.getpid()
        client.sendall(b": 2}\n")
        assert server.poll(10.0) == [(connection, {"b": 2})]
        connection.send({"steps": 3})
        assert client.recv(100) == b'{"steps": 3}\n'
    assert server.poll(10.0) == []
    assert server.connections == []


def test_a_connection_counts_from_its_first_complete_message(server: ControlServer) -> None:
    with connect(server) as complete, connect(server) as partial:
        complete.sendall(b'{"a": 1}\n')
        partial.sendall(b'{"half')
        ((connection, message),) = server.poll(10.0)
        assert message == {"a": 1}
        assert server.connections == [connection]
        partial.sendall(b'": 2}\n')
        assert [message for _, message in server.poll(10.0)] == [{"half": 2}]
        assert len(server.connections) == 2


@pytest.mark.parametrize(
    "data", [b"7\n", b"[1]\n", b"{\n", b"\xff\xfe\n", b"[" * 100_000 + b"\n"], ids=lambda data: repr(data[:8])
)
def test_clients_that_send_no_json_objects_are_dropped(server: ControlServer, data: bytes) -> None:
    with connect(server) as good, connect(server) as bad:
        bad.sendall(data)
        for _ in range(1 + len(data) // control_socket._RECEIVE_BYTES):
            assert server.poll(10.0) == []
        assert bad.recv(1) == b"", "the connection was closed"
        good.sendall(b'{"a": 1}\n')
        assert [message for _, message in server.poll(10.0)] == [{"a": 1}]


def test_a_path_that_is_too_long_is_replaced_by_a_private_short_one(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    server = ControlServer(folder / "s")
    assert len(os.fsencode(server.path)) <= control_socket._MAX_PATH_BYTES
    private = server.path.parent
    assert private.stat().st_mode & 0o077 == 0, "nobody else may connect"
    connect(server).close()
    server.close()
    assert not private.exists()
    assert list(folder.iterdir()) == []


def test_the_longest_possible_path_is_used_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / ("s" * (control_socket._MAX_PATH_BYTES - 1 - len(os.fsencode(tmp_path))))
    server = ControlServer(path)
    assert server.path == path
    with connect(server) as client:
        server.close()
        assert client.recv(1) == b"", "clients that have sent nothing are closed too"
    assert not path.exists()


def test_a_socket_that_cannot_be_created_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_socket, "_SHORT_FOLDERS", (str(tmp_path / "none"),))
    with pytest.raises(ProfilerError, match="set TMPDIR"):
        ControlServer(tmp_path / ("long" * 30) / "s")
    with pytest.raises(ProfilerError, match=r"No such file or directory"):
        ControlServer(tmp_path / "none" / "s")
