"""A reader never meets half of a file, whatever interrupts the writing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from profiler.core.errors import ProfilerError
from profiler.core.files import append_line, locked, replacement, write_text


def add(path: Path, line: str) -> None:
    append_line(path, line, what="list", is_ours=lambda begin: begin.startswith(b"#"))


# ---------------------------------------------------------------- replacing


def test_a_file_is_replaced_and_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_text(path, "old")
    mask = os.umask(0)
    os.umask(mask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~mask
    path.chmod(0o640)
    write_text(path, "new \N{SNOWMAN}")
    assert path.read_text(encoding="utf-8") == "new \N{SNOWMAN}"
    assert path.stat().st_mode & 0o777 == 0o640
    assert [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left on device")])
@pytest.mark.parametrize("during", ["the block", "replace"])
def test_an_error_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, during: str
) -> None:
    path = tmp_path / "file"
    write_text(path, "old")

    def fails(*arguments: object) -> None:
        raise error

    if during != "the block":
        monkeypatch.setattr(os, during, fails)

    def update() -> None:
        with replacement(path) as file:
            file.write(b"x" * 100_000)
            if during == "the block":
                raise error

    with pytest.raises(type(error)):
        update()
    assert path.read_text() == "old"
    assert [*tmp_path.iterdir()] == [path]


def test_a_locked_file_is_replaced_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("1")
    (tmp_path / "link").symlink_to("file")
    with locked(tmp_path / "link", "list") as file:
        file.replace(file.path.read_text() + "2")
    with locked(tmp_path / "file", "list") as file:
        pass
    assert (tmp_path / "file").read_text() == "12"
    assert (tmp_path / "link").is_symlink()
    assert {entry.name for entry in tmp_path.iterdir()} == {"file", "link"}


def test_updates_wait_for_each_other(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("")
    children = []
    for number in range(8):
        child = os.fork()
        if child == 0:
            with locked(path, "list") as file:
                file.replace(file.path.read_text() + str(number))
            os._exit(0)
        children.append(child)
    for child in children:
        assert os.waitpid(child, 0)[1] == 0
    assert sorted(path.read_text()) == [*"01234567"]


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with (
        pytest.raises(ProfilerError, match=r"cannot write the list .*: No such file"),
        locked(tmp_path / "a/b", "list"),
    ):
        pass


# ---------------------------------------------------------------- appending


@pytest.mark.parametrize(
    ("failing", "ending", "message"),
    [
        ("write", KeyboardInterrupt(), ""),
        ("write", OSError(28, "No space left on device"), "No space left on device"),
        ("fsync", OSError(5, "Input/output error"), "Input/output error"),
    ],
)
def test_a_partial_write_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str, ending: BaseException, message: str
) -> None:
    file, whole = tmp_path / "list", os.write
    add(file, "# first")

    def fails(descriptor: int, data: bytes = b"") -> int:
        if data:
            whole(descriptor, data[: len(data) // 2])
        raise ending

    monkeypatch.setattr(os, failing, fails)
    with pytest.raises(ProfilerError if message else KeyboardInterrupt) as caught:
        add(file, "# second")
    assert file.read_text() == "# first\n"
    assert str(caught.value) == (f"cannot append to the list {file}: {message}; it is as it was" if message else "")


def test_one_write_of_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, written, whole = tmp_path / "list", [], os.write
    file.write_text("# torn")
    monkeypatch.setattr(os, "write", lambda descriptor, data: written.append(data) or whole(descriptor, data))
    add(file, "é")
    assert written == ["\né\n".encode()]
    assert file.read_text() == "# torn\né\n"
    with pytest.raises(ValueError, match="one line"):
        add(file, "a\nb")


def test_a_link_is_followed_and_its_mode_kept(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("#\n")
    (tmp_path / "real").chmod(0o640)
    (tmp_path / "link").symlink_to("real")
    add(tmp_path / "link", "a")
    assert (tmp_path / "real").read_text() == "#\na\n"
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").stat().st_mode & 0o777 == 0o640
