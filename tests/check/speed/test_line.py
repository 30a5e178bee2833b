"""The gate's end of the lines: whole words, whoever says them, from wherever the socket lies."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from profiler.check.speed import line as module
from profiler.check.speed.line import Switchboard
from profiler.core.errors import ProfilerError


@pytest.fixture
def board(tmp_path: Path) -> Iterator[Switchboard]:
    made = Switchboard(tmp_path / "s")
    yield made
    made.close()


def connected(board: Switchboard) -> socket.socket:
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    client.connect(str(board.path))
    assert board.heard(10.0) == []
    return client


def test_words_both_ways(board: Switchboard) -> None:
    with connected(board) as client:
        client.sendall(b'{"a": 1}\n{"b"')
        ((line, said),) = board.heard(10.0)
        assert said == {"a": 1}
        assert board.lines == [line]
        assert line.peer == os.getpid()
        client.sendall(b": 2}\n")
        assert board.heard(10.0) == [(line, {"b": 2})]
        line.send({"steps": 3})
        assert client.recv(100) == b'{"steps": 3}\n'
    assert board.heard(10.0) == []
    assert board.lines == []


def test_a_line_counts_from_its_own_first_word_and_not_another_ones(board: Switchboard) -> None:
    with connected(board) as speaks, connected(board) as begins:
        for client, words in ((speaks, b'{"a": 1}\n'), (begins, b'{"half')):
            client.sendall(words)
        said = board.heard(10.0)
        assert [words for _, words in said] == [{"a": 1}]
        assert board.lines == [said[0][0]]
        begins.sendall(b'": 2}\n')
        assert [words for _, words in board.heard(10.0)] == [{"half": 2}]
        assert len(board.lines) == 2


@pytest.mark.parametrize(
    "words",
    [b"7\n", b"[1]\n", b"null\n", b"{\n", b"\xff\xfe\n", b"[" * 100_000 + b"\n"],
    ids=lambda words: repr(words[:8]),
)
def test_who_does_not_speak_as_we_do_is_dropped(board: Switchboard, words: bytes) -> None:
    with connected(board) as good, connected(board) as bad:
        bad.sendall(words)
        for _ in range(1 + len(words) // module._BLOCK):
            assert board.heard(10.0) == []
        assert bad.recv(1) == b"", "it was hung up on"
        good.sendall(b'{"a": 1}\n')
        assert [said for _, said in board.heard(10.0)] == [{"a": 1}]


def test_the_socket_of_a_long_folder_is_made_elsewhere(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    board = Switchboard(folder / "s")
    assert len(os.fsencode(board.path)) <= module._LONGEST
    elsewhere = board.path.parent
    assert elsewhere.stat().st_mode & 0o077 == 0, "nobody else may connect"
    with connected(board) as client:
        client.sendall(b'{"a": 1}\n')
        assert [said for _, said in board.heard(10.0)] == [{"a": 1}]
    board.close()
    assert not elsewhere.exists()
    assert list(folder.iterdir()) == []


def test_the_longest_path_is_taken_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / ("s" * (module._LONGEST - 1 - len(os.fsencode(tmp_path))))
    board = Switchboard(path)
    assert board.path == path
    connected(board).close()
    board.close()
    assert not path.exists()


def test_no_place_for_a_socket_is_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SHORT", (str(tmp_path / "none"),))
    with pytest.raises(ProfilerError, match=r"too long a name for a socket.*set TMPDIR"):
        Switchboard(tmp_path / ("long" * 30) / "s")
    with pytest.raises(ProfilerError, match=r"cannot make the socket .*: No such file or directory"):
        Switchboard(tmp_path / "none" / "s")


def test_close_hangs_up_on_who_said_nothing_too(tmp_path: Path) -> None:
    board = Switchboard(tmp_path / "s")
    with connected(board) as client:
        board.close()
        assert client.recv(1) == b""
