"""Exact times from decimal text, and one clear line for a file that is no trace."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from profiler.__main__ import main
from profiler.core.errors import Notice, ProfilerError
from profiler.run.ingest.trace_events import nanoseconds
from profiler.run.load import load
from tests.run.ingest.made_up import event, written


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("1682725898236567.123", 1682725898236567123),  # above 2**53 / 1000: a float would give ...000
        (1682725898236567, 1682725898236567000),
        ("0.5", 500),
        ("12.", 12000),
        ("12", 12000),
        ("7.01", 7010),
        ("-0.25", -250),
        ("1.5e3", 1500000),
        ("2.0004", 2000),
        ("2.0006", 2001),
        ("4413494753495.0870", 4413494753495087),
    ],
)
def test_microseconds_become_whole_ns(text: str | int, ns: int) -> None:
    assert nanoseconds(text) == ns


@pytest.mark.parametrize("text", ["", "soon", "NaN", "Infinity", "1.2.3", "1,5"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        nanoseconds(text)


TRACE = gzip.compress(b'{"traceEvents": [' + b'{"ph": "X"}, ' * 2000 + b'{"ph": "X"}]}', mtime=0)


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("empty.json", b"", "it is empty"),
        ("zeros.json.gz", gzip.compress(b"", mtime=0), "no JSON"),
        ("cut.json.gz", TRACE[: len(TRACE) // 2], "is cut off, or damaged"),
        ("turned.json.gz", TRACE[:20] + bytes(20) + TRACE[40:], "is cut off, or damaged"),
        ("head.json.gz", b"\x1f\x8bgarbage that is no deflate stream", "is cut off, or damaged"),
        ("cut.json", b'{"traceEvents": [{"ph": "X", "na', "no JSON"),
        ("deep.json", b"[" * 200_000, "no JSON"),
        ("picture.png", b"\x89PNG\r\n\x1a\n" + bytes(range(256)), "no JSON"),
        ("number.json", b"7", "has no traceEvents"),
        ("report.json", b'{"schema": 1, "measures": {}}', "has no traceEvents"),
        ("strange.json", b'{"traceEvents": {"a": 1}}', "has no traceEvents"),
        ("none.json", b'{"traceEvents": []}', "no event of a known kind"),
        ("list.json", b"[1, null, [2], {}]", "no event of a known kind"),
        ("other.json", b'[{"ph": "X", "cat": "v8", "name": "f", "ts": 1, "dur": 2}]', "no event of a known kind"),
        ("times.json", b'[{"ph": "X", "cat": "kernel", "name": "f", "ts": "x"}]', "no event of a known kind"),
        ("nsys.sqlite", b"SQLite format 3\x00" + bytes(84), "Nsight Systems, which is not read yet"),
        ("renamed.json", b"SQLite format 3\x00" + bytes(84), "Nsight Systems, which is not read yet"),
        ("report.nsys-rep", b"\x00\x01", "Nsight Systems, which is not read yet"),
    ],
)
def test_one_line_for_what_is_no_trace(tmp_path: Path, name: str, data: bytes, says: str) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(ProfilerError) as caught:
        load(path)
    assert says in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_command_says_it_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "cut.json").write_text('{"traceEvents": [')
    assert main(["report", str(tmp_path / "cut.json")]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_raw_control_characters_and_broken_utf8_are_read(tmp_path: Path) -> None:
    path = written(tmp_path / "old.json", [event("cpu_op", "aten::mm PLACE", 5, 6)])
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"PLACE", b"\t\xff"))
    assert load(path).names == ("operator aten::mm \t\ufffd",)


def test_broken_events_are_counted_and_the_rest_is_read(tmp_path: Path) -> None:
    good = event("cpu_op", "aten::mm", 5, 6)
    broken = [{**good, "ts": "soon"}, {**good, "dur": [1]}, {**good, "ts": -4}, {**good, "ts": 10**30}]
    del broken[0]["name"]
    run = load(written(tmp_path / "t.json", [*broken, {**good, "args": None}, 7, {**good, "tid": 10**30}]))
    assert run.problems == (Notice("events-without-time", {"file": "t.json", "events": 4}),)
    assert len(run.regions) == 2
