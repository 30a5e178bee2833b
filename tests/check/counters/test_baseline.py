"""A baseline through its file and back, what an update changes in it, and files that are refused."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

import profiler
from profiler.check.counters.baseline import (
    BaselineSection,
    as_processes,
    former_counters,
    former_script,
    loosened_counters,
    other_command,
    previous,
    read,
    read_sections,
    recorded_steps,
    remaining_sections,
    section_from,
    write,
)
from profiler.check.counters.compare import compare
from profiler.check.model import FAIL, PASS, CountedLine, Limits
from profiler.core.errors import Exit, Notice, ProfilerError
from tests.fakes.counting import at, lines_of, one
from tests.fakes.programs import ROOT
from tests.recorded.builders import RunBuilder

NOW = datetime(2026, 1, 2, 3, 4, 5, 678, UTC)
LINES = lines_of(at(9, 20, 'name = "ä"  # …'), at(7, 40, "loss.item()"), at(3, 1, file="lib/a.py"))
COUNTED = (
    one(syncs=61, h2d=0, h2d_bytes=123_456_789_012, workers={"tokenized": 160}, lines=LINES),
    one(syncs=62, h2d=0, h2d_bytes=123_456_789_012, workers={"tokenized": 160}, lines=LINES),
)


def baseline(*counted: Any, command: str = "python train.py", reason: str = "", **facts: Any) -> BaselineSection:
    run = RunBuilder(**{"device": "cpu", "preset": "tiny", **facts}).build()
    return section_from(counted or COUNTED, run, command, reason=reason, now=NOW)


def edited(section: BaselineSection, **changes: Any) -> BaselineSection:
    return section.model_copy(update=changes)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with two sections."""
    write(tmp_path / "counters.json", baseline())
    write(tmp_path / "counters.json", baseline(device="cuda"))
    return tmp_path / "counters.json"


def test_a_section_comes_back_as_it_was_written(path: Path) -> None:
    section = baseline()
    assert read(path) == read(path, section.key) == section
    assert (section.steps, section.processes) == (20, 2)
    assert (section.tool, section.updated_at) == (profiler.__version__, "2026-01-02T03:04:05+00:00")
    assert section.counters == {"syncs": (3.05, 3.1), "h2d": (0, 0), "h2d_bytes": (6172839450.6, 6172839450.6)}
    text = path.read_text(encoding="utf-8")
    for line in (
        '        "h2d": 0,',
        '        "syncs": [3.05, 3.1]',  # sorted, the last one without a comma
        '        ["syncs", "train.py", 7, "main", "item", 2, "loss.item()"],',
    ):
        assert line in text.splitlines()
    assert '"name = \\"ä\\"  # …"' in text, "as it stands in the program"
    assert text.endswith("}\n")


def write_second_layout(path: Path, section: BaselineSection) -> None:
    stored = {**section.content(), "checksum": section.digest()}
    path.write_text(json.dumps({"what": "", "schema": 2, "sections": [stored]}))


def test_a_file_with_the_secret_of_a_command_is_read_without_it(tmp_path: Path) -> None:
    given = "python train.py --api-key=hunter2"
    section = baseline(command=given)
    assert section.command == "python train.py '--api-key=***'"
    former = edited(section, command=given, key={**section.key, "arguments": "--api-key hunter2"})
    write_second_layout(tmp_path / "counters.json", former)
    found = read(tmp_path / "counters.json")
    assert (found.command, found.key["arguments"]) == (section.command, "--api-key '***'")
    assert other_command(found, given, "") == ()


def test_a_check_counts_as_many_steps_as_the_file_has_for_its_command(tmp_path: Path) -> None:
    file = tmp_path / "counters.json"
    for steps, arguments in ((20, "--small"), (50, "--large"), (7, "--large --other")):
        write(file, edited(baseline(), steps=steps, key={**baseline().key, "arguments": arguments}))

    def steps(command: str, *, is_counted: bool = False) -> int | None:
        return recorded_steps(file, command.split(), "", is_counted=is_counted)

    assert steps("python train.py --small") == 20
    assert steps("/usr/bin/python3 train.py --large") == 50
    assert steps("python train.py --large", is_counted=True) is None, "no section is for this, and the file has several"
    assert steps("python train.py --new") is None
    assert steps("python other.py") is None


def test_the_checked_in_baselines_are_written_as_they_are(tmp_path: Path) -> None:
    for checked_in in sorted((ROOT / ".ci").glob("counters-*.json")):
        copy = tmp_path / checked_in.name
        for section in read_sections(checked_in):
            write(copy, section)
        assert copy.read_bytes() == checked_in.read_bytes()


def test_processes_compare_to_their_own_section(path: Path) -> None:
    base = as_processes(read(path))
    assert [process.totals for process in base] == [process.totals for process in COUNTED], "to the last byte"
    found = compare(base, COUNTED, Limits())
    assert {line.state for line in found} == {PASS}
    assert all(line.changes == () for line in found)
    more = tuple(replace(one, totals={**one.totals, "h2d_bytes": one.totals["h2d_bytes"] + 1}) for one in base)
    assert [line.counter for line in compare(base, more, Limits()) if line.state == FAIL] == ["h2d_bytes"]


def test_lines_that_moved_are_recognised_by_their_text(path: Path) -> None:
    moved = lines_of(
        at(10, 20, 'name = "ä"  # …'), at(8, 40, "loss.item()"), at(6, 20, "new"), at(4, 1, file="lib/a.py")
    )
    after = [one(syncs=500, h2d=0, h2d_bytes=1, lines=moved)] * 2
    found = compare(as_processes(read(path)), after, Limits())
    (line,) = (line for line in found if (line.counter, line.scope) == ("syncs", "step"))
    assert [(change.file, change.line) for change in line.changes] == [("train.py", 6)]


def test_the_same_command_gives_the_same_section_on_every_machine_and_from_anywhere(tmp_path: Path) -> None:
    first = baseline(command="/usr/bin/python3 train.py --data /srv/me/data", cwd="/srv/me")
    assert baseline(command="/ci/.venv/bin/python3 train.py --data /ci/work/data", cwd="/ci/work") == first
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    inside = baseline(command="python train.py", cwd=str(project))
    for folder, command in ((tmp_path, f"python {project}/train.py"), (tmp_path, "python project/train.py")):
        assert baseline(command=command, cwd=str(folder)).command == inside.command == "python train.py"


def test_another_command_raises_a_warning() -> None:
    section = baseline(command="/ci/bin/python train.py --data /ci/work/data", cwd="/ci/work")
    assert other_command(section, "/mine/bin/python train.py --data /mine/data", "/mine") == ()
    found = other_command(section, "/mine/bin/python train.py --data other", "/mine")
    assert found == (Notice("other-command", {"command": "python train.py --data data"}),)


def test_processes_must_have_taken_equally_many_steps() -> None:
    with pytest.raises(ProfilerError, match="these took 20 and 21 steps"):
        baseline(one(20, syncs=1), one(21, syncs=1))
    with pytest.raises(ProfilerError, match="took no steps"):
        section_from((), RunBuilder().build(), "")


# ---------------------------------------------------------------- several sections


def test_sections_have_a_fixed_order_and_the_nearest_one_is_read(path: Path, tmp_path: Path) -> None:
    for section in reversed(read_sections(path)):
        assert write(tmp_path / "reversed.json", section)
    assert (tmp_path / "reversed.json").read_bytes() == path.read_bytes()
    assert read(path, baseline(device="cuda").key) == baseline(device="cuda")
    assert read(path, {**baseline().key, "device": "rocm"}) == baseline()


def test_an_update_replaces_the_section_of_its_key(path: Path) -> None:
    new = baseline(one(syncs=1), reason="one sync more for the new metric \udcff")
    assert previous(path, new.key) == (baseline(), "")
    assert write(path, new)
    assert read_sections(path) == (new, baseline(device="cuda"))
    assert new.reason == "one sync more for the new metric ?"


def test_an_update_that_changes_nothing_leaves_the_file_alone(path: Path) -> None:
    before = path.stat()
    assert not write(path, edited(baseline(), updated_at="2027-01-01T00:00:00+00:00", tool="99", reason="again"))
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == (before.st_mtime_ns, before.st_ino)


# ---------------------------------------------------------------- what an update loosens


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({"syncs": (1, 1)}, {"syncs": (1, 1)}, ()),
        ({"syncs": (2, 2)}, {"syncs": (1, 1)}, ()),
        ({"syncs": (1, 2)}, {"syncs": (1, 1)}, ()),
        ({"syncs": (1, 2)}, {"syncs": (2, 2)}, ()),
        ({"syncs": (1, 1)}, {"syncs": (2, 2)}, ("syncs: 1 -> 2 per step",)),
        ({"syncs": (1, 2)}, {"syncs": (1, 3)}, ("syncs: 1 to 2 -> 1 to 3 per step",)),
        ({"syncs": (2, 2)}, {"syncs": (1, 2)}, ("syncs: always 2 before, 1 to 2 per step now",)),
        ({"syncs": (1, 1)}, {}, ("syncs: 1 per step before, not counted any more",)),
        ({}, {"syncs": (1, 1)}, ()),
        (
            {"h2d": (0, 0), "d2h": (0, 0)},
            {"h2d": (0.05, 0.05), "d2h": (1, 1)},
            ("d2h: 0 -> 1 per step", "h2d: 0 -> 0.05 per step"),
        ),
    ],
)
def test_what_loosens(old: Mapping[str, Any], new: Mapping[str, Any], expected: tuple[str, ...]) -> None:
    section = baseline()
    before, after = (edited(section, counters=counters, workers={}) for counters in (old, new))
    assert tuple(loosened_counters(before, after)) == expected
    before, after = (edited(section, workers=counters) for counters in (old, new))
    assert tuple(loosened_counters(before, after)) == tuple(
        line.replace(":", " in loader workers:", 1) for line in expected
    )


def test_counters_that_gate_nothing_loosen_nothing() -> None:
    old = baseline()
    ungated = edited(old, counters={"might_sync": (1, 1)})
    more = edited(ungated, counters={"might_sync": (8, 9)})
    assert not [line for line in loosened_counters(ungated, more) if "might" in line], "it gates nothing"


def test_a_line_that_is_new_loosens_although_another_one_is_gone() -> None:
    before, after = (
        edited(baseline(one(syncs=20, lines=lines_of(at(*where, counter="syncs")))), counters={"syncs": (1, 1)})
        for where in ((9, 20, "a.item()"), (30, 20, "history.append(norm.item())"))
    )
    assert tuple(loosened_counters(before, after)) == ("syncs at train.py:30: 0 -> 1 per step",)
    assert tuple(loosened_counters(before, before)) == ()


def test_a_file_of_the_first_layout_is_refused_and_may_be_replaced(tmp_path: Path) -> None:
    path = tmp_path / "counters.json"
    path.write_text('{"what": "", "schema": 1, "sections": []}')
    with pytest.raises(ProfilerError, match=r"layout of an old version \(schema 1\).*--update REASON"):
        read_sections(path)
    assert "layout of an old version" in previous(path, {})[1]
    assert write(path, baseline())
    assert len(read_sections(path)) == 1


def test_a_script_is_renamed_if_it_is_gone_and_nothing_else_differs(tmp_path: Path) -> None:
    section = edited(baseline(command="python train.py"), key={"program": "train.py", "device": "cpu"})
    assert former_script(section, {"program": "fit.py", "device": "cpu"}, str(tmp_path)) == {"program": "fit.py"}
    assert former_script(section, {"program": "fit.py", "device": "cuda"}, str(tmp_path)) == {}
    (tmp_path / "train.py").touch()
    assert former_script(section, {"program": "fit.py", "device": "cpu"}, str(tmp_path)) == {}


def test_what_the_second_layout_counted_otherwise_is_left_out(tmp_path: Path) -> None:
    """The bytes of tensors, and 0 of what needs a device where there is none."""
    counted = one(files=1, h2d=0, h2d_bytes=1, peak_bytes=9)
    write_second_layout(tmp_path / "counters.json", baseline(counted))
    assert read(tmp_path / "counters.json").counters.keys() == {"files", "h2d_bytes"}
    write_second_layout(tmp_path / "counters.json", edited(baseline(counted), key={"device": "cuda"}))
    assert "h2d" in read(tmp_path / "counters.json").counters


FORMER = one(
    would_sync=20,
    might_sync=20,
    evaluation_would_sync=2,
    would_sync_in_loader=8,
    workers={"would_sync": 160, "tokenized": 4},
    lines=lines_of(at(9, 20, "loss.item()", counter="would_sync")),
)


@pytest.mark.parametrize("write_file", [write, write_second_layout])
def test_reads_of_which_a_former_version_guessed_the_device_are_not_compared(
    tmp_path: Path, write_file: Callable[[Path, BaselineSection], object]
) -> None:
    write_file(tmp_path / "counters.json", baseline(FORMER))
    section = read(tmp_path / "counters.json")
    now = one(might_sync=60, workers={"tokenized": 4})
    lines = compare(as_processes(section), (now, now), Limits())
    assert {line.counter: line.state for line in lines} == {"might_sync": PASS, "tokenized": PASS}
    assert former_counters(section) == (Notice("former-counter"),)
    assert tuple(loosened_counters(section, baseline(now))) == ()
    assert former_counters(baseline(now)) == ()


# ---------------------------------------------------------------- what an update leaves


def test_remaining_sections_are_listed_with_a_hint_where_their_script_is_gone(tmp_path: Path) -> None:
    file, written = tmp_path / "counters.json", baseline(device="cuda")
    (tmp_path / "train.py").touch()
    write(file, written)
    assert [*remaining_sections(file, written, str(tmp_path))] == []
    for command, facts in (
        ("python train.py", {}),
        ("python old.py --fast", {"device": "host"}),
        ("python -m mine", {"preset": "large"}),
    ):
        write(file, baseline(command=command, **facts))
    gone = "there is no old.py any more: if it was renamed, delete that section"
    assert [*remaining_sections(file, written, str(tmp_path))] == [
        "left as it was: python -m mine (device cpu, preset large)",
        "left as it was: python train.py (device cpu)",
        f"left as it was: python old.py --fast (device host); {gone}",
    ]


# ---------------------------------------------------------------- laid out by others


def test_another_layout_of_the_same_content_is_read(path: Path) -> None:
    """What formatters, version control and editors do to a file: line ends, order, indentation, a byte order mark."""
    text, sections = path.read_text(encoding="utf-8"), read_sections(path)
    value = json.loads(text)
    mixed = json.loads(text, object_pairs_hook=lambda pairs: dict(reversed(pairs)))
    for other in (
        text.replace("\n", "\r\n").encode(),
        b"\xef\xbb\xbf" + text.encode(),
        json.dumps(mixed, indent=8).encode(),
        json.dumps(value, ensure_ascii=False, sort_keys=True, indent="\t").encode(),
        text.replace('"h2d": 0,', '"h2d": 0.0,').encode(),
        text.rstrip("\n").encode(),
    ):
        path.write_bytes(other)
        assert read_sections(path) == sections, other[:60]
    del value["sections"][0]
    path.write_text(json.dumps(value), encoding="utf-8")
    assert read_sections(path) == sections[1:], "a section may be deleted by hand"


def test_updates_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    file, kinds = tmp_path / "counters.json", [f"kind {number}" for number in range(8)]
    children = [get_context("fork").Process(target=write, args=(file, baseline(device=kind))) for kind in kinds]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert {child.exitcode for child in children} == {0}
    assert {found.key["device"] for found in read_sections(file)} == set(kinds)
    assert [path.name for path in tmp_path.iterdir()] == [file.name]


# ---------------------------------------------------------------- refused


def refused(path: Path) -> str:
    with pytest.raises(ProfilerError) as caught:
        read_sections(path)
    text = str(caught.value)
    assert "\n" not in text
    assert str(path) in text
    assert caught.value.exit_code == Exit.USAGE
    return text


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b" \r\n\n", "is empty"),
        (bytes(4096), "is empty"),  # what a crash leaves of a path on some path systems
        (b"\x89PNG\r\n\x1a\n\x00\x00", "is not text in UTF-8"),
        (b"{", "is not JSON (line 1, column 2"),
        (b"null", "has no valid schema (None)"),
        (b"[]", "has no valid schema"),
        (b'{"schema": 0}', "has no valid schema (0)"),
        (b'{"schema": "1"}', "has no valid schema ('1')"),
        (b'{"schema": true}', "has no valid schema (True)"),
        (b'{"schema": 2}', "is damaged at what: Field required"),
        (b'{"schema": 2, "what": "", "sections": []}', "is damaged at sections: "),
        (b'{"schema": 2, "what": "", "sections": [1]}', "is damaged at sections.0: "),
        (b'{"schema": 2, "what": "", "sections": [{}]}', "is damaged at sections.0.key: Field required"),
        (b'{"schema": 2, "what": "", "sections": [], "more": 1}', "is damaged at "),
        (b'{"schema": 1, "schema": 1}', "has 'schema' twice in one object"),
        (b'{"schema": NaN}', "has no valid schema"),
        (b"1" * 5000, "Exceeds the limit"),
        (b"[" * 100_000, "(RecursionError)"),
    ],
)
def test_what_is_not_a_baseline(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "counters.json"
    path.write_bytes(content)
    text = refused(path)
    assert words in text
    assert text.endswith("restore it from version control, or replace all of it with --update REASON")
    assert "write one with --update" in refused(tmp_path / "none.json")
    assert "Is a directory" in refused(tmp_path)


def test_a_newer_schema_is_not_called_damage_and_never_replaced(path: Path) -> None:
    text = path.read_text(encoding="utf-8").replace('"schema": 3', '"schema": 4')
    path.write_text(text, encoding="utf-8")
    assert "was written by a newer version of the profiler (schema 4, this one reads 3): update it" in refused(path)
    for touch in (lambda: write(path, baseline()), lambda: previous(path, baseline().key)):
        with pytest.raises(ProfilerError, match="newer version"):
            touch()
    assert path.read_text(encoding="utf-8") == text
    assert [path.name for path in path.parent.iterdir()] == ["counters.json"]


Change = Callable[[dict[str, Any]], object]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda section: section["counters"].update(h2d=5), "was edited by hand"),
        (lambda section: section["counters"].pop("h2d"), "was edited by hand"),
        (lambda section: section.update(steps=21), "was edited by hand"),
        (lambda section: section.update(checksum="0" * 32), "was edited by hand"),
        (lambda section: section.pop("checksum"), "sections.0.checksum: Field required"),
        (lambda section: section.pop("counters"), "sections.0.counters: Field required"),
        (lambda section: section.update(more=1), "sections.0.more"),
        (lambda section: section["key"].update(device=1), "sections.0.key.device: "),
        (lambda section: section.update(command=None), "sections.0.command: "),
        (lambda section: section.update(steps=0), "sections.0.steps: "),
        (lambda section: section.update(steps=20.0), "sections.0.steps: "),
        (lambda section: section.update(processes=True), "sections.0.processes: "),
        (lambda section: section["counters"].update(h2d=-1), "sections.0.counters.h2d"),
        (lambda section: section["counters"].update(h2d=True), "sections.0.counters.h2d"),
        (lambda section: section["counters"].update(h2d="1"), "sections.0.counters.h2d"),
        (lambda section: section["counters"].update(h2d=10**400), "sections.0.counters.h2d"),
        (lambda section: section["counters"].update(h2d=[2, 1]), "sections.0.counters.h2d"),
        (lambda section: section["counters"].update(h2d=[1, 2, 3]), "sections.0.counters.h2d"),
        (lambda section: section["sites"].append([]), "sections.0.sites.3"),
        (lambda section: section["sites"][0].__setitem__(2, -1), "sections.0.sites.0"),
        (lambda section: section["sites"][0].__setitem__(5, -5), "sections.0.sites.0"),
    ],
)
def test_a_section_that_was_changed(path: Path, change: Change, words: str) -> None:
    value = json.loads(path.read_text(encoding="utf-8"))
    change(value["sections"][0])
    path.write_text(json.dumps(value), encoding="utf-8")
    assert words in refused(path)


def test_what_is_not_an_amount(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for number in ("NaN", "Infinity", "1e999", "-0.5"):
        path.write_text(text.replace('"h2d": 0', f'"h2d": {number}'), encoding="utf-8")
        refused(path)


def test_a_merge_conflict_and_a_merge_that_took_both_sides_are_called_so(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    lines, value = text.splitlines(), json.loads(text)
    lines[20:21] = ["<<<<<<< HEAD", lines[20], "=======", lines[20], ">>>>>>> branch"]
    for end in ("\n", "\r\n"):
        path.write_bytes(end.join(lines).encode())
        assert "has the marks of a merge conflict in line 21" in refused(path)
    value["sections"].append(value["sections"][0])
    path.write_text(json.dumps(value), encoding="utf-8")
    assert "has two sections of one key (section 3 is the second), as after a merge" in refused(path)


def test_an_update_replaces_what_is_damaged_and_says_that_nothing_is_known_of_it(path: Path) -> None:
    path.write_text(path.read_text(encoding="utf-8").replace('"h2d": 0', '"h2d": 9'), encoding="utf-8")
    old, why = previous(path, baseline().key)
    assert old is None
    assert why.startswith("the file was edited by hand, or is damaged (")
    assert why.endswith("none of its sections is kept: version control may have them"), "nothing about --update"
    assert write(path, baseline())
    assert read_sections(path) == (baseline(),)


# ---------------------------------------------------------------- at random


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """One section of a few lines: what is at each byte is tried."""
    counted = one(syncs=21, workers={"syncs": 7}, lines=lines_of(at(9, 20, "loss.item()")))
    write(tmp_path / "counters.json", baseline(counted, counted))
    return tmp_path / "counters.json"


def fuzzed(path: Path, content: bytes, expected: tuple[BaselineSection, ...]) -> bool:
    """Whether it was refused; anything but that and an equal reading fails."""
    path.write_bytes(content)
    try:
        found = read_sections(path)
    except ProfilerError as error:
        text = str(error)
    else:
        assert found == expected, "read as something else"
        return False
    assert "\n" not in text
    assert text.endswith(("--update REASON", "update it")), text
    return True


def test_every_byte_changed(small: Path) -> None:
    whole, expected, of = small.read_bytes(), read_sections(small), random.Random(7)
    refusals = 0
    for place in range(len(whole)):
        mutated = bytearray(whole)
        mutated[place] = of.choice([byte for byte in b'0123456789eE.-+"{}[],: \nax\x00\xff' if byte != whole[place]])
        refusals += fuzzed(small, bytes(mutated), expected)
    free = whole.count(b" ") + whole.count(b"\n") + 100
    assert refusals > len(whole) - free, f"{refusals} of {len(whole)}: only layout and the heading are free"


def test_every_line_left_out_doubled_and_moved(path: Path) -> None:
    whole, expected = path.read_bytes().splitlines(keepends=True), read_sections(path)
    for number in range(len(whole)):
        rest = [*whole[:number], *whole[number + 1 :]]
        assert fuzzed(path, b"".join(rest), expected), f"without line {number + 1}: {whole[number]!r}"
        twice = b"".join([*whole[: number + 1], *whole[number:]])
        assert fuzzed(path, twice, expected), f"line {number + 1} twice"
        rest.insert((number + 7) % len(rest), whole[number])
        fuzzed(path, b"".join(rest), expected)


def test_every_end_torn_off(small: Path) -> None:
    whole, expected = small.read_bytes(), read_sections(small)
    for length in range(len(whole) - 1):
        assert fuzzed(small, whole[:length], expected), f"{length} of {len(whole)} bytes"
    assert not fuzzed(small, whole[:-1], expected), "but for the last line's end"


def test_the_stage_of_a_wait_is_stored_and_a_file_of_the_second_layout_is_read_without_memory(tmp_path: Path) -> None:
    """Its memory counts the bytes of tensors, and not blocks."""
    lines = {
        CountedLine("syncs", "train.py", 9, "main", "item", "loss.item()", "after"): 20.0,
        CountedLine("h2d", "train.py", 7, "main", "to", "x.to(device)"): 20.0,
    }
    path = tmp_path / "counters.json"
    section = baseline(one(syncs=20, h2d=20, peak_bytes=7180, lines=lines))
    write(path, section)
    assert '["syncs", "train.py", 9, "main", "item", 1, "loss.item()", "after"]' in path.read_text(encoding="utf-8")
    (low, _) = as_processes(read(path))
    assert low.lines == lines
    former = edited(section, sites=tuple(row._replace(stage="") for row in section.sites))
    write_second_layout(path, former)
    (found,) = read_sections(path)
    assert found.counters == {"syncs": (1, 1), "h2d": (1, 1)}
    assert {row.stage for row in found.sites} == {""}
