"""The history: a line is appended entirely or not at all, damaged lines are reported, and nothing old is lost."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from profiler.check.model import CounterLine, SideInfo, Throughput, TimeLine
from profiler.check.outputs.history import append, entry_from, read
from profiler.core.errors import ProfilerError
from tests.check.outputs import results

SIDE = SideInfo("candidate", "working tree (2222222)", "python a.py", "2" * 40, step_time=0.05, tokens_per_s=1e5)
COUNTERS = (
    CounterLine("syncs", "PASS", (2.0, 2.0), (2.0, 3.0), 2.0),
    CounterLine("h2d", "PASS", None, (1.0, 1.0), None, scope="worker"),
    CounterLine("gone", "PASS", (1.0, 1.0), None, None),
)
TIMES = (
    TimeLine("typical step", "PASS", 0.01, -0.01, 0.03, 7, 0.02),
    TimeLine("all steps", "INCONCLUSIVE", None, None, None, 0, None),
)
RESULT = replace(results.passed(), candidate=SIDE, counters=COUNTERS, throughput=Throughput("PASS", TIMES, ()))


def test_what_is_appended_is_read(tmp_path: Path) -> None:
    file = tmp_path / "history.jsonl"
    append(file, RESULT)
    append(file, replace(RESULT, state="FAIL", sentence='"a"\n<b>\u2028é'))
    first, second = read(file).entries
    assert first == entry_from(RESULT)
    assert first.counters == {"syncs": (2.0, 3.0), "h2d (workers)": (1.0, 1.0)}
    assert first.slowdowns.keys() == {"typical step"}
    assert (first.commit, first.base_commit, first.step_time) == ("2" * 40, RESULT.base.commit, 0.05)
    assert second.sentence == '"a"\n<b>\u2028é'
    lines = file.read_bytes().split(b"\n")
    assert len(lines) == 3
    assert lines[2] == b""
    assert json.loads(lines[0])["schema"] == 1


def test_numbers_that_are_none_are_not_written(tmp_path: Path) -> None:
    side = replace(RESULT.candidate, step_time=float("nan"), tokens_per_s=None, commit=None)
    lines = (TimeLine("typical step", "PASS", float("inf"), None, None, 5, None),)
    counters = (CounterLine("syncs", "PASS", None, (float("nan"), 1.0), None),)
    append(tmp_path / "h", replace(RESULT, candidate=side, throughput=Throughput("PASS", lines, ()), counters=counters))
    (entry,) = read(tmp_path / "h").entries
    assert (entry.step_time, entry.tokens_per_s, entry.commit) == (None, None, "")
    assert (entry.slowdowns, entry.counters) == ({}, {})


@pytest.mark.parametrize(
    ("before", "torn"),
    [
        *((2, torn) for torn in (b'{"schema": 1, "time": "2026', b"{", b"\0" * 40, b'{"schema": 1}', b"garbage")),
        *((0, torn) for torn in (b'{"schema": 1, "time": "2026', b"\0" * 40)),
    ],
)
def test_a_torn_line_is_reported_and_never_joined_to_the_next(tmp_path: Path, torn: bytes, before: int) -> None:
    file = tmp_path / "history.jsonl"
    for _ in range(before):
        append(file, RESULT)
    with file.open("ab") as opened:
        opened.write(torn)
    assert len(read(file).entries) == before
    append(file, RESULT)
    append(file, RESULT)
    history = read(file)
    assert len(history.entries) == before + 2
    (warning,) = history.warnings
    assert (warning.code, warning.values["lines"]) == ("damaged-history", [before + 1])


def in_child(body: str, file: Path) -> subprocess.Popen[bytes]:
    """A process that runs the lines, with `result` and `file`."""
    script = (
        "import os, pickle, signal, sys\nfrom pathlib import Path\n"
        "from profiler.check.outputs.history import append\n"
        f"file, result = Path({str(file)!r}), pickle.load(sys.stdin.buffer)\n{body}\n"
    )
    child = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE)
    assert child.stdin is not None
    child.stdin.write(pickle.dumps(RESULT))
    child.stdin.close()
    return child


def test_a_writer_that_is_killed_while_it_writes_loses_only_its_own_line(tmp_path: Path) -> None:
    """It dies by SIGKILL when half of its line is in the file, as on a machine that is shut down hard."""
    file = tmp_path / "history.jsonl"
    append(file, RESULT)
    old = file.read_bytes()
    body = (
        "write = os.write\n"
        "def half(file, data):\n    write(file, data[: len(data) // 2])\n    os.kill(os.getpid(), signal.SIGKILL)\n"
        "os.write = half\nappend(file, result)"
    )
    assert in_child(body, file).wait() == -signal.SIGKILL
    assert file.read_bytes().startswith(old)
    assert len(file.read_bytes()) > len(old), "nothing was written: the test tests nothing"
    append(file, RESULT)
    history = read(file)
    assert (len(history.entries), len(history.warnings)) == (2, 1)


def test_writers_at_the_same_time_do_not_mix(tmp_path: Path) -> None:
    file = tmp_path / "history.jsonl"
    children = [in_child("for _ in range(20): append(file, result)", file) for _ in range(3)]
    assert [child.wait() for child in children] == [0, 0, 0]
    history = read(file)
    assert (len(history.entries), history.warnings) == (60, ())


def test_what_cannot_be_written_or_read_is_one_line(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import torch\n")
    cases = ((tmp_path / "no" / "h", "No such file"), (tmp_path, "Is a directory"), (script, "is no history"))
    for path, words in cases:
        for action in (lambda path: append(path, RESULT), read):
            with pytest.raises(ProfilerError, match=words):
                action(path)
    assert script.read_text() == "import torch\n"
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ProfilerError, match="no plain file"):
        append(tmp_path / "pipe", RESULT)


def test_a_line_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "h"
    file.touch()
    assert read(file).entries == ()
    append(file, RESULT)
    with file.open("a") as opened:
        opened.write('{"schema": 2, "new": true}\n')
    with pytest.raises(ProfilerError, match=r"line 2: a newer version .*schema 2, this one reads 1"):
        read(file)
