"""A baseline that this tool did not write so: refused in one line with exit code 2, or read as equal. Nothing else."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from profiler.check.baseline import Baseline, previous, read, sections, write
from profiler.core.errors import Exit, ProfilerError
from tests.check.test_baseline import baseline
from tests.fakes.counting import at, lines_of, one


@pytest.fixture
def file(tmp_path: Path) -> Path:
    write(tmp_path / "counters.json", baseline())
    write(tmp_path / "counters.json", baseline(device="cuda"))
    return tmp_path / "counters.json"


def refused(file: Path) -> str:
    with pytest.raises(ProfilerError) as caught:
        sections(file)
    text = str(caught.value)
    assert "\n" not in text
    assert str(file) in text
    assert caught.value.exit_code == Exit.USAGE
    return text


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b" \r\n\n", "is empty"),
        (bytes(4096), "is empty"),  # what a crash leaves of a file on some file systems
        (b"\x89PNG\r\n\x1a\n\x00\x00", "is no text in UTF-8"),
        (b"{", "is no JSON (line 1, column 2"),
        (b"null", "says no schema"),
        (b"[]", "says no schema"),
        (b"{}", "says no schema"),
        (b'{"schema": 0}', "has no schema that there ever was (0)"),
        (b'{"schema": "1"}', "has no schema that there ever was ('1')"),
        (b'{"schema": true}', "has no schema that there ever was (True)"),
        (b'{"schema": 1}', "lacks what in the file"),
        (b'{"schema": 1, "what": "", "sections": []}', "has no sections"),
        (b'{"schema": 1, "what": "", "sections": {}}', "has no sections"),
        (b'{"schema": 1, "what": "", "sections": [1]}', "has no section where section 1 should be"),
        (b'{"schema": 1, "what": "", "sections": [{}]}', "lacks key in section 1"),
        (b'{"schema": 1, "what": "", "sections": [], "more": 1}', "has 'more' in the file, which this tool does not"),
        (b'{"schema": 1, "schema": 1}', "has 'schema' twice in one place"),
        (b'{"schema": NaN}', "has NaN where a number should be"),
        (b'{"schema": -Infinity}', "has -Infinity where a number should be"),
        (b"1" * 5000, "is no JSON that this tool wrote (ValueError)"),
        (b"[" * 100_000, "is no JSON that this tool wrote (RecursionError)"),
    ],
)
def test_what_is_no_baseline(tmp_path: Path, content: bytes, words: str) -> None:
    file = tmp_path / "counters.json"
    file.write_bytes(content)
    text = refused(file)
    assert words in text
    assert text.endswith("restore it from version control, or replace all of it with --update --reason TEXT")


def test_a_file_that_is_not_there_or_cannot_be_read(tmp_path: Path) -> None:
    assert "write one with --update" in refused(tmp_path / "none.json")
    assert "Is a directory" in refused(tmp_path)


def test_a_newer_schema_is_not_called_damage_and_never_replaced(file: Path) -> None:
    text = file.read_text(encoding="utf-8").replace('"schema": 1', '"schema": 2')
    file.write_text(text, encoding="utf-8")
    assert "was written by a newer version of the profiler (schema 2, this one knows 1): update it" in refused(file)
    for touch in (lambda: write(file, baseline()), lambda: previous(file, baseline().key)):
        with pytest.raises(ProfilerError, match="newer version"):
            touch()
    assert file.read_text(encoding="utf-8") == text
    assert [path.name for path in file.parent.iterdir()] == ["counters.json"]


Change = Callable[[dict[str, Any]], object]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda one: one["counters"].update(h2d=5), "was changed by hand"),
        (lambda one: one["counters"].pop("h2d"), "was changed by hand"),
        (lambda one: one["workers"].clear(), "was changed by hand"),
        (lambda one: one["sites"].pop(), "was changed by hand"),
        (lambda one: one.update(steps=21), "was changed by hand"),
        (lambda one: one.update(reason="because"), "was changed by hand"),
        (lambda one: one["key"].update(device="tpu"), "was changed by hand"),
        (lambda one: one.update(checksum="0" * 32), "was changed by hand"),
        (lambda one: one.update(checksum=None), "was changed by hand"),
        (lambda one: one.pop("checksum"), "lacks checksum in section 1"),
        (lambda one: one.pop("counters"), "lacks counters in section 1"),
        (lambda one: one.update(more=1), "has 'more' in section 1"),
        (lambda one: one.update(counters=[]), "has no table as counters of section 1"),
        (lambda one: one.update(key=[]), "has no table as key of section 1"),
        (lambda one: one["key"].update(device=1), "has no text as key of section 1"),
        (lambda one: one.update(command=None), "has no text as command of section 1"),
        (lambda one: one.update(steps=0), "has no whole number from 1 on as steps"),
        (lambda one: one.update(steps=20.0), "has no whole number from 1 on as steps"),
        (lambda one: one.update(processes=True), "has no whole number from 1 on as processes"),
        (lambda one: one["counters"].update(h2d=-1), "has -1 among the counters of section 1"),
        (lambda one: one["counters"].update(h2d=True), "has True among the counters"),
        (lambda one: one["counters"].update(h2d=None), "has None among the counters"),
        (lambda one: one["counters"].update(h2d="1"), "has '1' among the counters"),
        (lambda one: one["counters"].update(h2d=10**400), "among the counters of section 1, which no counter can be"),
        (lambda one: one["counters"].update(h2d=[1]), "which is no range"),
        (
            lambda one: one["counters"].update(h2d=[2, 1]),
            "has [2, 1] among the counters of section 1, which is no range",
        ),
        (lambda one: one["counters"].update(h2d=[1, 2, 3]), "which is no range"),
        (lambda one: one.update(sites={}), "has no list as sites"),
        (lambda one: one["sites"].append([]), "has [] among the sites of section 1, which is no site"),
        (lambda one: one["sites"][0].__setitem__(2, -1), "has no whole number from 0 on as sites"),
        (lambda one: one["sites"][0].__setitem__(0, 5), "has no text as sites"),
        (lambda one: one["sites"][0].__setitem__(5, -5), "among the sites"),
    ],
)
def test_a_section_that_was_changed(file: Path, change: Change, words: str) -> None:
    value = json.loads(file.read_text(encoding="utf-8"))
    change(value["sections"][0])
    file.write_text(json.dumps(value), encoding="utf-8")
    assert words in refused(file)


def test_numbers_that_are_none(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    for number, words in (
        ("NaN", "has NaN"),
        ("Infinity", "has Infinity"),
        ("1e999", "has inf among"),
        ("-0.5", "has -0.5"),
    ):
        file.write_text(text.replace('"h2d": 0', f'"h2d": {number}'), encoding="utf-8")
        assert words in refused(file)


def test_a_merge_conflict_is_called_so(file: Path) -> None:
    lines = file.read_text(encoding="utf-8").splitlines()
    lines[20:21] = ["<<<<<<< HEAD", lines[20], "=======", lines[20], ">>>>>>> branch"]
    for end in ("\n", "\r\n"):
        file.write_bytes(end.join(lines).encode())
        assert "has the marks of a merge conflict in line 21" in refused(file)


def test_a_merge_that_took_both_sides_is_found(file: Path) -> None:
    value = json.loads(file.read_text(encoding="utf-8"))
    value["sections"].append(value["sections"][0])
    file.write_text(json.dumps(value), encoding="utf-8")
    assert "has two sections of one key (section 3 is the second), as after a merge" in refused(file)


def test_an_update_replaces_what_is_damaged_and_says_that_nothing_is_known_of_it(file: Path) -> None:
    file.write_text(file.read_text(encoding="utf-8").replace('"h2d": 0', '"h2d": 9'), encoding="utf-8")
    old, why = previous(file, baseline().key)
    assert old is None
    assert why.startswith("the file was changed by hand, or damaged (")
    assert why.endswith("none of its sections is kept: version control may have them"), "nothing about --update"
    assert write(file, baseline())
    assert sections(file) == (baseline(),)


# ---------------------------------------------------------------- at random


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """One section of a few lines: what is at each byte is tried."""
    counted = one(would_sync=21, workers={"would_sync": 7}, lines=lines_of(at(9, 20, "loss.item()")))
    write(tmp_path / "counters.json", baseline(counted, counted))
    return tmp_path / "counters.json"


def fuzzed(file: Path, content: bytes, expected: tuple[Baseline, ...]) -> bool:
    """Whether it was refused; anything but that and an equal reading fails."""
    file.write_bytes(content)
    try:
        found = sections(file)
    except ProfilerError as error:
        text = str(error)
    else:
        assert found == expected, "read as something else"
        return False
    assert "\n" not in text
    assert text.endswith(("--update --reason TEXT", "update it")), text
    return True


def test_every_byte_changed(small: Path) -> None:
    whole, expected, of = small.read_bytes(), sections(small), random.Random(7)
    refusals = 0
    for place in range(len(whole)):
        mutated = bytearray(whole)
        mutated[place] = of.choice([byte for byte in b'0123456789eE.-+"{}[],: \nax\x00\xff' if byte != whole[place]])
        refusals += fuzzed(small, bytes(mutated), expected)
    free = whole.count(b" ") + whole.count(b"\n") + 100
    assert refusals > len(whole) - free, f"{refusals} of {len(whole)}: only layout and the heading are free"


def test_every_line_left_out_doubled_and_moved(file: Path) -> None:
    whole, expected = file.read_bytes().splitlines(keepends=True), sections(file)
    for number in range(len(whole)):
        rest = [*whole[:number], *whole[number + 1 :]]
        assert fuzzed(file, b"".join(rest), expected), f"without line {number + 1}: {whole[number]!r}"
        twice = b"".join([*whole[: number + 1], *whole[number:]])
        assert fuzzed(file, twice, expected), f"line {number + 1} twice"
        rest.insert((number + 7) % len(rest), whole[number])
        fuzzed(file, b"".join(rest), expected)


def test_every_end_torn_off(small: Path) -> None:
    whole, expected = small.read_bytes(), sections(small)
    for length in range(len(whole) - 1):
        assert fuzzed(small, whole[:length], expected), f"{length} of {len(whole)} bytes"
    assert not fuzzed(small, whole[:-1], expected), "but for the last line's end"


def test_a_file_that_cannot_be_replaced_by_its_own_reading(file: Path) -> None:
    """Reading is pure: nothing is written, however the file is."""
    before = file.read_bytes(), file.stat().st_mtime_ns
    read(file)
    assert (file.read_bytes(), file.stat().st_mtime_ns) == before
