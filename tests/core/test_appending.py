"""Lines are appended whole or not at all, whatever ends the writing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from profiler.core.appending import append_line
from profiler.core.errors import ProfilerError


def add(path: Path, line: str) -> None:
    append_line(path, line, what="list", known=lambda begin: begin.startswith(b"#"))


@pytest.mark.parametrize("ending", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_what_was_written_in_part_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: BaseException | type[BaseException]
) -> None:
    file = tmp_path / "list"
    add(file, "# first")
    whole = os.write

    def half(descriptor: int, data: bytes) -> int:
        whole(descriptor, data[: len(data) // 2])
        raise ending

    monkeypatch.setattr(os, "write", half)
    with pytest.raises(KeyboardInterrupt if ending is KeyboardInterrupt else ProfilerError) as caught:
        add(file, "# second")
    assert file.read_text() == "# first\n"
    if ending is not KeyboardInterrupt:
        assert str(caught.value) == f"cannot append to the list {file}: No space left on device; it is as it was"


def test_a_disk_that_fails_to_keep_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "list"
    add(file, "# first")

    def fails(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(ProfilerError, match="Input/output error; it is as it was"):
        add(file, "# second")
    assert file.read_text() == "# first\n"


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
