"""A file is the old one or the new one, whatever happens in the middle of an update: kill -9, a full disk, another."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from profiler.check import replaced
from profiler.check.baseline import Baseline, sections, write
from profiler.core.errors import Exit, ProfilerError
from tests.check.test_baseline import baseline
from tests.fakes.counting import at, lines_of, one

OLD = baseline()
NEW = baseline(one(would_sync=99, lines=lines_of(*(at(line, 20, f"text {line}") for line in range(20)))))
PIECE = 200
STEPS = ("open", "write", "fsync", "ftruncate", "fchmod", "replace", "unlink", "close")
"""Everything by which an update changes what is on the disk, by its name in `os`."""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    write(tmp_path / "counters.json", OLD)
    return tmp_path / "counters.json"


def in_child(work: Callable[[], object]) -> int:
    """Exit code of a process that does it; negative: the signal that ended it."""
    child = os.fork()
    if not child:
        code = 70
        try:
            work()
            code = 0
        except ProfilerError as error:
            code = 2 if "it is as it was" in str(error) else 71
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


class Deadly:
    """Kills its process before or behind the so many-th step of an update; a write writes PIECE bytes at most."""

    def __init__(self, step: int, *, behind: bool) -> None:
        self.left = step
        self.behind = behind

    def install(self) -> None:
        for name in STEPS:
            setattr(os, name, self.wrapped(name, getattr(os, name)))

    def wrapped(self, name: str, original: Callable[..., object]) -> Callable[..., object]:
        def step(*args: object, **kwargs: object) -> object:
            self.left -= 1
            if self.left == 0 and not self.behind:
                os.kill(os.getpid(), signal.SIGKILL)
            if name == "write":
                args = (args[0], args[1][:PIECE])  # type: ignore[index]
            result = original(*args, **kwargs)
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return step


@pytest.mark.parametrize("behind", [False, True])
def test_killed_at_any_step_the_file_is_the_old_or_the_new_one(file: Path, behind: bool) -> None:
    old = file.read_bytes()
    write(file, NEW)
    new = file.read_bytes()
    found: list[bytes] = []
    for step in range(1, 1000):
        file.write_bytes(old)

        def update(step: int = step) -> None:
            Deadly(step, behind=behind).install()
            write(file, NEW)

        code = in_child(update)
        if code == 0:
            break
        assert code == -signal.SIGKILL, f"step {step}: {code}"
        found.append(file.read_bytes())
        assert found[-1] in {old, new}, f"step {step}: {len(found[-1])} bytes"
        assert {path.name for path in file.parent.iterdir()} <= {file.name, f".{file.name}.new"}
        assert write(file, NEW) == (found[-1] == old), f"step {step}: what is left is in no one's way"
        assert file.read_bytes() == new
        assert [path.name for path in file.parent.iterdir()] == [file.name]
    assert len(found) > len(new) // PIECE, f"killed {len(found)} times, at each of the writes too"
    assert found.count(new) < len(found) - len(new) // PIECE, "before it was replaced too"
    assert found.count(new), "and behind that"


def test_a_first_update_that_is_killed_leaves_no_file(tmp_path: Path) -> None:
    file = tmp_path / "counters.json"
    seen = set()
    for step in range(1, 1000):

        def update(step: int = step) -> None:
            Deadly(step, behind=True).install()
            write(file, NEW)

        code = in_child(update)
        seen.add(file.exists() and sections(file) == (NEW,))
        assert not file.exists() or sections(file) == (NEW,), f"step {step}"
        file.unlink(missing_ok=True)
        if code == 0:
            break
    assert seen == {False, True}


def test_a_full_disk_leaves_the_old_file_and_nothing_beside_it(file: Path) -> None:
    """A limit on the size of files ends a write as a full disk does: a part is written, then an error comes."""
    old = file.read_bytes()
    for size in (0, 1, 100, len(old)):

        def update(size: int = size) -> None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
            write(file, NEW)

        assert in_child(update) == 2, f"at {size} bytes"
        assert file.read_bytes() == old
        assert [path.name for path in file.parent.iterdir()] == [file.name]


@pytest.mark.parametrize("step", ["write", "fsync", "ftruncate", "fchmod", "replace"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_an_error_at_any_step_is_one_line(file: Path, monkeypatch: pytest.MonkeyPatch, step: str, code: int) -> None:
    old = file.read_bytes()

    def fail(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(replaced.os, step, fail)
    with pytest.raises(ProfilerError) as caught:
        write(file, NEW)
    monkeypatch.undo()
    assert str(caught.value) == f"cannot write the baseline {file}: {os.strerror(code)}; it is as it was"
    assert caught.value.exit_code == Exit.USAGE
    assert file.read_bytes() == old
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ProfilerError, match=r"cannot write the baseline .*: No such file or directory"):
        write(tmp_path / "none" / "counters.json", OLD)


def test_of_a_symbolic_link_the_target_is_replaced(file: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "elsewhere" / "link.json"
    link.symlink_to(file)
    assert write(link, NEW)
    assert link.is_symlink()
    assert sections(file) == sections(link) == (NEW,)
    assert [path.name for path in link.parent.iterdir()] == ["link.json"]


def test_a_link_to_nothing_yet_makes_what_it_names(tmp_path: Path) -> None:
    (tmp_path / "link.json").symlink_to(tmp_path / "real.json")
    assert write(tmp_path / "link.json", OLD)
    assert sections(tmp_path / "real.json") == (OLD,)


def test_who_may_read_it_stays(file: Path) -> None:
    file.chmod(0o640)
    write(file, NEW)
    assert file.stat().st_mode & 0o777 == 0o640


def test_what_a_killed_update_left_is_used_and_gone(file: Path) -> None:
    beside = file.with_name(f".{file.name}.new")
    beside.write_bytes(b"x" * 100_000)
    write(file, NEW)
    assert sections(file) == (NEW,)
    assert not beside.exists()


def test_nothing_is_written_through_a_link_beside_it(file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("mine")
    file.with_name(f".{file.name}.new").symlink_to(other)
    with pytest.raises(ProfilerError, match="cannot write the baseline"):
        write(file, NEW)
    assert other.read_text() == "mine"


def test_updates_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    file, kinds = tmp_path / "counters.json", [f"kind {number}" for number in range(8)]
    section: dict[str, Baseline] = {kind: baseline(device=kind) for kind in kinds}
    children = []
    for kind in kinds:
        child = os.fork()
        if not child:
            code = 1
            try:
                write(file, section[kind])
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * len(kinds)
    assert {found.key["device"] for found in sections(file)} == set(kinds)
    assert [path.name for path in tmp_path.iterdir()] == [file.name]


def test_an_update_waits_for_the_one_before(file: Path) -> None:
    """Who has the lock is waited for: the other process ends only once it is given back."""
    with replaced.held(file, "baseline"):
        child = os.fork()
        if not child:
            os._exit(0 if write(file, NEW) else 1)
        beside = file.with_name(f".{file.name}.new")
        with open(beside, "rb") as other, pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert os.waitpid(child, os.WNOHANG) == (0, 0)
        assert sections(file) == (OLD,)
    assert os.waitpid(child, 0)[1] == 0
    assert sections(file) == (NEW,)
